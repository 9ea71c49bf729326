//! The product kernel: a tile of rows times panels of 16 outputs.
//!
//! For each output the sum runs over the inputs in order: block by block for codes (an exact integer sum of 32 products, then
//! one f32 product and sum, rounded once, for its scale and, where the format has one, one for its minimum), element by
//! element for plain weights. Tiles have one to [`MAX_ROWS`] rows and share nothing but the loads of a panel, so the number of
//! rows changes no bit, nor does the instruction set.

mod codes;
mod scaling;

use std::marker::PhantomData;
use std::ops::Range;

use kapitsa_tensor::DType;

use crate::activations::{BLOCK, Block, GROUP};
use crate::element::{Bf16, Element, F16, F32};
use crate::isa::{Isa, Kernel};
use crate::packed::{Bits, Layout, Packed, Scales};
use crate::shared::SharedOut;
use crate::simd::{LANES, Simd};
use codes::{Bytes, Codes, Five, Four, Six, Widen};
use scaling::{Affine, Centred, Groups, Halves, Scaling, Super, With};

/// Panels that one row reads at a time.
pub(crate) const STREAMS: usize = 4;
/// Blocks of a tile's rows that stay in the L1 cache, a multiple of those of every scaling's group, while as many panels pass.
const CACHED_BLOCKS: usize = 24;
const CACHED_PANELS: usize = 8;
/// Rows up to which reading weights takes longer than multiplying.
pub(crate) const FEW_ROWS: usize = 8;
/// Rows that a caller may pass at once, a multiple of those of every large tile.
pub(crate) const MAX_ROWS: usize = 24;

/// Panels of a weight.
#[derive(Clone, Copy)]
pub(crate) enum Weights<'a> {
    /// Packed at load.
    Packed(&'a Packed),
    /// One panel of f32 elements, `[cols][16]`.
    Panel(&'a [f32]),
}

/// Rows of activations.
#[derive(Clone, Copy)]
pub(crate) enum Inputs<'a> {
    /// Each `[cols]`, for plain weights.
    Plain(&'a [&'a [f32]]),
    /// One row, `[cols / 32]`, for codes.
    One(&'a [Block<1>]),
    /// Groups of rows, `[groups, cols / 32]`, for codes. Rows that are none may hold anything. With them the codes of all
    /// panels of the tile in bytes, `[panels, cols / 32]`, if [`widen`] has made them.
    Groups(&'a [Block<GROUP>], Option<&'a [[u8; 512]]>),
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
    unsafe {
        match (tile.weights, tile.inputs) {
            (_, Inputs::Plain(xs)) => {
                let (mut first, most) = (0, isa.tile_groups() * GROUP);
                while first < xs.len() {
                    first += match (xs.len() - first).min(most) {
                        12.. => plain::<12>(isa, tile, xs, first),
                        8.. => plain::<8>(isa, tile, xs, first),
                        4.. => plain::<4>(isa, tile, xs, first),
                        2.. => plain::<2>(isa, tile, xs, first),
                        _ => plain::<1>(isa, tile, xs, first),
                    };
                }
            }
            (Weights::Packed(packed), Inputs::One(blocks)) => codes::<1, 1>(isa, tile, packed, blocks, None, 0),
            (Weights::Packed(packed), Inputs::Groups(blocks, wide)) => {
                let of_group = packed.cols / BLOCK;
                let most = packed.tiling.groups;
                for (first, blocks) in (0..).step_by(most * GROUP).zip(blocks.chunks(most * of_group)) {
                    match blocks.len() / of_group {
                        3 => codes::<12, GROUP>(isa, tile, packed, blocks, wide, first),
                        2 => codes::<8, GROUP>(isa, tile, packed, blocks, wide, first),
                        _ => codes::<4, GROUP>(isa, tile, packed, blocks, wide, first),
                    }
                }
            }
            (Weights::Panel(_), _) => unreachable!("plain weights take plain rows"),
        }
    }
}

