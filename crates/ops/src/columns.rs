//! Some columns of a tensor: `width` from `start` on, out of every `period`.
//!
//! Queries and their gates, for one, come out of one product head by head.

use crate::reference::Memory;
use crate::{ElementType, Recorder, Rule, Tensor};

/// `x`: `[rows, n · period]`; `out`: `[rows, n · width]`.
#[derive(Clone, Debug)]
pub struct Columns {
    /// Input.
    pub x: Tensor,
    /// Columns after which the choice repeats.
    pub period: usize,
    /// First column of each period.
    pub start: usize,
    /// Columns of each period.
    pub width: usize,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Keeps columns `start .. start + width` of every `period`.
    pub fn columns(&mut self, x: Tensor, period: usize, start: usize, width: usize) -> Tensor {
        let out = self.tensor(x.rows(), x.width() / period * width, ElementType::F32);
        self.push(Columns { x, period, start, width, out });
        out
    }
}

impl Columns {
    /// One row.
    pub fn take(&self, x: &[f32], out: &mut [f32]) {
        for (x, out) in x.chunks_exact(self.period).zip(out.chunks_exact_mut(self.width)) {
            out.copy_from_slice(&x[self.start..][..self.width]);
        }
    }
}

impl Rule for Columns {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.x]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { x, period, start, width, out } = self;
        assert!(x.is_f32() && x.width() % period == 0 && start + width <= *period && 0 < *width, "{self:?}");
        assert!((out.rows(), out.width()) == (x.rows(), x.width() / period * width), "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        memory.map_rows(&self.x, &self.out, |x, out| self.take(x, out));
    }
}
