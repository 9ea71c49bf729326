//! `out = [a b]`, row by row.

use crate::reference::Memory;
use crate::{ElementType, Recorder, Rule, Tensor};

/// `a`: `[rows, n]`; `b`: `[rows, m]`; `out`: `[rows, n + m]`.
#[derive(Clone, Debug)]
pub struct Concat {
    /// First columns.
    pub a: Tensor,
    /// Last columns.
    pub b: Tensor,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Puts two tensors side by side.
    pub fn concat(&mut self, a: Tensor, b: Tensor) -> Tensor {
        let out = self.tensor(a.rows(), a.width() + b.width(), ElementType::F32);
        self.push(Concat { a, b, out });
        out
    }
}

impl Rule for Concat {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.a, self.b]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { a, b, out } = self;
        assert!(a.is_f32() && b.is_f32() && a.rows() == b.rows(), "{self:?}");
        assert!((out.rows(), out.width()) == (a.rows(), a.width() + b.width()), "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        let b = memory.read(&self.b);
        let mut b = b.chunks_exact(self.b.width());
        memory.map_rows(&self.a, &self.out, |a, out| {
            let (left, right) = out.split_at_mut(a.len());
            left.copy_from_slice(a);
            right.copy_from_slice(b.next().expect("as many rows as a"));
        });
    }
}
