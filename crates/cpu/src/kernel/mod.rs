//! The product kernel: a tile of rows times panels of 16 outputs.
//!
//! For each output the sum runs over the inputs in order: block by block for codes (an exact integer sum of 32 products, then
//! one f32 product and sum for its scale and, where the format has one, one for its minimum), element by element for plain
//! weights. Tiles have one to [`MAX_ROWS`] rows and share nothing but the loads of a panel, so the number of rows changes no
//! bit, nor does the instruction set.

mod codes;
mod scaling;

use std::ops::Range;

use kapitsa_tensor::DType;

use crate::activations::{BLOCK, Block};
use crate::element::{Bf16, Element, F16, F32};
use crate::isa::{Isa, Kernel};
use crate::packed::{Bits, Layout, Packed, Scales};
use crate::shared::SharedOut;
use crate::simd::{LANES, Simd};
use codes::{Codes, Eight, Five, Four, Six};
use scaling::{Affine, Centred, Groups, Halves, Scaling, Super, With};

/// Bytes that one row is ahead of itself in asking for memory.
pub(crate) const AHEAD: usize = 4096;
/// Rows of the largest tile.
pub(crate) const MAX_ROWS: usize = 8;

/// Panels of a weight.
#[derive(Clone, Copy)]
pub(crate) enum Weights<'a> {
    /// Packed at load.
    Packed(&'a Packed),
    /// One panel of f32 elements, `[cols][16]`.
    Panel(&'a [f32]),
}

/// Rows of activations, one pointer a row.
#[derive(Clone, Copy)]
pub(crate) enum Inputs<'a> {
    /// Each `[cols]`, for plain weights.
    Plain(&'a [&'a [f32]]),
    /// Each `[cols / 32]`, for codes.
    Blocks(&'a [&'a [Block]]),
}

/// What one call computes: `outputs` of each row, from the panel that holds the first of them on.
pub(crate) struct Tile<'a, 'b> {
    pub(crate) weights: Weights<'a>,
    pub(crate) inputs: Inputs<'a>,
    /// Outputs of the weight; begins at a multiple of 16.
    pub(crate) outputs: Range<usize>,
    /// `[outputs of the weight]`.
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) out: &'a SharedOut<'b, f32>,
    /// Where each row's outputs begin in `out`.
    pub(crate) out_at: &'a [usize],
}

/// Computes a tile of at most [`MAX_ROWS`] rows.
///
/// # Safety
/// Nobody else uses the outputs meanwhile.
pub(crate) unsafe fn run(isa: Isa, tile: &Tile<'_, '_>) {
    // SAFETY: passed on.
    unsafe { isa.run(tile) }
}

impl Kernel for &Tile<'_, '_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: passed on.
        unsafe { rows::<S>(self) }
    }
}

/// Splits into tiles that are compiled.
///
/// # Safety
/// As [`run`]; the machine has the instructions of `S`.
#[inline(always)]
unsafe fn rows<S: Simd>(tile: &Tile<'_, '_>) {
    let mut first = 0;
    while first < tile.out_at.len() {
        let left = tile.out_at.len() - first;
        // SAFETY: passed on.
        first += unsafe {
            match left {
                8.. => formats::<S, 8>(tile, first),
                4.. => formats::<S, 4>(tile, first),
                2.. => formats::<S, 2>(tile, first),
                _ => formats::<S, 1>(tile, first),
            }
        };
    }
}

/// # Safety
/// As [`rows`].
#[inline(always)]
unsafe fn formats<S: Simd, const R: usize>(tile: &Tile<'_, '_>, first: usize) -> usize {
    // SAFETY: passed on.
    unsafe {
        match (tile.weights, tile.inputs) {
            (Weights::Panel(_), Inputs::Plain(xs)) => plain::<S, F32, R>(tile, xs, first),
            (Weights::Packed(packed), inputs) => match (packed.layout, inputs) {
                (Layout::Plain(dtype), Inputs::Plain(xs)) => match dtype {
                    DType::F32 => plain::<S, F32, R>(tile, xs, first),
                    DType::F16 => plain::<S, F16, R>(tile, xs, first),
                    DType::Bf16 => plain::<S, Bf16, R>(tile, xs, first),
                },
                (Layout::Blocks(bits, scales), Inputs::Blocks(xs)) => match (bits, scales) {
                    (Bits::Four, Scales::Centred { .. }) => blocks::<S, Four, _, R>(tile, Centred::<8>, xs, first),
                    (Bits::Five, Scales::Centred { .. }) => blocks::<S, Five, _, R>(tile, Centred::<16>, xs, first),
                    (_, Scales::Centred { .. }) => blocks::<S, Eight, _, R>(tile, Centred::<128>, xs, first),
                    (Bits::Four, Scales::Affine) => blocks::<S, Four, _, R>(tile, With(Affine), xs, first),
                    (_, Scales::Affine) => blocks::<S, Five, _, R>(tile, With(Affine), xs, first),
                    (Bits::Four, Scales::Super) => blocks::<S, Four, _, R>(tile, With(Super), xs, first),
                    (_, Scales::Super) => blocks::<S, Five, _, R>(tile, With(Super), xs, first),
                    (_, Scales::Halves) => blocks::<S, Six, _, R>(tile, Halves, xs, first),
                    (Bits::Four, Scales::Groups { blocks: group, dtype }) => {
                        blocks::<S, Four, _, R>(tile, With(Groups { group, dtype }), xs, first)
                    }
                    (_, Scales::Groups { blocks: group, dtype }) => {
                        blocks::<S, Eight, _, R>(tile, With(Groups { group, dtype }), xs, first)
                    }
                },
                _ => unreachable!("plain weights take plain activations, codes take blocks"),
            },
            _ => unreachable!("plain weights take plain activations, codes take blocks"),
        }
    }
}

