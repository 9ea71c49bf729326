//! `out = x · σ(gate)` with `σ(x) = 1 / (1 + e⁻ˣ)`: the gate of an attention layer, or one of a whole row.

use crate::reference::Memory;
use crate::{ElementType, Recorder, Rule, Tensor};

/// `x`, `out`: `[rows, width]`; `gate`: the same, or `[rows, 1]`.
#[derive(Clone, Debug)]
pub struct SigmoidMul {
    /// Is gated.
    pub x: Tensor,
    /// Goes through the sigmoid.
    pub gate: Tensor,
    /// Result.
    pub out: Tensor,
}

/// `1 / (1 + e⁻ˣ)`.
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

impl Recorder {
    /// Gates `x`.
    pub fn sigmoid_mul(&mut self, x: Tensor, gate: Tensor) -> Tensor {
        let out = self.tensor(x.rows(), x.width(), ElementType::F32);
        self.push(SigmoidMul { x, gate, out });
        out
    }
}

impl Rule for SigmoidMul {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.x, self.gate]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { x, gate, out } = self;
        assert!(x.is_f32() && gate.is_f32() && gate.rows() == x.rows(), "{self:?}");
        assert!(gate.width() == x.width() || gate.width() == 1, "{self:?}");
        assert!((out.rows(), out.width()) == (x.rows(), x.width()), "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        let gates = memory.read(&self.gate);
        let mut gates = gates.chunks_exact(self.gate.width());
        memory.map_rows(&self.x, &self.out, |x, out| {
            let gates = gates.next().expect("as many rows as x");
            for ((out, x), gate) in out.iter_mut().zip(x).zip(gates.iter().cycle()) {
                *out = x * sigmoid(*gate);
            }
        });
    }
}
