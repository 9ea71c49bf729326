//! Patches against the image processor of transformers, and the sizes and settings around them.

use kapitsa_testkit::Tensors;
use kapitsa_vision::{ImageError, MAX_PATCHES, Preprocessor, Rgb};
use serde_json::{Value, json};

fn preprocessor(images: Value) -> Preprocessor {
    let tower = json!({ "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2 });
    Preprocessor::from_config(&tower, Some(&images)).unwrap()
}

#[test]
fn patches_match_the_reference() {
    let file = Tensors::fixture("oracle/vision/preprocess.safetensors");
    let limit = |key| file.i64(key)[0];
    let size = json!({ "shortest_edge": limit("min_pixels"), "longest_edge": limit("max_pixels") });
    let preprocessor = preprocessor(json!({ "size": size }));
    for index in 0..5 {
        let image = file.raw(&format!("{index}.rgb"));
        let [height, width, 3] = image.shape[..] else { panic!("{:?}", image.shape) };
        let patches = preprocessor.patches(&Rgb::new(width, height, image.data).unwrap()).unwrap();

        let grid = file.i64(&format!("{index}.grid_thw"));
        assert_eq!([1, patches.grid.0 as i64, patches.grid.1 as i64], grid[..], "image {index}");
        let expected = file.raw(&format!("{index}.pixel_values"));
        assert_eq!(expected.shape, [patches.grid.0 * patches.grid.1, 3 * 2 * 16 * 16]);
        assert_eq!(patches.tokens(), expected.shape[0] / 4);
        assert_eq!(preprocessor.tokens(width, height).unwrap(), patches.tokens());

        let expected = expected.f32().unwrap();
        assert_eq!(patches.values.len(), expected.len());
        let differences = patches.values.iter().zip(&expected).map(|(a, b)| (a - b).abs());
        let largest = differences.fold(0.0, f32::max);
        // Only the first image keeps its size. Pillow 13 takes the columns of the second first, which rounds otherwise.
        let allowed = if index == 0 { 1e-6 } else { 4.0 / 255.0 + 1e-6 };
        assert!(largest <= allowed, "image {index}: {largest}");
    }
}

#[test]
fn sharp_edges_are_resampled_by_line_first() {
    let tower = json!({ "patch_size": 32, "spatial_merge_size": 1, "temporal_patch_size": 1 });
    let images = json!({ "min_pixels": 1, "rescale_factor": 1, "image_mean": [0, 0, 0], "image_std": [1, 1, 1] });
    let level = |x: usize, y: usize| if (x * 7 + y * 13) % 5 < 2 { 255 } else { 0 };
    let pixels = (0..40 * 40).flat_map(|pixel| [level(pixel % 40, pixel / 40); 3]);
    let image = Rgb::new(40, 40, pixels.collect()).unwrap();
    let patches = Preprocessor::from_config(&tower, Some(&images)).unwrap().patches(&image).unwrap();
    // The third line of Pillow's `resize((32, 32), BICUBIC)`. Columns first would give 35 in place of 17.
    let expected = [122.0, 131.0, 144.0, 17.0, 113.0, 131.0, 144.0, 17.0, 113.0, 131.0];
    let line = &patches.values[2 * 32..][..expected.len()];
    assert!(line.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1.0), "{line:?}");
}

#[test]
fn patches_are_ordered_by_blocks_and_rows_by_channel_frame_line_and_column() {
    let tower = json!({ "patch_size": 2, "spatial_merge_size": 2, "temporal_patch_size": 2 });
    let images = json!({
        "min_pixels": 1, "rescale_factor": 1, "image_mean": [0, 0, 100], "image_std": [1, 2, 1], "max_pixels": 1000,
    });
    let preprocessor = Preprocessor::from_config(&tower, Some(&images)).unwrap();
    // Red counts pixels, green is constant, blue is the column.
    let pixels = (0..4 * 8).flat_map(|pixel| [pixel, 6, 100 + pixel % 8]);
    let patches = preprocessor.patches(&Rgb::new(8, 4, pixels.collect()).unwrap()).unwrap();
    assert_eq!((patches.grid, patches.tokens()), ((2, 4), 2));
    let first_pixels: Vec<f32> = patches.values.chunks(3 * 2 * 4).map(|row| row[0]).collect();
    assert_eq!(first_pixels, [0.0, 2.0, 16.0, 18.0, 4.0, 6.0, 20.0, 22.0]);
    let (red, green, blue) = ([2.0, 3.0, 10.0, 11.0], [3.0; 4], [2.0, 3.0, 2.0, 3.0]);
    assert_eq!(patches.values[24..48], [red, red, green, green, blue, blue].concat());
}

#[test]
fn sizes_follow_the_reference() {
    // As computed by `smart_resize(height, width, 32, min, max)` of transformers 5.24, in patches of 16.
    for (width, height, min, max, grid) in [
        (640, 480, 65536, 4194304, (30, 40)),
        (80, 112, 1, 4194304, (8, 4)),
        (48, 16, 1, 4194304, (2, 2)),
        (1, 1, 65536, 4194304, (16, 16)),
        (200, 1, 65536, 4194304, (2, 228)),
        (33, 5000, 65536, 4194304, (312, 2)),
        (4032, 3024, 65536, 4194304, (110, 146)),
        (2048, 2048, 65536, 4194304, (128, 128)),
        (2080, 2080, 65536, 4194304, (128, 128)),
        (257, 255, 65536, 4194304, (16, 16)),
        (10000, 50, 1, 16384, (2, 112)),
        (256, 256, 65536, 4194304, (16, 16)),
        (31, 63, 4096, 8192, (6, 4)),
    ] {
        let preprocessor = preprocessor(json!({ "min_pixels": min, "max_pixels": max }));
        assert_eq!(preprocessor.grid(width, height).unwrap(), grid, "{width} x {height}, {min} to {max}");
    }
}

#[test]
fn slivers_and_empty_images_are_refused() {
    let preprocessor = preprocessor(json!({}));
    assert!(preprocessor.grid(200, 1).is_ok());
    for (width, height) in [(201, 1), (1, 201), (0, 5), (5, 0), (usize::MAX, 1)] {
        let error = preprocessor.grid(width, height);
        assert!(matches!(error, Err(ImageError::AspectRatio { .. })), "{width} x {height}: {error:?}");
    }
}

#[test]
fn no_image_takes_more_than_the_cap() {
    let config = json!({ "size": { "shortest_edge": 65536, "longest_edge": 16777216 } });
    assert_eq!(preprocessor(config.clone()), preprocessor(json!({})));
    assert_eq!(preprocessor(config).grid(8000, 8000).unwrap(), (128, 128));
    let largest = MAX_PATCHES * 256;
    let rounded_up = preprocessor(json!({ "min_pixels": largest, "max_pixels": largest })).grid(2047, 1000);
    assert!(matches!(rounded_up, Err(ImageError::Patches { limit: MAX_PATCHES, .. })), "{rounded_up:?}");
}

#[test]
fn configs_are_read_and_checked() {
    let defaults = Preprocessor::from_config(&json!({}), None).unwrap();
    assert_eq!(
        defaults,
        preprocessor(json!({ "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "size": null }))
    );
    // The older names come first.
    let both =
        json!({ "size": { "shortest_edge": 3136, "longest_edge": 9999999 }, "min_pixels": 1024, "max_pixels": 4096 });
    assert_eq!(preprocessor(both), preprocessor(json!({ "min_pixels": 1024, "max_pixels": 4096 })));

    let refused =
        |tower: Value, images: Value| Preprocessor::from_config(&tower, Some(&images)).unwrap_err().to_string();
    for (tower, images, expected) in [
        (json!({ "patch_size": 0 }), json!({}), "`patch_size` is 0, expected a whole number from 1 to 32"),
        (
            json!({ "spatial_merge_size": 1e9 }),
            json!({}),
            "`spatial_merge_size` is 1000000000.0, expected a whole number from 1 to 4",
        ),
        (
            json!({}),
            json!({ "size": { "longest_edge": -5 } }),
            "`size/longest_edge` is -5, expected a whole number from 1 to 18446744073709551615",
        ),
        (json!({}), json!({ "max_pixels": 1000 }), "`min_pixels` is 65536, expected at most max_pixels, 1000"),
        (json!({}), json!({ "image_std": [1, 0, 1] }), "`image_std` is 0, expected a number from 0.001 to 1000"),
        (json!({}), json!({ "image_mean": 0.5 }), "`image_mean` is 0.5, expected three numbers"),
        (
            json!({}),
            json!({ "rescale_factor": "x" }),
            "`rescale_factor` is \"x\", expected a number from 0.000001 to 1",
        ),
        (json!({}), json!({ "do_rescale": false }), "`do_rescale` is false, expected true"),
    ] {
        assert_eq!(refused(tower, images), format!("image settings of the model: {expected}"));
    }
}
