//! Images in a prompt: what stands at their tokens, and where the tokens after them are.

use std::ops::Range;
use std::sync::Arc;

use kapitsa_models::VisionShape;
use kapitsa_ops::{Batch, DeviceError, Outputs};

use crate::runner::Runner;

/// An image in a prompt, cut into patches.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// Index in the prompt of the first of its tokens, which are all the model's image token.
    pub start: usize,
    /// Rows and columns of patches.
    pub grid: (usize, usize),
    /// `[rows · columns, patch_values]`, patch by patch in the order of tokens.
    pub patches: Arc<[f32]>,
}

/// The images of a prompt.
pub(crate) struct Images {
    seen: Vec<Seen>,
    /// Coordinates of the prompt's tokens.
    coordinates: Vec<[usize; 3]>,
    /// What is taken from the positions of tokens after the prompt.
    shift: usize,
}

struct Seen {
    image: Image,
    tokens: Range<usize>,
    /// `[tokens, hidden]`, once a token of it is read.
    embeddings: Vec<f32>,
}

impl Images {
    /// The images of `prompt`; an error says what does not fit.
    pub(crate) fn new(prompt: &[u32], images: Vec<Image>, vision: Option<VisionShape>) -> Result<Self, String> {
        let mut all = Images { seen: vec![], coordinates: vec![], shift: 0 };
        if images.is_empty() {
            return Ok(all);
        }
        let VisionShape { image_token, merge, patch_values, .. } = vision.ok_or("the model sees no images")?;
        let mut next = 0;
        for image in images {
            let (rows, columns) = image.grid;
            let is_whole = rows > 0 && columns > 0 && rows.is_multiple_of(merge) && columns.is_multiple_of(merge);
            if !is_whole || rows.saturating_mul(columns).checked_mul(patch_values) != Some(image.patches.len()) {
                let values = image.patches.len();
                return Err(format!("an image of {rows} x {columns} patches with {values} values cannot be"));
            }
            let tokens = image.start..image.start.saturating_add(rows * columns / (merge * merge));
            let stands = prompt.get(tokens.clone()).is_some_and(|ids| ids.iter().all(|&id| id == image_token));
            if tokens.start < all.coordinates.len() || !stands {
                return Err(format!("tokens {tokens:?} of the prompt do not stand for an image"));
            }
            all.place_text(tokens.start, &mut next);
            for index in 0..tokens.len() {
                let (row, column) = (index / (columns / merge), index % (columns / merge));
                all.coordinates.push([next, next + row, next + column]);
            }
            next += rows.max(columns) / merge;
            all.seen.push(Seen { image, tokens, embeddings: vec![] });
        }
        all.place_text(prompt.len(), &mut next);
        all.shift = prompt.len() - next;
        Ok(all)
    }

    /// Text up to token `end` goes on at `next`.
    fn place_text(&mut self, end: usize, next: &mut usize) {
        while self.coordinates.len() < end {
            self.coordinates.push([*next; 3]);
            *next += 1;
        }
    }

    /// Makes sure that the embeddings of tokens `range` are there.
    pub(crate) fn see(&mut self, runner: &mut Runner, range: &Range<usize>) -> Result<(), DeviceError> {
        for seen in &mut self.seen {
            let meets = seen.tokens.start < range.end && range.start < seen.tokens.end;
            if meets && seen.embeddings.is_empty() {
                let mut outputs = Outputs::default();
                runner.embed_image(seen.image.grid, &seen.image.patches, &[], &mut outputs)?;
                seen.embeddings = outputs.logits;
                seen.image.patches = Arc::default();
            }
        }
        Ok(())
    }

    /// Gives the row of token `index` its coordinates, and its embedding if it belongs to an image that has been seen.
    pub(crate) fn place(&self, batch: &mut Batch, row: usize, index: usize) {
        if self.seen.is_empty() {
            return;
        }
        batch.set_coordinates(row, self.coordinates.get(index).copied().unwrap_or_else(|| [index - self.shift; 3]));
        if let Some(seen) = self.seen.iter().find(|seen| seen.tokens.contains(&index)) {
            let width = seen.embeddings.len() / seen.tokens.len();
            batch.set_embedding(row, &seen.embeddings[(index - seen.tokens.start) * width..][..width]);
        }
    }
}
