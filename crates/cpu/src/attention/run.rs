//! What queries see of one split of the positions: runs of scores, weights and sums of values, merged in order.

use std::marker::PhantomData;
use std::ops::Range;

use kapitsa_ops::kv::{HeadPage, HostKv, PAGE_TOKENS, Part};
use kapitsa_ops::{Attention, Batch};

use super::tile::{TILE, accumulate, score};
use crate::element::{Bf16, Element, F16, F32};
use crate::exp::exp;
use crate::rows::{add_lanes, max_lanes};
use crate::simd::{LANES, Simd};

/// Positions whose scores are kept at a time; runs begin at multiples of it.
pub(super) const RUN_TOKENS: usize = 256;
/// Queries from which on keys and values are widened once for all.
const WIDEN_QUERIES: usize = 3 * TILE;

/// Elements that so many queries have widened at most.
pub(super) fn widened_len(queries: usize, dim: usize) -> usize {
    if queries >= WIDEN_QUERIES { 2 * RUN_TOKENS * dim } else { 0 }
}

/// Scores, then weights, of a run's positions.
pub(super) type Scores = [f32; RUN_TOKENS];

/// A query.
pub(super) struct Query {
    pub(super) row: usize,
    /// Where its elements begin in the op's queries and output.
    pub(super) at: usize,
    pub(super) visible: Range<usize>,
    /// Positions below this lie in the slots of their numbers.
    pub(super) in_place: usize,
}

/// A softmax under way: the largest score, and the sum of the exponentials relative to it. Beside it stand the values summed
/// with the same weights.
#[derive(Clone, Copy)]
pub(super) struct Softmax {
    pub(super) max: f32,
    pub(super) sum: f32,
}

impl Softmax {
    pub(super) const NONE: Softmax = Softmax { max: f32::NEG_INFINITY, sum: 0.0 };

    /// Whether anything has been seen.
    pub(super) fn is_none(&self) -> bool {
        self.max == f32::NEG_INFINITY && self.sum == 0.0
    }

    /// Takes another one in. Returns the factors of what has been summed before and of what comes.
    #[inline(always)]
    pub(super) fn merge<S: Simd>(&mut self, other: Softmax) -> (f32, f32) {
        let max = self.max.max(other.max);
        let (old, new) = (exp::<S>(self.max - max), exp::<S>(other.max - max));
        *self = Softmax { max, sum: self.sum * old + other.sum * new };
        (old, new)
    }
}

/// Where a block's keys and values are.
pub(super) struct Pages<'a, E> {
    pub(super) op: &'a Attention,
    pub(super) batch: &'a Batch,
    pub(super) kv: &'a HostKv,
    /// Some row of the sequence.
    pub(super) row: usize,
    pub(super) kv_head: usize,
    pub(super) element: PhantomData<E>,
}

/// Keys `[dim, 64]` and values `[64, dim]` of the page that a slot is in.
trait Source {
    type Element: Element;
    fn page(&self, slot: usize, part: Part) -> &[<Self::Element as Element>::Stored];
    /// The keys at `slot`, where the next run begins, if they are there already.
    fn next_run(&self, slot: usize) -> Option<*const <Self::Element as Element>::Stored>;
}

impl<E: KvElement> Source for Pages<'_, E> {
    type Element = E;

    #[inline(always)]
    fn page(&self, slot: usize, part: Part) -> &[E::Stored] {
        let (group, _) = self.kv.layout().layers[self.op.layer];
        let page = self.batch.context(self.row).pages[group][slot / PAGE_TOKENS];
        E::page(self.kv.head_page(self.op.layer, page, part, self.kv_head))
    }

    #[inline(always)]
    fn next_run(&self, slot: usize) -> Option<*const E::Stored> {
        Some(self.page(slot, Part::Key).as_ptr())
    }
}

/// Pages of a run as f32: keys of all, then values of all.
struct Widened<'a> {
    first_page: usize,
    page: usize,
    keys: &'a [f32],
    values: &'a [f32],
}

