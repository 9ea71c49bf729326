//! Feed-forward blocks: gated MLP and routed experts.

use std::sync::Arc;

use kapitsa_ops::{Recorder, Tap, Tensor};
use kapitsa_tensor::Weight;
use kapitsa_weights::{Config, LoadError, Weights, short};

use super::Linear;

/// The feed-forward half of a layer.
pub(crate) enum Mlp {
    Gated(GatedMlp),
    Moe(Moe),
}

/// `down(silu(gate x) ⊙ up x)`.
pub(crate) struct GatedMlp {
    gate: Linear,
    up: Linear,
    down: Linear,
}

/// The best `k` of many gated MLPs for each row, weighted by the softmax of the router.
pub(crate) struct Moe {
    router: Linear,
    gate: Arc<[Weight]>,
    up: Arc<[Weight]>,
    down: Arc<[Weight]>,
    k: usize,
    normalize: bool,
}

impl GatedMlp {
    pub(crate) fn load(config: &Config, w: &Weights<'_>) -> Result<Self, LoadError> {
        require_silu(config)?;
        let hidden = config.usize("hidden_size")?;
        let inner = config.usize("intermediate_size")?;
        let bias = config.bool_or("mlp_bias", false)?;
        Ok(GatedMlp {
            gate: Linear::load(w, "gate_proj", inner, hidden, bias)?,
            up: Linear::load(w, "up_proj", inner, hidden, bias)?,
            down: Linear::load(w, "down_proj", hidden, inner, bias)?,
        })
    }

    fn forward(&self, rec: &mut Recorder, x: Tensor) -> Tensor {
        let gate = self.gate.forward(rec, x);
        let up = self.up.forward(rec, x);
        let h = rec.silu_mul(gate, up);
        self.down.forward(rec, h)
    }
}

impl Moe {
    pub(crate) fn load(config: &Config, w: &Weights<'_>) -> Result<Self, LoadError> {
        require_silu(config)?;
        let hidden = config.usize("hidden_size")?;
        let inner = config.usize("moe_intermediate_size")?;
        let experts = config.bounded("num_experts", 1..=65_536)?;
        let k = config.bounded("num_experts_per_tok", 1..=experts)?;
        Ok(Moe {
            router: Linear::load(w, "gate", experts, hidden, false)?,
            gate: w.experts("gate_proj", experts, inner, hidden)?.into(),
            up: w.experts("up_proj", experts, inner, hidden)?.into(),
            down: w.experts("down_proj", experts, hidden, inner)?.into(),
            k,
            normalize: config.bool_or("norm_topk_prob", false)?,
        })
    }

    fn forward(&self, rec: &mut Recorder, x: Tensor, layer: usize) -> Tensor {
        let logits = self.router.forward(rec, x);
        rec.tap(Tap::Router(layer), logits);
        let ids = rec.route(logits, self.k);
        let weights = rec.expert_weights(logits, ids, self.normalize);
        let gate = rec.expert_linear(x, &self.gate, ids);
        let up = rec.expert_linear(x, &self.up, ids);
        let h = rec.silu_mul(gate, up);
        let h = rec.expert_linear(h, &self.down, ids);
        rec.expert_combine(h, weights)
    }
}

impl Mlp {
    /// Records layer `layer`'s block: `x` and the result are `[rows, hidden]`.
    pub(crate) fn forward(&self, rec: &mut Recorder, x: Tensor, layer: usize) -> Tensor {
        match self {
            Mlp::Gated(mlp) => mlp.forward(rec, x),
            Mlp::Moe(moe) => moe.forward(rec, x, layer),
        }
    }
}

impl From<GatedMlp> for Mlp {
    fn from(mlp: GatedMlp) -> Self {
        Mlp::Gated(mlp)
    }
}

impl From<Moe> for Mlp {
    fn from(moe: Moe) -> Self {
        Mlp::Moe(moe)
    }
}

fn require_silu(config: &Config) -> Result<(), LoadError> {
    match config.opt_str("hidden_act")?.unwrap_or("silu") {
        "silu" => Ok(()),
        other => Err(config.error("hidden_act", format!("is `{}`, expected `silu`", short(other)))),
    }
}
