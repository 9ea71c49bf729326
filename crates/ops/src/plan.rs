//! Places tensors in one arena so that no two that live at the same time overlap.
//!
//! First fit in recording order. An op's output is placed while its inputs still live, so it never aliases them.

use crate::{Capacity, Op, Rows, Tensor};

pub(crate) struct Plan {
    pub(crate) offsets: Vec<usize>,
    pub(crate) arena: usize,
}

/// Offsets are multiples of this many elements: one cache line.
const ALIGN: usize = 16;

/// `kept` tensors live to the end.
pub(crate) fn plan(ops: &[Op], tensors: &[Tensor], kept: &[Tensor], capacity: Capacity) -> Plan {
    let mut last_use = vec![0; tensors.len()];
    for (step, op) in ops.iter().enumerate() {
        for tensor in op.rule().inputs().into_iter().chain(op.rule().output()) {
            last_use[tensor.index] = step;
        }
    }
    for tensor in kept {
        last_use[tensor.index] = usize::MAX;
    }

    let mut offsets = vec![0; tensors.len()];
    let mut arena = 0;
    let mut live: Vec<(usize, usize, usize)> = vec![]; // (offset, end, last use), by offset
    for (step, op) in ops.iter().enumerate() {
        live.retain(|&(_, _, last)| last >= step);
        let Some(tensor) = op.rule().output() else { continue };
        let rows = match tensor.rows {
            Rows::Batch => capacity.rows,
            Rows::Wanted => capacity.wanted,
        };
        let size = (rows * tensor.width).next_multiple_of(ALIGN);
        let (mut offset, mut at) = (0, live.len());
        for (i, &(start, end, _)) in live.iter().enumerate() {
            if offset + size <= start {
                at = i;
                break;
            }
            offset = end;
        }
        live.insert(at, (offset, offset + size, last_use[tensor.index]));
        offsets[tensor.index] = offset;
        arena = arena.max(offset + size);
    }
    Plan { offsets, arena }
}

#[cfg(test)]
mod tests {
    use crate::{Capacity, Program, Recorder, Rows, Tensor, Vector};

    /// Two tensors overlap only if one was last read before the other was written.
    fn assert_sound(program: &Program) {
        let size = program.capacity();
        let outputs = program.taps().iter().map(|(_, t)| *t).chain([program.logits()]);
        let mut uses: Vec<(Tensor, usize, usize)> = vec![];
        for (step, op) in program.ops().iter().enumerate() {
            uses.extend(op.rule().output().map(|t| (t, step, step)));
            for input in op.rule().inputs() {
                uses.iter_mut().filter(|u| u.0 == input).for_each(|u| u.2 = step);
            }
        }
        for output in outputs {
            uses.iter_mut().filter(|u| u.0 == output).for_each(|u| u.2 = usize::MAX);
        }
        for (i, a) in uses.iter().enumerate() {
            for b in &uses[..i] {
                let (x, y) = (program.place(a.0, size.rows, size.wanted), program.place(b.0, size.rows, size.wanted));
                let apart = x.end <= y.start || y.end <= x.start;
                assert!(apart || a.2 < b.1 || b.2 < a.1, "{a:?} and {b:?} overlap");
                assert!(x.end <= program.arena_len());
            }
        }
    }

    #[test]
    fn living_tensors_never_overlap_and_dead_ones_are_reused() {
        let mut rec = Recorder::new(Capacity { rows: 5, wanted: 2 }, &[]);
        let norm = Vector::new("norm", vec![1.0; 24]);
        let mut x = rec.tensor(Rows::Batch, 24, crate::ElementType::F32);
        for _ in 0..20 {
            let h = rec.rms_norm(x, &norm, 1e-6);
            let h = rec.silu_mul(h, x);
            x = rec.add(x, h);
        }
        let x = rec.gather_rows(x);
        let program = rec.finish(x);
        assert_sound(&program);
        assert!(program.arena_len() <= 5 * 128 * 5, "{} elements for four live tensors", program.arena_len());
    }
}