/// Computes `R` rows of a tile of plain weights, from its row `first` on. Returns `R`.
///
/// # Safety
/// As [`run`].
unsafe fn plain<const R: usize>(isa: Isa, tile: &Tile<'_, '_>, xs: &[&[f32]], first: usize) -> usize {
    let layout = match tile.weights {
        Weights::Panel(_) => Layout::Plain(DType::F32),
        Weights::Packed(packed) => packed.layout,
    };
    let xs = std::array::from_fn(|r| xs[first + r]);
    // Where there are registers for their sums.
    let pairs = isa.tile_groups() > 1;
    // SAFETY: passed on.
    unsafe {
        match layout {
            Layout::Plain(DType::F32) => isa.run(PlainRows::<F32, R> { tile, xs, first, pairs, element: PhantomData }),
            Layout::Plain(DType::F16) => isa.run(PlainRows::<F16, R> { tile, xs, first, pairs, element: PhantomData }),
            Layout::Plain(DType::Bf16) => {
                isa.run(PlainRows::<Bf16, R> { tile, xs, first, pairs, element: PhantomData })
            }
            Layout::Blocks(..) => unreachable!("codes are multiplied by blocks"),
        }
    }
    R
}

/// Computes `R` rows of a tile of codes, from its row `first` on.
///
/// # Safety
/// As [`run`].
unsafe fn codes<const R: usize, const W: usize>(
    isa: Isa,
    tile: &Tile<'_, '_>,
    packed: &Packed,
    blocks: &[Block<W>],
    wide: Option<&[[u8; 512]]>,
    first: usize,
) {
    let Layout::Blocks(bits, scales) = packed.layout else { unreachable!("plain weights take plain rows") };
    let stride = packed.cols / BLOCK;
    assert_eq!(blocks.len(), R / W * stride);
    let (first_panel, panels) = (tile.outputs.start / LANES, tile.outputs.len().div_ceil(LANES));
    let codes = match wide {
        Some(wide) => {
            assert_eq!(wide.len(), panels * stride);
            CodesAt { start: wide.as_ptr().cast(), first_panel, panel_bytes: stride * 512 }
        }
        None => CodesAt {
            start: packed.panel(first_panel).wrapping_add(packed.codes),
            first_panel,
            panel_bytes: packed.panel_bytes,
        },
    };
    let rows = Rows::<R, W> { tile, packed, codes, xs: Xs { blocks, stride }, first };
    // SAFETY: passed on.
    unsafe {
        if wide.is_some() {
            return match scales {
                Scales::Centred { zero: 8 } => rows.times::<Bytes<false>, _>(isa, Centred::<8>),
                Scales::Centred { .. } => rows.times::<Bytes<false>, _>(isa, Centred::<16>),
                Scales::Affine => rows.times::<Bytes<false>, _>(isa, With(Affine)),
                Scales::Super => rows.times::<Bytes<false>, _>(isa, With(Super)),
                Scales::Halves => rows.times::<Bytes<false>, _>(isa, Halves),
                Scales::Groups { blocks: group, dtype } => {
                    rows.times::<Bytes<false>, _>(isa, With(Groups { group, dtype }))
                }
            };
        }
        match (bits, scales) {
            (Bits::Four, Scales::Centred { .. }) => rows.times::<Four, _>(isa, Centred::<8>),
            (Bits::Five, Scales::Centred { .. }) => rows.times::<Five, _>(isa, Centred::<16>),
            (_, Scales::Centred { .. }) => rows.times::<Bytes<true>, _>(isa, Centred::<128>),
            (Bits::Four, Scales::Affine) => rows.times::<Four, _>(isa, With(Affine)),
            (_, Scales::Affine) => rows.times::<Five, _>(isa, With(Affine)),
            (Bits::Four, Scales::Super) => rows.times::<Four, _>(isa, With(Super)),
            (_, Scales::Super) => rows.times::<Five, _>(isa, With(Super)),
            (_, Scales::Halves) => rows.times::<Six, _>(isa, Halves),
            (Bits::Four, Scales::Groups { blocks: group, dtype }) => {
                rows.times::<Four, _>(isa, With(Groups { group, dtype }))
            }
            (_, Scales::Groups { blocks: group, dtype }) => {
                rows.times::<Bytes<true>, _>(isa, With(Groups { group, dtype }))
            }
        }
    }
}

