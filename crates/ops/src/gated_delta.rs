//! The gated delta rule (Yang et al., arXiv:2412.06464), token by token. For each value head, with its key head's unit
//! vectors `q̂ = q / |q| / √dk` and `k̂ = k / |k|`, `α = exp(decay · softplus(a + dt_bias))` and `β = σ(b)`:
//!
//! ```text
//! S ← α S;  u = β (v - Sᵀ k̂);  S ← S + k̂ uᵀ;  out = Sᵀ q̂
//! ```
//!
//! State: `S` of each value head, `[value_heads, key_dim, value_dim]`.

use crate::linear::dot;
use crate::reference::Memory;
use crate::sigmoid_mul::sigmoid;
use crate::{ElementType, Recorder, Rows, Rule, Tensor, Vector};

/// Which key head a value head has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyHeads {
    /// Value head `h` has key head `h / (value_heads / key_heads)`.
    Grouped,
    /// Value head `h` has key head `h % key_heads`, as GGUF files order value heads.
    Tiled,
}

/// Heads and their sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaShape {
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values, a multiple.
    pub value_heads: usize,
    /// Elements of a query or key.
    pub key_dim: usize,
    /// Elements of a value.
    pub value_dim: usize,
    /// Which key head a value head has.
    pub order: KeyHeads,
}

impl DeltaShape {
    /// Queries, keys and values of a row.
    pub fn qkv_width(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }

    /// Values of a state.
    pub fn state_len(&self) -> usize {
        self.value_heads * self.key_dim * self.value_dim
    }

    /// The key head of a value head.
    pub fn key_head(&self, value_head: usize) -> usize {
        match self.order {
            KeyHeads::Grouped => value_head / (self.value_heads / self.key_heads),
            KeyHeads::Tiled => value_head % self.key_heads,
        }
    }
}

/// `qkv`: `[rows, qkv_width]`, all queries, all keys, all values; `a`, `b`: `[rows, value_heads]`; `out`:
/// `[rows, value_heads · value_dim]`.
#[derive(Clone, Debug)]
pub struct GatedDelta {
    /// Queries, keys and values.
    pub qkv: Tensor,
    /// Says how much of the state is kept.
    pub a: Tensor,
    /// Says how much of the new value is written.
    pub b: Tensor,
    /// `-exp(A_log)`, `[value_heads]`.
    pub decay: Vector,
    /// Added to `a`, `[value_heads]`.
    pub dt_bias: Vector,
    /// Sizes.
    pub shape: DeltaShape,
    /// Index among the recurrent ops.
    pub state: usize,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Scans the path of each row; `state` counts recurrent ops in the order of recording.
    pub fn gated_delta(
        &mut self,
        [qkv, a, b]: [Tensor; 3],
        decay: &Vector,
        dt_bias: &Vector,
        shape: DeltaShape,
        state: usize,
    ) -> Tensor {
        let out = self.tensor(Rows::Batch, shape.value_heads * shape.value_dim, ElementType::F32);
        self.push(GatedDelta { qkv, a, b, decay: decay.clone(), dt_bias: dt_bias.clone(), shape, state, out });
        out
    }
}

/// `ln(1 + eˣ)`.
pub(crate) fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

impl GatedDelta {
    /// Added to the squared length of queries and keys, inside the root.
    pub const UNIT_EPS: f32 = 1e-6;

    /// `α` and `β` of value head `head`.
    pub fn gates(&self, head: usize, a: f32, b: f32) -> (f32, f32) {
        let decay = self.decay.values()[head] * softplus(a + self.dt_bias.values()[head]);
        (decay.exp(), sigmoid(b))
    }

    /// Where the query, key and value of `head` lie in a row of `qkv`.
    pub fn places(&self, head: usize) -> [std::ops::Range<usize>; 3] {
        let DeltaShape { key_heads, key_dim, value_dim, .. } = self.shape;
        let keys = key_heads * key_dim;
        let q = self.shape.key_head(head) * key_dim;
        let v = 2 * keys + head * value_dim;
        [q..q + key_dim, keys + q..keys + q + key_dim, v..v + value_dim]
    }

    fn step(&self, state: &mut [f32], qkv: &[f32], a: &[f32], b: &[f32]) -> Vec<f32> {
        let DeltaShape { key_dim, value_dim, .. } = self.shape;
        let mut out = vec![];
        for (head, s) in state.chunks_exact_mut(key_dim * value_dim).enumerate() {
            let [q, k, v] = self.places(head).map(|range| &qkv[range]);
            let (alpha, beta) = self.gates(head, a[head], b[head]);
            let unit = |x: &[f32]| 1.0 / (dot(x, x) + Self::UNIT_EPS).sqrt();
            let (q_scale, k_scale) = (unit(q) / (key_dim as f32).sqrt(), unit(k));
            s.iter_mut().for_each(|s| *s *= alpha);
            for j in 0..value_dim {
                let read: f32 = (0..key_dim).map(|i| s[i * value_dim + j] * k[i] * k_scale).sum();
                let u = beta * (v[j] - read);
                (0..key_dim).for_each(|i| s[i * value_dim + j] += k[i] * k_scale * u);
                out.push((0..key_dim).map(|i| s[i * value_dim + j] * q[i] * q_scale).sum());
            }
        }
        out
    }

    /// [`step`](Self::step) on the rows in memory.
    fn stepper<'a>(&'a self, memory: &Memory<'_>) -> impl FnMut(&mut [f32], usize) -> Vec<f32> + use<'a> {
        let [qkv, a, b] = [self.qkv, self.a, self.b].map(|x| (memory.read(&x), x.width()));
        move |state, row| {
            let [qkv, a, b] = [&qkv, &a, &b].map(|(x, width)| &x[row * width..][..*width]);
            self.step(state, qkv, a, b)
        }
    }
}

impl Rule for GatedDelta {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.qkv, self.a, self.b]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { qkv, a, b, decay, dt_bias, shape, out, .. } = self;
        let DeltaShape { key_heads, value_heads, key_dim, value_dim, .. } = *shape;
        assert!(key_heads > 0 && value_heads > 0 && value_heads % key_heads == 0, "{self:?}");
        assert!(key_dim > 0 && value_dim > 0 && qkv.width() == shape.qkv_width(), "{self:?}");
        assert!(a.width() == value_heads && b.width() == value_heads, "{self:?}");
        assert!(decay.values().len() == value_heads && dt_bias.values().len() == value_heads, "{self:?}");
        for x in [qkv, a, b, out] {
            assert!(x.is_f32() && x.rows() == Rows::Batch, "{self:?}");
        }
        assert!(out.width() == value_heads * value_dim, "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        let step = self.stepper(memory);
        let out = memory.scan(self.state, step);
        memory.write(&self.out, &out);
    }

    fn state(&self) -> Option<(usize, usize)> {
        Some((self.state, self.shape.state_len()))
    }

    fn commit(&self, memory: &mut Memory<'_>, sequence: usize, path: &[usize]) {
        let step = self.stepper(memory);
        memory.advance(self.state, sequence, path, step);
    }
}
