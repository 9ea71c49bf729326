//! Images of a conversation: from files to what stands at the image tokens of a prompt.

use kapitsa_engine::{EngineError, Image};
use kapitsa_models::VisionShape;
use kapitsa_text::Tokenizer;
use kapitsa_vision::{ImageError, ImageLimits, Preprocessor};
use kapitsa_weights::Checkpoint;
use serde_json::Value;

use crate::Error;

/// A prompt, as a model takes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    /// All tokens, those of images included.
    pub tokens: Vec<u32>,
    /// Images in it, in order.
    pub images: Vec<Image>,
}

impl From<Vec<u32>> for Prompt {
    fn from(tokens: Vec<u32>) -> Self {
        Prompt { tokens, images: vec![] }
    }
}

/// An image file of which the header is read: its size in the prompt is known before its pixels are decoded.
#[derive(Clone)]
pub struct ImageFile {
    bytes: Vec<u8>,
    tokens: usize,
    memory: usize,
}

impl ImageFile {
    /// Tokens that it takes in a prompt.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Bytes that it takes in memory as a part of a prompt.
    pub fn memory(&self) -> usize {
        self.memory
    }
}

/// How a model sees.
pub(crate) struct Vision {
    shape: VisionShape,
    preprocessor: Preprocessor,
}

impl Vision {
    /// Fails for a tokenizer with which text could become an image token.
    pub(crate) fn load(checkpoint: &Checkpoint, shape: VisionShape, tokenizer: &Tokenizer) -> Result<Self, Error> {
        let (config, id) = (checkpoint.config(), shape.image_token);
        if !tokenizer.is_special(id) {
            let reason = format!("is {id}, expected a control token of the tokenizer; fetch tokenizer.json again");
            return Err(config.error("image_token_id", reason).into());
        }
        let tower = config.value("vision_config").unwrap_or(&Value::Null);
        let preprocessor = Preprocessor::from_config(tower, checkpoint.preprocessor_config()?.as_ref());
        Ok(Vision { shape, preprocessor: preprocessor.map_err(Error::ImageSettings)? })
    }

    pub(crate) fn file(&self, bytes: Vec<u8>) -> Result<ImageFile, ImageError> {
        let (width, height) = kapitsa_vision::size(&bytes, &ImageLimits::default())?;
        let tokens = self.preprocessor.tokens(width, height)?;
        let VisionShape { merge, patch_values, .. } = self.shape;
        let memory = tokens * merge * merge * patch_values * size_of::<f32>();
        Ok(ImageFile { bytes, tokens, memory })
    }

    /// Tokens of a prompt in which each image token stands for one of `files`.
    pub(crate) fn count(&self, written: &[u32], files: &[ImageFile]) -> Result<usize, Error> {
        let found = written.iter().filter(|&&token| token == self.shape.image_token).count();
        if found != files.len() {
            return Err(Error::ImagePlaces { found, expected: files.len() });
        }
        Ok(written.len() - found + files.iter().map(ImageFile::tokens).sum::<usize>())
    }

    /// Puts `files` where the chat template has written image tokens, one for each.
    pub(crate) fn prompt(&self, written: Vec<u32>, files: &[ImageFile], context: usize) -> Result<Prompt, Error> {
        let pad = self.shape.image_token;
        let tokens = self.count(&written, files)?;
        // Decoding takes seconds for what the engine would refuse.
        if !files.is_empty() && tokens >= context {
            return Err(EngineError::PromptTooLong { tokens, context }.into());
        }
        let mut prompt = Prompt { tokens: Vec::with_capacity(tokens), images: vec![] };
        let mut files = files.iter().enumerate();
        for token in written {
            let Some((index, file)) = (token == pad).then(|| files.next()).flatten() else {
                prompt.tokens.push(token);
                continue;
            };
            let image = self.image(file, prompt.tokens.len());
            prompt.images.push(image.map_err(|source| Error::Image { index, source })?);
            prompt.tokens.extend(std::iter::repeat_n(pad, file.tokens));
        }
        Ok(prompt)
    }

    fn image(&self, file: &ImageFile, start: usize) -> Result<Image, ImageError> {
        let pixels = kapitsa_vision::decode(&file.bytes, &ImageLimits::default())?;
        let patches = self.preprocessor.patches(&pixels)?;
        Ok(Image { start, grid: patches.grid, patches: patches.values.into() })
    }
}

#[cfg(test)]
mod tests {
    use kapitsa_testkit::tiny::bmp;
    use serde_json::json;

    use super::*;

    const PAD: u32 = 9;

    fn vision() -> Vision {
        let tower = json!({"patch_size": 4});
        let preprocessor = Preprocessor::from_config(&tower, Some(&json!({"min_pixels": 64, "max_pixels": 65536})));
        let shape = VisionShape { image_token: PAD, merge: 2, patch_values: 96, hidden: 8, out: 8 };
        Vision { shape, preprocessor: preprocessor.unwrap() }
    }

    fn files(sizes: &[(u32, u32)]) -> Vec<ImageFile> {
        sizes.iter().map(|&(width, height)| vision().file(bmp(width, height, [0; 3])).unwrap()).collect()
    }

    #[test]
    fn every_pad_becomes_as_many_tokens_as_its_image_has() {
        let files = files(&[(16, 8), (8, 8), (8, 24)]);
        assert_eq!(files.iter().map(ImageFile::tokens).collect::<Vec<_>>(), [2, 1, 3]);
        let prompt = vision().prompt(vec![1, PAD, 2, PAD, PAD, 3], &files, 100).unwrap();
        assert_eq!(prompt.tokens, [1, PAD, PAD, 2, PAD, PAD, PAD, PAD, 3]);
        let places: Vec<_> = prompt.images.iter().map(|image| (image.start, image.grid)).collect();
        assert_eq!(places, [(1, (2, 4)), (4, (2, 2)), (5, (6, 2))]);
        for (image, file) in prompt.images.iter().zip(&files) {
            assert_eq!(size_of_val(&*image.patches), file.memory());
        }
    }

    #[test]
    fn a_template_that_drops_or_doubles_an_image_is_refused() {
        let error = |written, files| vision().prompt(written, files, 100).unwrap_err().to_string();
        let two = files(&[(8, 8), (8, 8)]);
        assert_eq!(
            error(vec![1, 2], &two),
            "the model's chat template has no place for images in these messages; send text only"
        );
        for (written, found) in [(vec![PAD], 1), (vec![PAD; 3], 3)] {
            let expected = format!("the model's chat template makes {found} places for 2 images; send fewer or none");
            assert_eq!(error(written, &two), expected);
        }
        assert!(error(vec![PAD], &[]).contains("1 places for 0 images"));
    }

    #[test]
    fn a_prompt_that_cannot_fit_is_refused_before_its_images_are_decoded() {
        let mut files = files(&[(8, 8), (64, 64)]);
        files[0].bytes.truncate(60);
        let error = |context| vision().prompt(vec![PAD, PAD, 1], &files, context).unwrap_err();
        assert!(matches!(error(66), Error::Engine(EngineError::PromptTooLong { tokens: 66, context: 66 })));
        let damaged = error(67);
        assert!(matches!(damaged, Error::Image { index: 0, .. }), "{damaged}");
        assert!(damaged.to_string().starts_with("image 1: BMP image cannot be decoded"), "{damaged}");
    }
}
