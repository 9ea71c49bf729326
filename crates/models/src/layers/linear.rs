//! A weight with an optional bias.

use kapitsa_ops::{Recorder, Tensor, Vector};
use kapitsa_tensor::Weight;
use kapitsa_weights::{LoadError, Weights};

/// `y = x · weightᵀ + bias`.
pub(crate) struct Linear {
    weight: Weight,
    bias: Option<Vector>,
}

impl Linear {
    /// Reads `name.weight` `[outputs, inputs]` and, if `bias` is set, `name.bias` `[outputs]`.
    pub(crate) fn load(
        w: &Weights<'_>,
        name: &str,
        outputs: usize,
        inputs: usize,
        bias: bool,
    ) -> Result<Self, LoadError> {
        let weight = w.matrix(name, outputs, inputs)?;
        let name = format!("{name}.bias");
        let bias = if bias { Some(Vector::new(name.as_str(), w.vector(&name, outputs)?)) } else { None };
        Ok(Linear { weight, bias })
    }

    pub(crate) fn of(weight: Weight) -> Self {
        Linear { weight, bias: None }
    }

    pub(crate) fn forward(&self, rec: &mut Recorder, x: Tensor) -> Tensor {
        rec.linear(x, &self.weight, self.bias.as_ref())
    }
}
