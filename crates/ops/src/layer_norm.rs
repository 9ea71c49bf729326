//! `out = (x - mean) / sqrt(variance + eps) · weight + bias` over each row (Ba et al., arXiv:1607.06450).

use crate::reference::Memory;
use crate::{ElementType, Recorder, Rule, Tensor, Vector};

/// `x`, `out`: `[rows, width]`; `weight`, `bias`: `[width]`.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    /// Input.
    pub x: Tensor,
    /// Gain.
    pub weight: Vector,
    /// Added in the end.
    pub bias: Vector,
    /// Added to the variance.
    pub eps: f32,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Normalises each row.
    pub fn layer_norm(&mut self, x: Tensor, weight: &Vector, bias: &Vector, eps: f32) -> Tensor {
        let out = self.tensor(x.rows(), x.width(), ElementType::F32);
        self.push(LayerNorm { x, weight: weight.clone(), bias: bias.clone(), eps, out });
        out
    }
}

impl LayerNorm {
    /// One row.
    pub fn normalize(&self, x: &[f32], out: &mut [f32]) {
        let mean = x.iter().sum::<f32>() / x.len() as f32;
        let variance = x.iter().map(|v| (v - mean) * (v - mean)).sum::<f32>() / x.len() as f32;
        let scale = 1.0 / (variance + self.eps).sqrt();
        let gains = self.weight.values().iter().zip(self.bias.values());
        for ((out, x), (weight, bias)) in out.iter_mut().zip(x).zip(gains) {
            *out = (x - mean) * scale * weight + bias;
        }
    }
}

impl Rule for LayerNorm {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.x]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { x, weight, bias, out, .. } = self;
        assert!(x.is_f32() && weight.values().len() == x.width() && bias.values().len() == x.width(), "{self:?}");
        assert!((out.rows(), out.width()) == (x.rows(), x.width()), "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        memory.map_rows(&self.x, &self.out, |x, out| self.normalize(x, out));
    }
}
