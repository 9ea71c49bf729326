//! From an image to the rows that a vision tower multiplies: sizes, resizing, normalising, the order of patches.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use serde_json::Value;

use crate::{ImageError, Rgb};

/// Most patches that one image takes, before merging: 2048 x 2048 pixels in patches of 16, 4096 tokens.
///
/// Configs allow four times as much, which is minutes of attention on a CPU; larger images are scaled down to this.
pub const MAX_PATCHES: usize = 16384;

/// How a model wants its images. A checked value: no image makes it panic or take more than [`MAX_PATCHES`].
#[derive(Clone, Debug, PartialEq)]
pub struct Preprocessor {
    /// Side of a patch, in pixels.
    patch_size: usize,
    /// Side of a block of patches that becomes one token, in patches.
    merge_size: usize,
    /// Frames in a patch.
    temporal_patch_size: usize,
    min_pixels: usize,
    max_pixels: usize,
    /// What a grey level is multiplied by.
    rescale_factor: f64,
    /// Subtracted from each channel after that.
    mean: [f32; 3],
    /// What each channel is divided by then.
    std: [f32; 3],
}

/// The patches of one image.
#[derive(Clone, Debug, PartialEq)]
pub struct Patches {
    /// Rows and columns, in patches. Both are multiples of the merge size.
    pub grid: (usize, usize),
    /// `[rows * columns, 3 * frames * patch * patch]`. A row is one patch, by channel, frame, line and column; those of
    /// a block that becomes a token are neighbours: `[rows / merge, columns / merge, merge, merge]`.
    pub values: Vec<f32>,
    merge_size: usize,
}

impl Patches {
    /// Tokens that the patches become in the prompt.
    pub fn tokens(&self) -> usize {
        self.grid.0 * self.grid.1 / (self.merge_size * self.merge_size)
    }
}

impl Preprocessor {
    /// Reads `vision_config` of a `config.json`, and `preprocessor_config.json`.
    ///
    /// What they lack is as in Qwen3.5: patches of 16 by 16 pixels and 2 frames, merged 2 by 2, 65536 to 16777216
    /// pixels (here at most [`MAX_PATCHES`] patches), grey levels divided by 255, mean and standard deviation 0.5.
    ///
    /// # Errors
    /// [`ImageError::Config`].
    pub fn from_config(vision_config: &Value, preprocessor_config: Option<&Value>) -> Result<Self, ImageError> {
        let (tower, images) = (Some(vision_config), preprocessor_config);
        for key in ["do_resize", "do_rescale", "do_normalize"] {
            if let Some(found @ Value::Bool(false)) = find(images, key) {
                return Err(wrong(key, found, "true"));
            }
        }
        let patch_size = whole(tower, "patch_size", 1..=32)?.unwrap_or(16);
        let merge_size = whole(tower, "spatial_merge_size", 1..=4)?.unwrap_or(2);
        let temporal_patch_size = whole(tower, "temporal_patch_size", 1..=4)?.unwrap_or(2);

        // The older names come first, as in the reference.
        let pixels = |key, newer_key, default| {
            let any = 1..=usize::MAX;
            Ok(whole(images, key, any.clone())?.or(whole(images, newer_key, any)?).unwrap_or(default))
        };
        let min_pixels = pixels("min_pixels", "size/shortest_edge", 1 << 16)?;
        let max_pixels = pixels("max_pixels", "size/longest_edge", 1 << 24)?.min(MAX_PATCHES * patch_size * patch_size);
        if min_pixels > max_pixels {
            return Err(wrong("min_pixels", min_pixels, format!("at most max_pixels, {max_pixels}")));
        }
        let rescale_factor = find(images, "rescale_factor").map(|found| number("rescale_factor", found, 1e-6..=1.0));
        Ok(Preprocessor {
            patch_size,
            merge_size,
            temporal_patch_size,
            min_pixels,
            max_pixels,
            rescale_factor: rescale_factor.transpose()?.unwrap_or(1.0 / 255.0),
            mean: channels(images, "image_mean", -1e3..=1e3)?.unwrap_or([0.5; 3]),
            std: channels(images, "image_std", 1e-3..=1e3)?.unwrap_or([0.5; 3]),
        })
    }

    /// Rows and columns of patches that an image of `width` by `height` pixels takes. Nothing is resized.
    ///
    /// # Errors
    /// [`ImageError::AspectRatio`], [`ImageError::Patches`].
    pub fn grid(&self, width: usize, height: usize) -> Result<(usize, usize), ImageError> {
        let (long, short) = (width.max(height) as f64, width.min(height) as f64);
        if short == 0.0 || long / short > 200.0 {
            return Err(ImageError::AspectRatio { width, height });
        }
        // In f64 and in the order of the reference, which decides ties.
        let factor = (self.patch_size * self.merge_size) as f64;
        let area = width as f64 * height as f64;
        let (min, max) = (self.min_pixels as f64, self.max_pixels as f64);
        let sides = |side: &dyn Fn(f64) -> f64| (side(height as f64), side(width as f64));
        let (mut tall, mut wide) = sides(&|side| (side / factor).round_ties_even() * factor);
        if tall * wide > max {
            let shrink = (area / max).sqrt();
            (tall, wide) = sides(&|side| ((side / shrink / factor).floor() * factor).max(factor));
        } else if tall * wide < min {
            let grow = (min / area).sqrt();
            (tall, wide) = sides(&|side| (side * grow / factor).ceil() * factor);
        }
        let grid = (tall as usize / self.patch_size, wide as usize / self.patch_size);
        match grid.0.saturating_mul(grid.1) {
            0..=MAX_PATCHES => Ok(grid),
            patches => Err(ImageError::Patches { width, height, patches, limit: MAX_PATCHES }),
        }
    }

