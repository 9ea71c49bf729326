//! Values that rows bring along: patches of an image, or hidden states for a prediction head.

use crate::reference::Memory;
use crate::{Batch, ElementType, Recorder, Rows, Rule, Tensor};

/// `out`: `[rows, width]`: of each row's values those from `start` on.
#[derive(Clone, Debug)]
pub struct Input {
    /// First value.
    pub start: usize,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Reads `width` of each row's values, from `start` on.
    pub fn input(&mut self, start: usize, width: usize) -> Tensor {
        let out = self.tensor(Rows::Batch, width, ElementType::F32);
        self.push(Input { start, out });
        out
    }
}

impl Input {
    /// One row, to `out`.
    pub fn read(&self, batch: &Batch, row: usize, out: &mut [f32]) {
        let values = batch.input(row).expect("every row brings values");
        out.copy_from_slice(&values[self.start..][..out.len()]);
    }
}

impl Rule for Input {
    fn inputs(&self) -> Vec<Tensor> {
        vec![]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        assert!(self.out.width() > 0, "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        let mut out = vec![0.0; memory.batch.len() * self.out.width()];
        for (row, out) in out.chunks_exact_mut(self.out.width()).enumerate() {
            self.read(memory.batch, row, out);
        }
        memory.write(&self.out, &out);
    }
}
