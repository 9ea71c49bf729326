//! Products of rows with weights: packed ones by panels, all others dequantised a panel at a time.

use std::ops::Range;

use kapitsa_ops::Tensor;
use kapitsa_tensor::Weight;

use crate::activations::{self, BLOCK, Block, GROUP};
use crate::isa::Isa;
use crate::kernel::{self, Inputs, MAX_ROWS, STREAMS, Tile, Weights};
use crate::memory::hold;
use crate::packed::Packed;
use crate::pool::Pool;
use crate::shared::SharedOut;
use crate::simd::LANES;

/// Rows to multiply by one weight.
pub(crate) struct Job<'a> {
    pub(crate) weight: &'a Weight,
    /// The weight's panels, if its format has a layout.
    pub(crate) packed: Option<&'a Packed>,
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) rows: Rows<'a>,
}

/// Rows of a call's input, and where each row's outputs `[out]` begin. No two rows overlap, in this job or another of the
/// call.
#[derive(Clone, Copy)]
pub(crate) enum Rows<'a> {
    /// As many from the first on; their outputs lie `width` apart, from `out_at` on.
    First { count: usize, out_at: usize, width: usize },
    /// For each choice `c` of an expert the row `c / choices`, with outputs at `c · width`.
    Chosen { by: &'a [(u32, usize)], choices: usize, width: usize },
}

impl Rows<'_> {
    fn len(&self) -> usize {
        match self {
            Rows::First { count, .. } => *count,
            Rows::Chosen { by, .. } => by.len(),
        }
    }

    /// The row `i` and where its outputs begin.
    fn at(&self, i: usize) -> (usize, usize) {
        match self {
            Rows::First { out_at, width, .. } => (i, out_at + i * width),
            Rows::Chosen { by, choices, width } => (by[i].1 / choices, by[i].1 * width),
        }
    }
}

/// What all jobs of a call multiply.
pub(crate) struct Input<'a> {
    /// The tensor that the values belong to.
    pub(crate) of: Tensor,
    /// Rows of `cols` values.
    pub(crate) x: &'a [f32],
    pub(crate) cols: usize,
}

/// Working memory, kept from call to call.
#[derive(Default)]
pub(crate) struct Scratch {
    quantised: Quantised,
    /// Jobs and the outputs that one task computes of them.
    tasks: Vec<(usize, Range<usize>)>,
    workers: Vec<Worker>,
}

/// Eight-bit activations, for the next op that reads the same tensor.
#[derive(Default)]
struct Quantised {
    /// Whose rows these are, and whether in groups.
    of: Option<(Tensor, bool)>,
    /// `[rows, cols / 32]`.
    rows: Vec<Block<1>>,
    /// `[groups, cols / 32]`.
    groups: Vec<Block<GROUP>>,
}

#[derive(Default)]
struct Worker {
    /// A panel `[cols][16]` and a row of a weight without a layout.
    panel: Vec<f32>,
    row: Vec<f32>,
    /// Groups of chosen rows.
    groups: Vec<Block<GROUP>>,
    /// Codes of a task in bytes.
    wide: Vec<[u8; 512]>,
}

impl Scratch {
    /// Forgets activations: tensors of another program are no longer the same.
    pub(crate) fn begin(&mut self) {
        self.quantised.of = None;
    }
}

/// Rows that one worker quantises faster than two workers can meet.
const SERIAL_VALUES: usize = 16 * 1024;
/// Tasks for each worker: enough to even out what else the machine does.
const TASKS_EACH: usize = 8;
/// Rows for which turning codes into bytes first is worth while.
const WIDEN_ROWS: usize = 48;
/// Bytes of panels of a task: they stay in the L2 cache while its rows pass by.
const TASK_BYTES: usize = 128 * 1024;

