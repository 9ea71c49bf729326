//! Root-mean-square norm with a learned gain.

use kapitsa_ops::{Recorder, Tensor, Vector};
use kapitsa_weights::{LoadError, Weights};

/// `x / sqrt(mean(x²) + eps) · weight` over groups of the weight's length.
pub(crate) struct RmsNorm {
    weight: Vector,
    eps: f32,
}

impl RmsNorm {
    /// Reads `name.weight` `[dim]`.
    pub(crate) fn load(w: &Weights<'_>, name: &str, dim: usize, eps: f32) -> Result<Self, LoadError> {
        let name = format!("{name}.weight");
        Ok(RmsNorm { weight: Vector::new(name.as_str(), w.vector(&name, dim)?), eps })
    }

    pub(crate) fn forward(&self, rec: &mut Recorder, x: Tensor) -> Tensor {
        rec.rms_norm(x, &self.weight, self.eps)
    }
}