impl Source for Widened<'_> {
    type Element = F32;

    #[inline(always)]
    fn page(&self, slot: usize, part: Part) -> &[f32] {
        let of = match part {
            Part::Key => self.keys,
            Part::Value => self.values,
        };
        &of[(slot / PAGE_TOKENS - self.first_page) * self.page..][..self.page]
    }

    #[inline(always)]
    fn next_run(&self, _: usize) -> Option<*const f32> {
        None
    }
}

/// Element types of the cache.
pub(super) trait KvElement: Element {
    const IS_F32: bool;
    fn page(page: HeadPage<'_>) -> &[Self::Stored];
}

macro_rules! kv_element {
    ($element:ty, $page:ident, $stored:ty, $is_f32:literal) => {
        impl KvElement for $element {
            const IS_F32: bool = $is_f32;

            #[inline(always)]
            fn page(page: HeadPage<'_>) -> &[$stored] {
                let HeadPage::$page(data) = page else { unreachable!("a cache has one element type") };
                data
            }
        }
    };
}

kv_element!(F32, F32, f32, true);
kv_element!(F16, F16, half::f16, false);
kv_element!(Bf16, Bf16, half::bf16, false);

/// Attends over the positions of `split` alone. `q`: `[queries, dim]`, times the scale of scores; `found` and `sums`
/// (`[queries, dim]`) begin empty; sums are left undivided.
///
/// # Safety
/// The machine has the instructions of `S`.
#[inline(always)]
pub(super) unsafe fn split<S: Simd, E: KvElement>(
    pages: &Pages<'_, E>,
    q: &[f32],
    split: Range<usize>,
    queries: &[Query],
    (found, sums): (&mut [Softmax], &mut [f32]),
    widened: &mut Vec<f32>,
) {
    let dim = pages.op.head_dim();
    for start in split.step_by(RUN_TOKENS) {
        let run = start..start + RUN_TOKENS;
        let first = queries.iter().map(|query| query.visible.start).min().unwrap_or(0).max(run.start);
        let end = queries.iter().map(|query| query.visible.end.min(query.in_place)).max().unwrap_or(0).min(run.end);
        let mut near = None;
        if queries.len() >= WIDEN_QUERIES && !E::IS_F32 && first < end {
            let range = first / PAGE_TOKENS..end.div_ceil(PAGE_TOKENS);
            // SAFETY: passed on.
            near = Some(unsafe { widen::<S, E>(pages, range, dim, widened) });
        }
        let of_tiles = queries.chunks(TILE).zip(q.chunks(TILE * dim));
        for ((queries, q), (found, sums)) in of_tiles.zip(found.chunks_mut(TILE).zip(sums.chunks_mut(TILE * dim))) {
            // SAFETY: passed on.
            unsafe {
                match &near {
                    Some(near) => tile::<S, E, _>(pages, near, &run, queries, q, found, sums),
                    None => tile::<S, E, _>(pages, pages, &run, queries, q, found, sums),
                }
            }
        }
    }
}

/// # Safety
/// As [`split`].
#[inline(always)]
unsafe fn widen<'a, S: Simd, E: KvElement>(
    pages: &Pages<'_, E>,
    range: Range<usize>,
    dim: usize,
    widened: &'a mut Vec<f32>,
) -> Widened<'a> {
    let page = dim * PAGE_TOKENS;
    let half = range.len() * page;
    widened.resize(widened.len().max(2 * half), 0.0);
    let (keys, values) = widened[..2 * half].split_at_mut(half);
    for (part, wide) in [(Part::Key, &mut *keys), (Part::Value, &mut *values)] {
        for (index, wide) in range.clone().zip(wide.chunks_exact_mut(page)) {
            let stored = pages.page(index * PAGE_TOKENS, part);
            let next = pages.page((index + 1).min(range.end - 1) * PAGE_TOKENS, part);
            assert!(stored.len() == page && page.is_multiple_of(LANES));
            for i in (0..page).step_by(LANES) {
                // SAFETY: in bounds by the assertion; the machine has the instructions by the caller's promise.
                unsafe {
                    S::prefetch(next.as_ptr().add(i).cast());
                    S::store_f32(wide.as_mut_ptr().add(i), E::load::<S>(stored.as_ptr().add(i)));
                }
            }
        }
    }
    Widened { first_page: range.start, page, keys, values }
}