/// The codes of the panels that hold `outputs` as bytes, `[panels, cols / 32]`, for tiles of many rows, if the weight's tiling
/// wants them so.
pub(crate) fn widen<'a>(
    isa: Isa,
    packed: &Packed,
    outputs: &Range<usize>,
    out: &'a mut Vec<[u8; 512]>,
) -> Option<&'a [[u8; 512]]> {
    let Layout::Blocks(bits, _) = packed.layout else { return None };
    if !packed.tiling.widens {
        return None;
    }
    let (blocks, panels) = (packed.cols / BLOCK, outputs.start / LANES..outputs.end.div_ceil(LANES));
    out.resize(panels.len() * blocks, [0; 512]);
    for (panel, out) in panels.zip(out.chunks_exact_mut(blocks)) {
        let from = packed.panel(panel).wrapping_add(packed.codes);
        // SAFETY: a panel holds the codes of so many blocks.
        unsafe {
            match bits {
                Bits::Four => isa.run(Widen::<Four> { from, out, codes: PhantomData }),
                Bits::Five => isa.run(Widen::<Five> { from, out, codes: PhantomData }),
                Bits::Six => isa.run(Widen::<Six> { from, out, codes: PhantomData }),
                Bits::Eight => unreachable!("codes of eight bits are bytes"),
            }
        }
    }
    Some(out)
}

/// Where the codes of panels are.
#[derive(Clone, Copy)]
struct CodesAt {
    /// The codes of `first_panel`.
    start: *const u8,
    first_panel: usize,
    /// From a panel's codes to the next one's.
    panel_bytes: usize,
}

/// Rows in groups of `W`, `stride` blocks each.
#[derive(Clone, Copy)]
struct Xs<'a, const W: usize> {
    blocks: &'a [Block<W>],
    stride: usize,
}

impl<'a, const W: usize> Xs<'a, W> {
    /// Block `b` of the group that row `r` is in.
    ///
    /// # Safety
    /// There are such a row and block.
    #[inline(always)]
    unsafe fn block(self, r: usize, b: usize) -> &'a Block<W> {
        // SAFETY: the caller's promise.
        unsafe { self.blocks.get_unchecked(r / W * self.stride + b) }
    }
}

/// Stores the sums of a panel.
///
/// # Safety
/// As [`run`]; the machine has the instructions of `S`.
#[inline(always)]
unsafe fn emit<S: Simd, const R: usize>(tile: &Tile<'_, '_>, first: usize, panel: usize, sums: &[S::F32; R]) {
    let (at, count) = (panel * LANES, LANES.min(tile.outputs.end - panel * LANES));
    for (out_at, sum) in tile.out_at[first..].iter().zip(sums) {
        let mut sum = *sum;
        // SAFETY: nobody else uses these outputs; all loads and stores are of 16 elements that are there.
        unsafe {
            let out = tile.out.part(out_at + at, count);
            let mut values = [0.0; LANES];
            if let Some(bias) = tile.bias {
                let bias = &bias[at..][..count];
                let bias = if count == LANES {
                    S::load_f32(bias.as_ptr())
                } else {
                    values[..count].copy_from_slice(bias);
                    S::load_f32(values.as_ptr())
                };
                // A sum, rounded once.
                sum = S::fma(bias, S::splat(1.0), sum);
            }
            if count == LANES {
                S::store_f32(out.as_mut_ptr(), sum);
            } else {
                S::store_f32(values.as_mut_ptr(), sum);
                out.copy_from_slice(&values[..count]);
            }
        }
    }
}

