//! Sixteen lanes of 32 bits: what the product kernels are written in, once for all instruction sets.
//!
//! Every operation is exact or rounded once as IEEE 754 says, so all sets give the same bits.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
pub(crate) use portable::Portable;

/// Lanes of a vector.
pub(crate) const LANES: usize = 16;

/// Brings a cache line near, but not nearest. Any address will do.
#[inline(always)]
pub(crate) fn prefetch_l2(at: *const u8) {
    // SAFETY: every x86-64 has the instruction, and it may go anywhere.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Operations on 16 lanes.
///
/// # Safety
/// Of all methods: the machine has the instruction set, and pointers are valid for what is read or written: 64 bytes by
/// `load_bytes`, `store_bytes`, `load_f32` and `store_f32`, 32 by `load_f16` and `load_bf16`, 16 by `load_u8`, `load_i8` and `store_i8`.
pub(crate) trait Simd {
    /// 16 lanes of i32, or 64 bytes.
    type I32: Copy;
    /// 16 lanes of f32.
    type F32: Copy;

    /// Brings a cache line near. Any address will do.
    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}
    unsafe fn splat_i32(value: i32) -> Self::I32;
    unsafe fn load_bytes(from: *const u8) -> Self::I32;
    unsafe fn load_u8(from: *const u8) -> Self::I32;
    unsafe fn load_i8(from: *const u8) -> Self::I32;
    unsafe fn and(a: Self::I32, b: Self::I32) -> Self::I32;
    unsafe fn or(a: Self::I32, b: Self::I32) -> Self::I32;
    unsafe fn shl<const BITS: u32>(a: Self::I32) -> Self::I32;
    unsafe fn shr<const BITS: u32>(a: Self::I32) -> Self::I32;
    /// `sum + Σ codes · x` over the four bytes of each lane: codes unsigned (at most 63 unless `WIDE`), x signed.
    unsafe fn dot4<const WIDE: bool>(sum: Self::I32, codes: Self::I32, x: i32) -> Self::I32;
    unsafe fn to_f32(a: Self::I32) -> Self::F32;

    unsafe fn splat(value: f32) -> Self::F32;
    unsafe fn load_f32(from: *const f32) -> Self::F32;
    unsafe fn load_f16(from: *const u16) -> Self::F32;
    unsafe fn load_bf16(from: *const u16) -> Self::F32;
    unsafe fn store_f32(to: *mut f32, a: Self::F32);
    unsafe fn store_bytes(to: *mut u8, a: Self::I32);
    unsafe fn mul(a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a · b + c` of one lane, rounded once, for loops that become vectors.
    fn fma_lane(a: f32, b: f32, c: f32) -> f32;
    /// `a · b + c`, rounded once.
    unsafe fn fma(a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    /// The largest bits of all magnitudes, which order as the numbers do, with infinity and then NaN above all.
    unsafe fn largest_magnitude(a: Self::F32, b: Self::F32) -> u32;
    /// To the nearest integers, ties to even; below 2^22.
    unsafe fn round(a: Self::F32) -> Self::F32;
    /// The sum of integers, which stays below 2^24.
    unsafe fn sum_integers(a: Self::F32) -> f32;
    /// Stores integers of eight bits.
    unsafe fn store_i8(to: *mut i8, a: Self::F32);
}