/// What a tile of queries sees of one run, merged into what they have seen before. `near` has the positions that lie in the
/// slots of their numbers.
///
/// # Safety
/// As [`split`].
#[inline(always)]
unsafe fn tile<S: Simd, E: KvElement, N: Source>(
    pages: &Pages<'_, E>,
    near: &N,
    run: &Range<usize>,
    queries: &[Query],
    q: &[f32],
    found: &mut [Softmax],
    sums: &mut [f32],
) {
    let (dim, count) = (pages.op.head_dim(), queries.len());
    let mut qs: [&[f32]; TILE] = [&[]; TILE];
    let mut seen: [Range<usize>; TILE] = [const { 0..0 }; TILE];
    // The part of `seen` that `near` has.
    let mut there: [Range<usize>; TILE] = [const { 0..0 }; TILE];
    for (r, query) in queries.iter().enumerate() {
        qs[r] = &q[r * dim..][..dim];
        seen[r] = intersection(run, &query.visible);
        there[r] = seen[r].start..seen[r].end.min(query.in_place).max(seen[r].start);
    }
    let (qs, seen, there) = (&qs[..count], &seen[..count], &there[..count]);
    if seen.iter().all(Range::is_empty) {
        return;
    }
    let mut scores: [Scores; TILE] = [[f32::NEG_INFINITY; RUN_TOKENS]; TILE];
    let scores = &mut scores[..count];

    let some = || there.iter().filter(|there| !there.is_empty());
    let start = some().map(|there| there.start).min().unwrap_or(0) / LANES * LANES;
    let end = some().map(|there| there.end).max().unwrap_or(0);
    // Values that all queries see are loaded once; a query's own come before and after.
    let common = there.iter().fold(0..usize::MAX, |all, there| intersection(&all, there));
    // Pages are used in this order: keys, values that all see, and in the next run keys again.
    let further = queries.iter().any(|query| query.visible.end.min(query.in_place) > run.end);
    let after_keys = || if common.is_empty() { None } else { Some(near.page(common.start, Part::Value).as_ptr()) };
    let after_values = || if further { near.next_run(run.end) } else { None };

    let mut slot = start;
    while slot < end {
        let (first, next) = (slot % PAGE_TOKENS, (slot / PAGE_TOKENS + 1) * PAGE_TOKENS);
        let last = first + next.min(end) - slot;
        let keys = near.page(slot, Part::Key);
        let ahead = if next < end { Some(near.page(next, Part::Key).as_ptr()) } else { after_keys() };
        // SAFETY: passed on.
        unsafe {
            let ahead = ahead.unwrap_or(keys.as_ptr());
            score::<S, N::Element>(qs, keys, ahead, (first, last), slot - run.start, scores);
        }
        slot = next;
    }

    for (r, query) in queries.iter().enumerate() {
        if seen[r].is_empty() {
            continue;
        }
        let scores = &mut scores[r];
        // Keys of a tree's ancestors, each in some slot.
        for position in there[r].end..seen[r].end {
            let slot = pages.batch.key_slot(query.row, position);
            let mut score = 0.0;
            for (keys, q) in pages.page(slot, Part::Key).chunks_exact(PAGE_TOKENS).zip(qs[r]) {
                score = E::widen(keys[slot % PAGE_TOKENS]).mul_add(*q, score);
            }
            scores[position - run.start] = score;
        }
        let inside = seen[r].start - run.start..seen[r].end - run.start;
        let old = weights::<S>(scores, inside, &mut found[r]);
        sums[r * dim..][..dim].iter_mut().for_each(|sum| *sum *= old);
    }

    for (r, sums) in sums.chunks_exact_mut(dim).enumerate() {
        let before = seen[r].start..if common.is_empty() { seen[r].end } else { common.start };
        // SAFETY: passed on.
        unsafe { own_values::<S, E>(pages, queries[r].row, before, run, &scores[r], sums) }
    }
    let mut position = common.start;
    while position < common.end {
        let page = near.page(position, Part::Value);
        let first = position % PAGE_TOKENS;
        let tokens = (PAGE_TOKENS - first).min(common.end - position);
        let mut weights: [&[f32]; TILE] = [&[]; TILE];
        for (weights, scores) in weights.iter_mut().zip(&*scores) {
            *weights = &scores[position - run.start..][..tokens];
        }
        let values = &page[first * dim..][..tokens * dim];
        let next = position + tokens;
        let ahead = if next < common.end { Some(near.page(next, Part::Value).as_ptr()) } else { after_values() };
        // SAFETY: passed on.
        unsafe {
            let ahead = ahead.unwrap_or(values.as_ptr());
            accumulate::<S, N::Element>(values, ahead, &weights[..count], dim, sums);
        }
        position = next;
    }
    for (r, sums) in sums.chunks_exact_mut(dim).enumerate().filter(|_| !common.is_empty()) {
        // SAFETY: passed on.
        unsafe { own_values::<S, E>(pages, queries[r].row, common.end..seen[r].end, run, &scores[r], sums) }
    }
}

