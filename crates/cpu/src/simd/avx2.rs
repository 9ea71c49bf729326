//! Two 256-bit registers a vector.

use std::arch::x86_64::*;

use super::Simd;

/// AVX2, FMA and F16C.
pub(crate) struct Avx2;

// SAFETY of all blocks: the caller promises that the machine has the instructions and that pointers are valid.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Simd for Avx2 {
    type I32 = [__m256i; 2];
    type F32 = [__m256; 2];

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    unsafe fn splat_i32(value: i32) -> Self::I32 {
        unsafe { [_mm256_set1_epi32(value); 2] }
    }

    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> Self::I32 {
        unsafe { [_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast())] }
    }

    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> Self::I32 {
        unsafe {
            let load = |at| _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.add(at).cast()));
            [load(0), load(8)]
        }
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> Self::I32 {
        unsafe {
            let load = |at| _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.add(at).cast()));
            [load(0), load(8)]
        }
    }

    #[inline(always)]
    unsafe fn and(a: Self::I32, b: Self::I32) -> Self::I32 {
        unsafe { [_mm256_and_si256(a[0], b[0]), _mm256_and_si256(a[1], b[1])] }
    }

    #[inline(always)]
    unsafe fn or(a: Self::I32, b: Self::I32) -> Self::I32 {
        unsafe { [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])] }
    }

    #[inline(always)]
    unsafe fn shl<const BITS: u32>(a: Self::I32) -> Self::I32 {
        let count = BITS as i32;
        unsafe { [_mm256_sll_epi32(a[0], _mm_cvtsi32_si128(count)), _mm256_sll_epi32(a[1], _mm_cvtsi32_si128(count))] }
    }

    #[inline(always)]
    unsafe fn shr<const BITS: u32>(a: Self::I32) -> Self::I32 {
        let count = BITS as i32;
        unsafe { [_mm256_srl_epi32(a[0], _mm_cvtsi32_si128(count)), _mm256_srl_epi32(a[1], _mm_cvtsi32_si128(count))] }
    }

    #[inline(always)]
    unsafe fn dot4<const WIDE: bool>(sum: Self::I32, codes: Self::I32, x: i32) -> Self::I32 {
        unsafe {
            let x = _mm256_set1_epi32(x);
            // Pairs of products are summed in 16 bits, which holds codes up to 63. Wider ones are summed by nibbles.
            let dot = |codes, unit| _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(unit));
            let nibble = _mm256_set1_epi8(15);
            let add = |sum, codes| {
                if WIDE {
                    let high = _mm256_and_si256(_mm256_srli_epi16::<4>(codes), nibble);
                    let low = dot(_mm256_and_si256(codes, nibble), 1);
                    _mm256_add_epi32(sum, _mm256_add_epi32(low, dot(high, 16)))
                } else {
                    _mm256_add_epi32(sum, dot(codes, 1))
                }
            };
            [add(sum[0], codes[0]), add(sum[1], codes[1])]
        }
    }

    #[inline(always)]
    unsafe fn to_f32(a: Self::I32) -> Self::F32 {
        unsafe { [_mm256_cvtepi32_ps(a[0]), _mm256_cvtepi32_ps(a[1])] }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::F32 {
        unsafe { [_mm256_set1_ps(value); 2] }
    }

    #[inline(always)]
    unsafe fn load_f32(from: *const f32) -> Self::F32 {
        unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))] }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::F32 {
        unsafe {
            let load = |at| _mm256_cvtph_ps(_mm_loadu_si128(from.add(at).cast()));
            [load(0), load(8)]
        }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self::F32 {
        unsafe {
            let load = |at| {
                let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.add(at).cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
            };
            [load(0), load(8)]
        }
    }

    #[inline(always)]
    unsafe fn store_bytes(to: *mut u8, a: Self::I32) {
        unsafe {
            _mm256_storeu_si256(to.cast(), a[0]);
            _mm256_storeu_si256(to.add(32).cast(), a[1]);
        }
    }

    #[inline(always)]
    unsafe fn store_f32(to: *mut f32, a: Self::F32) {
        unsafe {
            _mm256_storeu_ps(to, a[0]);
            _mm256_storeu_ps(to.add(8), a[1]);
        }
    }

    #[inline(always)]
    unsafe fn mul(a: Self::F32, b: Self::F32) -> Self::F32 {
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn fma_lane(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    #[inline(always)]
    unsafe fn fma(a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }

    #[inline(always)]
    unsafe fn largest_magnitude(a: Self::F32, b: Self::F32) -> u32 {
        unsafe {
            let magnitude = |a| _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7fff_ffff));
            let max = _mm256_max_epu32(
                _mm256_max_epu32(magnitude(a[0]), magnitude(a[1])),
                _mm256_max_epu32(magnitude(b[0]), magnitude(b[1])),
            );
            let max = _mm_max_epu32(_mm256_castsi256_si128(max), _mm256_extracti128_si256::<1>(max));
            let max = _mm_max_epu32(max, _mm_shuffle_epi32::<0b01_00_11_10>(max));
            _mm_cvtsi128_si32(_mm_max_epu32(max, _mm_shuffle_epi32::<0b10_11_00_01>(max))) as u32
        }
    }

    #[inline(always)]
    unsafe fn round(a: Self::F32) -> Self::F32 {
        unsafe {
            [_mm256_round_ps::<_MM_FROUND_TO_NEAREST_INT>(a[0]), _mm256_round_ps::<_MM_FROUND_TO_NEAREST_INT>(a[1])]
        }
    }

    #[inline(always)]
    unsafe fn sum_integers(a: Self::F32) -> f32 {
        unsafe {
            let sum = _mm256_add_ps(a[0], a[1]);
            let sum = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps::<1>(sum));
            let sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
            _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)))
        }
    }

    #[inline(always)]
    unsafe fn store_i8(to: *mut i8, a: Self::F32) {
        unsafe {
            let (a, b) = (_mm256_cvtps_epi32(a[0]), _mm256_cvtps_epi32(a[1]));
            let halves = |a| _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
            _mm_storeu_si128(to.cast(), _mm_packs_epi16(halves(a), halves(b)));
        }
    }
}
