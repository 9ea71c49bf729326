//! Damaged images and senseless configs: every outcome but an error or a result is a bug.

use kapitsa_vision::{ImageLimits, MAX_PATCHES, Preprocessor, Rgb, decode, from_base64, from_data_url, size};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::decode::samples;

const LIMITS: ImageLimits = ImageLimits { max_bytes: 1 << 20, max_side: 512, max_pixels: 1 << 16 };

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) }
}

fn exercise(bytes: &[u8]) {
    let announced = size(bytes, &LIMITS);
    if let Ok(image) = decode(bytes, &LIMITS) {
        assert_eq!(announced.unwrap(), (image.width(), image.height()));
        assert_eq!(image.data().len(), image.width() * image.height() * 3);
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<u64>().prop_map(Value::from),
        (0u64..100_000).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        "\\PC{0,200}".prop_map(Value::from),
        prop::collection::vec(any::<f64>(), 0..4).prop_map(Value::from),
        Just(json!([0.5, 0.5, 0.5])),
        Just(json!({ "shortest_edge": 1, "longest_edge": 4096 })),
    ]
}

prop_compose! {
    fn any_config()(entries in prop::collection::vec((prop::sample::select(vec![
        "patch_size", "spatial_merge_size", "temporal_patch_size", "min_pixels", "max_pixels", "size", "image_mean",
        "image_std", "rescale_factor", "do_resize",
    ]), any_value()), 0..5)) -> Value {
        Value::Object(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn damaged_images_never_panic(
        sample in 0..samples().len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        end in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = samples().swap_remove(sample);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(end.map_or(bytes.len(), |end| end.index(bytes.len())));
        exercise(&bytes);
    }

    #[test]
    fn random_bytes_never_panic(
        magic in prop::sample::select(vec![
            &b""[..], b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR", b"\xff\xd8\xff", b"GIF89a", b"BM", b"RIFF\xff\0\0\0WEBPVP8 ",
            b"RIFF\xff\0\0\0WEBPVP8L", b"RIFF\xff\0\0\0WEBPVP8X",
        ]),
        rest in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        exercise(&[magic, &rest].concat());
    }

    #[test]
    fn any_text_is_bytes_or_an_error(text in "(data:[a-z/;]{0,12}base64,)?([A-Za-z0-9+/= ]|\\PC){0,60}") {
        let _ = (from_data_url(&text, &LIMITS), from_base64(&text, &LIMITS));
    }

    #[test]
    fn any_config_keeps_within_the_cap(
        tower in any_config(),
        images in any_config(),
        width in any::<usize>(),
        height in any::<usize>(),
        bits in 0u32..64,
    ) {
        match Preprocessor::from_config(&tower, Some(&images)) {
            Ok(preprocessor) => {
                let (width, height) = (width >> bits, height >> bits);
                if let Ok((rows, columns)) = preprocessor.grid(width, height) {
                    prop_assert!(rows * columns <= MAX_PATCHES && rows * columns > 0);
                    prop_assert!((1..=rows * columns).contains(&preprocessor.tokens(width, height).unwrap()));
                }
                let image = Rgb::new(3, 2, vec![7; 18]).unwrap();
                if preprocessor.grid(3, 2).is_ok_and(|(rows, columns)| rows * columns < 300) {
                    let patches = preprocessor.patches(&image).unwrap();
                    prop_assert!(patches.values.iter().all(|value| value.is_finite()));
                }
            }
            Err(error) => prop_assert!(error.to_string().len() < 500, "{}", error),
        }
    }
}
