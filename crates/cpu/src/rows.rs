//! Ops that treat each row alone: norms, rotation, activations, routing.

use kapitsa_ops::{GeluKind, LayerNorm, RmsNorm};

use crate::exp::exp;
use crate::isa::{Isa, Kernel};
use crate::pool::Pool;
use crate::shared::SharedOut;
use crate::simd::{LANES, Simd};

/// Elements below which a parallel region costs more than it saves.
const PARALLEL_ELEMENTS: usize = 16 * 1024;

/// Calls `row(index, out)` for each row of `out`, in parallel if that is worth it.
pub(crate) fn each(pool: &mut Pool, out: &mut [f32], width: usize, row: impl Fn(usize, &mut [f32]) + Sync) {
    if out.len() < PARALLEL_ELEMENTS {
        out.chunks_exact_mut(width).enumerate().for_each(|(i, out)| row(i, out));
        return;
    }
    let rows = out.len() / width;
    let out = SharedOut::new(out);
    // SAFETY: each row is computed by one task.
    pool.each(rows, |i| row(i, unsafe { out.part(i * width, width) }));
}

/// One row of [`RmsNorm`].
pub(crate) fn rms_norm(isa: Isa, op: &RmsNorm, x: &[f32], out: &mut [f32]) {
    let weight = op.weight.values();
    isa.vectorised(
        #[inline(always)]
        || {
            let groups = x.chunks_exact(op.group).zip(out.chunks_exact_mut(op.group));
            for ((x, out), weight) in groups.zip(weight.chunks_exact(op.group).cycle()) {
                let scale = 1.0 / (sum_of_squares(x) / x.len() as f32 + op.eps).sqrt();
                for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
                    *out = x * scale * weight;
                }
            }
        },
    );
}

/// In 16 lanes, each in order, then halves first.
#[inline(always)]
pub(crate) fn sum_of_squares(x: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let (vectors, rest) = x.as_chunks::<LANES>();
    for x in vectors {
        for l in 0..LANES {
            sums[l] += x[l] * x[l];
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *sum += x * x;
    }
    add_lanes(sums)
}

/// The sum of all lanes, halves first.
#[inline(always)]
pub(crate) fn add_lanes(lanes: [f32; LANES]) -> f32 {
    let eight: [f32; 8] = std::array::from_fn(|i| lanes[i] + lanes[i + 8]);
    let four: [f32; 4] = std::array::from_fn(|i| eight[i] + eight[i + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

/// The largest of all lanes.
#[inline(always)]
pub(crate) fn max_lanes(lanes: [f32; LANES]) -> f32 {
    let max = |a: f32, b: f32| if a > b { a } else { b };
    let eight: [f32; 8] = std::array::from_fn(|i| max(lanes[i], lanes[i + 8]));
    let four: [f32; 4] = std::array::from_fn(|i| max(eight[i], eight[i + 4]));
    max(max(four[0], four[2]), max(four[1], four[3]))
}

/// One row of [`LayerNorm`].
pub(crate) fn layer_norm(isa: Isa, op: &LayerNorm, x: &[f32], out: &mut [f32]) {
    isa.vectorised(
        #[inline(always)]
        || {
            let mean = sum(x) / x.len() as f32;
            out.iter_mut().zip(x).for_each(|(out, x)| *out = x - mean);
            let scale = 1.0 / (sum_of_squares(out) / x.len() as f32 + op.eps).sqrt();
            for ((out, weight), bias) in out.iter_mut().zip(op.weight.values()).zip(op.bias.values()) {
                *out = *out * scale * weight + bias;
            }
        },
    );
}

/// In 16 lanes, each in order, then halves first.
#[inline(always)]
fn sum(x: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let (vectors, rest) = x.as_chunks::<LANES>();
    for x in vectors {
        for l in 0..LANES {
            sums[l] += x[l];
        }
    }
    sums.iter_mut().zip(rest).for_each(|(sum, x)| *sum += x);
    add_lanes(sums)
}

/// One row of [`kapitsa_ops::SigmoidMul`]. It demands nothing but the instructions.
pub(crate) struct SigmoidMul<'a> {
    pub(crate) x: &'a [f32],
    /// As many, or one for all.
    pub(crate) gate: &'a [f32],
    pub(crate) out: &'a mut [f32],
}

impl Kernel for SigmoidMul<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let SigmoidMul { x, gate, out } = self;
        if let &[gate] = gate {
            let factor = 1.0 / (1.0 + exp::<S>(-gate));
            out.iter_mut().zip(x).for_each(|(out, x)| *out = x * factor);
            return;
        }
        for ((out, x), gate) in out.iter_mut().zip(x).zip(gate) {
            *out = x / (1.0 + exp::<S>(-gate));
        }
    }
}

/// One row of [`kapitsa_ops::Gelu`]. It demands nothing but the instructions.
pub(crate) struct Gelu<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) kind: GeluKind,
    pub(crate) out: &'a mut [f32],
}

impl Kernel for Gelu<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Gelu { x, kind, out } = self;
        match kind {
            GeluKind::Exact => out.iter_mut().zip(x).for_each(|(out, x)| *out = kind.of(*x)),
            GeluKind::Tanh => {
                // (1 + tanh y) / 2 is the sigmoid of 2 y.
                for (out, x) in out.iter_mut().zip(x) {
                    let y = GeluKind::TANH_SCALE * (x + GeluKind::TANH_CUBE * x * x * x);
                    *out = x / (1.0 + exp::<S>(-2.0 * y));
                }
            }
        }
    }
}

/// One row of [`kapitsa_ops::SiluMul`]. It demands nothing but the instructions.
pub(crate) struct SiluMul<'a> {
    pub(crate) gate: &'a [f32],
    pub(crate) up: &'a [f32],
    pub(crate) out: &'a mut [f32],
}

impl Kernel for SiluMul<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for ((out, gate), up) in self.out.iter_mut().zip(self.gate).zip(self.up) {
            *out = gate / (1.0 + exp::<S>(-gate)) * up;
        }
    }
}

/// One row of [`kapitsa_ops::Relu2`].
pub(crate) fn relu2(isa: Isa, x: &[f32], out: &mut [f32]) {
    isa.vectorised(
        #[inline(always)]
        || {
            for (out, x) in out.iter_mut().zip(x) {
                *out = x.max(0.0) * x.max(0.0);
            }
        },
    );
}

/// One row of [`kapitsa_ops::Add`].
pub(crate) fn add(isa: Isa, a: &[f32], b: &[f32], out: &mut [f32]) {
    isa.vectorised(
        #[inline(always)]
        || {
            for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
                *out = a + b;
            }
        },
    );
}