    /// Tokens that an image of `width` by `height` pixels takes in the prompt.
    ///
    /// # Errors
    /// Those of [`grid`](Self::grid).
    pub fn tokens(&self, width: usize, height: usize) -> Result<usize, ImageError> {
        let (rows, columns) = self.grid(width, height)?;
        Ok(rows * columns / (self.merge_size * self.merge_size))
    }

    /// Resizes and normalises `image`, and cuts it into patches. A still image shows the same in all frames.
    ///
    /// # Errors
    /// Those of [`grid`](Self::grid).
    pub fn patches(&self, image: &Rgb) -> Result<Patches, ImageError> {
        let grid @ (rows, columns) = self.grid(image.width(), image.height())?;
        let (patch, merge) = (self.patch_size, self.merge_size);
        let width = columns * patch;
        let pixels = resize(image, width, rows * patch);
        let levels: [[f32; 256]; 3] = std::array::from_fn(|channel| {
            let scaled = |level: usize| (level as f64 * self.rescale_factor) as f32;
            std::array::from_fn(|level| (scaled(level) - self.mean[channel]) / self.std[channel])
        });

        let mut values = Vec::with_capacity(rows * columns * 3 * self.temporal_patch_size * patch * patch);
        for block in 0..rows / merge * (columns / merge) {
            for within in 0..merge * merge {
                let top = (block / (columns / merge) * merge + within / merge) * patch;
                let left = (block % (columns / merge) * merge + within % merge) * patch;
                for (channel, levels) in levels.iter().enumerate() {
                    let start = values.len();
                    for y in top..top + patch {
                        let line = &pixels[(y * width + left) * 3..][..patch * 3];
                        values.extend(line.iter().skip(channel).step_by(3).map(|level| levels[usize::from(*level)]));
                    }
                    for _ in 1..self.temporal_patch_size {
                        values.extend_from_within(start..start + patch * patch);
                    }
                }
            }
        }
        Ok(Patches { grid, values, merge_size: merge })
    }
}

/// Bicubic with antialiasing: `[height, width, 3]`.
///
/// Lines are resampled first, clamped and rounded to 8 bits, then columns, as in Pillow (which since version 13 takes
/// columns first where the height shrinks much more). The result is within one grey level of that. One call of the
/// resizer would take columns first, which differs by up to 29 levels at sharp edges.
fn resize(image: &Rgb, width: usize, height: usize) -> Cow<'_, [u8]> {
    if (image.width(), image.height()) == (width, height) {
        return Cow::Borrowed(image.data());
    }
    let side = |pixels: usize| u32::try_from(pixels).expect("an image in memory has sides of 32 bits");
    let source = ImageRef::new(side(image.width()), side(image.height()), image.data(), PixelType::U8x3);
    let source = source.expect("`Rgb` has as many bytes as pixels");
    let mut narrowed = Image::new(side(width), side(image.height()), PixelType::U8x3);
    let mut resized = Image::new(side(width), side(height), PixelType::U8x3);

    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::CatmullRom));
    let mut resizer = Resizer::new();
    resizer.resize(&source, &mut narrowed, &options).expect("both images are of one type");
    resizer.resize(&narrowed, &mut resized, &options).expect("both images are of one type");
    Cow::Owned(resized.into_vec())
}

/// The value at `key`, a path of names. Absent and `null` are the same.
fn find<'a>(config: Option<&'a Value>, key: &str) -> Option<&'a Value> {
    config?.pointer(&format!("/{key}")).filter(|value| !value.is_null())
}

fn whole(config: Option<&Value>, key: &'static str, range: RangeInclusive<usize>) -> Result<Option<usize>, ImageError> {
    let Some(found) = find(config, key) else { return Ok(None) };
    let value = found.as_u64().and_then(|value| usize::try_from(value).ok()).filter(|value| range.contains(value));
    let expected = || format!("a whole number from {} to {}", range.start(), range.end());
    value.map(Some).ok_or_else(|| wrong(key, found, expected()))
}

fn number(key: &'static str, found: &Value, range: RangeInclusive<f64>) -> Result<f64, ImageError> {
    let value = found.as_f64().filter(|value| range.contains(value));
    value.ok_or_else(|| wrong(key, found, format!("a number from {} to {}", range.start(), range.end())))
}

/// One number for each of red, green and blue.
fn channels(
    config: Option<&Value>,
    key: &'static str,
    range: RangeInclusive<f64>,
) -> Result<Option<[f32; 3]>, ImageError> {
    let Some(found) = find(config, key) else { return Ok(None) };
    let Some([r, g, b]) = found.as_array().map(Vec::as_slice) else {
        return Err(wrong(key, found, "three numbers"));
    };
    let channel = |value| Ok(number(key, value, range.clone())? as f32);
    Ok(Some([channel(r)?, channel(g)?, channel(b)?]))
}

fn wrong(key: &'static str, found: impl ToString, expected: impl Into<String>) -> ImageError {
    ImageError::Config { key, found: found.to_string(), expected: expected.into() }
}
