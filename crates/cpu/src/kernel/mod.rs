//! The product kernel: a tile of rows times panels of 16 outputs.
//!
//! For each output the sum runs over the inputs in order: block by block for codes (an exact integer sum of 32 products, then
//! one f32 product and sum, rounded once, for its scale and, where the format has one, one for its minimum), element by element for plain
//! weights. Tiles have one to [`MAX_ROWS`] rows and share nothing but the loads of a panel, so the number of rows changes no
//! bit, nor does the instruction set.

mod codes;
mod scaling;

use std::marker::PhantomData;
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
const AHEAD: usize = 1536;
/// Panels that one row reads at a time.
pub(crate) const STREAMS: usize = 4;
/// Rows of the largest tile.
pub(crate) const MAX_ROWS: usize = 16;

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
    let mut first = 0;
    while first < tile.out_at.len() {
        let left = tile.out_at.len() - first;
        // SAFETY: passed on.
        first += unsafe {
            match left {
                16.. if isa.registers() > 16 => formats::<16>(isa, tile, first),
                8.. => formats::<8>(isa, tile, first),
                4.. => formats::<4>(isa, tile, first),
                2.. => formats::<2>(isa, tile, first),
                _ => formats::<1>(isa, tile, first),
            }
        };
    }
}

/// Computes `R` rows of a tile, from its row `first` on.
///
/// # Safety
/// As [`run`].
unsafe fn formats<const R: usize>(isa: Isa, tile: &Tile<'_, '_>, first: usize) -> usize {
    // SAFETY: passed on.
    unsafe {
        match (tile.weights, tile.inputs) {
            (Weights::Panel(_), Inputs::Plain(xs)) => plain::<F32, R>(isa, tile, xs, first),
            (Weights::Packed(packed), Inputs::Plain(xs)) => match packed.layout {
                Layout::Plain(DType::F32) => plain::<F32, R>(isa, tile, xs, first),
                Layout::Plain(DType::F16) => plain::<F16, R>(isa, tile, xs, first),
                Layout::Plain(DType::Bf16) => plain::<Bf16, R>(isa, tile, xs, first),
                Layout::Blocks(..) => unreachable!("codes are multiplied by blocks"),
            },
            (Weights::Packed(packed), Inputs::Blocks(xs)) => {
                let Layout::Blocks(bits, scales) = packed.layout else { unreachable!("plain weights take plain rows") };
                let rows = Rows::<R> { tile, packed, xs: std::array::from_fn(|r| xs[first + r]), first };
                match (bits, scales) {
                    (Bits::Four, Scales::Centred { .. }) => rows.times::<Four, _>(isa, Centred::<8>),
                    (Bits::Five, Scales::Centred { .. }) => rows.times::<Five, _>(isa, Centred::<16>),
                    (_, Scales::Centred { .. }) => rows.times::<Eight, _>(isa, Centred::<128>),
                    (Bits::Four, Scales::Affine) => rows.times::<Four, _>(isa, With(Affine)),
                    (_, Scales::Affine) => rows.times::<Five, _>(isa, With(Affine)),
                    (Bits::Four, Scales::Super) => rows.times::<Four, _>(isa, Super),
                    (_, Scales::Super) => rows.times::<Five, _>(isa, Super),
                    (_, Scales::Halves) => rows.times::<Six, _>(isa, Halves),
                    (Bits::Four, Scales::Groups { blocks: group, dtype }) => {
                        rows.times::<Four, _>(isa, With(Groups { group, dtype }))
                    }
                    (_, Scales::Groups { blocks: group, dtype }) => {
                        rows.times::<Eight, _>(isa, With(Groups { group, dtype }))
                    }
                }
            }
            (Weights::Panel(_), Inputs::Blocks(_)) => unreachable!("plain weights take plain rows"),
        }
    }
    R
}

/// Stores the sums of a panel.
///
/// # Safety
/// As [`run`]; the machine has the instructions of `S`.
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

/// `R` rows times plain weights.
///
/// # Safety
/// As [`run`].
unsafe fn plain<E: Element, const R: usize>(isa: Isa, tile: &Tile<'_, '_>, xs: &[&[f32]], first: usize) {
    let xs = std::array::from_fn(|r| xs[first + r]);
    // SAFETY: passed on.
    unsafe { isa.run(PlainRows::<E, R> { tile, xs, first, element: PhantomData }) }
}

struct PlainRows<'a, 'b, 'c, E, const R: usize> {
    tile: &'a Tile<'b, 'c>,
    xs: [&'a [f32]; R],
    first: usize,
    element: PhantomData<E>,
}

