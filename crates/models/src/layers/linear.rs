//! A weight with an optional bias.

use kapitsa_ops::{Recorder, Tensor, Vector};
use kapitsa_tensor::Weight;
use kapitsa_weights::{LoadError, Weights};

/// `y = x · weightᵀ + bias`.
#[derive(Clone)]
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

    /// Reads the kernel of a convolution `[outputs, channels, frames, height, width]` that goes from patch to patch, as a product
    /// with the values of a patch in this order.
    pub(crate) fn patches(w: &Weights<'_>, name: &str, outputs: usize, kernel: [usize; 4]) -> Result<Self, LoadError> {
        let weight = w.patch_kernel(&format!("{name}.weight"), outputs, kernel)?;
        let name = format!("{name}.bias");
        Ok(Linear { weight, bias: Some(Vector::new(name.as_str(), w.vector(&name, outputs)?)) })
    }

    /// Its outputs in parts of so many, each a product of its own.
    pub(crate) fn split<const N: usize>(&self, w: &Weights<'_>, parts: [usize; N]) -> Result<[Self; N], LoadError> {
        let mut first = 0;
        let mut split = vec![];
        for (index, outputs) in parts.into_iter().enumerate() {
            let name = format!("{}[{index}]", self.weight.name());
            let weight = self.weight.view(name.as_str(), first, outputs);
            let weight = weight.map_err(|error| w.error(self.weight.name(), error.to_string()))?;
            let values = |bias: &Vector| Vector::new(name.as_str(), &bias.values()[first..first + outputs]);
            split.push(Linear { weight, bias: self.bias.as_ref().map(values) });
            first += outputs;
        }
        Ok(split.try_into().unwrap_or_else(|_| unreachable!("as many as parts")))
    }

    pub(crate) fn of(weight: Weight) -> Self {
        Linear { weight, bias: None }
    }

    pub(crate) fn forward(&self, rec: &mut Recorder, x: Tensor) -> Tensor {
        rec.linear(x, &self.weight, self.bias.as_ref())
    }
}
