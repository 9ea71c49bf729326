//! Records the forward pass of a model.

use crate::{Capacity, ElementType, Op, Program, Rows, Tap, Tensor, plan};

/// Collects ops; every op has a method here, defined in its own file.
pub struct Recorder {
    capacity: Capacity,
    tensors: Vec<Tensor>,
    ops: Vec<Op>,
    wanted_taps: Vec<Tap>,
    taps: Vec<(Tap, Tensor)>,
    takes_drafts: bool,
}

impl Recorder {
    /// Starts a program for at most `capacity` rows that also returns the tensors at `taps`.
    pub fn new(capacity: Capacity, taps: &[Tap]) -> Self {
        assert!(0 < capacity.rows && capacity.wanted <= capacity.rows, "{capacity:?}");
        Recorder {
            capacity,
            tensors: vec![],
            ops: vec![],
            wanted_taps: taps.to_vec(),
            taps: vec![],
            takes_drafts: false,
        }
    }

    /// Makes a program whose batches may hold drafts: what recurrent ops read lives on until the next run, so that a path can
    /// be committed.
    pub fn taking_drafts(self) -> Self {
        Recorder { takes_drafts: true, ..self }
    }

    /// Offers `x` to whoever listens at `tap`; costs nothing if nobody does.
    pub fn tap(&mut self, tap: Tap, x: Tensor) {
        if self.wanted_taps.contains(&tap) {
            self.taps.push((tap, x));
        }
    }

    /// Ends the recording; `logits` is the program's result.
    pub fn finish(self, logits: Tensor) -> Program {
        assert_eq!(logits.rows, Rows::Wanted, "{logits:?}");
        let mut kept: Vec<Tensor> = self.taps.iter().map(|(_, t)| *t).chain([logits]).collect();
        if self.takes_drafts {
            kept.extend(self.ops.iter().filter(|op| op.rule().state().is_some()).flat_map(|op| op.rule().inputs()));
        }
        let plan = plan::plan(&self.ops, &self.tensors, &kept, self.capacity);
        Program {
            capacity: self.capacity,
            ops: self.ops,
            offsets: plan.offsets,
            arena: plan.arena,
            logits,
            taps: self.taps,
        }
    }

    pub(crate) fn tensor(&mut self, rows: Rows, width: usize, element: ElementType) -> Tensor {
        let tensor = Tensor { index: self.tensors.len(), rows, width, element };
        self.tensors.push(tensor);
        tensor
    }

    /// Checks and appends an op; returns its output.
    pub(crate) fn push<O: Into<Op>>(&mut self, op: O) {
        let op = op.into();
        op.rule().check();
        self.ops.push(op);
    }
}
