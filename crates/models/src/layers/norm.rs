//! Root-mean-square and layer norms with a learned gain.

use kapitsa_ops::{Recorder, Tensor, Vector};
use kapitsa_weights::{LoadError, Weights};

/// What files hold of a gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gain {
    /// The gain itself.
    Whole,
    /// How far it is from one.
    FromOne,
}

/// `x / sqrt(mean(x²) + eps) · gain` over groups of values.
pub(crate) struct RmsNorm {
    gain: Vector,
    group: usize,
    eps: f32,
}

impl RmsNorm {
    /// Reads `name.weight` `[dim]`: values in groups of `dim` are normalised together.
    pub(crate) fn load(w: &Weights<'_>, name: &str, dim: usize, gain: Gain, eps: f32) -> Result<Self, LoadError> {
        let name = format!("{name}.weight");
        let mut values = w.vector(&name, dim)?;
        if gain == Gain::FromOne {
            values.iter_mut().for_each(|v| *v += 1.0);
        }
        Ok(RmsNorm { gain: Vector::new(name.as_str(), values), group: dim, eps })
    }

    /// Values in groups of `group`, a divisor of the gain's length, are normalised together.
    pub(crate) fn groups(self, group: usize) -> Self {
        RmsNorm { group, ..self }
    }

    pub(crate) fn forward(&self, rec: &mut Recorder, x: Tensor) -> Tensor {
        rec.rms_norm_groups(x, &self.gain, self.group, self.eps)
    }
}

/// `(x - mean) / sqrt(variance + eps) · gain + bias` over rows.
pub(crate) struct LayerNorm {
    gain: Vector,
    bias: Vector,
    eps: f32,
}

impl LayerNorm {
    /// Reads `name.weight` and `name.bias`, `[dim]`.
    pub(crate) fn load(w: &Weights<'_>, name: &str, dim: usize, eps: f32) -> Result<Self, LoadError> {
        let read = |name: String| Ok::<_, LoadError>(Vector::new(name.as_str(), w.vector(&name, dim)?));
        Ok(LayerNorm { gain: read(format!("{name}.weight"))?, bias: read(format!("{name}.bias"))?, eps })
    }

    pub(crate) fn forward(&self, rec: &mut Recorder, x: Tensor) -> Tensor {
        rec.layer_norm(x, &self.gain, &self.bias, self.eps)
    }
}
