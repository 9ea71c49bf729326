//! Short causal convolution with SiLU, as recurrent layers have before their scans.

use kapitsa_ops::{Recorder, Tensor, Vector};
use kapitsa_weights::{LoadError, Weights};

/// Weights `[taps, channels]`, a bias for each channel or none, and its index among the recurrent ops.
pub(crate) struct ShortConv {
    weight: Vector,
    bias: Option<Vector>,
    channels: usize,
    state: usize,
}

impl ShortConv {
    /// Reads `conv1d.weight` (`[channels, taps]`, in whichever shape the container keeps it) and `conv1d.bias`.
    pub(crate) fn load(
        w: &Weights<'_>,
        channels: usize,
        taps: usize,
        bias: bool,
        state: usize,
    ) -> Result<Self, LoadError> {
        let stored = w.conv("conv1d.weight", channels, taps)?;
        let by_tap: Vec<f32> = (0..taps).flat_map(|tap| stored.iter().skip(tap).step_by(taps)).copied().collect();
        let name = "conv1d.bias";
        let bias = if bias { Some(Vector::new(name, w.vector(name, channels)?)) } else { None };
        Ok(ShortConv { weight: Vector::new("conv1d.weight", by_tap), bias, channels, state })
    }

    /// Values that it keeps of a sequence.
    pub(crate) fn state_len(&self) -> usize {
        self.weight.values().len() - self.channels
    }

    pub(crate) fn forward(&self, rec: &mut Recorder, x: Tensor) -> Tensor {
        rec.short_conv(x, &self.weight, self.bias.as_ref(), self.state)
    }
}
