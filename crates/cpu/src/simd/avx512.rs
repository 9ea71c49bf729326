//! One 512-bit register a vector.

use std::arch::x86_64::*;

use super::Simd;

/// AVX-512 F, BW, VL, VNNI.
pub(crate) struct Avx512;

// SAFETY of all blocks: the caller promises that the machine has the instructions and that pointers are valid.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Simd for Avx512 {
    type I32 = __m512i;
    type F32 = __m512;

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    unsafe fn splat_i32(value: i32) -> Self::I32 {
        unsafe { _mm512_set1_epi32(value) }
    }

    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> Self::I32 {
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> Self::I32 {
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> Self::I32 {
        unsafe { _mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast())) }
    }

    #[inline(always)]
    unsafe fn and(a: Self::I32, b: Self::I32) -> Self::I32 {
        unsafe { _mm512_and_si512(a, b) }
    }

    #[inline(always)]
    unsafe fn or(a: Self::I32, b: Self::I32) -> Self::I32 {
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    unsafe fn shl<const BITS: u32>(a: Self::I32) -> Self::I32 {
        unsafe { _mm512_slli_epi32::<BITS>(a) }
    }

    #[inline(always)]
    unsafe fn shr<const BITS: u32>(a: Self::I32) -> Self::I32 {
        unsafe { _mm512_srli_epi32::<BITS>(a) }
    }

    #[inline(always)]
    unsafe fn dot4<const WIDE: bool>(sum: Self::I32, codes: Self::I32, x: i32) -> Self::I32 {
        unsafe { _mm512_dpbusd_epi32(sum, codes, _mm512_set1_epi32(x)) }
    }

    #[inline(always)]
    unsafe fn to_f32(a: Self::I32) -> Self::F32 {
        unsafe { _mm512_cvtepi32_ps(a) }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::F32 {
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load_f32(from: *const f32) -> Self::F32 {
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::F32 {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self::F32 {
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }

    #[inline(always)]
    unsafe fn store_bytes(to: *mut u8, a: Self::I32) {
        unsafe { _mm512_storeu_si512(to.cast(), a) }
    }

    #[inline(always)]
    unsafe fn store_f32(to: *mut f32, a: Self::F32) {
        unsafe { _mm512_storeu_ps(to, a) }
    }

    #[inline(always)]
    unsafe fn mul(a: Self::F32, b: Self::F32) -> Self::F32 {
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn fma_lane(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    #[inline(always)]
    unsafe fn fma(a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn largest_magnitude(a: Self::F32, b: Self::F32) -> u32 {
        unsafe {
            let magnitude = |a| _mm512_castps_si512(_mm512_abs_ps(a));
            _mm512_reduce_max_epu32(_mm512_max_epu32(magnitude(a), magnitude(b)))
        }
    }

    #[inline(always)]
    unsafe fn round(a: Self::F32) -> Self::F32 {
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT }>(a) }
    }

    #[inline(always)]
    unsafe fn sum_integers(a: Self::F32) -> f32 {
        unsafe { _mm512_reduce_add_ps(a) }
    }

    #[inline(always)]
    unsafe fn store_i8(to: *mut i8, a: Self::F32) {
        unsafe { _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a))) }
    }
}
