//! Rows side by side: each wanted row and the `count - 1` rows after it become one. Vision towers join patches so.

use crate::reference::Memory;
use crate::{ElementType, Recorder, Rows, Rule, Tensor};

/// `x`: `[rows, width]`; `out`: `[wanted, count · width]`.
#[derive(Clone, Debug)]
pub struct MergeRows {
    /// Input.
    pub x: Tensor,
    /// Rows that become one.
    pub count: usize,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Joins each wanted row with the `count - 1` rows after it.
    pub fn merge_rows(&mut self, x: Tensor, count: usize) -> Tensor {
        let out = self.tensor(Rows::Wanted, count * x.width(), ElementType::F32);
        self.push(MergeRows { x, count, out });
        out
    }
}

impl Rule for MergeRows {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.x]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { x, count, out } = self;
        assert!(x.is_f32() && x.rows() == Rows::Batch && *count > 0, "{self:?}");
        assert!(out.rows() == Rows::Wanted && out.width() == count * x.width(), "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        let (x, width) = (memory.read(&self.x), self.x.width());
        let rows = memory.batch.wanted().iter();
        let out: Vec<f32> = rows.flat_map(|&r| x[r * width..][..self.count * width].to_vec()).collect();
        memory.write(&self.out, &out);
    }
}
