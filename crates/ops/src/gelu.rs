//! The GELU activation (Hendrycks & Gimpel, arXiv:1606.08415), exact or with its usual approximation.

use crate::reference::Memory;
use crate::{ElementType, Recorder, Rule, Tensor};

/// Which GELU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeluKind {
    /// `x/2 · (1 + erf(x / √2))`.
    Exact,
    /// `x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`.
    Tanh,
}

/// `x`, `out`: `[rows, width]`.
#[derive(Clone, Debug)]
pub struct Gelu {
    /// Input.
    pub x: Tensor,
    /// Which GELU.
    pub kind: GeluKind,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Applies the activation.
    pub fn gelu(&mut self, x: Tensor, kind: GeluKind) -> Tensor {
        let out = self.tensor(x.rows(), x.width(), ElementType::F32);
        self.push(Gelu { x, kind, out });
        out
    }
}

impl GeluKind {
    /// `√(2/π)`.
    pub const TANH_SCALE: f32 = 0.797_884_6;
    /// The cubic term.
    pub const TANH_CUBE: f32 = 0.044_715;

    /// One value.
    pub fn of(self, x: f32) -> f32 {
        match self {
            GeluKind::Exact => 0.5 * x * (1.0 + libm::erff(x * std::f32::consts::FRAC_1_SQRT_2)),
            GeluKind::Tanh => 0.5 * x * (1.0 + (Self::TANH_SCALE * (x + Self::TANH_CUBE * x * x * x)).tanh()),
        }
    }
}

impl Rule for Gelu {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.x]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { x, out, .. } = self;
        assert!(x.is_f32() && (out.rows(), out.width()) == (x.rows(), x.width()), "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        memory.map_rows(&self.x, &self.out, |x, out| {
            out.iter_mut().zip(x).for_each(|(out, x)| *out = self.kind.of(*x));
        });
    }
}
