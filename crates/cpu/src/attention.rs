//! Attention over paged keys and values, in runs of [`SPLIT_TOKENS`] absolute positions that are merged in order.
//!
//! A run's keys and values are widened once for a block of rows and a KV head. What a row computes depends on its own
//! position and path alone: it walks the positions that it sees in ascending order, run by run, and skips the others.

use std::ops::Range;

use kapitsa_ops::kv::{HostKv, PAGE_TOKENS, Part};
use kapitsa_ops::{Attention, Batch, SPLIT_TOKENS};

use crate::isa::Isa;
use crate::lanes::{accumulate, products};
use crate::pool::Pool;
use crate::shared::SharedOut;

/// Rows of one sequence that share widened keys.
const BLOCK_ROWS: usize = 16;

/// `q` and `out`: `[rows, heads · head_dim]`.
pub(crate) fn run(isa: Isa, pool: &mut Pool, op: &Attention, batch: &Batch, kv: &HostKv, q: &[f32], out: &mut [f32]) {
    let blocks = blocks(batch);
    let out = SharedOut::new(out);
    let tasks = blocks.len() * op.kv_heads;
    pool.each_with(tasks, Scratch::default, |scratch, task| {
        block(isa, op, batch, kv, q, blocks[task / op.kv_heads].clone(), task % op.kv_heads, scratch, &out);
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

#[derive(Default)]
struct Scratch {
    keys: Vec<f32>,
    values: Vec<f32>,
    scores: Vec<f32>,
    run: Vec<f32>,
    sums: Vec<f32>,
    softmax: Vec<Softmax>,
}

/// A softmax under way: the largest score so far and the sum of the exponentials relative to it.
#[derive(Clone, Copy)]
struct Softmax {
    max: f32,
    sum: f32,
}

#[allow(clippy::too_many_arguments)] // one task of `run`, which holds all of these
fn block(
    isa: Isa,
    op: &Attention,
    batch: &Batch,
    kv: &HostKv,
    q: &[f32],
    rows: Range<usize>,
    kv_head: usize,
    scratch: &mut Scratch,
    out: &SharedOut<'_, f32>,
) {
    let (dim, group) = (op.head_dim(), op.heads / op.kv_heads);
    let strip = group * dim; // the query heads of this KV head, side by side in a row
    scratch.sums.clear();
    scratch.sums.resize(rows.len() * strip, 0.0);
    scratch.softmax.clear();
    scratch.softmax.resize(rows.len() * group, Softmax { max: f32::NEG_INFINITY, sum: 0.0 });
    scratch.run.resize(dim, 0.0);

    let visible = |row: usize| op.first_visible(batch.position(row))..batch.position(row) + 1;
    let first = rows.clone().map(|r| visible(r).start).min().expect("blocks are not empty");
    let end = rows.clone().map(|r| visible(r).end).max().expect("blocks are not empty");
    // The path of the deepest row of a chain holds those of the others.
    let shared = rows.clone().all(|r| batch.is_chain(r));
    let deepest = rows.clone().max_by_key(|&r| batch.position(r)).expect("blocks are not empty");
    for split in first / SPLIT_TOKENS..end.div_ceil(SPLIT_TOKENS) {
        let split = split * SPLIT_TOKENS..(split + 1) * SPLIT_TOKENS;
        let mut loaded = intersection(&split, &(first..end));
        if shared {
            load(op, batch, kv, deepest, kv_head, &loaded, scratch);
        }
        for row in rows.clone() {
            let keys = intersection(&split, &visible(row));
            if keys.is_empty() {
                continue;
            }
            if !shared {
                load(op, batch, kv, row, kv_head, &keys, scratch);
                loaded = keys.clone();
            }
            let at = row - rows.start;
            for head in 0..group {
                let q = &q[row * op.q.width() + kv_head * strip + head * dim..][..dim];
                let inside = keys.start - loaded.start..keys.end - loaded.start;
                let sums = at * strip + head * dim;
                attend(isa, op.scale, q, inside, scratch, at * group + head, sums..sums + dim);
            }
        }
    }
    for row in 0..rows.len() {
        for head in 0..group {
            let sums = &mut scratch.sums[row * strip + head * dim..][..dim];
            let total = scratch.softmax[row * group + head].sum;
            sums.iter_mut().for_each(|v| *v /= total);
        }
        let at = (rows.start + row) * op.q.width() + kv_head * strip;
        // SAFETY: blocks have disjoint rows, and tasks of a block disjoint KV heads, hence disjoint strips.
        unsafe { out.part(at, strip) }.copy_from_slice(&scratch.sums[row * strip..][..strip]);
    }
}

fn intersection(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    a.start.max(b.start)..a.end.min(b.end)
}

/// Widens the keys and values at `positions` on the path of `row`.
fn load(
    op: &Attention,
    batch: &Batch,
    kv: &HostKv,
    row: usize,
    head: usize,
    positions: &Range<usize>,
    to: &mut Scratch,
) {
    let dim = op.head_dim();
    let (group, _) = kv.layout().layers[op.layer];
    let pages = &batch.context(row).pages[group];
    let chain = batch.is_chain(row);
    for (part, data) in [(Part::Key, &mut to.keys), (Part::Value, &mut to.values)] {
        data.resize(data.len().max(SPLIT_TOKENS * dim), 0.0);
        let mut position = positions.start;
        while position < positions.end {
            let slot = batch.key_slot(row, position);
            let run = if chain { (PAGE_TOKENS - slot % PAGE_TOKENS).min(positions.end - position) } else { 1 };
            let out = &mut data[(position - positions.start) * dim..][..run * dim];
            kv.head_page(op.layer, pages[slot / PAGE_TOKENS], part, head).widen(slot % PAGE_TOKENS, dim, out);
            position += run;
        }
    }
}

/// Attends over one run of loaded keys and merges it into the softmax and sums that are under way.
fn attend(
    isa: Isa,
    scale: f32,
    q: &[f32],
    keys: Range<usize>,
    scratch: &mut Scratch,
    state: usize,
    sums: Range<usize>,
) {
    let dim = q.len();
    let Scratch { keys: k, values: v, scores, run, sums: all_sums, softmax } = scratch;
    scores.clear();
    scores.extend(keys.clone().map(|j| products(isa, &[q], &[&k[j * dim..][..dim]])[0][0] * scale));
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    run.fill(0.0);
    for (score, j) in scores.iter().zip(keys) {
        let weight = (score - max).exp();
        sum += weight;
        accumulate(isa, run, weight, &v[j * dim..][..dim]);
    }

    let state = &mut softmax[state];
    let merged = state.max.max(max);
    let (old, new) = ((state.max - merged).exp(), (max - merged).exp());
    for (total, run) in all_sums[sums].iter_mut().zip(run.iter()) {
        *total = *total * old + run * new;
    }
    *state = Softmax { max: merged, sum: state.sum * old + sum * new };
}
