//! The product kernel: a tile of rows times panels of 16 outputs.
//!
//! For each output the sum runs over the inputs in order: block by block for codes (an exact integer sum of 32 products, then
//! one f32 product and sum for its scale and, where the format has one, one for its minimum), element by element for plain
//! weights. Tiles have one to [`MAX_ROWS`] rows and share nothing but the loads of a panel, so the number of rows changes no
//! bit, nor does the instruction set.

use std::ops::Range;

use kapitsa_tensor::DType;

use crate::activations::{BLOCK, Block};
use crate::element::{Bf16, Element, F16, F32};
use crate::isa::{Isa, Kernel};
use crate::packed::{Bits, HALVES_BYTES, Layout, Packed, SUPER_BYTES, Scales};
use crate::shared::SharedOut;
use crate::simd::{LANES, Simd};

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
                    (Bits::Four, Scales::Affine) => blocks::<S, Four, _, R>(tile, Affine, xs, first),
                    (_, Scales::Affine) => blocks::<S, Five, _, R>(tile, Affine, xs, first),
                    (Bits::Four, Scales::Super) => blocks::<S, Four, _, R>(tile, Super, xs, first),
                    (_, Scales::Super) => blocks::<S, Five, _, R>(tile, Super, xs, first),
                    (_, Scales::Halves) => blocks::<S, Six, _, R>(tile, Halves, xs, first),
                    (Bits::Four, Scales::Groups { blocks: group, dtype }) => {
                        blocks::<S, Four, _, R>(tile, Groups { group, dtype }, xs, first)
                    }
                    (_, Scales::Groups { blocks: group, dtype }) => {
                        blocks::<S, Eight, _, R>(tile, Groups { group, dtype }, xs, first)
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

/// Widths of codes.
trait Codes {
    const BITS: Bits;
    const WIDE: bool = false;
    /// The words of a block, a byte each code.
    unsafe fn load<S: Simd>(from: *const u8) -> [S::I32; 8];
}

struct Four;
struct Five;
struct Six;
struct Eight;

/// # Safety
/// `from` is valid for 256 bytes; the machine has the instructions of `S`.
#[inline(always)]
unsafe fn nibbles<S: Simd>(from: *const u8) -> [S::I32; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let mask = S::splat_i32(0x0f0f_0f0f);
        let v: [S::I32; 4] = std::array::from_fn(|i| S::load_bytes(from.add(64 * i)));
        std::array::from_fn(|i| if i < 4 { S::and(v[i], mask) } else { S::and(S::shr::<4>(v[i - 4]), mask) })
    }
}

impl Codes for Four {
    const BITS: Bits = Bits::Four;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> [S::I32; 8] {
        // SAFETY: the caller's promise.
        unsafe { nibbles::<S>(from) }
    }
}

impl Codes for Five {
    const BITS: Bits = Bits::Five;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> [S::I32; 8] {
        // SAFETY: the caller's promise.
        unsafe {
            let (low, high, mask) = (nibbles::<S>(from), S::load_bytes(from.add(256)), S::splat_i32(0x1010_1010));
            let top = [
                S::shl::<4>(high),
                S::shl::<3>(high),
                S::shl::<2>(high),
                S::shl::<1>(high),
                high,
                S::shr::<1>(high),
                S::shr::<2>(high),
                S::shr::<3>(high),
            ];
            std::array::from_fn(|i| S::or(low[i], S::and(top[i], mask)))
        }
    }
}

impl Codes for Six {
    const BITS: Bits = Bits::Six;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> [S::I32; 8] {
        // SAFETY: the caller's promise.
        unsafe {
            let (low, mask) = (nibbles::<S>(from), S::splat_i32(0x3030_3030));
            let top = |high| [S::shl::<4>(high), S::shl::<2>(high), high, S::shr::<2>(high)];
            let top = [top(S::load_bytes(from.add(256))), top(S::load_bytes(from.add(320)))];
            std::array::from_fn(|i| S::or(low[i], S::and(top[i / 4][i % 4], mask)))
        }
    }
}

impl Codes for Eight {
    const BITS: Bits = Bits::Eight;
    const WIDE: bool = true;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> [S::I32; 8] {
        // SAFETY: the caller's promise.
        unsafe { std::array::from_fn(|i| S::load_bytes(from.add(64 * i))) }
    }
}

