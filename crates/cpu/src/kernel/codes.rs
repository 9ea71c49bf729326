//! Codes of a block: from their packed vectors to bytes, and their integer sums.

use std::marker::PhantomData;

use super::Xs;
use crate::isa::Kernel;
use crate::packed::Bits;
use crate::simd::Simd;

/// Widths of codes.
pub(super) trait Codes {
    const BITS: Bits;
    const WIDE: bool = false;
    /// Vectors that several words share.
    type Tops<S: Simd>: Copy;
    /// # Safety
    /// `from` is valid for a block; the machine has the instructions of `S`.
    unsafe fn tops<S: Simd>(from: *const u8) -> Self::Tops<S>;
    /// Word `i` of the block, a byte each code.
    ///
    /// # Safety
    /// As [`tops`](Self::tops); `i` is below 8.
    unsafe fn word<S: Simd>(from: *const u8, tops: Self::Tops<S>, i: usize) -> S::I32;
}

pub(super) struct Four;
pub(super) struct Five;
pub(super) struct Six;
/// Codes in bytes of their own: of eight bits if `WIDE`, else narrower ones that [`Widen`] has written.
pub(super) struct Bytes<const WIDE: bool>;

impl Codes for Four {
    const BITS: Bits = Bits::Four;
    type Tops<S: Simd> = ();

    #[inline(always)]
    unsafe fn tops<S: Simd>(_: *const u8) {}

    #[inline(always)]
    unsafe fn word<S: Simd>(from: *const u8, (): (), i: usize) -> S::I32 {
        // SAFETY: the caller's promise.
        unsafe {
            let (v, mask) = (S::load_bytes(from.add(64 * (i % 4))), S::splat_i32(0x0f0f_0f0f));
            S::and(if i < 4 { v } else { S::shr::<4>(v) }, mask)
        }
    }
}

impl Codes for Five {
    const BITS: Bits = Bits::Five;
    type Tops<S: Simd> = S::I32;

    #[inline(always)]
    unsafe fn tops<S: Simd>(from: *const u8) -> S::I32 {
        // SAFETY: the caller's promise.
        unsafe { S::load_bytes(from.add(256)) }
    }

    #[inline(always)]
    unsafe fn word<S: Simd>(from: *const u8, tops: S::I32, i: usize) -> S::I32 {
        // SAFETY: the caller's promise.
        unsafe {
            let top = match i {
                0 => S::shl::<4>(tops),
                1 => S::shl::<3>(tops),
                2 => S::shl::<2>(tops),
                3 => S::shl::<1>(tops),
                4 => tops,
                5 => S::shr::<1>(tops),
                6 => S::shr::<2>(tops),
                _ => S::shr::<3>(tops),
            };
            S::or(Four::word::<S>(from, (), i), S::and(top, S::splat_i32(0x1010_1010)))
        }
    }
}

impl Codes for Six {
    const BITS: Bits = Bits::Six;
    type Tops<S: Simd> = [S::I32; 2];

    #[inline(always)]
    unsafe fn tops<S: Simd>(from: *const u8) -> [S::I32; 2] {
        // SAFETY: the caller's promise.
        unsafe { [S::load_bytes(from.add(256)), S::load_bytes(from.add(320))] }
    }

    #[inline(always)]
    unsafe fn word<S: Simd>(from: *const u8, tops: [S::I32; 2], i: usize) -> S::I32 {
        // SAFETY: the caller's promise.
        unsafe {
            let tops = tops[i / 4];
            let top = match i % 4 {
                0 => S::shl::<4>(tops),
                1 => S::shl::<2>(tops),
                2 => tops,
                _ => S::shr::<2>(tops),
            };
            S::or(Four::word::<S>(from, (), i), S::and(top, S::splat_i32(0x3030_3030)))
        }
    }
}

impl<const WIDE: bool> Codes for Bytes<WIDE> {
    const BITS: Bits = Bits::Eight;
    const WIDE: bool = WIDE;
    type Tops<S: Simd> = ();

    #[inline(always)]
    unsafe fn tops<S: Simd>(_: *const u8) {}

    #[inline(always)]
    unsafe fn word<S: Simd>(from: *const u8, (): (), i: usize) -> S::I32 {
        // SAFETY: the caller's promise.
        unsafe { S::load_bytes(from.add(64 * i)) }
    }
}

/// Writes blocks of codes as bytes.
pub(super) struct Widen<'a, C> {
    /// As many blocks as `out` has.
    pub(super) from: *const u8,
    pub(super) out: &'a mut [[u8; 512]],
    pub(super) codes: PhantomData<C>,
}

impl<C: Codes> Kernel for Widen<'_, C> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for (b, out) in self.out.iter_mut().enumerate() {
            // SAFETY: there are so many blocks, by the caller's promise.
            unsafe {
                let from = self.from.add(b * C::BITS.block_bytes());
                let tops = C::tops::<S>(from);
                for i in 0..8 {
                    S::store_bytes(out.as_mut_ptr().add(64 * i), C::word::<S>(from, tops, i));
                }
            }
        }
    }
}

/// Adds to `sums` the products of words `FROM .. TO` of a weight's block with block `b` of all rows.
///
/// # Safety
/// `from` is valid for a block, `b` is one of the rows' blocks, and the machine has the instructions of `S`.
#[inline(always)]
pub(super) unsafe fn dots<S: Simd, C: Codes, const R: usize, const W: usize, const FROM: usize, const TO: usize>(
    sums: &mut [S::I32; R],
    from: *const u8,
    xs: Xs<'_, W>,
    b: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let tops = C::tops::<S>(from);
        for i in FROM..TO {
            let codes = C::word::<S>(from, tops, i);
            for (r, sum) in sums.iter_mut().enumerate() {
                let x = i32::from_le_bytes(bytemuck::cast(xs.block(r, b).codes[i][r % W]));
                *sum = if C::WIDE { S::dot4::<true>(*sum, codes, x) } else { S::dot4::<false>(*sum, codes, x) };
            }
        }
    }
}