/// `R` rows to multiply by plain weights.
struct PlainRows<'a, 'b, 'c, E, const R: usize> {
    tile: &'a Tile<'b, 'c>,
    xs: [&'a [f32]; R],
    first: usize,
    /// Whether two panels are multiplied at a time.
    pairs: bool,
    element: PhantomData<E>,
}

impl<E: Element, const R: usize> Kernel for PlainRows<'_, '_, '_, E, R> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (mut panel, end) = (self.tile.outputs.start / LANES, self.tile.outputs.end.div_ceil(LANES));
        // SAFETY: passed on.
        unsafe {
            // As with codes, a single row reads several streams.
            while R == 1 && panel + STREAMS <= end {
                self.panels::<S, STREAMS>(panel);
                panel += STREAMS;
            }
            while self.pairs && panel + 2 <= end {
                self.panels::<S, 2>(panel);
                panel += 2;
            }
            while panel < end {
                self.panels::<S, 1>(panel);
                panel += 1;
            }
        }
    }
}

impl<E: Element, const R: usize> PlainRows<'_, '_, '_, E, R> {
    /// `P` panels side by side, from `panel` on.
    ///
    /// # Safety
    /// As [`run`]; the machine has the instructions of `S`; the weight has the panels.
    #[inline(always)]
    unsafe fn panels<S: Simd, const P: usize>(&self, panel: usize) {
        let cols = self.xs[0].len();
        assert!(self.xs.iter().all(|x| x.len() == cols));
        let (start, stride, ahead) = match self.tile.weights {
            Weights::Packed(packed) => {
                assert_eq!(packed.cols, cols);
                (packed.panel(panel).wrapping_add(packed.codes), packed.panel_bytes, packed.tiling.ahead)
            }
            Weights::Panel(elements) => {
                assert!(P == 1 && elements.len() == cols * LANES);
                (elements.as_ptr().cast(), 0, 0)
            }
        };
        let vector = LANES * size_of::<E::Stored>();
        // SAFETY: a panel holds 16 elements an input, and every row has `cols` inputs.
        unsafe {
            let mut sums = [[S::splat(0.0); R]; P];
            for i in 0..cols {
                let mut w = [S::splat(0.0); P];
                for (p, w) in w.iter_mut().enumerate() {
                    let at = start.wrapping_add(p * stride + i * vector);
                    if R <= FEW_ROWS {
                        S::prefetch(at.wrapping_add(ahead));
                    }
                    *w = E::load::<S>(at.cast());
                }
                for r in 0..R {
                    let x = S::splat(*self.xs[r].get_unchecked(i));
                    for (sums, w) in sums.iter_mut().zip(w) {
                        sums[r] = S::fma(w, x, sums[r]);
                    }
                }
            }
            for (p, sums) in sums.iter().enumerate() {
                emit::<S, R>(self.tile, self.first, panel + p, sums);
            }
        }
    }
}

/// `R` rows to multiply by codes.
struct Rows<'a, 'b, 'c, const R: usize, const W: usize> {
    tile: &'a Tile<'b, 'c>,
    packed: &'a Packed,
    codes: CodesAt,
    xs: Xs<'a, W>,
    first: usize,
}

impl<const R: usize, const W: usize> Rows<'_, '_, '_, R, W> {
    /// # Safety
    /// As [`run`]; codes and scales are those of the weight, and there are blocks for all rows.
    unsafe fn times<C: Codes, F: Scaling>(self, isa: Isa, scaling: F) {
        // SAFETY: passed on.
        unsafe { isa.run(Times::<C, F, R, W> { rows: self, scaling, codes: PhantomData }) }
    }
}

struct Times<'a, 'b, 'c, C, F, const R: usize, const W: usize> {
    rows: Rows<'a, 'b, 'c, R, W>,
    scaling: F,
    codes: PhantomData<C>,
}