/// How a block's integer sums become f32.
trait Scaling: Copy {
    /// What several blocks share.
    type Head<S: Simd>: Copy;
    /// What is read once for all rows.
    type Factors<S: Simd>: Copy;
    /// Blocks that share a head.
    fn group(self) -> usize;
    /// Bytes of the scales of a group.
    fn group_bytes(self) -> usize;
    /// The head of the group whose scales begin at `from`.
    unsafe fn head<S: Simd>(self, from: *const u8) -> Self::Head<S>;
    /// Factors of the group's block `block`.
    unsafe fn factors<S: Simd>(from: *const u8, head: Self::Head<S>, block: usize) -> Self::Factors<S>;
    /// `sum` and the block's share.
    unsafe fn add<S: Simd, C: Codes>(sum: S::F32, factors: Self::Factors<S>, codes: &[S::I32; 8], x: &Block) -> S::F32;
}

/// The integer sum of a block, or of half of one.
#[inline(always)]
unsafe fn dot<S: Simd, C: Codes>(start: i32, codes: &[S::I32], x: &[[i8; 4]]) -> S::I32 {
    // SAFETY: the machine has the instructions, by the caller's promise.
    unsafe {
        let mut sum = S::splat_i32(start);
        for (codes, x) in codes.iter().zip(x) {
            let x = i32::from_le_bytes(bytemuck::cast(*x));
            sum = if C::WIDE { S::dot4::<true>(sum, *codes, x) } else { S::dot4::<false>(sum, *codes, x) };
        }
        sum
    }
}

/// [`Scales::Centred`].
#[derive(Clone, Copy)]
struct Centred<const ZERO: u8>;

impl<const ZERO: u8> Scaling for Centred<ZERO> {
    type Head<S: Simd> = S::F32;
    type Factors<S: Simd> = S::F32;

    fn group(self) -> usize {
        1
    }

    fn group_bytes(self) -> usize {
        32
    }

    #[inline(always)]
    unsafe fn head<S: Simd>(self, from: *const u8) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { S::load_f16(from.cast()) }
    }

    #[inline(always)]
    unsafe fn factors<S: Simd>(_: *const u8, scale: S::F32, _: usize) -> S::F32 {
        scale
    }

    #[inline(always)]
    unsafe fn add<S: Simd, C: Codes>(sum: S::F32, scale: S::F32, codes: &[S::I32; 8], x: &Block) -> S::F32 {
        let minus = match ZERO {
            8 => x.minus.times_8,
            16 => x.minus.times_16,
            _ => x.minus.times_128,
        };
        // SAFETY: the caller's promise.
        unsafe {
            let dot = S::to_f32(dot::<S, C>(minus, codes, &x.codes));
            S::add(sum, S::mul(S::mul(scale, S::splat(x.scale)), dot))
        }
    }
}

/// A scale and a minimum for each output.
type Pair<S> = (<S as Simd>::F32, <S as Simd>::F32);

#[inline(always)]
unsafe fn add_pair<S: Simd, C: Codes>(sum: S::F32, pair: Pair<S>, codes: &[S::I32; 8], x: &Block) -> S::F32 {
    // SAFETY: the caller's promise.
    unsafe {
        let dot = S::to_f32(dot::<S, C>(0, codes, &x.codes));
        let sum = S::add(sum, S::mul(S::mul(pair.0, S::splat(x.scale)), dot));
        S::add(sum, S::mul(pair.1, S::splat(x.sum)))
    }
}

/// [`Scales::Affine`].
#[derive(Clone, Copy)]
struct Affine;

impl Scaling for Affine {
    type Head<S: Simd> = Pair<S>;
    type Factors<S: Simd> = Pair<S>;

    fn group(self) -> usize {
        1
    }

    fn group_bytes(self) -> usize {
        64
    }

    #[inline(always)]
    unsafe fn head<S: Simd>(self, from: *const u8) -> Pair<S> {
        // SAFETY: the caller's promise.
        unsafe { (S::load_f16(from.cast()), S::load_f16(from.add(32).cast())) }
    }

    #[inline(always)]
    unsafe fn factors<S: Simd>(_: *const u8, pair: Pair<S>, _: usize) -> Pair<S> {
        pair
    }

    #[inline(always)]
    unsafe fn add<S: Simd, C: Codes>(sum: S::F32, pair: Pair<S>, codes: &[S::I32; 8], x: &Block) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { add_pair::<S, C>(sum, pair, codes, x) }
    }
}

