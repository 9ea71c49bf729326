//! Attention over paged keys and values, in runs of [`SPLIT_TOKENS`] absolute positions that are merged in order.
//!
//! A score is a sum over the elements of the head in order, computed for 16 keys at a time; a run's weights are summed in 16
//! lanes by position, then halves first; a run's values are added by position. Positions that a row does not see have the
//! weight 0 and their values are not touched. Which rows and heads are computed together changes no bit.

use std::ops::Range;

use kapitsa_ops::kv::{HeadPage, HostKv, PAGE_TOKENS, Part};
use kapitsa_ops::{Attention, Batch, SPLIT_TOKENS};

use crate::element::{Bf16, Element, F16, F32};
use crate::exp::exp;
use crate::isa::{Isa, Kernel};
use crate::pool::Pool;
use crate::rows::add_lanes;
use crate::shared::SharedOut;
use crate::simd::{LANES, Simd};

/// Rows of one sequence whose queries are computed together.
const BLOCK_ROWS: usize = 16;
/// Queries that share the loads of keys and values.
const TILE: usize = 4;
/// Vectors of keys of a tile: a page.
const PAGE_VECTORS: usize = PAGE_TOKENS / LANES;

/// `q` and `out`: `[rows, heads · head_dim]`.
pub(crate) fn run(isa: Isa, pool: &mut Pool, op: &Attention, batch: &Batch, kv: &HostKv, q: &[f32], out: &mut [f32]) {
    let blocks = blocks(batch);
    let group = op.heads / op.kv_heads;
    // Query heads of a group share keys and values, as far as there is work for all threads.
    let parts = (2 * pool.threads()).div_ceil((blocks.len() * op.kv_heads).max(1)).min(group);
    let heads = group.div_ceil(parts);
    let parts = group.div_ceil(heads);
    let out = SharedOut::new(out);
    pool.each_with(blocks.len() * op.kv_heads * parts, Scratch::default, |scratch, task| {
        let (rows, kv_head, part) =
            (blocks[task / parts / op.kv_heads].clone(), task / parts % op.kv_heads, task % parts);
        let heads = kv_head * group + part * heads..kv_head * group + ((part + 1) * heads).min(group);
        let task = Task { op, batch, kv, q, out: &out, rows, heads, scratch };
        // SAFETY: blocks have disjoint rows, and tasks of a block disjoint heads.
        unsafe { isa.run(task) }
    });
}

/// Consecutive rows of one sequence, at most [`BLOCK_ROWS`].
fn blocks(batch: &Batch) -> Vec<Range<usize>> {
    let mut blocks: Vec<Range<usize>> = vec![];
    for row in 0..batch.len() {
        match blocks.last_mut() {
            Some(b) if b.len() < BLOCK_ROWS && batch.sequence(b.start) == batch.sequence(row) => b.end = row + 1,
            _ => blocks.push(row..row + 1),
        }
    }
    blocks
}

/// Some heads of one KV head for a block of rows.
struct Task<'a> {
    op: &'a Attention,
    batch: &'a Batch,
    kv: &'a HostKv,
    q: &'a [f32],
    out: &'a SharedOut<'a, f32>,
    rows: Range<usize>,
    heads: Range<usize>,
    scratch: &'a mut Scratch,
}

#[derive(Default)]
struct Scratch {
    queries: Vec<Query>,
    /// `[queries, head_dim]`.
    sums: Vec<f32>,
}

/// A query under way.
struct Query {
    row: usize,
    /// Where its elements begin in `q` and `out`.
    at: usize,
    visible: Range<usize>,
    /// Positions below this lie in the slots of their numbers.
    in_place: usize,
    /// Largest score so far, and the sum of the exponentials relative to it.
    max: f32,
    sum: f32,
}

/// Scores, then weights, of a run's positions.
type Scores = [f32; SPLIT_TOKENS];

impl Kernel for Task<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: passed on.
        unsafe {
            match self.kv.layout().dtype {
                kapitsa_tensor::DType::F32 => task::<S, F32>(self),
                kapitsa_tensor::DType::F16 => task::<S, F16>(self),
                kapitsa_tensor::DType::Bf16 => task::<S, Bf16>(self),
            }
        }
    }
}

/// Pages of one KV head of one sequence.
struct Pages<'a> {
    op: &'a Attention,
    batch: &'a Batch,
    kv: &'a HostKv,
    row: usize,
    head: usize,
}

