//! A recorded forward pass.

use std::ops::Range;

use crate::state::StateLayout;
use crate::{Op, Rows, Tensor};

/// The most rows that a program can take; the arena is planned for these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Capacity {
    /// Rows of the batch.
    pub rows: usize,
    /// Rows whose logits are wanted.
    pub wanted: usize,
}

/// A place in the forward pass whose tensor can be asked for (drafters and tests listen there).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tap {
    /// The embedding, `[rows, hidden]`.
    Embedding,
    /// The residual stream after a layer, `[rows, hidden]`.
    Layer(usize),
    /// Output of a layer's attention (or other mixer) before the residual, `[rows, hidden]`.
    Mixer(usize),
    /// Output of a layer's MLP before the residual, `[rows, hidden]`.
    Mlp(usize),
    /// Router logits of a layer with experts, `[rows, experts]`.
    Router(usize),
    /// The chosen experts of a layer in ascending order, `[rows, k]`, ids as numbers.
    Experts(usize),
    /// The weights of the chosen experts, `[rows, k]`.
    ExpertWeights(usize),
    /// The residual stream after the final norm, `[wanted, hidden]`.
    FinalNorm,
}

/// Typed ops in order, with a place in the arena for every tensor.
#[derive(Debug)]
pub struct Program {
    pub(crate) capacity: Capacity,
    pub(crate) ops: Vec<Op>,
    pub(crate) offsets: Vec<usize>,
    pub(crate) arena: usize,
    pub(crate) logits: Tensor,
    pub(crate) taps: Vec<(Tap, Tensor)>,
}

impl Program {
    /// The most rows it can take.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// The ops in order.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// What the recurrent ops keep of a sequence.
    pub fn states(&self) -> StateLayout {
        let mut lens = vec![];
        for (index, len) in self.ops.iter().filter_map(|op| op.rule().state()) {
            assert_eq!(index, lens.len(), "recurrent ops are numbered as they are recorded");
            lens.push(len);
        }
        StateLayout::new(&lens)
    }

    /// Four-byte elements that the arena must hold.
    pub fn arena_len(&self) -> usize {
        self.arena
    }

    /// The result, `[wanted, vocab]`.
    pub fn logits(&self) -> Tensor {
        self.logits
    }

    /// The tensors that were asked for beside the logits, in the order of the forward pass.
    pub fn taps(&self) -> &[(Tap, Tensor)] {
        &self.taps
    }

    /// Where `tensor` lies in the arena when the batch has `rows` rows of which `wanted` are wanted.
    pub fn place(&self, tensor: Tensor, rows: usize, wanted: usize) -> Range<usize> {
        let start = self.offsets[tensor.index];
        let rows = match tensor.rows {
            Rows::Batch => rows,
            Rows::Wanted => wanted,
        };
        start..start + rows * tensor.width
    }
}

/// One op a line, for people and snapshots.
impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.ops.iter().try_for_each(|op| writeln!(f, "{:?}", op.rule()))
    }
}
