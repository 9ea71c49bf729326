//! Attention over paged keys and values, in splits of [`SPLIT_TOKENS`] absolute positions that are merged in order.
//!
//! A score is a sum over the elements of the head in order; a split's scores are taken in runs of 256, whose weights are
//! summed in 16 lanes by position, then halves first, and whose values are added by position; each run rescales what the
//! split's runs before it have found, and splits are merged in order. Positions that a row does not see have the weight 0 and
//! their values are not touched. Which rows and heads are computed together, and which splits by which thread, changes no bit.

mod full;
mod run;
mod tile;

use std::marker::PhantomData;
use std::ops::Range;

use kapitsa_ops::kv::HostKv;
use kapitsa_ops::{Attention, Batch};
use kapitsa_tensor::DType;

use crate::element::{Bf16, F16, F32};
use crate::isa::{Isa, Kernel};
use crate::memory::hold;
use crate::pool::Pool;
use crate::shared::SharedOut;
use crate::simd::Simd;
pub(crate) use full::{FullScratch, full};
use run::{KvElement, Pages, Query, Softmax};

/// Positions that a thread may attend over on its own.
const SPLIT_TOKENS: usize = 1024;
/// Rows of one sequence whose queries are computed together.
const BLOCK_ROWS: usize = 32;

/// Working memory, kept from call to call.
#[derive(Default)]
pub(crate) struct Scratch {
    blocks: Vec<Block>,
    workers: Vec<Worker>,
    shared: Found,
}

#[derive(Default)]
struct Worker {
    queries: Vec<Query>,
    /// Their elements, times the scale of scores, `[.., head_dim]`.
    q: Vec<f32>,
    split: Found,
    all: Found,
    widened: Vec<f32>,
}

/// What queries have found, and the values summed with it, `[.., head_dim]`.
#[derive(Default)]
struct Found {
    softmax: Vec<Softmax>,
    sums: Vec<f32>,
}

/// Consecutive rows of one sequence, at most [`BLOCK_ROWS`].
struct Block {
    rows: Range<usize>,
    /// Splits that some row sees a part of.
    splits: Range<usize>,
}

/// How a call is cut into tasks. Numbers count from the outermost: blocks, KV heads, parts, shares.
#[derive(Clone, Copy)]
struct Plan {
    /// Parts that the query heads of a KV head are cut into, and heads of a part: those of one part share loads.
    parts: usize,
    heads: usize,
    /// Tasks that the splits of a query are dealt to.
    shares: usize,
    /// Most splits of a block.
    splits: usize,
}

impl Found {
    fn hold(&mut self, queries: usize, dim: usize) {
        hold(&mut self.softmax, queries);
        hold(&mut self.sums, queries * dim);
    }

    fn clear(&mut self, queries: usize, dim: usize) {
        self.softmax.clear();
        self.softmax.resize(queries, Softmax::NONE);
        self.sums.clear();
        self.sums.resize(queries * dim, 0.0);
    }
}

impl Plan {
    /// Query heads of a group share keys and values as far as there is other work for all threads.
    fn new(op: &Attention, blocks: &[Block], threads: usize) -> Plan {
        let (tasks, wanted) = ((blocks.len() * op.kv_heads).max(1), 2 * threads);
        let splits = blocks.iter().map(|block| block.splits.len()).max().unwrap_or(0);
        let shares = wanted.div_ceil(tasks).clamp(1, splits.max(1));
        let group = op.heads / op.kv_heads;
        let heads = group.div_ceil(wanted.div_ceil(tasks * shares).min(group));
        Plan { parts: group.div_ceil(heads), heads, shares, splits }
    }
}

