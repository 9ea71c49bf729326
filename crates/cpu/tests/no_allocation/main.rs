//! Once shapes have been met, a step takes no memory from the allocator: it never waits for it, nor for fresh pages.

#[path = "../rows_stand_alone/tiny.rs"]
mod tiny;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use kapitsa_cpu::{Cpu, CpuOptions};
use kapitsa_ops::kv::PageId;
use kapitsa_ops::{Backend, Batch, Outputs, SequenceContext};
use kapitsa_tensor::DType;

/// Counts what is asked of the system's allocator.
struct Counting;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is done by the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(1, Ordering::SeqCst);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// `rows` rows after 1100 tokens, whose logits are all wanted.
fn batch(rows: usize) -> Batch {
    let mut batch = Batch::new();
    let pages = vec![(0..20).map(PageId).collect()];
    let sequence = batch.add_sequence(SequenceContext { cached: 1100, pages, ..Default::default() });
    let mut last = None;
    for row in 0..rows {
        last = Some(batch.add_row(sequence, row as u32 % 47, last));
        batch.want(row);
    }
    batch
}

#[test]
fn steps_of_known_shapes_take_no_memory() {
    for seed in 0..12 {
        let model = tiny::Tiny::new(seed, (seed % 3 == 0).then_some(700));
        let mut cpu = Cpu::new(model.layout(DType::F16), &CpuOptions::new(2)).unwrap();
        cpu.reserve(0, 20).unwrap();
        cpu.reserve_states(&model.record(1, 1).states(), 1).unwrap();
        let steps = [1, 8, 60].map(|rows| (model.record(rows, rows), batch(rows)));
        steps.iter().for_each(|(program, _)| cpu.load(program, &mut |_| {}).unwrap());
        let mut outputs = Outputs::default();
        let mut run = |times: usize| {
            for _ in 0..times {
                for (program, batch) in &steps {
                    outputs.clear();
                    cpu.run(program, batch, &mut outputs).unwrap();
                }
            }
        };
        run(1);
        let before = TAKEN.load(Ordering::SeqCst);
        run(5);
        assert_eq!(TAKEN.load(Ordering::SeqCst) - before, 0, "model {seed}");
    }
}
