//! Gated DeltaNet (Yang et al., arXiv:2412.06464): linear attention with a state that forgets and corrects itself.

use kapitsa_ops::{DeltaShape, KeyHeads, Recorder, Tensor, Vector};
use kapitsa_weights::{Config, Container, LoadError, Weights};

use super::{Gain, Linear, RmsNorm, ShortConv};

/// Projections, convolution, delta rule, gated norm, and the way back to the residual stream.
pub(crate) struct DeltaNet {
    qkv: Linear,
    z: Linear,
    a: Linear,
    b: Linear,
    conv: ShortConv,
    decay: Vector,
    dt_bias: Vector,
    norm: RmsNorm,
    out: Linear,
    shape: DeltaShape,
    state: usize,
}

impl DeltaNet {
    /// Reads the layer, whose recurrent ops count from `state`.
    pub(crate) fn load(config: &Config, w: &Weights<'_>, state: usize) -> Result<Self, LoadError> {
        let hidden = config.usize("hidden_size")?;
        let key_heads = config.bounded("linear_num_key_heads", 1..=4096)?;
        let value_heads = config.bounded("linear_num_value_heads", key_heads..=4096)?;
        if value_heads % key_heads != 0 {
            let reason = format!("is {value_heads}, expected a multiple of {key_heads} key heads");
            return Err(config.error("linear_num_value_heads", reason));
        }
        // Checkpoints and packs have value heads in order of their key heads, and the logarithm of the decay. Converters
        // change both.
        let is_converted = !matches!(w.container(), Container::HuggingFace | Container::MlxPack);
        let shape = DeltaShape {
            key_heads,
            value_heads,
            key_dim: config.bounded("linear_key_head_dim", 1..=4096)?,
            value_dim: config.bounded("linear_value_head_dim", 1..=4096)?,
            order: if is_converted { KeyHeads::Tiled } else { KeyHeads::Grouped },
        };
        let width = value_heads * shape.value_dim;
        let mut decay = w.vector("A_log", value_heads)?;
        if !is_converted {
            decay.iter_mut().for_each(|v| *v = -v.exp());
        }
        Ok(DeltaNet {
            qkv: Linear::load(w, "in_proj_qkv", shape.qkv_width(), hidden, false)?,
            z: Linear::load(w, "in_proj_z", width, hidden, false)?,
            a: Linear::load(w, "in_proj_a", value_heads, hidden, false)?,
            b: Linear::load(w, "in_proj_b", value_heads, hidden, false)?,
            conv: ShortConv::load(
                w,
                shape.qkv_width(),
                config.bounded("linear_conv_kernel_dim", 1..=64)?,
                false,
                state,
            )?,
            decay: Vector::new("A_log", decay),
            dt_bias: Vector::new("dt_bias", w.vector("dt_bias", value_heads)?),
            norm: RmsNorm::load(w, "norm", shape.value_dim, Gain::Whole, config.f32("rms_norm_eps")?)?,
            out: Linear::load(w, "out_proj", hidden, width, false)?,
            shape,
            state: state + 1,
        })
    }

    /// Values that its recurrent ops keep of a sequence, in order.
    pub(crate) fn states(&self) -> [usize; 2] {
        [self.conv.state_len(), self.shape.state_len()]
    }

    /// Records the layer: `x` and the result are `[rows, hidden]`.
    pub(crate) fn forward(&self, rec: &mut Recorder, x: Tensor) -> Tensor {
        let qkv = self.qkv.forward(rec, x);
        let z = self.z.forward(rec, x);
        let a = self.a.forward(rec, x);
        let b = self.b.forward(rec, x);
        let qkv = self.conv.forward(rec, qkv);
        let h = rec.gated_delta([qkv, a, b], &self.decay, &self.dt_bias, self.shape, self.state);
        let h = self.norm.forward(rec, h);
        let h = rec.silu_mul(z, h);
        self.out.forward(rec, h)
    }
}
