//! Attention without a cache, every row to all of its sequence: the sums are those of [`super::run`], over one split.

use kapitsa_ops::{Batch, FullAttention};

use super::run::{RUN_TOKENS, Scores, Softmax, weights};
use super::tile::{TILE, accumulate, score};
use crate::element::F32;
use crate::isa::{Isa, Kernel};
use crate::memory::hold;
use crate::pool::Pool;
use crate::shared::SharedOut;
use crate::simd::{LANES, Simd};

/// Keys that lie together, element by element.
const PAGE: usize = kapitsa_ops::kv::PAGE_TOKENS;
/// Rows of a task: keys and values of a run stay near while they pass by.
const ROWS: usize = 16 * TILE;

/// Working memory, kept from call to call.
#[derive(Default)]
pub(crate) struct FullScratch {
    workers: Vec<Worker>,
    /// Sequence, head and first row of each task.
    tasks: Vec<(usize, usize, usize)>,
}

#[derive(Default)]
struct Worker {
    /// Whose keys and values these are: sequence and head.
    of: Option<(usize, usize)>,
    /// `[pages, head_dim, 64]`.
    keys: Vec<f32>,
    /// `[keys, padded]`, with zeros after `head_dim`.
    values: Vec<f32>,
    /// Queries of a task, scaled: `[rows, head_dim]`.
    q: Vec<f32>,
    found: Vec<Softmax>,
    /// `[rows, padded]`.
    sums: Vec<f32>,
}

/// `q`, `k`, `v` and `out`: `[rows, heads · head_dim]`.
pub(crate) fn full(
    isa: Isa,
    pool: &mut Pool,
    scratch: &mut FullScratch,
    (op, batch): (&FullAttention, &Batch),
    [q, k, v]: [&[f32]; 3],
    out: &mut [f32],
) {
    let FullScratch { workers, tasks } = scratch;
    let (width, dim) = (op.q.width(), op.q.width() / op.heads);
    let padded = dim.next_multiple_of(LANES);
    tasks.clear();
    let mut longest = 0;
    for sequence in 0..batch.sequences().len() {
        let rows = batch.rows_of(sequence).len();
        longest = longest.max(rows.next_multiple_of(PAGE));
        let firsts = (0..rows).step_by(ROWS);
        tasks.extend((0..op.heads).flat_map(|head| firsts.clone().map(move |first| (sequence, head, first))));
    }
    workers.resize_with(pool.threads(), Worker::default);
    for worker in &mut *workers {
        worker.of = None;
        hold(&mut worker.keys, dim * longest);
        hold(&mut worker.values, padded * longest);
        hold(&mut worker.q, dim * ROWS);
        hold(&mut worker.found, ROWS);
        hold(&mut worker.sums, padded * ROWS);
    }
    let out = SharedOut::new(out);
    pool.each_with(tasks.len(), workers, |worker, task| {
        let (sequence, head, first) = tasks[task];
        let others = batch.rows_of(sequence);
        let rows = &others[first..others.len().min(first + ROWS)];
        let place = |row: &usize| row * width + head * dim..row * width + (head + 1) * dim;
        if worker.of != Some((sequence, head)) {
            worker.of = Some((sequence, head));
            worker.gather(others.len(), dim, others.iter().map(|row| (&k[place(row)], &v[place(row)])));
        }
        let Worker { keys, values, q: queries, found, sums, .. } = worker;
        queries.clear();
        rows.iter().for_each(|row| queries.extend(q[place(row)].iter().map(|q| q * op.scale)));
        found.clear();
        found.resize(rows.len(), Softmax::NONE);
        sums.clear();
        sums.resize(rows.len() * padded, 0.0);
        // SAFETY: the sizes are those above.
        unsafe { isa.run(Block { count: others.len(), dim, keys, values, q: queries, found, sums }) };
        for ((row, found), sums) in rows.iter().zip(&*found).zip(sums.chunks_exact(padded)) {
            // SAFETY: each head of a row is computed by one task.
            let out = unsafe { out.part(place(row).start, dim) };
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum / found.sum);
        }
    });
}

impl Worker {
    /// Takes `count` keys and values, each `[dim]`.
    fn gather<'a>(&mut self, count: usize, dim: usize, rows: impl Iterator<Item = (&'a [f32], &'a [f32])>) {
        let padded = dim.next_multiple_of(LANES);
        self.keys.clear();
        self.keys.resize(count.next_multiple_of(PAGE) * dim, 0.0);
        self.values.clear();
        self.values.resize(count * padded, 0.0);
        for (at, (key, value)) in rows.enumerate() {
            let page = &mut self.keys[at / PAGE * PAGE * dim..][..PAGE * dim];
            page.iter_mut().skip(at % PAGE).step_by(PAGE).zip(key).for_each(|(to, from)| *to = *from);
            self.values[at * padded..][..dim].copy_from_slice(value);
        }
    }
}

/// Queries and what they find among all keys.
struct Block<'a> {
    count: usize,
    dim: usize,
    keys: &'a [f32],
    values: &'a [f32],
    q: &'a [f32],
    found: &'a mut [Softmax],
    sums: &'a mut [f32],
}

impl Kernel for Block<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Block { count, dim, keys, values, q, found, sums } = self;
        let padded = dim.next_multiple_of(LANES);
        for start in (0..count).step_by(RUN_TOKENS) {
            let len = RUN_TOKENS.min(count - start);
            let tiles = q.chunks(TILE * dim).zip(found.chunks_mut(TILE).zip(sums.chunks_mut(TILE * padded)));
            for (q, (found, sums)) in tiles {
                let rows = found.len();
                let mut qs: [&[f32]; TILE] = [&[]; TILE];
                qs.iter_mut().zip(q.chunks_exact(dim)).for_each(|(to, from)| *to = from);
                let mut scores: [Scores; TILE] = [[0.0; RUN_TOKENS]; TILE];
                let scores = &mut scores[..rows];
                for at in (0..len).step_by(PAGE) {
                    let keys = &keys[(start + at) * dim..][..PAGE * dim];
                    let end = PAGE.min(len - at);
                    // SAFETY: passed on.
                    unsafe { score::<S, F32>(&qs[..rows], keys, keys.as_ptr(), (0, end), at, scores) };
                }
                for ((scores, found), sums) in scores.iter_mut().zip(found).zip(sums.chunks_exact_mut(padded)) {
                    let old = weights::<S>(scores, 0..len, found);
                    sums.iter_mut().for_each(|sum| *sum *= old);
                }
                for at in (0..len).step_by(PAGE) {
                    let tokens = PAGE.min(len - at);
                    let mut weights: [&[f32]; TILE] = [&[]; TILE];
                    weights.iter_mut().zip(&*scores).for_each(|(to, from)| *to = &from[at..at + tokens]);
                    let values = &values[(start + at) * padded..][..tokens * padded];
                    // SAFETY: passed on.
                    unsafe { accumulate::<S, F32>(values, values.as_ptr(), &weights[..rows], padded, sums) };
                }
            }
        }
    }
}