impl Pages<'_> {
    #[inline(always)]
    fn page<E: KvElement>(&self, slot: usize, part: Part) -> &[E::Stored] {
        let (group, _) = self.kv.layout().layers[self.op.layer];
        let page = self.batch.context(self.row).pages[group][slot / PAGE_TOKENS];
        E::page(self.kv.head_page(self.op.layer, page, part, self.head))
    }
}

/// Element types of the cache.
trait KvElement: Element {
    fn page(page: HeadPage<'_>) -> &[Self::Stored];
}

impl KvElement for F32 {
    #[inline(always)]
    fn page(page: HeadPage<'_>) -> &[f32] {
        let HeadPage::F32(data) = page else { unreachable!("a cache has one element type") };
        data
    }
}

impl KvElement for F16 {
    #[inline(always)]
    fn page(page: HeadPage<'_>) -> &[half::f16] {
        let HeadPage::F16(data) = page else { unreachable!("a cache has one element type") };
        data
    }
}

impl KvElement for Bf16 {
    #[inline(always)]
    fn page(page: HeadPage<'_>) -> &[half::bf16] {
        let HeadPage::Bf16(data) = page else { unreachable!("a cache has one element type") };
        data
    }
}

/// # Safety
/// As [`Kernel::run`]; nobody else uses the task's outputs.
#[inline(always)]
unsafe fn task<S: Simd, E: KvElement>(task: Task<'_>) {
    let Task { op, batch, kv, q, out, rows, heads, scratch } = task;
    let Scratch { queries, sums } = scratch;
    let dim = op.head_dim();
    let pages = Pages { op, batch, kv, row: rows.start, head: heads.start / (op.heads / op.kv_heads) };
    queries.clear();
    for row in rows {
        let position = batch.position(row);
        let visible = op.first_visible(position)..position + 1;
        queries.extend(heads.clone().map(|head| Query {
            row,
            at: row * op.q.width() + head * dim,
            visible: visible.clone(),
            in_place: batch.in_place(row),
            max: f32::NEG_INFINITY,
            sum: 0.0,
        }));
    }
    sums.clear();
    sums.resize(queries.len() * dim, 0.0);

    let first = queries.iter().map(|query| query.visible.start).min().unwrap_or(0);
    let end = queries.iter().map(|query| query.visible.end).max().unwrap_or(0);
    for split in first / SPLIT_TOKENS..end.div_ceil(SPLIT_TOKENS) {
        let split = split * SPLIT_TOKENS..(split + 1) * SPLIT_TOKENS;
        for (queries, sums) in queries.chunks_mut(TILE).zip(sums.chunks_mut(TILE * dim)) {
            // SAFETY: passed on.
            unsafe {
                match queries.len() {
                    TILE => run_of::<S, E, TILE>(&pages, q, &split, queries, sums),
                    3 => run_of::<S, E, 3>(&pages, q, &split, queries, sums),
                    2 => run_of::<S, E, 2>(&pages, q, &split, queries, sums),
                    _ => run_of::<S, E, 1>(&pages, q, &split, queries, sums),
                }
            }
        }
    }
    for (query, sums) in queries.iter().zip(sums.chunks_exact(dim)) {
        // SAFETY: nobody else uses these outputs.
        let out = unsafe { out.part(query.at, dim) };
        out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum / query.sum);
    }
}

