//! Arrays: the definition of every operation, and what machines without wider vectors run.

use half::{bf16, f16};

use super::{LANES, Simd};

/// Whatever the build targets.
pub(crate) struct Portable;

impl Simd for Portable {
    type I32 = [i32; LANES];
    type F32 = [f32; LANES];

    #[inline(always)]
    unsafe fn splat_i32(value: i32) -> Self::I32 {
        [value; LANES]
    }

    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> Self::I32 {
        // SAFETY: 64 bytes are readable by the caller's promise; any alignment will do.
        unsafe { from.cast::<[[u8; 4]; LANES]>().read_unaligned() }.map(i32::from_le_bytes)
    }

    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> Self::I32 {
        // SAFETY: 16 bytes are readable by the caller's promise.
        unsafe { from.cast::<[u8; LANES]>().read_unaligned() }.map(i32::from)
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> Self::I32 {
        // SAFETY: 16 bytes are readable by the caller's promise.
        unsafe { from.cast::<[i8; LANES]>().read_unaligned() }.map(i32::from)
    }

    #[inline(always)]
    unsafe fn and(a: Self::I32, b: Self::I32) -> Self::I32 {
        std::array::from_fn(|l| a[l] & b[l])
    }

    #[inline(always)]
    unsafe fn or(a: Self::I32, b: Self::I32) -> Self::I32 {
        std::array::from_fn(|l| a[l] | b[l])
    }

    #[inline(always)]
    unsafe fn shl<const BITS: u32>(a: Self::I32) -> Self::I32 {
        a.map(|v| v << BITS)
    }

    #[inline(always)]
    unsafe fn shr<const BITS: u32>(a: Self::I32) -> Self::I32 {
        a.map(|v| (v as u32 >> BITS) as i32)
    }

    #[inline(always)]
    unsafe fn dot4<const WIDE: bool>(sum: Self::I32, codes: Self::I32, x: i32) -> Self::I32 {
        let x = x.to_le_bytes().map(|x| i32::from(x as i8));
        std::array::from_fn(|l| {
            let code = codes[l] as u32;
            let product = |i: usize| (code >> (8 * i) & 0xff) as i32 * x[i];
            sum[l] + product(0) + product(1) + product(2) + product(3)
        })
    }

    #[inline(always)]
    unsafe fn to_f32(a: Self::I32) -> Self::F32 {
        a.map(|v| v as f32)
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::F32 {
        [value; LANES]
    }

    #[inline(always)]
    unsafe fn load_f32(from: *const f32) -> Self::F32 {
        // SAFETY: 64 bytes are readable by the caller's promise.
        unsafe { from.cast::<[f32; LANES]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::F32 {
        // SAFETY: 32 bytes are readable by the caller's promise.
        unsafe { from.cast::<[u16; LANES]>().read_unaligned() }.map(|bits| f16::from_bits(bits).to_f32())
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self::F32 {
        // SAFETY: 32 bytes are readable by the caller's promise.
        unsafe { from.cast::<[u16; LANES]>().read_unaligned() }.map(|bits| bf16::from_bits(bits).to_f32())
    }

    #[inline(always)]
    unsafe fn store_f32(to: *mut f32, a: Self::F32) {
        // SAFETY: 64 bytes are writable by the caller's promise.
        unsafe { to.cast::<[f32; LANES]>().write_unaligned(a) }
    }

    #[inline(always)]
    unsafe fn add(a: Self::F32, b: Self::F32) -> Self::F32 {
        std::array::from_fn(|l| a[l] + b[l])
    }

    #[inline(always)]
    unsafe fn mul(a: Self::F32, b: Self::F32) -> Self::F32 {
        std::array::from_fn(|l| a[l] * b[l])
    }
}