impl<C: Codes, F: Scaling, const R: usize, const W: usize> Kernel for Times<'_, '_, '_, C, F, R, W> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Rows { tile, packed, first, .. } = self.rows;
        let (mut panel, end) = (tile.outputs.start / LANES, tile.outputs.end.div_ceil(LANES));
        let blocks = packed.cols / BLOCK;
        // SAFETY: passed on.
        unsafe {
            // A single row waits for memory, which gives more to several streams.
            while R == 1 && panel + STREAMS <= end {
                let mut sums = [[S::splat(0.0); R]; STREAMS];
                self.add::<S, STREAMS>(panel, 0..blocks, &mut sums);
                for (p, sums) in sums.into_iter().enumerate() {
                    emit::<S, R>(tile, first, panel + p, &sums);
                }
                panel += STREAMS;
            }
            // Several rows multiply as many inputs by many panels as the L1 cache holds.
            let step = if R == 1 { blocks } else { CACHED_BLOCKS };
            while panel < end {
                let count = CACHED_PANELS.min(end - panel);
                let mut sums = [[S::splat(0.0); R]; CACHED_PANELS];
                for start in (0..blocks).step_by(step) {
                    for (p, sums) in sums[..count].iter_mut().enumerate() {
                        self.add::<S, 1>(panel + p, start..blocks.min(start + step), std::array::from_mut(sums));
                    }
                }
                for (p, sums) in sums[..count].iter().enumerate() {
                    emit::<S, R>(tile, first, panel + p, sums);
                }
                panel += count;
            }
        }
    }
}

impl<C: Codes, F: Scaling, const R: usize, const W: usize> Times<'_, '_, '_, C, F, R, W> {
    /// Adds the shares of some blocks, which begin and end with groups, for `P` panels side by side, from `panel` on.
    ///
    /// # Safety
    /// As [`run`]; the machine has the instructions of `S`.
    #[inline(always)]
    unsafe fn add<S: Simd, const P: usize>(&self, panel: usize, range: Range<usize>, sums: &mut [[S::F32; R]; P]) {
        let Times { rows: Rows { packed, codes, xs, .. }, scaling, .. } = self;
        let step = packed.panel_bytes / (packed.cols / BLOCK);
        let starts: [*const u8; P] = std::array::from_fn(|p| packed.panel(panel + p));
        let codes: [*const u8; P] =
            std::array::from_fn(|p| codes.start.wrapping_add((panel + p - codes.first_panel) * codes.panel_bytes));
        // SAFETY: a panel holds the codes and scales of all blocks, and every row has as many.
        unsafe {
            for first in range.step_by(scaling.group()) {
                // Loops rather than closures, which would not be inlined and so not be compiled with the instructions.
                let scales = first / scaling.group() * scaling.group_bytes();
                let mut heads = [scaling.head::<S>(starts[0].add(scales)); P];
                for (head, start) in heads.iter_mut().zip(starts).skip(1) {
                    *head = scaling.head::<S>(start.add(scales));
                }
                for block in 0..scaling.group() {
                    let b = first + block;
                    // What comes next, at the pace at which panels are used up; then the panels after all of these.
                    let mut ahead = b * step + packed.tiling.ahead;
                    if ahead >= packed.panel_bytes {
                        ahead += (P - 1) * packed.panel_bytes;
                    }
                    for p in 0..P {
                        if R == 1 {
                            for line in 0..=C::BITS.block_bytes() / 64 {
                                S::prefetch(starts[p].wrapping_add(ahead + 64 * line));
                            }
                        }
                        let factors = F::factors::<S>(starts[p].add(scales), heads[p], block);
                        F::add::<S, C, R, W>(&mut sums[p], factors, codes[p].add(b * C::BITS.block_bytes()), *xs, b);
                    }
                }
            }
        }
    }
}
