//! The rows whose logits are wanted, so that the head multiplies no others.

use crate::reference::Memory;
use crate::{ElementType, Recorder, Rows, Rule, Tensor};

/// `x`: `[rows, width]`; `out`: `[wanted, width]`. Which rows is the batch's.
#[derive(Clone, Debug)]
pub struct GatherRows {
    /// Input.
    pub x: Tensor,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Keeps the wanted rows.
    pub fn gather_rows(&mut self, x: Tensor) -> Tensor {
        let out = self.tensor(Rows::Wanted, x.width(), ElementType::F32);
        self.push(GatherRows { x, out });
        out
    }
}

impl Rule for GatherRows {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.x]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { x, out } = self;
        assert!(x.is_f32() && x.rows() == Rows::Batch, "{self:?}");
        assert!(out.rows() == Rows::Wanted && out.width() == x.width(), "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        let (x, width) = (memory.read(&self.x), self.x.width());
        let out: Vec<f32> = memory.batch.wanted().iter().flat_map(|&r| x[r * width..][..width].to_vec()).collect();
        memory.write(&self.out, &out);
    }
}
