//! `out = silu(gate) · up` with `silu(x) = x / (1 + e⁻ˣ)`: the activation of a gated MLP.

use crate::reference::Memory;
use crate::{ElementType, Recorder, Rule, Tensor};

/// `gate`, `up`, `out`: `[rows, width]`.
#[derive(Clone, Debug)]
pub struct SiluMul {
    /// Goes through the activation.
    pub gate: Tensor,
    /// Multiplies it.
    pub up: Tensor,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Gates `up`.
    pub fn silu_mul(&mut self, gate: Tensor, up: Tensor) -> Tensor {
        let out = self.tensor(gate.rows(), gate.width(), ElementType::F32);
        self.push(SiluMul { gate, up, out });
        out
    }
}

impl Rule for SiluMul {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.gate, self.up]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { gate, up, out } = self;
        assert!(gate.is_f32() && up.is_f32(), "{self:?}");
        assert!((gate.rows(), gate.width()) == (up.rows(), up.width()), "{self:?}");
        assert!((gate.rows(), gate.width()) == (out.rows(), out.width()), "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        let up = memory.read(&self.up);
        let gate = memory.read(&self.gate);
        let out: Vec<f32> = gate.iter().zip(&up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
        memory.write(&self.out, &out);
    }
}