impl<E: Element, const R: usize> Kernel for PlainRows<'_, '_, '_, E, R> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let PlainRows { tile, xs, first, .. } = self;
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
                        sums[r] = S::fma(w, S::splat(*xs[r].get_unchecked(i)), sums[r]);
                    }
                }
                emit::<S, R>(tile, first, panel, sums);
            }
        }
    }
}

/// `R` rows to multiply by codes.
struct Rows<'a, 'b, 'c, const R: usize> {
    tile: &'a Tile<'b, 'c>,
    packed: &'a Packed,
    xs: [&'a [Block]; R],
    first: usize,
}

impl<const R: usize> Rows<'_, '_, '_, R> {
    /// # Safety
    /// As [`run`]; codes and scales are those of the weight.
    unsafe fn times<C: Codes, F: Scaling>(self, isa: Isa, scaling: F) {
        assert!(self.xs.iter().all(|x| x.len() == self.packed.cols / BLOCK));
        // SAFETY: passed on.
        unsafe { isa.run(Times::<C, F, R> { rows: self, scaling, codes: PhantomData }) }
    }
}

struct Times<'a, 'b, 'c, C, F, const R: usize> {
    rows: Rows<'a, 'b, 'c, R>,
    scaling: F,
    codes: PhantomData<C>,
}

impl<C: Codes, F: Scaling, const R: usize> Kernel for Times<'_, '_, '_, C, F, R> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let outputs = &self.rows.tile.outputs;
        let (mut panel, end) = (outputs.start / LANES, outputs.end.div_ceil(LANES));
        // SAFETY: passed on.
        unsafe {
            // A single row waits for memory, which gives more to several streams.
            while R == 1 && panel + STREAMS <= end {
                self.panels::<S, STREAMS>(panel);
                panel += STREAMS;
            }
            while panel < end {
                self.panels::<S, 1>(panel);
                panel += 1;
            }
        }
    }
}

impl<C: Codes, F: Scaling, const R: usize> Times<'_, '_, '_, C, F, R> {
    /// `P` panels side by side, from `panel` on.
    ///
    /// # Safety
    /// As [`run`]; the machine has the instructions of `S`.
    #[inline(always)]
    unsafe fn panels<S: Simd, const P: usize>(&self, panel: usize) {
        let Times { rows: Rows { tile, packed, xs, first }, scaling, .. } = self;
        let blocks = packed.cols / BLOCK;
        let step = packed.panel_bytes / blocks;
        let starts: [*const u8; P] = std::array::from_fn(|p| packed.panel(panel + p));
        // SAFETY: a panel holds the codes and scales of `blocks` blocks, and every row has as many.
        unsafe {
            let mut sums = [[S::splat(0.0); R]; P];
            for group in 0..blocks / scaling.group() {
                // Loops rather than closures, which would not be inlined and so not be compiled with the instructions.
                let scales = |p: usize| starts[p].add(group * scaling.group_bytes());
                let mut heads = [scaling.head::<S>(scales(0)); P];
                for (p, head) in heads.iter_mut().enumerate().skip(1) {
                    *head = scaling.head::<S>(scales(p));
                }
                let mut parts = sums;
                for part in parts.as_flattened_mut() {
                    *part = F::begin::<S>(*part);
                }
                for block in 0..scaling.group() {
                    let b = group * scaling.group() + block;
                    // What comes next, at the pace at which panels are used up; then the panels after all of these.
                    let mut ahead = b * step + AHEAD;
                    if ahead >= packed.panel_bytes {
                        ahead += (P - 1) * packed.panel_bytes;
                    }
                    for p in 0..P {
                        if R == 1 {
                            for line in 0..=C::BITS.block_bytes() / 64 {
                                S::prefetch(starts[p].wrapping_add(ahead + 64 * line));
                            }
                        }
                        let words = C::load::<S>(starts[p].add(packed.codes + b * C::BITS.block_bytes()));
                        let factors = F::factors::<S>(scales(p), heads[p], block);
                        for r in 0..R {
                            parts[p][r] = F::add::<S, C>(parts[p][r], factors, &words, xs[r].get_unchecked(b));
                        }
                    }
                }
                for p in 0..P {
                    for r in 0..R {
                        let xs = xs[r].get_unchecked(group * scaling.group()..);
                        sums[p][r] = F::end::<S>(sums[p][r], parts[p][r], scales(p), heads[p], xs);
                    }
                }
            }
            for (p, sums) in sums.into_iter().enumerate() {
                emit::<S, R>(tile, *first, panel + p, sums);
            }
        }
    }
}