/// `q` and `out`: `[rows, heads · head_dim]`.
pub(crate) fn run(
    isa: Isa,
    pool: &mut Pool,
    scratch: &mut Scratch,
    (op, batch, kv): (&Attention, &Batch, &HostKv),
    q: &[f32],
    out: &mut [f32],
) {
    let Scratch { blocks, workers, shared } = scratch;
    find_blocks(op, batch, blocks);
    workers.resize_with(pool.threads(), Worker::default);
    let plan = Plan::new(op, blocks, pool.threads());
    let (group, dim) = (op.heads / op.kv_heads, op.head_dim());
    // All workers get what any task needs, so that it is not for chance to say when memory is asked for.
    let queries = plan.heads * blocks.iter().map(|block| block.rows.len()).max().unwrap_or(0);
    for worker in &mut *workers {
        hold(&mut worker.queries, queries);
        hold(&mut worker.q, queries * dim);
        worker.split.hold(queries, dim);
        worker.all.hold(queries, dim);
        hold(&mut worker.widened, run::widened_len(queries, dim));
    }
    if plan.shares > 1 {
        shared.clear(batch.len() * op.heads * plan.splits, dim);
    }
    let (softmax, sums) = (SharedOut::new(&mut shared.softmax), SharedOut::new(&mut shared.sums));
    let out = SharedOut::new(out);
    pool.each_with(blocks.len() * op.kv_heads * plan.parts * plan.shares, workers, |worker, task| {
        let (share, task) = (task % plan.shares, task / plan.shares);
        let (part, task) = (task % plan.parts, task / plan.parts);
        let (kv_head, block) = (task % op.kv_heads, &blocks[task / op.kv_heads]);
        let first = kv_head * group + part * plan.heads;
        let splits = block.splits.len().div_ceil(plan.shares);
        let start = (block.splits.start + share * splits).min(block.splits.end);
        let task = Task {
            of: (op, batch, kv),
            q,
            rows: block.rows.clone(),
            heads: first..(first + plan.heads).min((kv_head + 1) * group),
            splits: start..(start + splits).min(block.splits.end),
            worker,
            out: match plan.shares {
                1 => Out::Whole(&out),
                _ => Out::Splits { softmax: &softmax, sums: &sums, of_query: plan.splits, first: block.splits.start },
            },
        };
        // SAFETY: blocks have disjoint rows, tasks of a block disjoint heads or splits.
        unsafe { isa.run(task) }
    });
    if plan.shares > 1 {
        pool.each(blocks.len() * op.heads, |task| {
            let (block, head) = (&blocks[task / op.heads], task % op.heads);
            for row in block.rows.clone() {
                let at = (row * op.heads + head) * plan.splits;
                let splits = block.splits.len();
                // SAFETY: all splits have been written; each output is written by one task.
                unsafe {
                    isa.run(Merge {
                        found: softmax.read(at, splits),
                        sums: sums.read(at * dim, splits * dim),
                        out: out.part((row * op.heads + head) * dim, dim),
                    });
                }
            }
        });
    }
}

fn find_blocks(op: &Attention, batch: &Batch, blocks: &mut Vec<Block>) {
    blocks.clear();
    for row in 0..batch.len() {
        let position = batch.position(row);
        let splits = op.first_visible(position) / SPLIT_TOKENS..position / SPLIT_TOKENS + 1;
        match blocks.last_mut() {
            Some(Block { rows, splits: all })
                if rows.len() < BLOCK_ROWS && batch.sequence(rows.start) == batch.sequence(row) =>
            {
                rows.end = row + 1;
                *all = all.start.min(splits.start)..all.end.max(splits.end);
            }
            _ => blocks.push(Block { rows: row..row + 1, splits }),
        }
    }
}

/// Takes in what has been found in a further split.
#[inline(always)]
fn merge<S: Simd>(all: &mut Softmax, all_sums: &mut [f32], found: Softmax, sums: &[f32]) {
    if !found.is_none() {
        let (old, new) = all.merge::<S>(found);
        all_sums.iter_mut().zip(sums).for_each(|(all, sum)| *all = *all * old + sum * new);
    }
}

