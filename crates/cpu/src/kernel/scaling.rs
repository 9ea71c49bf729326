//! Scales of a block: how its integer sums become f32.

use kapitsa_tensor::DType;

use super::Xs;
use super::codes::{Codes, dots};
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
    /// Adds the shares of block `b` of the rows. `from`: the weight's codes.
    unsafe fn add<S: Simd, C: Codes, const R: usize, const W: usize>(
        sums: &mut [S::F32; R],
        factors: Self::Factors<S>,
        from: *const u8,
        xs: Xs<'_, W>,
        b: usize,
    );
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
    unsafe fn add<S: Simd, C: Codes, const R: usize, const W: usize>(
        sums: &mut [S::F32; R],
        scale: S::F32,
        from: *const u8,
        xs: Xs<'_, W>,
        b: usize,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut dot = [S::splat_i32(0); R];
            for r in 0..R {
                let x = xs.block(r, b);
                let minus = match ZERO {
                    8 => x.minus_8,
                    16 => x.minus_16,
                    _ => x.minus_128,
                };
                dot[r] = S::splat_i32(minus[r % W]);
            }
            dots::<S, C, R, W, 0, 8>(&mut dot, from, xs, b);
            for r in 0..R {
                let scale = S::mul(scale, S::splat(xs.block(r, b).scale[r % W]));
                sums[r] = S::fma(scale, S::to_f32(dot[r]), sums[r]);
            }
        }
    }
}

/// [`Scales::Halves`].
#[derive(Clone, Copy)]
pub(super) struct Halves;

impl Scaling for Halves {
    /// `d`.
    type Head<S: Simd> = S::F32;
    /// `d scale` of the halves.
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
    unsafe fn factors<S: Simd>(from: *const u8, d: S::F32, block: usize) -> Pair<S> {
        // SAFETY: the caller's promise.
        unsafe {
            let small = from.add(32 + block * 32);
            (S::mul(d, S::to_f32(S::load_i8(small))), S::mul(d, S::to_f32(S::load_i8(small.add(16)))))
        }
    }

    #[inline(always)]
    unsafe fn add<S: Simd, C: Codes, const R: usize, const W: usize>(
        sums: &mut [S::F32; R],
        scales: Pair<S>,
        from: *const u8,
        xs: Xs<'_, W>,
        b: usize,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let (mut dot, mut low) = ([S::splat_i32(0); R], [S::splat(0.0); R]);
            for (r, dot) in dot.iter_mut().enumerate() {
                *dot = S::splat_i32(xs.block(r, b).minus_32[0][r % W]);
            }
            dots::<S, C, R, W, 0, 4>(&mut dot, from, xs, b);
            for r in 0..R {
                low[r] = S::mul(S::to_f32(dot[r]), scales.0);
                dot[r] = S::splat_i32(xs.block(r, b).minus_32[1][r % W]);
            }
            dots::<S, C, R, W, 4, 8>(&mut dot, from, xs, b);
            for r in 0..R {
                let dot = S::fma(S::to_f32(dot[r]), scales.1, low[r]);
                sums[r] = S::fma(S::splat(xs.block(r, b).scale[r % W]), dot, sums[r]);
            }
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
    unsafe fn add<S: Simd, C: Codes, const R: usize, const W: usize>(
        sums: &mut [S::F32; R],
        pair: Pair<S>,
        from: *const u8,
        xs: Xs<'_, W>,
        b: usize,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut dot = [S::splat_i32(0); R];
            dots::<S, C, R, W, 0, 8>(&mut dot, from, xs, b);
            for r in 0..R {
                let x = xs.block(r, b);
                let scale = S::mul(pair.0, S::splat(x.scale[r % W]));
                sums[r] = S::fma(pair.1, S::splat(x.sum[r % W]), S::fma(scale, S::to_f32(dot[r]), sums[r]));
            }
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

impl Minima for Super {
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
    unsafe fn factors<S: Simd>(from: *const u8, head: Pair<S>, block: usize) -> Pair<S> {
        // SAFETY: the caller's promise.
        unsafe {
            let small = from.add(64 + block * 32);
            let small = (S::to_f32(S::load_u8(small)), S::to_f32(S::load_u8(small.add(16))));
            (S::mul(head.0, small.0), S::mul(head.1, small.1))
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
