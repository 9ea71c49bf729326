//! The state-space scan of Mamba-2 (Dao & Gu, arXiv:2405.21060), token by token. For each head, with its group's `B` and `C`,
//! and `Δ = clamp(softplus(dt + dt_bias))`:
//!
//! ```text
//! S ← exp(Δ · decay) S + B (Δ x)ᵀ;  out = Sᵀ C + skip · x
//! ```
//!
//! State: `S` of each head, `[heads, state_dim, head_dim]`.

use crate::gated_delta::softplus;
use crate::reference::Memory;
use crate::{ElementType, Recorder, Rows, Rule, Tensor, Vector};

/// Heads and their sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MambaShape {
    /// Heads.
    pub heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Groups of heads that share `B` and `C`.
    pub groups: usize,
    /// Elements of `B` and of `C`.
    pub state_dim: usize,
    /// Bounds of `Δ`.
    pub step_limits: (f32, f32),
}

impl MambaShape {
    /// `x`, `B` and `C` of a row.
    pub fn xbc_width(&self) -> usize {
        self.heads * self.head_dim + 2 * self.groups * self.state_dim
    }

    /// Values of a state.
    pub fn state_len(&self) -> usize {
        self.heads * self.state_dim * self.head_dim
    }
}

/// `xbc`: `[rows, xbc_width]`, all heads' `x`, all groups' `B`, all groups' `C`; `dt`: `[rows, heads]`; `out`:
/// `[rows, heads · head_dim]`.
#[derive(Clone, Debug)]
pub struct Mamba2 {
    /// `x`, `B` and `C`.
    pub xbc: Tensor,
    /// Says how far a step goes.
    pub dt: Tensor,
    /// `-exp(A_log)`, `[heads]`.
    pub decay: Vector,
    /// Added to `dt`, `[heads]`.
    pub dt_bias: Vector,
    /// How much of `x` goes past the state, `[heads]`.
    pub skip: Vector,
    /// Sizes.
    pub shape: MambaShape,
    /// Index among the recurrent ops.
    pub state: usize,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Scans the path of each row; `state` counts recurrent ops in the order of recording.
    pub fn mamba2(
        &mut self,
        [xbc, dt]: [Tensor; 2],
        [decay, dt_bias, skip]: [&Vector; 3],
        shape: MambaShape,
        state: usize,
    ) -> Tensor {
        let out = self.tensor(Rows::Batch, shape.heads * shape.head_dim, ElementType::F32);
        let (decay, dt_bias, skip) = (decay.clone(), dt_bias.clone(), skip.clone());
        self.push(Mamba2 { xbc, dt, decay, dt_bias, skip, shape, state, out });
        out
    }
}

impl Mamba2 {
    /// `Δ` of `head`, and what the state keeps: `exp(Δ · decay)`.
    pub fn gates(&self, head: usize, dt: f32) -> (f32, f32) {
        let (low, high) = self.shape.step_limits;
        let step = softplus(dt + self.dt_bias.values()[head]).max(low).min(high);
        (step, (step * self.decay.values()[head]).exp())
    }

    /// Where `x`, `B` and `C` of `head` lie in a row of `xbc`.
    pub fn places(&self, head: usize) -> [std::ops::Range<usize>; 3] {
        let MambaShape { heads, head_dim, groups, state_dim, .. } = self.shape;
        let (x, b) = (head * head_dim, heads * head_dim + head / (heads / groups) * state_dim);
        let c = b + groups * state_dim;
        [x..x + head_dim, b..b + state_dim, c..c + state_dim]
    }

    fn step(&self, state: &mut [f32], xbc: &[f32], dt: &[f32]) -> Vec<f32> {
        let MambaShape { head_dim, state_dim, .. } = self.shape;
        let mut out = vec![];
        for (head, s) in state.chunks_exact_mut(state_dim * head_dim).enumerate() {
            let [x, b, c] = self.places(head).map(|range| &xbc[range]);
            let (step, keep) = self.gates(head, dt[head]);
            for j in 0..head_dim {
                (0..state_dim).for_each(|i| s[i * head_dim + j] = s[i * head_dim + j] * keep + b[i] * (step * x[j]));
                let read: f32 = (0..state_dim).map(|i| s[i * head_dim + j] * c[i]).sum();
                out.push(read + self.skip.values()[head] * x[j]);
            }
        }
        out
    }

    /// [`step`](Self::step) on the rows in memory.
    fn stepper<'a>(&'a self, memory: &Memory<'_>) -> impl FnMut(&mut [f32], usize) -> Vec<f32> + use<'a> {
        let [xbc, dt] = [self.xbc, self.dt].map(|x| (memory.read(&x), x.width()));
        move |state, row| {
            let [xbc, dt] = [&xbc, &dt].map(|(x, width)| &x[row * width..][..*width]);
            self.step(state, xbc, dt)
        }
    }
}

impl Rule for Mamba2 {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.xbc, self.dt]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { xbc, dt, decay, dt_bias, skip, shape, out, .. } = self;
        let MambaShape { heads, head_dim, groups, state_dim, .. } = *shape;
        assert!(heads > 0 && head_dim > 0 && state_dim > 0 && groups > 0 && heads % groups == 0, "{self:?}");
        assert!(xbc.width() == shape.xbc_width() && dt.width() == heads && out.width() == heads * head_dim, "{self:?}");
        assert!([decay, dt_bias, skip].iter().all(|v| v.values().len() == heads), "{self:?}");
        for x in [xbc, dt, out] {
            assert!(x.is_f32() && x.rows() == Rows::Batch, "{self:?}");
        }
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