/// Adds the values at positions that only one query sees, or that lie in slots of other numbers.
///
/// # Safety
/// As [`split`].
#[inline(always)]
unsafe fn own_values<S: Simd, E: KvElement>(
    pages: &Pages<'_, E>,
    row: usize,
    positions: Range<usize>,
    run: &Range<usize>,
    weights: &Scores,
    sums: &mut [f32],
) {
    let dim = sums.len();
    for position in positions {
        let slot = pages.batch.key_slot(row, position);
        let values = &pages.page(slot, Part::Value)[slot % PAGE_TOKENS * dim..][..dim];
        // SAFETY: passed on.
        unsafe { accumulate::<S, E>(values, values.as_ptr(), &[&weights[position - run.start..][..1]], dim, sums) }
    }
}

/// Empty ranges are in no order.
fn intersection(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    a.start.max(b.start)..a.end.min(b.end)
}

/// Turns the scores `inside` into `exp(score - max)`, all others into 0, and takes them in. Returns the factor of what has been
/// summed before.
#[inline(always)]
pub(super) fn weights<S: Simd>(scores: &mut Scores, inside: Range<usize>, found: &mut Softmax) -> f32 {
    scores[..inside.start].fill(f32::NEG_INFINITY);
    scores[inside.end..].fill(f32::NEG_INFINITY);
    let vectors = inside.start / LANES..inside.end.div_ceil(LANES);
    let (used, _) = scores[..vectors.end * LANES].as_chunks_mut::<LANES>();
    let used = &mut used[vectors.start..];
    let mut max = [found.max; LANES];
    for vector in used.iter() {
        for l in 0..LANES {
            max[l] = if vector[l] > max[l] { vector[l] } else { max[l] };
        }
    }
    let max = max_lanes(max);
    let mut sums = [0.0; LANES];
    for vector in used {
        for l in 0..LANES {
            vector[l] = exp::<S>(vector[l] - max);
            sums[l] += vector[l];
        }
    }
    scores[..vectors.start * LANES].fill(0.0);
    scores[vectors.end * LANES..].fill(0.0);
    let old = exp::<S>(found.max - max);
    *found = Softmax { max, sum: found.sum * old + add_lanes(sums) };
    old
}
