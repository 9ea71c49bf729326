//! Products of rows with weights: packed ones by panels, all others dequantised a panel at a time.

use std::ops::Range;

use kapitsa_ops::Tensor;
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
    /// Eight-bit activations, for the next op that reads the same tensor.
    blocks: Vec<Block>,
    /// Whose rows the blocks hold.
    of: Option<Tensor>,
    /// Jobs and the outputs that one task computes of them.
    tasks: Vec<(usize, Range<usize>)>,
    /// Panels and rows of weights without a layout, for each worker.
    panels: Vec<Panel>,
}

#[derive(Default)]
struct Panel {
    /// `[cols][16]`.
    panel: Vec<f32>,
    row: Vec<f32>,
}

impl Scratch {
    /// Forgets activations: tensors of another program are no longer the same.
    pub(crate) fn begin(&mut self) {
        self.of = None;
    }
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
    scratch: &mut Scratch,
    input: &Input<'_>,
    jobs: &[Job<'_>],
    out: &SharedOut<'_, f32>,
) {
    let Input { of, x, cols } = *input;
    let Scratch { blocks: quantised, of: of_quantised, tasks, panels } = scratch;
    let wants_blocks = jobs.iter().any(|job| job.packed.is_some_and(|p| p.layout.is_quantised()));
    let blocks = cols / BLOCK;
    let mut pending = 0;
    if wants_blocks && *of_quantised != Some(of) {
        *of_quantised = Some(of);
        quantised.resize(x.len() / BLOCK, Block::ZERO);
        if x.len() <= SERIAL_VALUES {
            activations::quantise(isa, x, quantised);
        } else {
            pending = x.len() / cols;
        }
    }

    panels.resize_with(pool.threads(), Panel::default);
    cut(jobs, pool.threads(), tasks);
    let shared = SharedOut::new(quantised);
    let quantise = |row: usize| {
        // SAFETY: each row is quantised by one task.
        let out = unsafe { shared.part(row * blocks, blocks) };
        activations::quantise(isa, &x[row * cols..][..cols], out);
    };
    let multiply = |panel: &mut Panel, task: usize| {
        let (job, outputs) = &tasks[task];
        // SAFETY: all blocks have been written, and from here on they are only read.
        let quantised = || unsafe { shared.read(0, shared.len()) };
        multiply(isa, &jobs[*job], outputs.clone(), input, quantised, panel, out);
    };
    if pending > 0 {
        pool.phases((pending, quantise), (tasks.len(), multiply), panels);
    } else {
        pool.each_with(tasks.len(), panels, multiply);
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

/// Panels of a task, in a region of so many bytes.
pub(crate) fn panels(packed: &Packed, bytes: usize, threads: usize) -> usize {
    let bytes = (bytes / (threads * TASKS_EACH)).min(TASK_BYTES);
    (bytes / (packed.panel_bytes * STREAMS)).max(1) * STREAMS
}

fn multiply<'a>(
    isa: Isa,
    job: &Job<'_>,
    outputs: Range<usize>,
    &Input { x, cols, .. }: &Input<'a>,
    quantised: impl Fn() -> &'a [Block],
    panel: &mut Panel,
    out: &SharedOut<'_, f32>,
) {
    let weights = match job.packed {
        Some(packed) => Weights::Packed(packed),
        None => Weights::Panel(panel.dequantise(job.weight, outputs.clone())),
    };
    let takes_blocks = job.packed.is_some_and(|packed| packed.layout.is_quantised());
    for first in (0..job.rows.len()).step_by(MAX_ROWS) {
        let count = MAX_ROWS.min(job.rows.len() - first);
        let (mut blocks, mut plain): ([&[Block]; MAX_ROWS], [&[f32]; MAX_ROWS]) = ([&[]; MAX_ROWS], [&[]; MAX_ROWS]);
        let mut out_at = [0; MAX_ROWS];
        for r in 0..count {
            let (row, at) = job.rows.at(first + r);
            out_at[r] = at;
            if takes_blocks {
                blocks[r] = &quantised()[row * (cols / BLOCK)..][..cols / BLOCK];
            } else {
                plain[r] = &x[row * cols..][..cols];
            }
        }
        let inputs = if takes_blocks { Inputs::Blocks(&blocks[..count]) } else { Inputs::Plain(&plain[..count]) };
        let tile = Tile { weights, inputs, outputs: outputs.clone(), bias: job.bias, out, out_at: &out_at[..count] };
        // SAFETY: rows of all jobs have disjoint outputs (`Rows`), tasks of a job disjoint ranges of them.
        unsafe { kernel::run(isa, &tile) };
    }
}

impl Panel {
    /// A panel of f32 elements.
    fn dequantise(&mut self, weight: &Weight, outputs: Range<usize>) -> &[f32] {
        self.row.resize(weight.cols(), 0.0);
        self.panel.clear();
        self.panel.resize(weight.cols() * LANES, 0.0);
        for (lane, output) in outputs.enumerate() {
            weight.dequantize(output, &mut self.row);
            for (out, value) in self.panel.chunks_exact_mut(LANES).zip(&self.row) {
                out[lane] = *value;
            }
        }
        &self.panel
    }
}
