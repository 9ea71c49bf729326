//! Routed experts: a choice of MLPs for each row, and one that all rows share.

use std::sync::Arc;

use kapitsa_ops::{ExpertGroups, Recorder, Score, Tap, Tensor, Vector};
use kapitsa_tensor::Weight;
use kapitsa_weights::{Config, LoadError, Weights};

use super::{Linear, Mlp};

/// The best `k` of many MLPs for each row, weighted by the router, and a shared one.
pub(crate) struct Moe {
    router: Router,
    experts: Experts,
    /// To the width that the experts work in and back, where that is not the model's.
    latent: Option<(Linear, Linear)>,
    shared: Option<Shared>,
}

/// Who chooses.
pub(crate) struct Router {
    logits: Linear,
    k: usize,
    /// Added to the scores that experts are chosen by, not to their weights.
    correction: Option<Vector>,
    groups: Option<ExpertGroups>,
    score: Score,
    normalize: bool,
}

/// The MLPs: gated ones, or without gates as [`Mlp`].
pub(crate) struct Experts {
    gate: Option<Arc<[Weight]>>,
    up: Arc<[Weight]>,
    down: Arc<[Weight]>,
}

/// What all rows go through, and how much of it they take, if the model says.
pub(crate) struct Shared {
    pub(crate) mlp: Mlp,
    pub(crate) gate: Option<Linear>,
}

impl Router {
    /// Reads a router `gate` over `experts` experts: the softmax of all is their weight.
    pub(crate) fn softmax(
        config: &Config,
        w: &Weights<'_>,
        experts: usize,
        normalize: bool,
    ) -> Result<Self, LoadError> {
        Ok(Router {
            logits: Linear::load(w, "gate", experts, config.usize("hidden_size")?, false)?,
            k: config.bounded("num_experts_per_tok", 1..=experts)?,
            correction: None,
            groups: None,
            score: Score::Softmax,
            normalize,
        })
    }

    /// As [`softmax`](Self::softmax), but each expert has a score of its own, a bias steers the choice, and only experts of
    /// the best groups are chosen from (DeepSeek-V3, arXiv:2412.19437).
    pub(crate) fn sigmoid(config: &Config, w: &Weights<'_>, experts: usize) -> Result<Self, LoadError> {
        let router = Self::softmax(config, w, experts, config.bool_or("norm_topk_prob", true)?)?;
        let name = "gate.e_score_correction_bias";
        let bias = Vector::new(name, w.vector(name, experts)?);
        let count = super::bounded_or(config, "n_group", 1..=ExpertGroups::MAX, 1)?;
        let kept = super::bounded_or(config, "topk_group", 1..=count, 1)?;
        if !experts.is_multiple_of(count) || router.k > experts / count * kept {
            let reason =
                format!("is {count}, expected a divisor of {experts} experts, {} of them in {kept} groups", router.k);
            return Err(config.error("n_group", reason));
        }
        Ok(Router {
            correction: Some(bias),
            groups: (count > 1).then_some(ExpertGroups { count, kept }),
            score: Score::Sigmoid { scale: config.f32_or("routed_scaling_factor", 1.0)? },
            ..router
        })
    }

    /// Records the choice: ids and weights, each `[rows, k]`.
    fn forward(&self, rec: &mut Recorder, x: Tensor, layer: usize) -> (Tensor, Tensor) {
        let logits = self.logits.forward(rec, x);
        rec.tap(Tap::Router(layer), logits);
        let scores = match &self.correction {
            Some(bias) => rec.router_scores(logits, bias),
            None => logits,
        };
        let ids = rec.route(scores, self.k, self.groups);
        rec.tap(Tap::Experts(layer), ids);
        let weights = rec.expert_weights(logits, ids, self.score, self.normalize);
        rec.tap(Tap::ExpertWeights(layer), weights);
        (ids, weights)
    }
}

impl Experts {
    /// Reads `count` gated MLPs from `width` to `inner` values and back.
    pub(crate) fn gated(w: &Weights<'_>, count: usize, width: usize, inner: usize) -> Result<Self, LoadError> {
        let gate = Some(w.experts("gate_proj", count, inner, width)?.into());
        Ok(Experts { gate, ..Self::plain(w, count, width, inner)? })
    }

    /// Reads `count` MLPs without gates.
    pub(crate) fn plain(w: &Weights<'_>, count: usize, width: usize, inner: usize) -> Result<Self, LoadError> {
        Ok(Experts {
            gate: None,
            up: w.experts("up_proj", count, inner, width)?.into(),
            down: w.experts("down_proj", count, width, inner)?.into(),
        })
    }

    /// Records the chosen MLPs: `[rows, k · width]`.
    fn forward(&self, rec: &mut Recorder, x: Tensor, ids: Tensor) -> Tensor {
        let gate = self.gate.as_ref().map(|gate| rec.expert_linear(x, gate, ids));
        let up = rec.expert_linear(x, &self.up, ids);
        let h = match gate {
            Some(gate) => rec.silu_mul(gate, up),
            None => rec.relu2(up),
        };
        rec.expert_linear(h, &self.down, ids)
    }
}

impl Moe {
    pub(crate) fn new(router: Router, experts: Experts) -> Self {
        Moe { router, experts, latent: None, shared: None }
    }

    /// The experts work between `down` and `up`.
    pub(crate) fn latent(self, down: Linear, up: Linear) -> Self {
        Moe { latent: Some((down, up)), ..self }
    }

    pub(crate) fn shared(self, shared: Shared) -> Self {
        Moe { shared: Some(shared), ..self }
    }

    /// Records layer `layer`'s block: `x` and the result are `[rows, hidden]`.
    pub(crate) fn forward(&self, rec: &mut Recorder, x: Tensor, layer: usize) -> Tensor {
        let (ids, weights) = self.router.forward(rec, x, layer);
        let latent = self.latent.as_ref().map_or(x, |(down, _)| down.forward(rec, x));
        let h = self.experts.forward(rec, latent, ids);
        let mut h = rec.expert_combine(h, weights);
        if let Some((_, up)) = &self.latent {
            h = up.forward(rec, h);
        }
        if let Some(Shared { mlp, gate }) = &self.shared {
            let gate = gate.as_ref().map(|gate| gate.forward(rec, x));
            let mut s = mlp.forward(rec, x);
            if let Some(gate) = gate {
                s = rec.sigmoid_mul(s, gate);
            }
            h = rec.add(h, s);
        }
        h
    }
}
