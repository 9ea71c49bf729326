//! Mamba-2 (Dao & Gu, arXiv:2405.21060).

use kapitsa_ops::{MambaShape, Recorder, Tensor, Vector};
use kapitsa_weights::{Config, LoadError, Weights};

use super::{Gain, Linear, RmsNorm, ShortConv, bounded_or};

/// Projections, convolution, state-space scan, gated norm, and the way back to the residual stream.
pub(crate) struct Mamba {
    z: Linear,
    xbc: Linear,
    dt: Linear,
    conv: ShortConv,
    decay: Vector,
    dt_bias: Vector,
    skip: Vector,
    norm: RmsNorm,
    out: Linear,
    shape: MambaShape,
    state: usize,
}

impl Mamba {
    /// Reads the layer, whose recurrent ops count from `state`.
    pub(crate) fn load(config: &Config, w: &Weights<'_>, eps: f32, state: usize) -> Result<Self, LoadError> {
        let hidden = config.usize("hidden_size")?;
        let heads = config.bounded("mamba_num_heads", 1..=4096)?;
        let groups = bounded_or(config, "n_groups", 1..=heads, 8.min(heads))?;
        if heads % groups != 0 {
            return Err(config.error("n_groups", format!("is {groups}, expected a divisor of {heads} heads")));
        }
        let shape = MambaShape {
            heads,
            head_dim: config.bounded("mamba_head_dim", 1..=4096)?,
            groups,
            state_dim: config.bounded("ssm_state_size", 1..=4096)?,
            step_limits: step_limits(config)?,
        };
        let inner = heads * shape.head_dim;
        let bias = config.bool_or("mamba_proj_bias", false)?;
        let conv_bias = config.bool_or("use_conv_bias", true)?;
        let taps = bounded_or(config, "conv_kernel", 1..=64, 4)?;
        // One matrix with the rows of all three.
        let projection = Linear::load(w, "in_proj", inner + shape.xbc_width() + heads, hidden, bias)?;
        let [z, xbc, dt] = projection.split(w, [inner, shape.xbc_width(), heads])?;
        let mut decay = w.vector("A_log", heads)?;
        decay.iter_mut().for_each(|v| *v = -v.exp());
        Ok(Mamba {
            z,
            xbc,
            dt,
            conv: ShortConv::load(w, shape.xbc_width(), taps, conv_bias, state)?,
            decay: Vector::new("A_log", decay),
            dt_bias: Vector::new("dt_bias", w.vector("dt_bias", heads)?),
            skip: Vector::new("D", w.vector("D", heads)?),
            norm: RmsNorm::load(w, "norm", inner, Gain::Whole, eps)?.groups(inner / groups),
            out: Linear::load(w, "out_proj", hidden, inner, bias)?,
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
        let z = self.z.forward(rec, x);
        let xbc = self.xbc.forward(rec, x);
        let dt = self.dt.forward(rec, x);
        let xbc = self.conv.forward(rec, xbc);
        let h = rec.mamba2([xbc, dt], [&self.decay, &self.dt_bias, &self.skip], self.shape, self.state);
        let h = rec.silu_mul(z, h);
        let h = self.norm.forward(rec, h);
        self.out.forward(rec, h)
    }
}

/// The bounds of a step; there are none by default.
fn step_limits(config: &Config) -> Result<(f32, f32), LoadError> {
    let Some(limits) = config.opt_f32s("time_step_limit")? else { return Ok((0.0, f32::INFINITY)) };
    match limits[..] {
        [low, high] if low <= high => Ok((low, high)),
        _ => Err(config.error("time_step_limit", format!("is {limits:?}, expected two numbers in order"))),
    }
}
