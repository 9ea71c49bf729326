//! Which tiles, and how far ahead to ask for memory: chosen by measurement when weights are loaded, among forms that give the
//! same bits.

use std::ops::Range;
use std::time::Instant;

use crate::activations::{BLOCK, Block, GROUP};
use crate::isa::Isa;
use crate::kernel::{self, Inputs, MAX_ROWS, STREAMS, Tile, Weights};
use crate::packed::{Packed, Tiling};
use crate::pool::Pool;
use crate::shared::SharedOut;
use crate::simd::LANES;

/// Panels that are multiplied by many rows to compare tiles.
const PANELS: usize = 8;
/// Bytes of panels that are multiplied by one row to compare distances, other ones each time: as in a model, no cache has them.
const BYTES: usize = 4 << 20;
/// Rounds in which every form is timed once. Its best time counts, since other programs disturb single ones, and a form has to
/// be better by a margin than those before it.
const ROUNDS: usize = 10;
const MARGIN: f64 = 0.97;
/// Times that a tile is multiplied in a round: long enough for the clock.
const TILES: usize = 3;
/// Distances in bytes.
const AHEAD: [usize; 3] = [1536, 768, 3072];

/// How weights of a layout are walked through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tiles {
    /// In the way that is fastest here, which is measured when weights are loaded.
    Measured,
    /// In the way of this number, modulo how many there are: for tests, and to count instructions.
    Form(usize),
}

/// The form for weights like `packed`, which has `rows` outputs and whose codes are multiplied by blocks.
pub(crate) fn tiling(tiles: Tiles, isa: Isa, pool: &mut Pool, packed: &Packed, rows: usize) -> Tiling {
    let widens: &[bool] = if packed.layout.is_narrow() { &[false, true] } else { &[false] };
    let form = |groups, widens| Tiling { groups, widens, ahead: AHEAD[0] };
    let forms = (1..=isa.tile_groups()).rev().flat_map(|groups| widens.iter().map(move |&widens| form(groups, widens)));
    let forms: Vec<Tiling> = forms.collect();
    if let Tiles::Form(index) = tiles {
        return forms[index % forms.len()];
    }
    let tiling = best(&forms, |tiling| many_rows(isa, &packed.with(tiling), rows.min(PANELS * LANES)));
    let mut first = 0;
    best(&AHEAD.map(|ahead| Tiling { ahead, ..tiling }), |tiling| {
        let outputs = first..rows.min(first + (BYTES / packed.panel_bytes / STREAMS).max(1) * STREAMS * LANES);
        first = if outputs.end == rows { 0 } else { outputs.end };
        one_row(isa, pool, &packed.with(tiling), outputs)
    })
}

/// The form that takes the least time.
fn best(forms: &[Tiling], mut seconds: impl FnMut(Tiling) -> f64) -> Tiling {
    let mut times = vec![f64::INFINITY; forms.len()];
    for _ in 0..ROUNDS {
        times.iter_mut().zip(forms).for_each(|(time, form)| *time = time.min(seconds(*form)));
    }
    let better = |best: usize, i: usize| if times[i] < times[best] * MARGIN { i } else { best };
    forms[(0..forms.len()).fold(0, better)]
}

/// Seconds for a tile of rows, without the time to widen codes, which all rows of a task share.
fn many_rows(isa: Isa, packed: &Packed, outputs: usize) -> f64 {
    let mut wide = vec![];
    let wide = kernel::widen(isa, packed, &(0..outputs), &mut wide);
    let rows = vec![Block::<GROUP>::ZERO; MAX_ROWS / GROUP * (packed.cols / BLOCK)];
    let mut out = vec![0.0; MAX_ROWS * outputs];
    let out_at: [usize; MAX_ROWS] = std::array::from_fn(|r| r * outputs);
    let tile = Tile {
        weights: Weights::Packed(packed),
        inputs: Inputs::Groups(&rows, wide),
        outputs: 0..outputs,
        bias: None,
        out: &SharedOut::new(&mut out),
        out_at: &out_at,
    };
    let start = Instant::now();
    // SAFETY: the outputs are ours alone.
    (0..TILES).for_each(|_| unsafe { kernel::run(isa, &tile) });
    start.elapsed().as_secs_f64()
}

/// Seconds for an output of a row, on all threads.
fn one_row(isa: Isa, pool: &mut Pool, packed: &Packed, outputs: Range<usize>) -> f64 {
    let row = vec![Block::<1>::ZERO; packed.cols / BLOCK];
    let mut out = vec![0.0; outputs.end];
    let out = SharedOut::new(&mut out);
    let step = STREAMS * LANES;
    let start = Instant::now();
    pool.each(outputs.len().div_ceil(step), |task| {
        let first = outputs.start + task * step;
        let tile = Tile {
            weights: Weights::Packed(packed),
            inputs: Inputs::One(&row),
            outputs: first..outputs.end.min(first + step),
            bias: None,
            out: &out,
            out_at: &[0],
        };
        // SAFETY: tasks have disjoint outputs.
        unsafe { kernel::run(isa, &tile) };
    });
    start.elapsed().as_secs_f64() / outputs.len() as f64
}
