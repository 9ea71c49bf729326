//! Scaled dot-product attention of each row to all rows of its sequence in the batch, without a cache: `out_h =
//! softmax(q_h · Kᵀ · scale) · V`. Vision towers look at an image so.

use crate::linear::dot;
use crate::reference::Memory;
use crate::{ElementType, Recorder, Rows, Rule, Tensor};

/// `q`, `k`, `v`, `out`: `[rows, heads · head_dim]`.
#[derive(Clone, Debug)]
pub struct FullAttention {
    /// Queries.
    pub q: Tensor,
    /// Keys.
    pub k: Tensor,
    /// Values.
    pub v: Tensor,
    /// Heads of each.
    pub heads: usize,
    /// Multiplies the scores.
    pub scale: f32,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Attends to all rows of the sequence.
    pub fn full_attention(&mut self, [q, k, v]: [Tensor; 3], heads: usize, scale: f32) -> Tensor {
        let out = self.tensor(q.rows(), q.width(), ElementType::F32);
        self.push(FullAttention { q, k, v, heads, scale, out });
        out
    }
}

impl Rule for FullAttention {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.q, self.k, self.v]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { q, k, v, heads, out, .. } = self;
        for x in [q, k, v, out] {
            assert!(x.is_f32() && x.rows() == Rows::Batch && x.width() == q.width(), "{self:?}");
        }
        assert!(q.width() % heads == 0, "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        let [q, k, v] = [self.q, self.k, self.v].map(|x| memory.read(&x));
        let width = self.q.width();
        let dim = width / self.heads;
        let mut out = vec![0.0; q.len()];
        for row in 0..memory.batch.len() {
            let others = memory.batch.rows_of(memory.batch.sequence(row));
            for head in 0..self.heads {
                let of = |row: usize| row * width + head * dim..row * width + (head + 1) * dim;
                let scores: Vec<f32> = others.iter().map(|&o| dot(&q[of(row)], &k[of(o)]) * self.scale).collect();
                let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let sum: f32 = scores.iter().map(|s| (s - max).exp()).sum();
                for (&other, score) in others.iter().zip(scores) {
                    let weight = (score - max).exp() / sum;
                    out[of(row)].iter_mut().zip(&v[of(other)]).for_each(|(out, v)| *out += weight * v);
                }
            }
        }
        memory.write(&self.out, &out);
    }
}
