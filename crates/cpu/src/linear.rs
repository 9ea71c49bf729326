//! Products of rows with weights: packed ones by panels, all others dequantised a panel at a time.

use std::ops::Range;

use kapitsa_tensor::Weight;

use crate::activations::{self, BLOCK, Block};
use crate::isa::Isa;
use crate::kernel::{self, Inputs, MAX_ROWS, STREAMS, Tile, Weights};
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
    /// Rows of the call's input, each `[in]`.
    pub(crate) rows: Vec<usize>,
    /// Where each row's outputs `[out]` begin. No two rows overlap, in this job or another of the call.
    pub(crate) out_at: Vec<usize>,
}

/// What all jobs of a call multiply.
pub(crate) struct Input<'a> {
    /// The tensor that the values belong to.
    pub(crate) of: kapitsa_ops::Tensor,
    /// Rows of `cols` values.
    pub(crate) x: &'a [f32],
    pub(crate) cols: usize,
}

/// Eight-bit activations, kept for the next op that reads the same tensor.
#[derive(Default)]
pub(crate) struct Quantised {
    blocks: Vec<Block>,
    /// Whose rows the blocks hold.
    pub(crate) of: Option<kapitsa_ops::Tensor>,
}

/// Rows that one worker quantises faster than two workers can meet.
const SERIAL_VALUES: usize = 16 * 1024;
/// Tasks for each worker: enough to even out what else the machine does.
const TASKS_EACH: usize = 8;
/// Bytes of panels of a task: they stay in the L2 cache while its rows pass by.
const TASK_BYTES: usize = 128 * 1024;

/// Runs all jobs in one parallel region.
///
/// # Safety
/// Nobody else uses the jobs' outputs meanwhile, and `input` is none of them.
pub(crate) unsafe fn run(
    isa: Isa,
    pool: &mut Pool,
    quantised: &mut Quantised,
    input: &Input<'_>,
    jobs: &[Job<'_>],
    out: &SharedOut<'_, f32>,
) {
    let Input { of, x, cols } = *input;
    let wants_blocks = jobs.iter().any(|job| job.packed.is_some_and(|p| p.layout.is_quantised()));
    let blocks = cols / BLOCK;
    let mut pending = 0;
    if wants_blocks && quantised.of != Some(of) {
        quantised.of = Some(of);
        quantised.blocks.resize(x.len() / BLOCK, Block::ZERO);
        if x.len() <= SERIAL_VALUES {
            activations::quantise(isa, x, &mut quantised.blocks);
        } else {
            pending = x.len() / cols;
        }
    }

    let tasks = tasks(jobs, pool.threads());
    let shared = SharedOut::new(&mut quantised.blocks);
    let quantise = |row: usize| {
        // SAFETY: each row is quantised by one task.
        let out = unsafe { shared.part(row * blocks, blocks) };
        activations::quantise(isa, &x[row * cols..][..cols], out);
    };
    let multiply = |task: usize| {
        let (job, outputs) = &tasks[task];
        // SAFETY: all blocks have been written, and from here on they are only read.
        let quantised = || unsafe { shared.read(0, shared.len()) };
        multiply(isa, &jobs[*job], outputs.clone(), input, quantised, out);
    };
    if pending > 0 {
        pool.phases((pending, quantise), (tasks.len(), multiply));
    } else {
        pool.each(tasks.len(), multiply);
    }
}

/// Jobs and the outputs that one task computes of them. They have no influence on any output.
fn tasks(jobs: &[Job<'_>], threads: usize) -> Vec<(usize, Range<usize>)> {
    let jobs = || jobs.iter().enumerate().filter(|(_, job)| !job.rows.is_empty());
    let bytes: usize = jobs().map(|(_, job)| job.weight.bytes()).sum();
    let bytes = (bytes / (threads * TASKS_EACH)).min(TASK_BYTES);
    let mut tasks = vec![];
    for (index, job) in jobs() {
        let rows = job.weight.rows();
        let step = match job.packed {
            Some(_) => (bytes * rows / job.weight.bytes() / (STREAMS * LANES)).max(1) * STREAMS * LANES,
            None => LANES,
        };
        tasks.extend((0..rows).step_by(step).map(|first| (index, first..rows.min(first + step))));
    }
    tasks
}

fn multiply<'a>(
    isa: Isa,
    job: &Job<'_>,
    outputs: Range<usize>,
    &Input { x, cols, .. }: &Input<'a>,
    quantised: impl Fn() -> &'a [Block],
    out: &SharedOut<'_, f32>,
) {
    let mut panel = vec![];
    let weights = match job.packed {
        Some(packed) => Weights::Packed(packed),
        None => {
            dequantise(job.weight, outputs.clone(), &mut panel);
            Weights::Panel(&panel)
        }
    };
    let takes_blocks = job.packed.is_some_and(|packed| packed.layout.is_quantised());
    for (rows, out_at) in job.rows.chunks(MAX_ROWS).zip(job.out_at.chunks(MAX_ROWS)) {
        let blocks: Vec<&[Block]>;
        let plain: Vec<&[f32]>;
        let inputs = if takes_blocks {
            let (all, count) = (quantised(), cols / BLOCK);
            blocks = rows.iter().map(|&row| &all[row * count..][..count]).collect();
            Inputs::Blocks(&blocks)
        } else {
            plain = rows.iter().map(|&row| &x[row * cols..][..cols]).collect();
            Inputs::Plain(&plain)
        };
        let tile = Tile { weights, inputs, outputs: outputs.clone(), bias: job.bias, out, out_at };
        // SAFETY: rows of all jobs have disjoint outputs (`Job::out_at`), tasks of a job disjoint ranges of them.
        unsafe { kernel::run(isa, &tile) };
    }
}

/// A panel of f32 elements.
fn dequantise(weight: &Weight, outputs: Range<usize>, panel: &mut Vec<f32>) {
    let mut row = vec![0.0; weight.cols()];
    panel.resize(weight.cols() * LANES, 0.0);
    for (lane, output) in outputs.enumerate() {
        weight.dequantize(output, &mut row);
        for (out, value) in panel.chunks_exact_mut(LANES).zip(&row) {
            out[lane] = *value;
        }
    }
}