/// Runs all jobs in one parallel region.
///
/// # Safety
/// Nobody else uses the jobs' outputs meanwhile, and `input` is none of them.
pub(crate) unsafe fn run(
    isa: Isa,
    pool: &mut Pool,
    scratch: &mut Scratch,
    input: &Input<'_>,
    jobs: &[Job<'_>],
    out: &SharedOut<'_, f32>,
) {
    let Input { of, x, cols } = *input;
    let Scratch { quantised, tasks, workers } = scratch;
    workers.resize_with(pool.threads(), Worker::default);
    cut(jobs, pool.threads(), tasks);
    prepare(workers, jobs, tasks, cols);

    let (rows, blocks) = (x.len() / cols, cols / BLOCK);
    let quantises = jobs.iter().any(|job| job.packed.is_some_and(|p| p.layout.is_quantised()));
    // Chosen rows are put into groups by those who multiply them.
    let in_groups = rows > 1 && jobs.iter().all(|job| matches!(job.rows, Rows::First { .. }));
    let lanes = if in_groups { GROUP } else { 1 };
    let mut pending = 0;
    if quantises && quantised.of != Some((of, in_groups)) {
        quantised.of = Some((of, in_groups));
        pending = rows.div_ceil(lanes);
        if in_groups {
            quantised.groups.resize(pending * blocks, Block::ZERO);
        } else {
            quantised.rows.resize(pending * blocks, Block::ZERO);
        }
    }
    let (one, groups) = (SharedOut::new(&mut quantised.rows), SharedOut::new(&mut quantised.groups));
    let quantise = |index: usize| {
        let rows = x[index * lanes * cols..].chunks_exact(cols).take(lanes);
        // SAFETY: each row or group is quantised by one task.
        unsafe {
            if in_groups {
                activations::quantise(isa, rows, groups.part(index * blocks, blocks));
            } else {
                activations::quantise(isa, rows, one.part(index * blocks, blocks));
            }
        }
    };
    let multiply = |worker: &mut Worker, task: usize| {
        let (job, outputs) = &tasks[task];
        // SAFETY: all blocks have been written, and from here on they are only read.
        let quantised = unsafe { (one.read(0, one.len()), groups.read(0, groups.len())) };
        multiply(isa, &jobs[*job], outputs.clone(), input, quantised, worker, out);
    };
    if pending > 0 && x.len() > SERIAL_VALUES {
        pool.phases((pending, quantise), (tasks.len(), multiply), workers);
    } else {
        (0..pending).for_each(quantise);
        pool.each_with(tasks.len(), workers, multiply);
    }
}

/// Cuts jobs into tasks. They have no influence on any output.
fn cut(jobs: &[Job<'_>], threads: usize, tasks: &mut Vec<(usize, Range<usize>)>) {
    let jobs = || jobs.iter().enumerate().filter(|(_, job)| job.rows.len() > 0);
    let bytes: usize = jobs().map(|(_, job)| job.weight.bytes()).sum();
    tasks.clear();
    for (index, job) in jobs() {
        let rows = job.weight.rows();
        let step = match job.packed {
            Some(packed) => panels(packed, bytes, threads) * LANES,
            None => LANES,
        };
        tasks.extend((0..rows).step_by(step).map(|first| (index, first..rows.min(first + step))));
    }
}

/// Gives all workers what any task needs, so that it is not for chance to say when memory is asked for.
fn prepare(workers: &mut [Worker], jobs: &[Job<'_>], tasks: &[(usize, Range<usize>)], cols: usize) {
    let blocks = cols / BLOCK;
    // The first task of a job is the largest.
    for (index, outputs) in tasks.chunk_by(|a, b| a.0 == b.0).map(|tasks| &tasks[0]) {
        let job = &jobs[*index];
        let widens = job.rows.len() >= WIDEN_ROWS && job.packed.is_some_and(|packed| packed.tiling.widens);
        let gathers = matches!(job.rows, Rows::Chosen { .. });
        for Worker { panel, row, groups, wide } in &mut *workers {
            if job.packed.is_none() {
                hold(panel, cols * LANES);
                hold(row, cols);
            }
            if gathers {
                hold(groups, job.rows.len().min(MAX_ROWS).div_ceil(GROUP) * blocks);
            }
            if widens {
                hold(wide, outputs.len().div_ceil(LANES) * blocks);
            }
        }
    }
}

/// Panels of a task, in a region of so many bytes.
pub(crate) fn panels(packed: &Packed, bytes: usize, threads: usize) -> usize {
    let bytes = (bytes / (threads * TASKS_EACH)).min(TASK_BYTES);
    (bytes / (packed.panel_bytes * STREAMS)).max(1) * STREAMS
}

fn multiply(
    isa: Isa,
    job: &Job<'_>,
    outputs: Range<usize>,
    &Input { x, cols, .. }: &Input<'_>,
    (one, groups): (&[Block<1>], &[Block<GROUP>]),
    worker: &mut Worker,
    out: &SharedOut<'_, f32>,
) {
    let Worker { panel, row, groups: gathered, wide } = worker;
    let weights = match job.packed {
        Some(packed) => Weights::Packed(packed),
        None => {
            dequantise(job.weight, outputs.clone(), panel, row);
            Weights::Panel(panel)
        }
    };
    let takes_blocks = job.packed.is_some_and(|packed| packed.layout.is_quantised());
    let blocks = cols / BLOCK;
    let packed = job.packed.filter(|_| job.rows.len() >= WIDEN_ROWS);
    let wide = packed.and_then(|packed| kernel::widen(isa, packed, &outputs, wide));
    for first in (0..job.rows.len()).step_by(MAX_ROWS) {
        let count = MAX_ROWS.min(job.rows.len() - first);
        let (mut rows, mut out_at) = ([0; MAX_ROWS], [0; MAX_ROWS]);
        for r in 0..count {
            (rows[r], out_at[r]) = job.rows.at(first + r);
        }
        let mut plain: [&[f32]; MAX_ROWS] = [&[]; MAX_ROWS];
        let inputs = match job.rows {
            _ if !takes_blocks => {
                plain.iter_mut().zip(&rows[..count]).for_each(|(x_of, row)| *x_of = &x[row * cols..][..cols]);
                Inputs::Plain(&plain[..count])
            }
            Rows::First { count: 1, .. } => Inputs::One(&one[..blocks]),
            Rows::First { .. } => {
                Inputs::Groups(&groups[first / GROUP * blocks..][..count.div_ceil(GROUP) * blocks], wide)
            }
            Rows::Chosen { .. } if count == 1 => Inputs::One(&one[rows[0] * blocks..][..blocks]),
            Rows::Chosen { .. } => {
                gathered.resize(count.div_ceil(GROUP) * blocks, Block::ZERO);
                for (r, row) in rows[..count].iter().enumerate() {
                    let group = &mut gathered[r / GROUP * blocks..][..blocks];
                    let row = &one[row * blocks..][..blocks];
                    group.iter_mut().zip(row).for_each(|(group, row)| group.set(r % GROUP, row));
                }
                Inputs::Groups(gathered, wide)
            }
        };
        let tile = Tile { weights, inputs, outputs: outputs.clone(), bias: job.bias, out, out_at: &out_at[..count] };
        // SAFETY: rows of all jobs have disjoint outputs (`Rows`), tasks of a job disjoint ranges of them.
        unsafe { kernel::run(isa, &tile) };
    }
}

/// A panel of f32 elements.
fn dequantise(weight: &Weight, outputs: Range<usize>, panel: &mut Vec<f32>, row: &mut Vec<f32>) {
    row.resize(weight.cols(), 0.0);
    panel.clear();
    panel.resize(weight.cols() * LANES, 0.0);
    for (lane, output) in outputs.enumerate() {
        weight.dequantize(output, row);
        for (out, value) in panel.chunks_exact_mut(LANES).zip(&*row) {
            out[lane] = *value;
        }
    }
}