/// What `R` queries see of one run of positions, merged into what they have seen before.
///
/// # Safety
/// As [`task`].
#[inline(always)]
unsafe fn run_of<S: Simd, E: KvElement, const R: usize>(
    pages: &Pages<'_>,
    q: &[f32],
    split: &Range<usize>,
    queries: &mut [Query],
    sums: &mut [f32],
) {
    let dim = pages.op.head_dim();
    let qs: [&[f32]; R] = std::array::from_fn(|r| &q[queries[r].at..][..dim]);
    let seen: [Range<usize>; R] = std::array::from_fn(|r| intersection(split, &queries[r].visible));
    let mut scores: [Scores; R] = [[f32::NEG_INFINITY; SPLIT_TOKENS]; R];

    // Keys in their own slots, a page at a time, for all queries.
    let start = seen.iter().map(|s| s.start).min().unwrap_or(0);
    let end = (0..R).map(|r| seen[r].end.min(queries[r].in_place)).max().unwrap_or(0);
    let mut slot = start / LANES * LANES;
    while slot < end {
        let keys = pages.page::<E>(slot, Part::Key);
        let (first, left) = (slot % PAGE_TOKENS, end.div_ceil(LANES) - slot / LANES);
        let vectors = if first == 0 && left >= PAGE_VECTORS { PAGE_VECTORS } else { 1 };
        let at = slot - split.start;
        // SAFETY: passed on; a page has `dim` rows of 64 keys, and `first` is below 64 by at least the vectors loaded.
        unsafe {
            if vectors == PAGE_VECTORS {
                score::<S, E, R, PAGE_VECTORS>(&qs, keys, first, at, &mut scores);
            } else {
                score::<S, E, R, 1>(&qs, keys, first, at, &mut scores);
            }
        }
        slot += vectors * LANES;
    }

    for r in 0..R {
        let query = &mut queries[r];
        let seen = &seen[r];
        if seen.is_empty() {
            continue;
        }
        let scores = &mut scores[r];
        // Keys of a tree's ancestors, each in some slot.
        for position in seen.start.max(query.in_place)..seen.end {
            let slot = pages.batch.key_slot(query.row, position);
            let keys = pages.page::<E>(slot, Part::Key);
            let score =
                (0..dim).fold(0.0, |sum, i| sum + E::widen(keys[i * PAGE_TOKENS + slot % PAGE_TOKENS]) * qs[r][i]);
            scores[position - split.start] = score;
        }
        let inside = seen.start - split.start..seen.end - split.start;
        let (max, sum) = weights(scores, inside, pages.op.scale);

        let merged = query.max.max(max);
        let (old, new) = (exp(query.max - merged), exp(max - merged));
        query.max = merged;
        query.sum = query.sum * old + sum * new;
        // What has been summed before, and what the run's values are multiplied by, relative to the new maximum.
        scores.iter_mut().for_each(|weight| *weight *= new);
        sums[r * dim..][..dim].iter_mut().for_each(|sum| *sum *= old);
    }

    // Values that all queries see are loaded once; a query's own come before and after.
    let common =
        (0..R).fold(0..usize::MAX, |all, r| intersection(&all, &(seen[r].start..seen[r].end.min(queries[r].in_place))));
    let shared = common.start < common.end;
    for r in 0..R {
        let before = seen[r].start..if shared { common.start } else { seen[r].end };
        // SAFETY: passed on.
        unsafe { own_values::<S, E>(pages, &queries[r], split, before, &scores[r], &mut sums[r * dim..][..dim]) };
    }
    if shared {
        let mut position = common.start;
        while position < common.end {
            let page = pages.page::<E>(position, Part::Value);
            let count = (PAGE_TOKENS - position % PAGE_TOKENS).min(common.end - position);
            let page = &page[position % PAGE_TOKENS * dim..][..count * dim];
            let weights: [&[f32]; R] = std::array::from_fn(|r| &scores[r][position - split.start..][..count]);
            // SAFETY: passed on.
            unsafe { accumulate::<S, E, R>(page, &weights, dim, sums) };
            position += count;
        }
        for r in 0..R {
            let after = common.end..seen[r].end;
            // SAFETY: passed on.
            unsafe { own_values::<S, E>(pages, &queries[r], split, after, &scores[r], &mut sums[r * dim..][..dim]) };
        }
    }
}

fn intersection(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    a.start.max(b.start)..a.end.min(b.end)
}

/// Scores of `16 V` keys from token `first` of a page on, to `scores[..][at..]`.
///
/// # Safety
/// As [`task`]; `keys` is a page of `[dim, 64]` and `first + 16 V <= 64`.
#[inline(always)]
unsafe fn score<S: Simd, E: KvElement, const R: usize, const V: usize>(
    qs: &[&[f32]; R],
    keys: &[E::Stored],
    first: usize,
    at: usize,
    scores: &mut [Scores; R],
) {
    assert!(
        keys.len() == qs[0].len() * PAGE_TOKENS && first + V * LANES <= PAGE_TOKENS && at + V * LANES <= SPLIT_TOKENS
    );
    // SAFETY: in bounds by the assertion.
    unsafe {
        let mut sums = [[S::splat(0.0); V]; R];
        for i in 0..qs[0].len() {
            let keys = keys.as_ptr().add(i * PAGE_TOKENS + first);
            let k: [S::F32; V] = std::array::from_fn(|v| E::load::<S>(keys.add(v * LANES)));
            for r in 0..R {
                let q = S::splat(*qs[r].get_unchecked(i));
                for v in 0..V {
                    sums[r][v] = S::add(sums[r][v], S::mul(k[v], q));
                }
            }
        }
        for (scores, sums) in scores.iter_mut().zip(sums) {
            for (v, sum) in sums.into_iter().enumerate() {
                S::store_f32(scores.as_mut_ptr().add(at + v * LANES), sum);
            }
        }
    }
}

