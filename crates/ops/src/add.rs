//! `out = a + b`: the residual stream.

use crate::reference::Memory;
use crate::{ElementType, Recorder, Rule, Tensor};

/// `a`, `b`, `out`: `[rows, width]`.
#[derive(Clone, Debug)]
pub struct Add {
    /// First term.
    pub a: Tensor,
    /// Second term.
    pub b: Tensor,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Adds two tensors.
    pub fn add(&mut self, a: Tensor, b: Tensor) -> Tensor {
        let out = self.tensor(a.rows(), a.width(), ElementType::F32);
        self.push(Add { a, b, out });
        out
    }
}

impl Rule for Add {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.a, self.b]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { a, b, out } = self;
        assert!(a.is_f32() && b.is_f32(), "{self:?}");
        assert!((a.rows(), a.width()) == (b.rows(), b.width()), "{self:?}");
        assert!((a.rows(), a.width()) == (out.rows(), out.width()), "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        let (a, b) = (memory.read(&self.a), memory.read(&self.b));
        let out: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        memory.write(&self.out, &out);
    }
}
