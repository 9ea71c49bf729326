//! `out = x / sqrt(mean(x²) + eps) · weight` over groups: a whole row, each head of it, or parts of a row whose gain goes on.

use crate::reference::Memory;
use crate::{ElementType, Recorder, Rule, Tensor, Vector};

/// `x`, `out`: `[rows, n · weights]`; `weight`: `[weights]`, of one group or several.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    /// Input.
    pub x: Tensor,
    /// Gain.
    pub weight: Vector,
    /// Values that are normalised together.
    pub group: usize,
    /// Added to the mean square.
    pub eps: f32,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Normalises each group of `weight`'s length.
    pub fn rms_norm(&mut self, x: Tensor, weight: &Vector, eps: f32) -> Tensor {
        self.rms_norm_groups(x, weight, weight.values().len(), eps)
    }

    /// Normalises each `group` values; the gain has the length of one or several groups.
    pub fn rms_norm_groups(&mut self, x: Tensor, weight: &Vector, group: usize, eps: f32) -> Tensor {
        let out = self.tensor(x.rows(), x.width(), ElementType::F32);
        self.push(RmsNorm { x, weight: weight.clone(), group, eps, out });
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
        let Self { x, weight, group, out, .. } = self;
        assert!(x.is_f32() && x.width() % weight.values().len() == 0, "{self:?}");
        assert!(weight.values().len() % group == 0, "{self:?}");
        assert!((out.rows(), out.width()) == (x.rows(), x.width()), "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        let weight = self.weight.values();
        memory.map_rows(&self.x, &self.out, |x, out| {
            let groups = x.chunks_exact(self.group).zip(out.chunks_exact_mut(self.group));
            for ((x, out), weight) in groups.zip(weight.chunks_exact(self.group).cycle()) {
                let mean = x.iter().map(|v| v * v).sum::<f32>() / x.len() as f32;
                let scale = 1.0 / (mean + self.eps).sqrt();
                for i in 0..x.len() {
                    out[i] = x[i] * scale * weight[i];
                }
            }
        });
    }
}
