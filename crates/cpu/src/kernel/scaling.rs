//! Scales of a block: how its integer sums become f32.

use kapitsa_tensor::DType;

use super::codes::{Codes, dot, times};
use crate::activations::{Block, Sums};
use crate::packed::{HALVES_BYTES, SUPER_BYTES};
use crate::simd::{LANES, Simd};

/// How a block's integer sums become f32.
pub(super) trait Scaling: Copy {
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
    /// What a group's blocks are added to; the sum itself unless they have to be scaled together.
    #[inline(always)]
    unsafe fn begin<S: Simd>(sum: S::F32) -> S::F32 {
        sum
    }
    /// The sum with that of a group. `xs`: the group's blocks.
    #[inline(always)]
    unsafe fn end<S: Simd>(_: S::F32, group: S::F32, _: *const u8, _: Self::Head<S>, _: &[Block]) -> S::F32 {
        group
    }
    /// `sum` and the block's share.
    unsafe fn add<S: Simd, C: Codes>(sum: S::F32, factors: Self::Factors<S>, codes: &[S::I32; 8], x: &Block) -> S::F32;
}

/// [`Scales::Centred`].
#[derive(Clone, Copy)]
pub(super) struct Centred<const ZERO: u8>;

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
            S::fma(S::mul(scale, S::splat(x.scale)), dot, sum)
        }
    }
}

/// [`Scales::Halves`].
#[derive(Clone, Copy)]
pub(super) struct Halves;

impl Scaling for Halves {
    /// `d`.
    type Head<S: Simd> = S::F32;
    /// The scales of the halves.
    type Factors<S: Simd> = Pair<S>;

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
    unsafe fn factors<S: Simd>(from: *const u8, _: S::F32, block: usize) -> Pair<S> {
        // SAFETY: the caller's promise.
        unsafe {
            let small = from.add(32 + block * 32);
            (S::to_f32(S::load_i8(small)), S::to_f32(S::load_i8(small.add(16))))
        }
    }

    #[inline(always)]
    unsafe fn begin<S: Simd>(_: S::F32) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { S::splat(0.0) }
    }

    #[inline(always)]
    unsafe fn end<S: Simd>(sum: S::F32, group: S::F32, _: *const u8, d: S::F32, _: &[Block]) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { S::fma(d, group, sum) }
    }

    /// The sum of both halves is an integer below 2^24 (2 · 16 · 32 · 127 · 128), so f32 holds it exactly.
    #[inline(always)]
    unsafe fn add<S: Simd, C: Codes>(sum: S::F32, scales: Pair<S>, codes: &[S::I32; 8], x: &Block) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe {
            let low = dot::<S, C>(x.minus.half_times_32[0], &codes[..4], &x.codes[..4]);
            let high = dot::<S, C>(x.minus.half_times_32[1], &codes[4..], &x.codes[4..]);
            let dot = S::fma(S::to_f32(high), scales.1, S::mul(S::to_f32(low), scales.0));
            S::fma(S::splat(x.scale), dot, sum)
        }
    }
}

/// A scale and a minimum for each output.
pub(super) type Pair<S> = (<S as Simd>::F32, <S as Simd>::F32);

/// Scalings with a minimum.
#[derive(Clone, Copy)]
pub(super) struct With<M>(pub(super) M);

/// Where scales and minima are.
pub(super) trait Minima: Copy {
    fn group(self) -> usize;
    fn group_bytes(self) -> usize;
    unsafe fn head<S: Simd>(self, from: *const u8) -> Pair<S>;
    /// The head's own unless blocks have more.
    #[inline(always)]
    unsafe fn factors<S: Simd>(_: *const u8, head: Pair<S>, _: usize) -> Pair<S> {
        head
    }
}

impl<M: Minima> Scaling for With<M> {
    type Head<S: Simd> = Pair<S>;
    type Factors<S: Simd> = Pair<S>;

    fn group(self) -> usize {
        self.0.group()
    }

    fn group_bytes(self) -> usize {
        self.0.group_bytes()
    }

    #[inline(always)]
    unsafe fn head<S: Simd>(self, from: *const u8) -> Pair<S> {
        // SAFETY: the caller's promise.
        unsafe { self.0.head::<S>(from) }
    }

    #[inline(always)]
    unsafe fn factors<S: Simd>(from: *const u8, head: Pair<S>, block: usize) -> Pair<S> {
        // SAFETY: the caller's promise.
        unsafe { M::factors::<S>(from, head, block) }
    }

    #[inline(always)]
    unsafe fn add<S: Simd, C: Codes>(sum: S::F32, pair: Pair<S>, codes: &[S::I32; 8], x: &Block) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe {
            let dot = S::to_f32(dot::<S, C>(0, codes, &x.codes));
            let sum = S::fma(S::mul(pair.0, S::splat(x.scale)), dot, sum);
            S::fma(pair.1, S::splat(x.sum), sum)
        }
    }
}

/// [`Scales::Affine`].
#[derive(Clone, Copy)]
pub(super) struct Affine;

impl Minima for Affine {
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
}

/// [`Scales::Super`].
#[derive(Clone, Copy)]
pub(super) struct Super;

impl Scaling for Super {
    /// `d` and `-dmin`.
    type Head<S: Simd> = Pair<S>;
    /// The block's scale.
    type Factors<S: Simd> = S::F32;

    fn group(self) -> usize {
        8
    }

    fn group_bytes(self) -> usize {
        SUPER_BYTES
    }

    #[inline(always)]
    unsafe fn head<S: Simd>(self, from: *const u8) -> Pair<S> {
        // `d` and `-dmin` lie as the factors of a block do there.
        // SAFETY: the caller's promise.
        unsafe { Affine.head::<S>(from) }
    }

    #[inline(always)]
    unsafe fn factors<S: Simd>(from: *const u8, _: Pair<S>, block: usize) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { S::to_f32(S::load_u8(from.add(64 + block * LANES))) }
    }

    #[inline(always)]
    unsafe fn begin<S: Simd>(_: S::F32) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { S::splat(0.0) }
    }

    /// The minima times the sums are integers below 2^31 (63 · 8 · 127 · 128²).
    #[inline(always)]
    unsafe fn end<S: Simd>(sum: S::F32, group: S::F32, from: *const u8, head: Pair<S>, xs: &[Block]) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe {
            let sums = Sums::of(&*xs.as_ptr().cast());
            let minima = [S::load_bytes(from.add(64 + 8 * LANES)), S::load_bytes(from.add(128 + 8 * LANES))];
            let high = times::<S>(S::splat_i32(0), &minima, &sums.digits[0]);
            let middle = times::<S>(S::shl::<7>(high), &minima, &sums.digits[1]);
            let all = times::<S>(S::shl::<7>(middle), &minima, &sums.digits[2]);
            let sum = S::fma(head.0, group, sum);
            S::fma(S::mul(head.1, S::splat(sums.scale)), S::to_f32(all), sum)
        }
    }

    /// The scaled dot product is an integer below 2^24 (63 · 32 · 31 · 127), so f32 holds it exactly.
    #[inline(always)]
    unsafe fn add<S: Simd, C: Codes>(sum: S::F32, scale: S::F32, codes: &[S::I32; 8], x: &Block) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe {
            let dot = S::to_f32(dot::<S, C>(0, codes, &x.codes));
            S::fma(S::splat(x.scale), S::mul(scale, dot), sum)
        }
    }
}

/// [`Scales::Groups`].
#[derive(Clone, Copy)]
pub(super) struct Groups {
    pub(super) group: usize,
    pub(super) dtype: DType,
}

impl Minima for Groups {
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
}
