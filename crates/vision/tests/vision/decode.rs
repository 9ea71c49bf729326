//! Small images of each format, and limits.

use std::io::Cursor;

use image::{DynamicImage, ExtendedColorType, ImageEncoder, ImageFormat, Luma, Rgb, RgbImage, Rgba, RgbaImage};
use kapitsa_vision::{ImageError, ImageLimits, decode, size};

fn encode(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(vec![]);
    image.into().write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// 3 x 2 pixels: red green blue, black white grey.
fn six() -> RgbImage {
    let colours = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [0; 3], [255; 3], [128; 3]];
    RgbImage::from_raw(3, 2, colours.concat()).unwrap()
}

fn decoded(bytes: &[u8]) -> (usize, usize, Vec<u8>) {
    let image = decode(bytes, &ImageLimits::default()).unwrap();
    assert_eq!(size(bytes, &ImageLimits::default()).unwrap(), (image.width(), image.height()));
    (image.width(), image.height(), image.data().to_vec())
}

#[test]
fn formats_without_loss_give_the_pixels() {
    for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Bmp, ImageFormat::Gif] {
        let image = DynamicImage::from(six());
        let image = if format == ImageFormat::Gif { image.into_rgba8().into() } else { image };
        assert_eq!(decoded(&encode(image, format)), (3, 2, six().into_raw()), "{format:?}");
    }
}

#[test]
fn jpeg_gives_nearly_the_pixels() {
    let image = RgbImage::from_fn(32, 16, |x, y| Rgb([100 + x as u8, 100 + y as u8, 90]));
    let (width, height, pixels) = decoded(&encode(image.clone(), ImageFormat::Jpeg));
    assert_eq!((width, height), (32, 16));
    assert!(pixels.iter().zip(image.as_raw()).all(|(a, b)| a.abs_diff(*b) < 12));
}

#[test]
fn grey_and_16_bits_become_rgb_of_8() {
    let grey = image::GrayImage::from_fn(2, 1, |x, _| Luma([x as u8 * 77]));
    assert_eq!(decoded(&encode(grey, ImageFormat::Png)), (2, 1, vec![0, 0, 0, 77, 77, 77]));
    let deep = image::ImageBuffer::<Rgb<u16>, _>::from_pixel(1, 1, Rgb([0, 0x8080, 0xffff]));
    assert_eq!(decoded(&encode(deep, ImageFormat::Png)), (1, 1, vec![0, 0x80, 0xff]));
}

#[test]
fn transparent_pixels_lie_over_white() {
    let pixels = [[0, 0, 0, 0], [10, 20, 30, 255], [0, 100, 255, 128]];
    let image = RgbaImage::from_raw(3, 1, pixels.concat()).unwrap();
    // Over white, Pillow's alpha_composite gives the same.
    let expected = vec![255, 255, 255, 10, 20, 30, 127, 177, 255];
    assert_eq!(decoded(&encode(image, ImageFormat::Png)), (3, 1, expected));
}

#[test]
fn the_first_frame_of_an_animation_is_the_image() {
    let mut bytes = vec![];
    let mut encoder = image::codecs::gif::GifEncoder::new(&mut bytes);
    for colour in [[255, 0, 0, 255], [0, 255, 0, 255]] {
        encoder.encode_frame(image::Frame::new(RgbaImage::from_pixel(2, 2, Rgba(colour)))).unwrap();
    }
    drop(encoder);
    assert_eq!(decoded(&bytes), (2, 2, [255, 0, 0].repeat(4)));
}

/// A note of how the camera was held, as EXIF.
fn exif(orientation: u8) -> Vec<u8> {
    let mut exif = b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
    exif.extend([orientation, 0, 0, 0, 0, 0, 0]);
    exif
}

fn write(mut encoder: impl ImageEncoder, exif: Vec<u8>) {
    encoder.set_exif_metadata(exif).unwrap();
    encoder.write_image(six().as_raw(), 3, 2, ExtendedColorType::Rgb8).unwrap();
}

fn png_with_exif(exif: Vec<u8>) -> Vec<u8> {
    let mut bytes = vec![];
    write(image::codecs::png::PngEncoder::new(&mut bytes), exif);
    bytes
}

#[test]
fn images_come_upright() {
    let turned = image::imageops::rotate90(&six());
    assert_eq!(decoded(&png_with_exif(exif(6))), (2, 3, turned.clone().into_raw()));
    let (mut webp, mut jpeg) = (vec![], vec![]);
    write(image::codecs::webp::WebPEncoder::new_lossless(&mut webp), exif(6));
    write(image::codecs::jpeg::JpegEncoder::new(&mut jpeg), exif(6));
    assert_eq!(decoded(&webp), (2, 3, turned.into_raw()));
    assert_eq!((decoded(&jpeg).0, decoded(&jpeg).1), (2, 3));
    let flipped = image::imageops::flip_horizontal(&six());
    assert_eq!(decoded(&png_with_exif(exif(2))), (3, 2, flipped.into_raw()));
    for unreadable in [exif(1), exif(9), b"MM".to_vec(), b"nonsense of some length".to_vec()] {
        assert_eq!(decoded(&png_with_exif(unreadable)), (3, 2, six().into_raw()));
    }
}

