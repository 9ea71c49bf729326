//! Scaled dot-product attention of each row over the keys on its path, grouped-query, causal, optionally windowed.
//!
//! `out_h = softmax(q_h · Kᵀ · scale) · V` with the keys and values of KV head `h / (heads / kv_heads)`.
//! Keys that a row may not see take no part at all: masking is an exact no-op.

use crate::kv::Part;
use crate::linear::dot;
use crate::reference::Memory;
use crate::{ElementType, Recorder, Rows, Rule, Tensor};

/// `q`, `out`: `[rows, heads · head_dim]`. Keys and values of the batch's rows are in the cache already.
#[derive(Clone, Debug)]
pub struct Attention {
    /// Rotated queries.
    pub q: Tensor,
    /// Attention layer, counted over layers with attention.
    pub layer: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Multiplies the scores.
    pub scale: f32,
    /// A row sees itself and the `window - 1` positions before it.
    pub window: Option<usize>,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Attends over the KV cache of `layer`.
    pub fn attention(
        &mut self,
        q: Tensor,
        layer: usize,
        (heads, kv_heads): (usize, usize),
        scale: f32,
        window: Option<usize>,
    ) -> Tensor {
        let out = self.tensor(Rows::Batch, q.width(), ElementType::F32);
        self.push(Attention { q, layer, heads, kv_heads, scale, window, out });
        out
    }
}

impl Attention {
    /// Elements of a head.
    pub fn head_dim(&self) -> usize {
        self.q.width() / self.heads
    }

    /// First position that a row at `position` sees.
    pub fn first_visible(&self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }
}

impl Rule for Attention {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.q]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { q, heads, kv_heads, window, out, .. } = self;
        assert!(q.is_f32() && q.rows() == Rows::Batch && q.width() % heads == 0, "{self:?}");
        assert!(heads % kv_heads == 0 && *window != Some(0), "{self:?}");
        assert!((out.rows(), out.width()) == (q.rows(), q.width()), "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        let q = memory.read(&self.q);
        let mut out = vec![0.0; q.len()];
        let dim = self.head_dim();
        for (row, (q, out)) in q.chunks_exact(self.q.width()).zip(out.chunks_exact_mut(self.q.width())).enumerate() {
            let position = memory.batch.position(row);
            for (head, (q, out)) in q.chunks_exact(dim).zip(out.chunks_exact_mut(dim)).enumerate() {
                let kv_head = head / (self.heads / self.kv_heads);
                let path = self.first_visible(position)..=position;
                let scores: Vec<f32> = path
                    .clone()
                    .map(|p| dot(q, &memory.read_kv(self.layer, row, p, Part::Key, kv_head)) * self.scale)
                    .collect();
                let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let sum: f32 = scores.iter().map(|s| (s - max).exp()).sum();
                for (p, score) in path.zip(scores) {
                    let value = memory.read_kv(self.layer, row, p, Part::Value, kv_head);
                    for i in 0..dim {
                        out[i] += (score - max).exp() / sum * value[i];
                    }
                }
            }
        }
        memory.write(&self.out, &out);
    }
}