/// All splits of a query.
struct Merge<'a> {
    found: &'a [Softmax],
    sums: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Merge<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Merge { found, sums, out } = self;
        let mut all = Softmax::NONE;
        out.fill(0.0);
        for (found, sums) in found.iter().zip(sums.chunks_exact(out.len())) {
            merge::<S>(&mut all, out, *found, sums);
        }
        out.iter_mut().for_each(|out| *out /= all.sum);
    }
}

/// Some heads of one KV head for a block of rows, in some splits.
struct Task<'a> {
    of: (&'a Attention, &'a Batch, &'a HostKv),
    q: &'a [f32],
    rows: Range<usize>,
    heads: Range<usize>,
    splits: Range<usize>,
    worker: &'a mut Worker,
    out: Out<'a>,
}

/// Where results go.
enum Out<'a> {
    /// The task has all splits.
    Whole(&'a SharedOut<'a, f32>),
    /// Each split on its own, to be merged later.
    Splits { softmax: &'a SharedOut<'a, Softmax>, sums: &'a SharedOut<'a, f32>, of_query: usize, first: usize },
}

impl Kernel for Task<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: passed on.
        unsafe {
            match self.of.2.layout().dtype {
                DType::F32 => task::<S, F32>(self),
                DType::F16 => task::<S, F16>(self),
                DType::Bf16 => task::<S, Bf16>(self),
            }
        }
    }
}

/// # Safety
/// As [`Kernel::run`]; nobody else uses the task's outputs.
#[inline(always)]
unsafe fn task<S: Simd, E: KvElement>(task: Task<'_>) {
    let Task { of: (op, batch, kv), q: all_q, rows, heads, splits, worker, out } = task;
    let Worker { queries, q, split, all, widened } = worker;
    let dim = op.head_dim();
    let kv_head = heads.start / (op.heads / op.kv_heads);
    let pages = Pages { op, batch, kv, row: rows.start, kv_head, element: PhantomData::<E> };
    queries.clear();
    for row in rows {
        let position = batch.position(row);
        queries.extend(heads.clone().map(|head| Query {
            row,
            at: row * op.q.width() + head * dim,
            visible: op.first_visible(position)..position + 1,
            in_place: batch.in_place(row),
        }));
    }
    q.clear();
    for query in &*queries {
        q.extend(all_q[query.at..][..dim].iter().map(|x| x * op.scale));
    }
    all.clear(queries.len(), dim);
    for index in splits {
        split.clear(queries.len(), dim);
        let positions = index * SPLIT_TOKENS..(index + 1) * SPLIT_TOKENS;
        // SAFETY: passed on.
        unsafe { run::split::<S, E>(&pages, q, positions, queries, (&mut split.softmax, &mut split.sums), widened) };
        let found = split.softmax.iter().zip(split.sums.chunks_exact(dim));
        match &out {
            Out::Whole(_) => {
                for ((all, all_sums), (found, sums)) in
                    all.softmax.iter_mut().zip(all.sums.chunks_exact_mut(dim)).zip(found)
                {
                    merge::<S>(all, all_sums, *found, sums);
                }
            }
            Out::Splits { softmax, sums: all_sums, of_query, first } => {
                for (query, (found, sums)) in queries.iter().zip(found) {
                    let at = query.at / dim * of_query + index - first;
                    // SAFETY: nobody else uses this split of this query.
                    unsafe {
                        softmax.part(at, 1)[0] = *found;
                        all_sums.part(at * dim, dim).copy_from_slice(sums);
                    }
                }
            }
        }
    }
    if let Out::Whole(out) = out {
        for (query, (found, sums)) in queries.iter().zip(all.softmax.iter().zip(all.sums.chunks_exact(dim))) {
            // SAFETY: nobody else uses these outputs.
            let out = unsafe { out.part(query.at, dim) };
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum / found.sum);
        }
    }
}
