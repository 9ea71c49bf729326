//! `out = max(x, 0)²`: the activation of Nemotron's MLPs.

use crate::reference::Memory;
use crate::{ElementType, Recorder, Rule, Tensor};

/// `x`, `out`: `[rows, width]`.
#[derive(Clone, Debug)]
pub struct Relu2 {
    /// Input.
    pub x: Tensor,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Squares what is positive.
    pub fn relu2(&mut self, x: Tensor) -> Tensor {
        let out = self.tensor(x.rows(), x.width(), ElementType::F32);
        self.push(Relu2 { x, out });
        out
    }
}

impl Rule for Relu2 {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.x]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { x, out } = self;
        assert!(x.is_f32() && (out.rows(), out.width()) == (x.rows(), x.width()), "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        memory.map_rows(&self.x, &self.out, |x, out| {
            for (out, x) in out.iter_mut().zip(x) {
                *out = x.max(0.0) * x.max(0.0);
            }
        });
    }
}