/// [`Scales::Super`].
#[derive(Clone, Copy)]
struct Super;

impl Scaling for Super {
    /// `d` and `-dmin`.
    type Head<S: Simd> = Pair<S>;
    type Factors<S: Simd> = Pair<S>;

    fn group(self) -> usize {
        8
    }

    fn group_bytes(self) -> usize {
        SUPER_BYTES
    }

    #[inline(always)]
    unsafe fn head<S: Simd>(self, from: *const u8) -> Pair<S> {
        // SAFETY: the caller's promise.
        unsafe { (S::load_f16(from.cast()), S::load_f16(from.add(32).cast())) }
    }

    #[inline(always)]
    unsafe fn factors<S: Simd>(from: *const u8, head: Pair<S>, block: usize) -> Pair<S> {
        // SAFETY: the caller's promise.
        unsafe {
            let small = from.add(64 + block * 32);
            let scale = S::mul(head.0, S::to_f32(S::load_u8(small)));
            (scale, S::mul(head.1, S::to_f32(S::load_u8(small.add(16)))))
        }
    }

    #[inline(always)]
    unsafe fn add<S: Simd, C: Codes>(sum: S::F32, pair: Pair<S>, codes: &[S::I32; 8], x: &Block) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { add_pair::<S, C>(sum, pair, codes, x) }
    }
}

/// [`Scales::Halves`].
#[derive(Clone, Copy)]
struct Halves;

impl Scaling for Halves {
    /// `d`.
    type Head<S: Simd> = S::F32;
    /// `d` and the scales of the halves.
    type Factors<S: Simd> = [S::F32; 3];

    fn group(self) -> usize {
        8
    }

    fn group_bytes(self) -> usize {
        HALVES_BYTES
    }

    #[inline(always)]
    unsafe fn head<S: Simd>(self, from: *const u8) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { S::load_f16(from.cast()) }
    }

    #[inline(always)]
    unsafe fn factors<S: Simd>(from: *const u8, d: S::F32, block: usize) -> [S::F32; 3] {
        // SAFETY: the caller's promise.
        unsafe {
            let small = from.add(32 + block * 32);
            [d, S::to_f32(S::load_i8(small)), S::to_f32(S::load_i8(small.add(16)))]
        }
    }

    /// The sum of both halves is an integer below 2^24 (2 · 16 · 32 · 127 · 128), so f32 holds it exactly.
    #[inline(always)]
    unsafe fn add<S: Simd, C: Codes>(sum: S::F32, f: [S::F32; 3], codes: &[S::I32; 8], x: &Block) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe {
            let low = dot::<S, C>(x.minus.half_times_32[0], &codes[..4], &x.codes[..4]);
            let high = dot::<S, C>(x.minus.half_times_32[1], &codes[4..], &x.codes[4..]);
            let dot = S::add(S::mul(S::to_f32(low), f[1]), S::mul(S::to_f32(high), f[2]));
            S::add(sum, S::mul(S::mul(f[0], S::splat(x.scale)), dot))
        }
    }
}

/// [`Scales::Groups`].
#[derive(Clone, Copy)]
struct Groups {
    group: usize,
    dtype: DType,
}

impl Scaling for Groups {
    type Head<S: Simd> = Pair<S>;
    type Factors<S: Simd> = Pair<S>;

    fn group(self) -> usize {
        self.group
    }

    fn group_bytes(self) -> usize {
        2 * LANES * self.dtype.bytes()
    }

    #[inline(always)]
    unsafe fn head<S: Simd>(self, from: *const u8) -> Pair<S> {
        // SAFETY: the caller's promise.
        unsafe {
            match self.dtype {
                DType::F32 => (S::load_f32(from.cast()), S::load_f32(from.cast::<f32>().add(LANES))),
                DType::F16 => (S::load_f16(from.cast()), S::load_f16(from.cast::<u16>().add(LANES))),
                DType::Bf16 => (S::load_bf16(from.cast()), S::load_bf16(from.cast::<u16>().add(LANES))),
            }
        }
    }

    #[inline(always)]
    unsafe fn factors<S: Simd>(_: *const u8, pair: Pair<S>, _: usize) -> Pair<S> {
        pair
    }

    #[inline(always)]
    unsafe fn add<S: Simd, C: Codes>(sum: S::F32, pair: Pair<S>, codes: &[S::I32; 8], x: &Block) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { add_pair::<S, C>(sum, pair, codes, x) }
    }
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
