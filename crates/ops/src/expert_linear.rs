//! Matrix products of each row with its chosen experts only.

use std::sync::Arc;

use kapitsa_tensor::Weight;

use crate::linear::dot;
use crate::reference::Memory;
use crate::{ElementType, Recorder, Rule, Tensor};

/// `x`: `[rows, in]`, the same for all chosen experts of a row, or `[rows, k · in]`, one for each; `experts`: each
/// `[out, in]`; `ids`: `[rows, k]`; `out`: `[rows, k · out]`.
#[derive(Clone, Debug)]
pub struct ExpertLinear {
    /// Input.
    pub x: Tensor,
    /// The weights of all experts, of one shape.
    pub experts: Arc<[Weight]>,
    /// From [`crate::Route`].
    pub ids: Tensor,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Multiplies by the chosen experts.
    pub fn expert_linear(&mut self, x: Tensor, experts: &Arc<[Weight]>, ids: Tensor) -> Tensor {
        let out = self.tensor(x.rows(), ids.width() * experts[0].rows(), ElementType::F32);
        self.push(ExpertLinear { x, experts: experts.clone(), ids, out });
        out
    }
}

impl ExpertLinear {
    /// Input elements of one product.
    pub fn input_width(&self) -> usize {
        self.experts[0].cols()
    }

    /// The part of a row of `x` that its `choice`-th expert multiplies.
    pub fn input<'a>(&self, x: &'a [f32], choice: usize) -> &'a [f32] {
        let width = self.input_width();
        if x.len() == width { x } else { &x[choice * width..][..width] }
    }
}

impl Rule for ExpertLinear {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.x, self.ids]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { x, experts, ids, out } = self;
        let (rows, cols, k) = (experts[0].rows(), experts[0].cols(), ids.width());
        assert!(experts.iter().all(|w| (w.rows(), w.cols()) == (rows, cols)), "{self:?}");
        assert!(x.is_f32() && !ids.is_f32() && x.rows() == ids.rows(), "{self:?}");
        assert!(x.width() == cols || x.width() == k * cols, "{self:?}");
        assert!(out.rows() == x.rows() && out.width() == k * rows, "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        let ids = memory.read_indices(&self.ids);
        let mut ids = ids.chunks_exact(self.ids.width());
        let mut weight = vec![0.0; self.input_width()];
        memory.map_rows(&self.x, &self.out, |x, out| {
            let ids = ids.next().expect("as many rows as x");
            let out_width = out.len() / ids.len();
            for (choice, (&id, out)) in ids.iter().zip(out.chunks_exact_mut(out_width)).enumerate() {
                for (row, out) in out.iter_mut().enumerate() {
                    self.experts[id as usize].dequantize(row, &mut weight);
                    *out = dot(self.input(x, choice), &weight);
                }
            }
        });
    }
}