/// An image of each format.
pub(crate) fn samples() -> Vec<Vec<u8>> {
    let formats =
        [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP, ImageFormat::Bmp].map(|format| encode(six(), format));
    let clear = DynamicImage::from(six()).into_rgba8();
    let with_alpha =
        [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Gif].map(|format| encode(clear.clone(), format));
    formats.into_iter().chain(with_alpha).chain([png_with_exif(exif(6))]).collect()
}

#[test]
fn other_bytes_are_refused_in_one_line() {
    for bytes in [&b""[..], b"hello", b"%PDF-1.7", b"<svg xmlns=\"\"/>", b"II*\0\x08\0\0\0"] {
        let error = decode(bytes, &ImageLimits::default()).unwrap_err();
        assert_eq!(error.to_string(), "image format is not known; send PNG, JPEG, WebP, GIF or BMP");
    }
    for format in [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP, ImageFormat::Bmp] {
        let whole = encode(six(), format);
        let error = decode(&whole[..whole.len() / 2], &ImageLimits::default()).unwrap_err();
        assert!(matches!(error, ImageError::Damaged { .. }), "{format:?}: {error:?}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}

/// Headers of each format that announce `side` by `side` pixels, with nothing behind them.
fn bombs(side: u16) -> Vec<Vec<u8>> {
    let patched = |format, at: &[usize], value: &[u8]| {
        let mut bytes = encode(DynamicImage::from(six()).into_rgba8(), format);
        at.iter().for_each(|at| bytes[*at..][..value.len()].copy_from_slice(value));
        bytes
    };
    let wide = u32::from(side);
    let mut png = patched(ImageFormat::Png, &[16, 20], &wide.to_be_bytes());
    let crc = crc32(&png[12..29]);
    png[29..33].copy_from_slice(&crc.to_be_bytes());
    let gif = patched(ImageFormat::Gif, &[6, 8], &side.to_le_bytes());
    let bmp = patched(ImageFormat::Bmp, &[18, 22], &wide.to_le_bytes());
    let mut jpeg = encode(six(), ImageFormat::Jpeg);
    let frame = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    jpeg[frame + 5..frame + 7].copy_from_slice(&side.to_be_bytes());
    jpeg[frame + 7..frame + 9].copy_from_slice(&side.to_be_bytes());
    vec![png, gif, bmp, jpeg]
}

fn crc32(bytes: &[u8]) -> u32 {
    let bit = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| bit(crc)))
}

#[test]
fn images_beyond_the_limits_are_refused_by_their_headers() {
    for bytes in bombs(60_000) {
        for result in
            [decode(&bytes, &ImageLimits::default()).map(|_| ()), size(&bytes, &ImageLimits::default()).map(|_| ())]
        {
            let error = result.unwrap_err().to_string();
            let expected =
                "image is 60000 x 60000 pixels, at most 16384 a side and 67108864 in all are accepted; scale it down";
            assert_eq!(error, expected);
        }
    }
    let bytes = encode(six(), ImageFormat::Png);
    let limits = ImageLimits { max_bytes: bytes.len(), max_side: 3, max_pixels: 6 };
    assert!(decode(&bytes, &limits).is_ok());
    let too_wide = decode(&bytes, &ImageLimits { max_side: 2, ..limits });
    assert!(matches!(too_wide, Err(ImageError::Pixels { .. })), "{too_wide:?}");
    let too_many = decode(&bytes, &ImageLimits { max_pixels: 5, ..limits });
    assert!(matches!(too_many, Err(ImageError::Pixels { .. })), "{too_many:?}");
    let too_long = decode(&bytes, &ImageLimits { max_bytes: bytes.len() - 1, ..limits });
    assert!(matches!(too_long, Err(ImageError::Bytes { .. })), "{too_long:?}");
}

#[test]
fn headers_inside_of_images_take_no_memory_either() {
    // A frame of 65535 x 65535 pixels on a screen of 3 x 2.
    let mut gif = encode(DynamicImage::from(six()).into_rgba8(), ImageFormat::Gif);
    let frame = gif.windows(9).position(|bytes| bytes == [0x2c, 0, 0, 0, 0, 3, 0, 2, 0]).unwrap();
    gif[frame + 5..frame + 9].fill(0xff);
    let error = decode(&gif, &ImageLimits::default());
    assert!(matches!(error, Err(ImageError::Damaged { format: "GIF", .. })), "{error:?}");

    // EXIF of 4 GiB: it is left alone, the image is fine.
    let mut webp = vec![];
    write(image::codecs::webp::WebPEncoder::new_lossless(&mut webp), exif(6));
    let chunk = webp.windows(4).position(|bytes| bytes == b"EXIF").unwrap();
    webp[chunk + 4..chunk + 8].fill(0xff);
    assert_eq!(decoded(&webp), (3, 2, six().into_raw()));
}
