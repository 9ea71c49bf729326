//! The short convolution: each row alone, as its inputs are there already.

use kapitsa_ops::state::HostStates;
use kapitsa_ops::{Batch, ShortConv};

use super::Rows;
use crate::exp::exp;
use crate::isa::{Isa, Kernel};
use crate::pool::Pool;
use crate::rows;
use crate::simd::Simd;

/// `x`: `[rows, channels]`; `out` the same, written if `rows` are all.
pub(crate) fn conv(
    isa: Isa,
    pool: &mut Pool,
    (op, batch, rows, states): (&ShortConv, &Batch, Rows<'_>, &mut HostStates),
    x: &[f32],
    out: &mut [f32],
) {
    let channels = op.x.width();
    match rows {
        Rows::All => {
            for context in batch.sequences().iter().filter(|context| context.cached == 0) {
                let place = states.part(context.state, op.state);
                states.values_mut()[place].fill(0.0);
            }
            let windows = &*states;
            rows::each(pool, out, channels, |row, out| {
                let state = batch.context(row).state;
                let window = &windows.values()[windows.part(state, op.state)];
                // SAFETY: it makes no demands.
                unsafe { isa.run(Row { op, batch, x, window, row, out }) }
            });
            for (sequence, context) in batch.sequences().iter().enumerate().filter(|(_, context)| !context.is_draft) {
                let place = states.part(context.state, op.state);
                advance(&mut states.values_mut()[place], x, channels, batch.rows_of(sequence));
            }
        }
        Rows::Path { sequence, path } => {
            let place = states.part(batch.sequences()[sequence].state, op.state);
            advance(&mut states.values_mut()[place], x, channels, path);
        }
    }
}

/// Moves the window on over `rows`.
fn advance(window: &mut [f32], x: &[f32], channels: usize, rows: &[usize]) {
    let kept = window.len() / channels;
    let new = &rows[rows.len().saturating_sub(kept)..];
    window.copy_within(new.len() * channels.., 0);
    let room = window[(kept - new.len()) * channels..].chunks_exact_mut(channels);
    room.zip(new).for_each(|(room, row)| room.copy_from_slice(&x[row * channels..][..channels]));
}

/// One row. It demands nothing but the instructions.
struct Row<'a> {
    op: &'a ShortConv,
    batch: &'a Batch,
    x: &'a [f32],
    /// `[taps - 1, channels]`.
    window: &'a [f32],
    row: usize,
    out: &'a mut [f32],
}

impl Kernel for Row<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Row { op, batch, x, window, row, out } = self;
        let channels = out.len();
        match &op.bias {
            Some(bias) => out.copy_from_slice(bias.values()),
            None => out.fill(0.0),
        }
        let weights = op.weight.values().chunks_exact(channels);
        for (weights, back) in weights.zip((0..op.taps()).rev()) {
            let x = input(batch, x, window, channels, row, back);
            for ((out, x), weight) in out.iter_mut().zip(x).zip(weights) {
                *out = S::fma_lane(*x, *weight, *out);
            }
        }
        for out in out {
            *out /= 1.0 + exp::<S>(-*out);
        }
    }
}

/// The input `back` rows before `row` on its path.
#[inline(always)]
fn input<'a>(batch: &Batch, x: &'a [f32], window: &'a [f32], channels: usize, row: usize, back: usize) -> &'a [f32] {
    let mut at = row;
    for gone in 0..back {
        match batch.parent(at) {
            Some(parent) => at = parent,
            None => return &window[window.len() - (back - gone) * channels..][..channels],
        }
    }
    &x[at * channels..][..channels]
}