/// Stores the sums of a panel.
///
/// # Safety
/// As [`rows`].
#[inline(always)]
unsafe fn emit<S: Simd, const R: usize>(tile: &Tile<'_, '_>, first: usize, panel: usize, sums: [S::F32; R]) {
    let (at, count) = (panel * LANES, LANES.min(tile.outputs.end - panel * LANES));
    for (r, sum) in sums.into_iter().enumerate() {
        // SAFETY: nobody else uses these outputs; `values` has 16 elements.
        let out = unsafe { tile.out.part(tile.out_at[first + r] + at, count) };
        let mut values = [0.0; LANES];
        // SAFETY: as above.
        unsafe { S::store_f32(values.as_mut_ptr(), sum) };
        if let Some(bias) = tile.bias {
            values.iter_mut().zip(&bias[at..][..count]).for_each(|(v, b)| *v += b);
        }
        out.copy_from_slice(&values[..count]);
    }
}

/// # Safety
/// As [`rows`].
#[inline(always)]
unsafe fn plain<S: Simd, E: Element, const R: usize>(tile: &Tile<'_, '_>, xs: &[&[f32]], first: usize) -> usize {
    let xs: [&[f32]; R] = std::array::from_fn(|r| xs[first + r]);
    let cols = xs[0].len();
    assert!(xs.iter().all(|x| x.len() == cols));
    for panel in tile.outputs.start / LANES..tile.outputs.end.div_ceil(LANES) {
        let weights = match tile.weights {
            Weights::Packed(packed) => {
                assert_eq!(packed.cols, cols);
                packed.panel(panel).wrapping_add(packed.codes)
            }
            Weights::Panel(panel) => {
                assert_eq!(panel.len(), cols * LANES);
                panel.as_ptr().cast()
            }
        };
        // SAFETY: a panel holds 16 elements an input, and every row has `cols` inputs.
        unsafe {
            let mut sums = [S::splat(0.0); R];
            for i in 0..cols {
                let w = E::load::<S>(weights.cast::<E::Stored>().add(i * LANES));
                for r in 0..R {
                    sums[r] = S::add(sums[r], S::mul(w, S::splat(*xs[r].get_unchecked(i))));
                }
            }
            emit::<S, R>(tile, first, panel, sums);
        }
    }
    R
}

/// # Safety
/// As [`rows`].
#[inline(always)]
unsafe fn blocks<S: Simd, C: Codes, F: Scaling, const R: usize>(
    tile: &Tile<'_, '_>,
    scaling: F,
    xs: &[&[Block]],
    first: usize,
) -> usize {
    let Weights::Packed(packed) = tile.weights else { unreachable!("codes are packed") };
    let xs: [&[Block]; R] = std::array::from_fn(|r| xs[first + r]);
    let blocks = packed.cols / BLOCK;
    assert!(xs.iter().all(|x| x.len() == blocks));
    let step = packed.panel_bytes / blocks;
    for panel in tile.outputs.start / LANES..tile.outputs.end.div_ceil(LANES) {
        let start = packed.panel(panel);
        // SAFETY: a panel holds the codes and scales of `blocks` blocks, and every row has as many.
        unsafe {
            let (scales, codes) = (start, start.add(packed.codes));
            let mut sums = [S::splat(0.0); R];
            for group in 0..blocks / scaling.group() {
                let scales = scales.add(group * scaling.group_bytes());
                let head = scaling.head::<S>(scales);
                for block in 0..scaling.group() {
                    let b = group * scaling.group() + block;
                    if R == 1 {
                        // One row waits for memory: ask for what comes next, at the pace at which panels are used up.
                        for line in 0..=C::BITS.block_bytes() / 64 {
                            S::prefetch(start.wrapping_add(b * step + 64 * line + AHEAD));
                        }
                    }
                    let words = C::load::<S>(codes.add(b * C::BITS.block_bytes()));
                    let factors = F::factors::<S>(scales, head, block);
                    for r in 0..R {
                        sums[r] = F::add::<S, C>(sums[r], factors, &words, xs[r].get_unchecked(b));
                    }
                }
            }
            emit::<S, R>(tile, first, panel, sums);
        }
    }
    R
}
