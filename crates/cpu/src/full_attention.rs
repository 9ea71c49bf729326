//! Attention without a cache, every row to all of its sequence.
//!
//! A query goes through keys in runs of [`RUN`]: a score is a sum over the head's elements in order, with 16 keys in the lanes
//! of a vector; the largest score so far rescales what came before. Values are added key by key. Rows are computed one by
//! one, so nothing depends on their neighbours.

use kapitsa_ops::{Batch, FullAttention};

use crate::exp::exp;
use crate::isa::{Isa, Kernel};
use crate::memory::hold;
use crate::pool::Pool;
use crate::rows::{add_lanes, max_lanes};
use crate::shared::SharedOut;
use crate::simd::{LANES, Simd};

/// Keys whose scores are computed together.
const RUN: usize = 16 * LANES;
/// Rows of a task.
const ROWS: usize = 32;

/// Working memory, kept from call to call.
#[derive(Default)]
pub(crate) struct Scratch {
    workers: Vec<Worker>,
    /// Sequence, head and first row of each task.
    tasks: Vec<(usize, usize, usize)>,
}

#[derive(Default)]
struct Worker {
    /// Keys of one head, element by element: `[head_dim, keys]`, padded to whole vectors.
    keys: Vec<f32>,
    /// Whose they are.
    of: Option<(usize, usize)>,
}

/// `q`, `k`, `v` and `out`: `[rows, heads · head_dim]`.
pub(crate) fn run(
    isa: Isa,
    pool: &mut Pool,
    scratch: &mut Scratch,
    (op, batch): (&FullAttention, &Batch),
    [q, k, v]: [&[f32]; 3],
    out: &mut [f32],
) {
    let Scratch { workers, tasks } = scratch;
    let (width, dim) = (op.q.width(), op.q.width() / op.heads);
    let rows = |sequence: usize| batch.rows_of(sequence);
    tasks.clear();
    for sequence in 0..batch.sequences().len() {
        let firsts = (0..rows(sequence).len()).step_by(ROWS);
        tasks.extend((0..op.heads).flat_map(|head| firsts.clone().map(move |first| (sequence, head, first))));
    }
    let longest = (0..batch.sequences().len()).map(|sequence| rows(sequence).len()).max().unwrap_or(0);
    workers.resize_with(pool.threads(), Worker::default);
    for worker in &mut *workers {
        hold(&mut worker.keys, dim * longest.next_multiple_of(LANES));
        worker.of = None;
    }
    let out = SharedOut::new(out);
    pool.each_with(tasks.len(), workers, |worker, task| {
        let (sequence, head, first) = tasks[task];
        let others = rows(sequence);
        let padded = others.len().next_multiple_of(LANES);
        let Worker { keys, of } = worker;
        if *of != Some((sequence, head)) {
            *of = Some((sequence, head));
            keys.clear();
            keys.resize(dim * padded, 0.0);
            for (at, other) in others.iter().enumerate() {
                for (element, k) in k[other * width + head * dim..][..dim].iter().enumerate() {
                    keys[element * padded + at] = *k;
                }
            }
        }
        for row in others[first..].iter().take(ROWS) {
            let place = row * width + head * dim;
            // SAFETY: each head of a row is computed by one task.
            let out = unsafe { out.part(place, dim) };
            let row =
                Row { q: &q[place..][..dim], scale: op.scale, keys, padded, others, v, width, at: head * dim, out };
            // SAFETY: `keys` has `head_dim` rows of `padded` keys, a multiple of the lanes.
            unsafe { isa.run(row) };
        }
    });
}

/// One head of one row.
struct Row<'a> {
    q: &'a [f32],
    scale: f32,
    keys: &'a [f32],
    padded: usize,
    /// The rows attended to.
    others: &'a [usize],
    /// Their values, `width` apart, of this head from `at` on.
    v: &'a [f32],
    width: usize,
    at: usize,
    out: &'a mut [f32],
}

impl Kernel for Row<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Row { q, scale, keys, padded, others, v, width, at, out } = self;
        let (mut max, mut sum) = (f32::NEG_INFINITY, 0.0);
        out.fill(0.0);
        let mut scores = [0.0f32; RUN];
        for (run, others) in others.chunks(RUN).enumerate() {
            let vectors = others.len().div_ceil(LANES);
            for vector in 0..vectors {
                // SAFETY: the keys of this vector exist in every row of `keys`, and `scores` has room for a run.
                unsafe {
                    let from = keys.as_ptr().add(run * RUN + vector * LANES);
                    let mut score = S::splat(0.0);
                    for (element, q) in q.iter().enumerate() {
                        score = S::fma(S::load_f32(from.add(element * padded)), S::splat(q * scale), score);
                    }
                    S::store_f32(scores.as_mut_ptr().add(vector * LANES), score);
                }
            }
            // Keys that do not exist weigh nothing.
            scores[others.len()..vectors * LANES].fill(f32::NEG_INFINITY);
            let (lanes, _) = scores[..vectors * LANES].as_chunks_mut::<LANES>();
            let mut largest = [max; LANES];
            for scores in &*lanes {
                for l in 0..LANES {
                    largest[l] = if scores[l] > largest[l] { scores[l] } else { largest[l] };
                }
            }
            let new = max_lanes(largest);
            let shrink = exp::<S>(max - new);
            let mut sums = [0.0; LANES];
            for scores in lanes {
                for l in 0..LANES {
                    scores[l] = exp::<S>(scores[l] - new);
                    sums[l] += scores[l];
                }
            }
            sum = S::fma_lane(sum, shrink, add_lanes(sums));
            max = new;
            out.iter_mut().for_each(|out| *out *= shrink);
            for (other, weight) in others.iter().zip(&scores) {
                for (out, v) in out.iter_mut().zip(&v[other * width + at..][..q.len()]) {
                    *out = S::fma_lane(*v, *weight, *out);
                }
            }
        }
        out.iter_mut().for_each(|out| *out /= sum);
    }
}
