//! `out = x · weightᵀ + bias`, row by row. Weights are exact f32 values of their format; activations and sums are f32.

use kapitsa_tensor::Weight;

use crate::reference::Memory;
use crate::{ElementType, Recorder, Rule, Tensor, Vector};

/// `x`: `[rows, in]`; `weight`: `[out, in]`; `bias`: `[out]`; `out`: `[rows, out]`.
#[derive(Clone, Debug)]
pub struct Linear {
    /// Input.
    pub x: Tensor,
    /// Weight.
    pub weight: Weight,
    /// Added to every row.
    pub bias: Option<Vector>,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Multiplies by a weight.
    pub fn linear(&mut self, x: Tensor, weight: &Weight, bias: Option<&Vector>) -> Tensor {
        let out = self.tensor(x.rows(), weight.rows(), ElementType::F32);
        self.push(Linear { x, weight: weight.clone(), bias: bias.cloned(), out });
        out
    }
}

impl Rule for Linear {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.x]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { x, weight, bias, out } = self;
        assert!(x.is_f32() && x.width() == weight.cols(), "{self:?}");
        assert!(out.width() == weight.rows() && out.rows() == x.rows(), "{self:?}");
        assert!(bias.as_ref().is_none_or(|b| b.values().len() == weight.rows()), "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        let mut weight = vec![0.0; self.weight.rows() * self.weight.cols()];
        for (row, values) in weight.chunks_exact_mut(self.weight.cols()).enumerate() {
            self.weight.dequantize(row, values);
        }
        memory.map_rows(&self.x, &self.out, |x, out| {
            for (o, (out, weight)) in out.iter_mut().zip(weight.chunks_exact(x.len())).enumerate() {
                *out = dot(x, weight) + self.bias.as_ref().map_or(0.0, |b| b.values()[o]);
            }
        });
    }
}

/// The scalar product, summed from the first element to the last.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
