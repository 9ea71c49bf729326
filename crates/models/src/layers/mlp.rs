//! Feed-forward blocks: one MLP, or a choice of experts.

use kapitsa_ops::{Recorder, Tensor};
use kapitsa_weights::{Config, LoadError, Weights, short};

use super::{Linear, Moe};

/// The feed-forward half of a layer.
pub(crate) enum FeedForward {
    Dense(Box<Mlp>),
    Moe(Box<Moe>),
}

/// `down(silu(gate x) ⊙ up x)`, or `down(max(up x, 0)²)` without a gate.
pub(crate) struct Mlp {
    gate: Option<Linear>,
    up: Linear,
    down: Linear,
}

impl Mlp {
    /// Reads a gated MLP of `inner` hidden values; whether it has biases, the config says.
    pub(crate) fn gated(config: &Config, w: &Weights<'_>, inner: usize) -> Result<Self, LoadError> {
        require(config, "hidden_act", "silu")?;
        let hidden = config.usize("hidden_size")?;
        let bias = config.bool_or("mlp_bias", false)?;
        let gate = Some(Linear::load(w, "gate_proj", inner, hidden, bias)?);
        Ok(Mlp { gate, ..Self::plain(config, w, inner)? })
    }

    /// Reads an MLP without a gate.
    pub(crate) fn plain(config: &Config, w: &Weights<'_>, inner: usize) -> Result<Self, LoadError> {
        let hidden = config.usize("hidden_size")?;
        let bias = config.bool_or("mlp_bias", false)?;
        Ok(Mlp {
            gate: None,
            up: Linear::load(w, "up_proj", inner, hidden, bias)?,
            down: Linear::load(w, "down_proj", hidden, inner, bias)?,
        })
    }

    /// Records it: `x` and the result are `[rows, hidden]`.
    pub(crate) fn forward(&self, rec: &mut Recorder, x: Tensor) -> Tensor {
        let h = match &self.gate {
            Some(gate) => {
                let gate = gate.forward(rec, x);
                let up = self.up.forward(rec, x);
                rec.silu_mul(gate, up)
            }
            None => {
                let up = self.up.forward(rec, x);
                rec.relu2(up)
            }
        };
        self.down.forward(rec, h)
    }
}

impl FeedForward {
    /// Records layer `layer`'s block: `x` and the result are `[rows, hidden]`.
    pub(crate) fn forward(&self, rec: &mut Recorder, x: Tensor, layer: usize) -> Tensor {
        match self {
            FeedForward::Dense(mlp) => mlp.forward(rec, x),
            FeedForward::Moe(moe) => moe.forward(rec, x, layer),
        }
    }
}

impl From<Mlp> for FeedForward {
    fn from(mlp: Mlp) -> Self {
        FeedForward::Dense(Box::new(mlp))
    }
}

impl From<Moe> for FeedForward {
    fn from(moe: Moe) -> Self {
        FeedForward::Moe(Box::new(moe))
    }
}

/// `key` names the activation; it must be `expected`, which it is if the config does not say.
pub(crate) fn require(config: &Config, key: &str, expected: &str) -> Result<(), LoadError> {
    match config.opt_str(key)?.unwrap_or(expected) {
        found if found == expected => Ok(()),
        other => Err(config.error(key, format!("is `{}`, expected `{expected}`", short(other)))),
    }
}
