//! Recurrent layers: scans of a state along the path of each row, heads in parallel.
//!
//! A state moves on row by row and nothing else defines it: neither chunks, nor drafts, nor what else is in the batch can
//! change a bit. The rows of a draft start from the saved state, which stays as it is until a path is committed; a row whose
//! parent is not the row before it costs another scan along its path.

mod conv;
mod delta;
mod mamba;

use kapitsa_ops::state::HostStates;
use kapitsa_ops::{Batch, Walk};

use crate::memory::hold;
use crate::pool::Pool;
use crate::shared::SharedOut;
use crate::simd::LANES;

pub(crate) use conv::conv;
pub(crate) use delta::delta;
pub(crate) use mamba::mamba;

/// Which rows a state moves over.
#[derive(Clone, Copy)]
pub(crate) enum Rows<'a> {
    /// All of the batch, with results.
    All,
    /// A path of a draft sequence, which it ran on before: without results, for the state alone.
    Path { sequence: usize, path: &'a [usize] },
}

/// Working memory, kept from call to call.
#[derive(Default)]
pub(crate) struct Scratch {
    workers: Vec<Worker>,
    /// Where each sequence's states begin.
    starts: Vec<usize>,
}

#[derive(Default)]
struct Worker {
    /// A head's state along a draft.
    state: Vec<f32>,
    /// A row's query and key, scaled.
    keys: Vec<f32>,
}

/// Vectors of a state's columns that are in registers at a time.
const VECTORS: usize = 4;
const TILE: usize = VECTORS * LANES;

/// Cuts `width` columns into tiles, then vectors, then what is left: where each begins, and how many columns it has.
#[inline(always)]
fn tiles(width: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let count = match width - at {
            0 => return None,
            rest @ 1..LANES => rest,
            LANES..TILE => LANES,
            _ => TILE,
        };
        at += count;
        Some((at - count, count))
    })
}

/// A scan of `heads` states of `len` values each: recurrent op `index`.
struct Scan<'a> {
    batch: &'a Batch,
    states: &'a mut HostStates,
    rows: Rows<'a>,
    index: usize,
    heads: usize,
    len: usize,
    /// Values that a worker holds for a row's query and key.
    keys: usize,
}

impl Scan<'_> {
    /// Calls `step(keys, head, row, state)` for each head along each path.
    fn run(self, pool: &mut Pool, scratch: &mut Scratch, step: impl Fn(&mut [f32], usize, usize, &mut [f32]) + Sync) {
        let Scan { batch, states, rows, index, heads, len, keys } = self;
        let Scratch { workers, starts } = scratch;
        workers.resize_with(pool.threads(), Worker::default);
        for worker in &mut *workers {
            hold(&mut worker.state, len);
            hold(&mut worker.keys, keys);
            worker.keys.resize(keys, 0.0);
        }
        let (first, count) = match rows {
            Rows::All => (0, batch.sequences().len()),
            Rows::Path { sequence, .. } => (sequence, 1),
        };
        let start = |sequence: usize| states.part(batch.sequences()[sequence].state, index).start;
        starts.clear();
        starts.extend((first..first + count).map(start));
        let values = SharedOut::new(states.values_mut());
        pool.each_with(count * heads, workers, |worker, task| {
            let (sequence, head) = (first + task / heads, task % heads);
            let context = &batch.sequences()[sequence];
            if batch.rows_of(sequence).is_empty() {
                return;
            }
            // SAFETY: sequences have different states, and each head of one is scanned by one task.
            let saved = unsafe { values.part(starts[task / heads] + head * len, len) };
            if context.cached == 0 {
                saved.fill(0.0);
            }
            let Worker { state, keys } = worker;
            match rows {
                Rows::Path { path, .. } => path.iter().for_each(|&row| step(keys, head, row, saved)),
                Rows::All if context.is_draft => {
                    state.clear();
                    state.extend_from_slice(saved);
                    batch.walk(sequence, |walk| match walk {
                        Walk::Restart => state.copy_from_slice(saved),
                        Walk::Row(row) => step(keys, head, row, state),
                    });
                }
                Rows::All => batch.walk(sequence, |walk| match walk {
                    Walk::Restart => unreachable!("only drafts are trees"),
                    Walk::Row(row) => step(keys, head, row, saved),
                }),
            }
        });
    }
}
