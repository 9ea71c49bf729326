//! PNG, JPEG, WebP, GIF and BMP to RGB of 8 bits, within limits.

use std::io::Cursor;

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use crate::ImageError;

/// What decoding one image may cost. Checked by the header, before memory for pixels is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageLimits {
    /// Encoded bytes.
    pub max_bytes: usize,
    /// Width and height, in pixels.
    pub max_side: u32,
    /// Width times height. Decoding takes up to 16 bytes of memory for each pixel.
    pub max_pixels: u64,
}

impl Default for ImageLimits {
    /// 32 MiB, 16384 pixels a side and 64 Mi pixels: more than cameras of today make.
    fn default() -> Self {
        ImageLimits { max_bytes: 32 << 20, max_side: 1 << 14, max_pixels: 1 << 26 }
    }
}

/// An image of 8-bit RGB with at least one pixel.
#[derive(Clone, PartialEq, Eq)]
pub struct Rgb {
    width: usize,
    height: usize,
    data: Vec<u8>,
}

impl Rgb {
    /// An image of `data`: `[height, width, 3]`. `None` if that is not its length, or zero.
    pub fn new(width: usize, height: usize, data: Vec<u8>) -> Option<Self> {
        let len = width.checked_mul(height)?.checked_mul(3)?;
        (len == data.len() && len > 0).then_some(Rgb { width, height, data })
    }

    /// In pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// In pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Red, green and blue of each pixel, row by row: `[height, width, 3]`.
    pub fn data(&self) -> &[u8] {
        &self.data
    }
}

impl std::fmt::Debug for Rgb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rgb({} x {})", self.width, self.height)
    }
}

/// The image that `bytes` hold, upright. Of an animation it is the first frame.
///
/// Grey, palette and 16-bit images become 8-bit RGB. Transparent pixels are laid over white, as by the image processor
/// of the reference (its loader of URLs drops alpha before that): what invisible pixels hold is arbitrary, and often
/// black like the text beside them.
///
/// # Errors
/// [`ImageError::Bytes`] and [`ImageError::Pixels`] before memory for pixels is taken, [`ImageError::Format`],
/// [`ImageError::Damaged`].
pub fn decode(bytes: &[u8], limits: &ImageLimits) -> Result<Rgb, ImageError> {
    let Opened { decoder, format, orientation } = open(bytes, limits)?;
    let mut image = DynamicImage::from_decoder(decoder).map_err(|error| damaged(format, error))?;
    image.apply_orientation(orientation);
    let (width, height) = (image.width() as usize, image.height() as usize);
    let data = match image.color().has_alpha() {
        true => over_white(&image.into_rgba8()),
        false => image.into_rgb8().into_raw(),
    };
    Ok(Rgb { width, height, data })
}

/// Width and height in pixels of the image that [`decode`] would make, by its header alone.
///
/// # Errors
/// Those of [`decode`], but damage behind the header is not seen.
pub fn size(bytes: &[u8], limits: &ImageLimits) -> Result<(usize, usize), ImageError> {
    use Orientation::{Rotate90, Rotate90FlipH, Rotate270, Rotate270FlipH};
    let Opened { decoder, orientation, .. } = open(bytes, limits)?;
    let (width, height) = decoder.dimensions();
    Ok(match orientation {
        Rotate90 | Rotate90FlipH | Rotate270 | Rotate270FlipH => (height as usize, width as usize),
        _ => (width as usize, height as usize),
    })
}

struct Opened<D> {
    decoder: D,
    format: &'static str,
    orientation: Orientation,
}

/// Reads the header and holds it against the limits.
fn open<'a>(bytes: &'a [u8], limits: &ImageLimits) -> Result<Opened<impl ImageDecoder + 'a>, ImageError> {
    let ImageLimits { max_bytes, max_side, max_pixels } = *limits;
    if bytes.len() > max_bytes {
        return Err(ImageError::Bytes { found: bytes.len(), limit: max_bytes });
    }
    let kind = image::guess_format(bytes).map_err(|_| ImageError::Format)?;
    let format = match kind {
        ImageFormat::Png => "PNG",
        ImageFormat::Jpeg => "JPEG",
        ImageFormat::WebP => "WebP",
        ImageFormat::Gif => "GIF",
        ImageFormat::Bmp => "BMP",
        _ => return Err(ImageError::Format),
    };
    let memory = |bytes: u64| {
        let mut limits = Limits::no_limits();
        limits.max_alloc = Some(bytes);
        limits
    };
    // The header comes with compressed parts of its own, such as colour profiles.
    let mut reader = ImageReader::with_format(Cursor::new(bytes), kind);
    reader.limits(memory(16 << 20));
    let mut decoder = reader.into_decoder().map_err(|error| damaged(format, error))?;
    let (width, height) = decoder.dimensions();
    if width.max(height) > max_side || u64::from(width) * u64::from(height) > max_pixels {
        return Err(ImageError::Pixels { width, height, max_side, max_pixels });
    }
    if width == 0 || height == 0 {
        return Err(damaged(format, "it has no pixels"));
    }
    // The frame of a GIF may be larger than its screen, which is what was looked at.
    decoder.set_limits(memory(max_pixels.saturating_mul(4))).map_err(|error| damaged(format, error))?;
    // Cameras store what the sensor saw and note how they were held. The reference turns images upright, and people
    // ask about what they see. A note that cannot be read is no reason to refuse the image.
    let orientation = match kind {
        ImageFormat::WebP => webp_exif(bytes).and_then(Orientation::from_exif_chunk),
        _ => decoder.orientation().ok(),
    };
    Ok(Opened { decoder, format, orientation: orientation.unwrap_or(Orientation::NoTransforms) })
}

/// The EXIF chunk of a WebP file. The decoder would take as much memory for it as the chunk's header says, up to 4 GiB.
fn webp_exif(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes.get(12..)?;
    loop {
        let (header, data) = rest.split_first_chunk::<8>()?;
        let size = u32::from_le_bytes(*header.last_chunk()?) as usize;
        let (chunk, next) = data.split_at_checked(size)?;
        if header.starts_with(b"EXIF") {
            return Some(chunk);
        }
        rest = next.get(size % 2..)?;
    }
}

fn damaged(format: &'static str, reason: impl ToString) -> ImageError {
    ImageError::Damaged { format, reason: reason.to_string() }
}

/// `[pixels, 4]` with alpha to `[pixels, 3]`, rounded to the nearest.
fn over_white(rgba: &[u8]) -> Vec<u8> {
    let over = |colour: u8, alpha: u8| {
        let (colour, alpha) = (u32::from(colour), u32::from(alpha));
        ((colour * alpha + 255 * (255 - alpha) + 127) / 255) as u8
    };
    rgba.as_chunks().0.iter().flat_map(|&[r, g, b, a]| [over(r, a), over(g, a), over(b, a)]).collect()
}
