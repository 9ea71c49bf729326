//! The weight of each chosen expert: softmax of the router logits over all experts, or the sigmoid of its own; optionally
//! scaled to sum to one over the chosen ones.

use crate::reference::Memory;
use crate::sigmoid_mul::sigmoid;
use crate::{ElementType, Recorder, Rule, Tensor};

/// What makes a weight of a router logit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Score {
    /// Softmax over all experts.
    Softmax,
    /// Sigmoid, and everything multiplied by `scale` in the end.
    Sigmoid {
        /// The factor.
        scale: f32,
    },
}

/// `logits`: `[rows, experts]`; `ids`: `[rows, k]`; `out`: `[rows, k]`.
#[derive(Clone, Debug)]
pub struct ExpertWeights {
    /// Router logits.
    pub logits: Tensor,
    /// From [`crate::Route`].
    pub ids: Tensor,
    /// From logits to weights.
    pub score: Score,
    /// Whether the weights of a row sum to one (before the factor).
    pub normalize: bool,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Weighs the chosen experts.
    pub fn expert_weights(&mut self, logits: Tensor, ids: Tensor, score: Score, normalize: bool) -> Tensor {
        let out = self.tensor(logits.rows(), ids.width(), ElementType::F32);
        self.push(ExpertWeights { logits, ids, score, normalize, out });
        out
    }
}

impl ExpertWeights {
    /// One row: `logits` `[experts]`, `ids` and `out` `[k]`.
    pub fn weigh(&self, logits: &[f32], ids: &[u32], out: &mut [f32]) {
        match self.score {
            Score::Softmax => Self::softmax(logits, ids, self.normalize, out),
            Score::Sigmoid { scale } => {
                for (out, &id) in out.iter_mut().zip(ids) {
                    *out = sigmoid(logits[id as usize]);
                }
                // The tiny term is that of DeepSeek-V3's published code, which all of these routers come from.
                let sum: f32 = if self.normalize { out.iter().sum::<f32>() + 1e-20 } else { 1.0 };
                out.iter_mut().for_each(|v| *v = *v / sum * scale);
            }
        }
    }

    /// One row: `logits` `[experts]`, `ids` and `out` `[k]`.
    pub fn softmax(logits: &[f32], ids: &[u32], normalize: bool, out: &mut [f32]) {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let all: f32 = logits.iter().map(|v| (v - max).exp()).sum();
        for (out, &id) in out.iter_mut().zip(ids) {
            *out = (logits[id as usize] - max).exp() / all;
        }
        if normalize {
            let chosen: f32 = out.iter().sum();
            out.iter_mut().for_each(|v| *v /= chosen);
        }
    }
}

impl Rule for ExpertWeights {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.logits, self.ids]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { logits, ids, out, .. } = self;
        assert!(logits.is_f32() && !ids.is_f32() && out.is_f32(), "{self:?}");
        assert!(logits.rows() == ids.rows() && (ids.rows(), ids.width()) == (out.rows(), out.width()), "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        let ids = memory.read_indices(&self.ids);
        let mut ids = ids.chunks_exact(self.ids.width());
        memory.map_rows(&self.logits, &self.out, |logits, out| {
            let ids = ids.next().expect("as many rows as logits");
            self.weigh(logits, ids, out);
        });
    }
}
