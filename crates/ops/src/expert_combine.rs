//! `out = Σ_j weights_j · x_j` over a row's experts in ascending order of their ids.

use crate::reference::Memory;
use crate::{ElementType, Recorder, Rule, Tensor};

/// `x`: `[rows, k · width]`; `weights`: `[rows, k]`; `out`: `[rows, width]`.
#[derive(Clone, Debug)]
pub struct ExpertCombine {
    /// Outputs of the experts.
    pub x: Tensor,
    /// From [`crate::ExpertWeights`].
    pub weights: Tensor,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Adds the experts' outputs.
    pub fn expert_combine(&mut self, x: Tensor, weights: Tensor) -> Tensor {
        let out = self.tensor(x.rows(), x.width() / weights.width(), ElementType::F32);
        self.push(ExpertCombine { x, weights, out });
        out
    }
}

impl ExpertCombine {
    /// One row.
    pub fn combine(x: &[f32], weights: &[f32], out: &mut [f32]) {
        out.fill(0.0);
        for (x, weight) in x.chunks_exact(out.len()).zip(weights) {
            for (out, x) in out.iter_mut().zip(x) {
                *out += weight * x;
            }
        }
    }
}

impl Rule for ExpertCombine {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.x, self.weights]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { x, weights, out } = self;
        assert!(x.is_f32() && weights.is_f32() && out.is_f32(), "{self:?}");
        assert!(x.rows() == weights.rows() && x.rows() == out.rows(), "{self:?}");
        assert_eq!(x.width(), weights.width() * out.width(), "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        let weights = memory.read(&self.weights);
        let mut weights = weights.chunks_exact(self.weights.width());
        memory.map_rows(&self.x, &self.out, |x, out| {
            Self::combine(x, weights.next().expect("as many rows as x"), out);
        });
    }
}