/// Turns the scores `inside` into `exp(scale · score - max)`, all others into 0. Returns the maximum and the sum.
#[inline(always)]
fn weights(scores: &mut Scores, inside: Range<usize>, scale: f32) -> (f32, f32) {
    scores[..inside.start].fill(f32::NEG_INFINITY);
    scores[inside.end..].fill(f32::NEG_INFINITY);
    let vectors = inside.start / LANES..inside.end.div_ceil(LANES);
    let (used, _) = scores[..vectors.end * LANES].as_chunks_mut::<LANES>();
    let used = &mut used[vectors.start..];
    let mut max = [f32::NEG_INFINITY; LANES];
    for vector in used.iter_mut() {
        for l in 0..LANES {
            vector[l] *= scale;
            max[l] = if vector[l] > max[l] { vector[l] } else { max[l] };
        }
    }
    let max = max.into_iter().fold(f32::NEG_INFINITY, f32::max);
    let mut sums = [0.0; LANES];
    for vector in used {
        for l in 0..LANES {
            vector[l] = exp(vector[l] - max);
            sums[l] += vector[l];
        }
    }
    scores[..vectors.start * LANES].fill(0.0);
    scores[vectors.end * LANES..].fill(0.0);
    (max, add_lanes(sums))
}

/// Adds the values at positions that only one query sees, or that lie in slots of other numbers.
///
/// # Safety
/// As [`task`].
#[inline(always)]
unsafe fn own_values<S: Simd, E: KvElement>(
    pages: &Pages<'_>,
    query: &Query,
    split: &Range<usize>,
    positions: Range<usize>,
    weights: &Scores,
    sums: &mut [f32],
) {
    let dim = sums.len();
    for position in positions {
        let slot = if position < query.in_place { position } else { pages.batch.key_slot(query.row, position) };
        let page = &pages.page::<E>(slot, Part::Value)[slot % PAGE_TOKENS * dim..][..dim];
        // SAFETY: passed on.
        unsafe { accumulate::<S, E, 1>(page, &[&weights[position - split.start..][..1]], dim, sums) };
    }
}

/// `sums[r] += Σ weights[r][j] · values[j]`, in order of `j`. `values`: `[count, dim]`; `sums`: `[R, dim]`.
///
/// # Safety
/// The machine has the instructions of `S`.
#[inline(always)]
unsafe fn accumulate<S: Simd, E: KvElement, const R: usize>(
    values: &[E::Stored],
    weights: &[&[f32]; R],
    dim: usize,
    sums: &mut [f32],
) {
    let count = weights[0].len();
    assert!(values.len() == count * dim && sums.len() == R * dim && weights.iter().all(|w| w.len() == count));
    let mut at = 0;
    // SAFETY: `at + 16 V <= dim`, so all loads and stores stay inside a row, by the assertion.
    unsafe {
        while at + 2 * LANES <= dim {
            accumulate_at::<S, E, R, 2>(values, weights, dim, at, sums);
            at += 2 * LANES;
        }
        if at + LANES <= dim {
            accumulate_at::<S, E, R, 1>(values, weights, dim, at, sums);
            at += LANES;
        }
    }
    for r in 0..R {
        for i in at..dim {
            let sum = &mut sums[r * dim + i];
            for (j, weight) in weights[r].iter().enumerate() {
                *sum += weight * E::widen(values[j * dim + i]);
            }
        }
    }
}

/// # Safety
/// As [`accumulate`], whose assertion holds; `at + 16 V <= dim`.
#[inline(always)]
unsafe fn accumulate_at<S: Simd, E: KvElement, const R: usize, const V: usize>(
    values: &[E::Stored],
    weights: &[&[f32]; R],
    dim: usize,
    at: usize,
    sums: &mut [f32],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let start = sums.as_mut_ptr().add(at);
        let mut lanes: [[S::F32; V]; R] =
            std::array::from_fn(|r| std::array::from_fn(|v| S::load_f32(start.add(r * dim + v * LANES))));
        for j in 0..weights[0].len() {
            let values = values.as_ptr().add(j * dim + at);
            let value: [S::F32; V] = std::array::from_fn(|v| E::load::<S>(values.add(v * LANES)));
            for r in 0..R {
                let weight = S::splat(*weights[r].get_unchecked(j));
                for v in 0..V {
                    lanes[r][v] = S::add(lanes[r][v], S::mul(value[v], weight));
                }
            }
        }
        for (r, lanes) in lanes.into_iter().enumerate() {
            for (v, lanes) in lanes.into_iter().enumerate() {
                S::store_f32(start.add(r * dim + v * LANES), lanes);
            }
        }
    }
}
