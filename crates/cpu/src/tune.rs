//! Which tiles, and how far ahead to ask for memory: chosen by measurement when weights are loaded, among forms that give the
//! same bits.

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
/// Bytes of panels that are multiplied by one row to compare distances.
const BYTES: usize = 8 << 20;
/// Each form is timed as often, and its best time counts: other programs disturb single ones.
const TIMES: usize = 3;
/// Distances in bytes.
const AHEAD: [usize; 3] = [768, 1536, 3072];

/// The best form for weights like `packed`, which has `rows` outputs and whose codes are multiplied by blocks.
pub(crate) fn tiling(isa: Isa, pool: &mut Pool, packed: &Packed, rows: usize) -> Tiling {
    let widens: &[bool] = if packed.layout.is_narrow() { &[false, true] } else { &[false] };
    let tiles = (1..=isa.tile_groups()).flat_map(|groups| widens.iter().map(move |&widens| (groups, widens)));
    let (groups, widens) = best(tiles, |(groups, widens)| {
        many_rows(isa, &with(packed, Tiling { groups, widens, ..packed.tiling }), rows.min(PANELS * LANES))
    });
    let tiling = Tiling { groups, widens, ..packed.tiling };
    let ahead = best(AHEAD, |ahead| one_row(isa, pool, &with(packed, Tiling { ahead, ..tiling }), rows));
    Tiling { ahead, ..tiling }
}

fn with(packed: &Packed, tiling: Tiling) -> Packed {
    let mut packed = packed.clone();
    packed.tiling = tiling;
    packed
}

fn best<T: Copy>(forms: impl IntoIterator<Item = T>, mut seconds: impl FnMut(T) -> f64) -> T {
    let times = forms.into_iter().map(|form| (form, (0..TIMES).map(|_| seconds(form)).fold(f64::INFINITY, f64::min)));
    times.min_by(|a, b| a.1.total_cmp(&b.1)).expect("there are forms").0
}

/// Seconds for a tile of rows, without the time to widen codes, which all rows of a task share.
fn many_rows(isa: Isa, packed: &Packed, outputs: usize) -> f64 {
    let mut wide = vec![];
    let widened = packed.tiling.widens && kernel::widen(isa, packed, &(0..outputs), &mut wide);
    let rows = vec![Block::<GROUP>::ZERO; MAX_ROWS / GROUP * (packed.cols / BLOCK)];
    let mut out = vec![0.0; MAX_ROWS * outputs];
    let out_at: [usize; MAX_ROWS] = std::array::from_fn(|r| r * outputs);
    let tile = Tile {
        weights: Weights::Packed(packed),
        inputs: Inputs::Groups(&rows, widened.then_some(&wide[..])),
        outputs: 0..outputs,
        bias: None,
        out: &SharedOut::new(&mut out),
        out_at: &out_at,
    };
    let start = Instant::now();
    // SAFETY: the outputs are ours alone.
    unsafe { kernel::run(isa, &tile) };
    start.elapsed().as_secs_f64()
}

/// Seconds for a row on all threads.
fn one_row(isa: Isa, pool: &mut Pool, packed: &Packed, rows: usize) -> f64 {
    let row = vec![Block::<1>::ZERO; packed.cols / BLOCK];
    let outputs = rows.min((BYTES / packed.panel_bytes).max(1) * LANES);
    let mut out = vec![0.0; outputs];
    let out = SharedOut::new(&mut out);
    let step = STREAMS * LANES;
    let start = Instant::now();
    pool.each(outputs.div_ceil(step), |task| {
        let tile = Tile {
            weights: Weights::Packed(packed),
            inputs: Inputs::One(&row),
            outputs: task * step..outputs.min((task + 1) * step),
            bias: None,
            out: &out,
            out_at: &[0],
        };
        // SAFETY: tasks have disjoint outputs.
        unsafe { kernel::run(isa, &tile) };
    });
    start.elapsed().as_secs_f64()
}
