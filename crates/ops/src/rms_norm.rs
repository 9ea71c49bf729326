//! `out = x / sqrt(mean(x²) + eps) · weight` over groups of the weight's length: a whole row, or each head of it.

use crate::reference::Memory;
use crate::{ElementType, Recorder, Rule, Tensor, Vector};

/// `x`, `out`: `[rows, groups · dim]`; `weight`: `[dim]`.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    /// Input.
    pub x: Tensor,
    /// Gain.
    pub weight: Vector,
    /// Added to the mean square.
    pub eps: f32,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Normalises each group of `weight`'s length.
    pub fn rms_norm(&mut self, x: Tensor, weight: &Vector, eps: f32) -> Tensor {
        let out = self.tensor(x.rows(), x.width(), ElementType::F32);
        self.push(RmsNorm { x, weight: weight.clone(), eps, out });
        out
    }
}

impl Rule for RmsNorm {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.x]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { x, weight, out, .. } = self;
        assert!(x.is_f32() && x.width() % weight.values().len() == 0, "{self:?}");
        assert!((out.rows(), out.width()) == (x.rows(), x.width()), "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        let weight = self.weight.values();
        memory.map_rows(&self.x, &self.out, |x, out| {
            for (x, out) in x.chunks_exact(weight.len()).zip(out.chunks_exact_mut(weight.len())) {
                let mean = x.iter().map(|v| v * v).sum::<f32>() / x.len() as f32;
                let scale = 1.0 / (mean + self.eps).sqrt();
                for i in 0..x.len() {
                    out[i] = x[i] * scale * weight[i];
                }
            }
        });
    }
}
