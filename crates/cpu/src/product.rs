//! Products of rows with weights in any format: dequantise a tile of weight rows, multiply all rows by it.

use kapitsa_tensor::Weight;
use rayon::prelude::*;

use crate::lanes::{Isa, products};
use crate::shared::SharedOut;

/// Rows to multiply by one weight.
pub(crate) struct Job<'a> {
    pub(crate) weight: &'a Weight,
    pub(crate) bias: Option<&'a [f32]>,
    /// Each `[in]`.
    pub(crate) xs: Vec<&'a [f32]>,
    /// Where each row's outputs `[out]` begin. No two rows overlap, in this job or another of the call.
    pub(crate) out_at: Vec<usize>,
}

/// Rows of a register tile, of outputs and of inputs.
const TILE: usize = 4;
/// Dequantised weights of one task: half of a common L2 cache.
const SCRATCH_BYTES: usize = 512 * 1024;
/// Outputs of one task at most.
const TASK_OUTPUTS: usize = 64;

/// Runs all jobs in one parallel region.
pub(crate) fn run(isa: Isa, jobs: &[Job<'_>], out: &mut [f32]) {
    let out = SharedOut::new(out);
    let mut tasks = vec![];
    for job in jobs.iter().filter(|job| !job.xs.is_empty()) {
        let step = task_outputs(job.weight.cols(), job.xs.len());
        tasks.extend((0..job.weight.rows()).step_by(step).map(|first| (job, first, step)));
    }
    tasks.into_par_iter().for_each_init(Vec::new, |scratch, (job, first, step)| {
        let last = job.weight.rows().min(first + step);
        task(isa, job, first..last, scratch, &out);
    });
}

/// How many outputs a task computes. It has no influence on any of them.
fn task_outputs(cols: usize, rows: usize) -> usize {
    if rows == 1 {
        return 2 * TILE; // dequantised rows go from L1 straight to the product
    }
    (SCRATCH_BYTES / (4 * cols.max(1))).clamp(TILE, TASK_OUTPUTS) / TILE * TILE
}

fn task(isa: Isa, job: &Job<'_>, outputs: std::ops::Range<usize>, scratch: &mut Vec<f32>, out: &SharedOut<'_>) {
    let cols = job.weight.cols();
    scratch.resize(scratch.len().max(outputs.len() * cols), 0.0);
    let weights = &mut scratch[..outputs.len() * cols];
    for (row, values) in outputs.clone().zip(weights.chunks_exact_mut(cols)) {
        job.weight.dequantize(row, values);
    }
    let weights: Vec<&[f32]> = weights.chunks_exact(cols).collect();

    let emit = |row: usize, output: usize, sum: f32| {
        let sum = job.bias.map_or(sum, |bias| sum + bias[outputs.start + output]);
        // SAFETY: rows of all jobs have disjoint outputs (`Job::out_at`), tasks of a job disjoint ranges of them.
        unsafe { out.write(job.out_at[row] + outputs.start + output, &[sum]) };
    };
    for (r, xs) in job.xs.chunks(TILE).enumerate() {
        for (o, ws) in weights.chunks(TILE).enumerate() {
            tile(isa, xs, ws, |row, output, sum| emit(r * TILE + row, o * TILE + output, sum));
        }
    }
}

/// At most `TILE × TILE` products.
fn tile(isa: Isa, xs: &[&[f32]], ws: &[&[f32]], mut emit: impl FnMut(usize, usize, f32)) {
    if let (Ok(xs), Ok(ws)) = (<&[&[f32]; TILE]>::try_from(xs), <&[&[f32]; TILE]>::try_from(ws)) {
        let sums = products(isa, xs, ws);
        (0..TILE).for_each(|r| (0..TILE).for_each(|o| emit(r, o, sums[r][o])));
        return;
    }
    for (r, x) in xs.iter().enumerate() {
        if let Ok(ws) = <&[&[f32]; TILE]>::try_from(ws) {
            let [sums] = products(isa, &[x], ws);
            (0..TILE).for_each(|o| emit(r, o, sums[o]));
        } else {
            ws.iter().enumerate().for_each(|(o, w)| emit(r, o, products(isa, &[x], &[w])[0][0]));
        }
    }
}
