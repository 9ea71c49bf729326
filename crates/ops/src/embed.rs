//! `out = weight[token]`, row by row; a row with an embedding of its own (a part of an image) has that instead.

use kapitsa_tensor::Weight;

use crate::reference::Memory;
use crate::{Batch, ElementType, Recorder, Rows, Rule, Tensor};

/// `weight`: `[vocab, dim]`; `out`: `[rows, dim]`. Tokens come from the batch.
#[derive(Clone, Debug)]
pub struct Embed {
    /// The embedding matrix.
    pub weight: Weight,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Embeds the batch's tokens.
    pub fn embed(&mut self, weight: &Weight) -> Tensor {
        let out = self.tensor(Rows::Batch, weight.cols(), ElementType::F32);
        self.push(Embed { weight: weight.clone(), out });
        out
    }
}

impl Embed {
    /// One row, to `out` (`[dim]`).
    pub fn embed(&self, batch: &Batch, row: usize, out: &mut [f32]) {
        match batch.embedding(row) {
            Some(values) => out.copy_from_slice(values),
            None => self.weight.dequantize(batch.token(row) as usize, out),
        }
    }
}

impl Rule for Embed {
    fn inputs(&self) -> Vec<Tensor> {
        vec![]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        assert_eq!(self.out.width(), self.weight.cols(), "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        let dim = self.weight.cols();
        let mut out = vec![0.0; memory.batch.len() * dim];
        for (row, out) in out.chunks_exact_mut(dim).enumerate() {
            self.embed(memory.batch, row, out);
        }
        memory.write(&self.out, &out);
    }
}
