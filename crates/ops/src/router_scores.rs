//! `out = σ(logits) + bias`: what experts are chosen by where a bias evens out their load (DeepSeek-V3, arXiv:2412.19437,
//! section 2.1.2). The bias has no part in the weights of the chosen ones.

use crate::reference::Memory;
use crate::sigmoid_mul::sigmoid;
use crate::{ElementType, Recorder, Rule, Tensor, Vector};

/// `logits`, `out`: `[rows, experts]`; `bias`: `[experts]`.
#[derive(Clone, Debug)]
pub struct RouterScores {
    /// Router logits.
    pub logits: Tensor,
    /// Correction of each expert's score.
    pub bias: Vector,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Scores of all experts.
    pub fn router_scores(&mut self, logits: Tensor, bias: &Vector) -> Tensor {
        let out = self.tensor(logits.rows(), logits.width(), ElementType::F32);
        self.push(RouterScores { logits, bias: bias.clone(), out });
        out
    }
}

impl RouterScores {
    /// One row.
    pub fn score(&self, logits: &[f32], out: &mut [f32]) {
        for ((out, logit), bias) in out.iter_mut().zip(logits).zip(self.bias.values()) {
            *out = sigmoid(*logit) + bias;
        }
    }
}

impl Rule for RouterScores {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.logits]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { logits, bias, out } = self;
        assert!(logits.is_f32() && bias.values().len() == logits.width(), "{self:?}");
        assert!((out.rows(), out.width()) == (logits.rows(), logits.width()), "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        memory.map_rows(&self.logits, &self.out, |logits, out| self.score(logits, out));
    }
}
