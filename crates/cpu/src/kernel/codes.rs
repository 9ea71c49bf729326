//! Codes of a block: from their packed vectors to bytes, and their integer sums.

use crate::packed::Bits;
use crate::simd::Simd;

/// Widths of codes.
pub(super) trait Codes {
    const BITS: Bits;
    const WIDE: bool = false;
    /// The words of a block, a byte each code.
    unsafe fn load<S: Simd>(from: *const u8) -> [S::I32; 8];
}

pub(super) struct Four;
pub(super) struct Five;
pub(super) struct Six;
pub(super) struct Eight;

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

/// The integer sum of a block, or of half of one.
#[inline(always)]
pub(super) unsafe fn dot<S: Simd, C: Codes>(start: i32, codes: &[S::I32], x: &[[i8; 4]]) -> S::I32 {
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

/// `sum` and the products of bytes of at most 63.
#[inline(always)]
pub(super) unsafe fn times<S: Simd>(mut sum: S::I32, bytes: &[S::I32], x: &[[i8; 4]]) -> S::I32 {
    // SAFETY: the machine has the instructions, by the caller's promise.
    unsafe {
        for (bytes, x) in bytes.iter().zip(x) {
            sum = S::dot4::<false>(sum, *bytes, i32::from_le_bytes(bytemuck::cast(*x)));
        }
        sum
    }
}
