//! GGUF super-blocks of 256 weights with quantised scales: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K.
//!
//! A super-block has one or two F16 factors and a small integer scale (and minimum) for each group of 16 or 32 weights.
//! Codes wider than the field that stores them are split into a low and a high part.

use super::{array, f16_at};

/// Q2_K, 84 bytes: 16 scale bytes (low nibble scale, high nibble minimum, one for each group of 16), 64 bytes of codes,
/// `d` f16, `dmin` f16. `w = d scale q - dmin min`.
///
/// Codes come in two halves of 32 bytes for 128 weights; bits `2s, 2s+1` of byte `b` are weight `32 s + b` of the half.
#[inline]
pub(super) fn q2_k(block: &[u8; 84], out: &mut [f32; 256]) {
    let (d, dmin) = (f16_at(block, 80), f16_at(block, 82));
    let (codes, scales) = (two_bits(array(block, 16)), array::<16>(block, 0));
    for ((out, codes), scale) in groups::<16>(out, &codes).zip(scales) {
        let (d, m) = (d * f32::from(scale & 15), dmin * f32::from(scale >> 4));
        for (out, q) in out.iter_mut().zip(codes) {
            *out = d * f32::from(*q) - m;
        }
    }
}

/// Q3_K, 110 bytes: 32 bytes of third bits (bit `g` of byte `b` is weight `32 g + b`), 64 bytes of low bits as in
/// Q2_K, 12 bytes of scales, `d` f16. `w = d (scale - 32) q`, where `q` is the low bits, less 4 if the third bit is
/// **clear**.
///
/// Scale `i` of 16: its low four bits are nibble `i / 8` of byte `i % 8`, its high two bits are bits `2 (i / 4)` and
/// the next of byte `8 + i % 4`.
#[inline]
pub(super) fn q3_k(block: &[u8; 110], out: &mut [f32; 256]) {
    let d = f16_at(block, 108);
    let (third, scales) = (array::<32>(block, 0), array::<12>(block, 96));
    let mut codes = two_bits(array(block, 32));
    for (g, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (code, bits) in codes.iter_mut().zip(third) {
            *code |= ((bits >> g) & 1) << 2;
        }
    }
    for (i, (out, codes)) in groups::<16>(out, &codes).enumerate() {
        let scale = ((scales[i % 8] >> (4 * (i / 8))) & 15) | (((scales[8 + i % 4] >> (2 * (i / 4))) & 3) << 4);
        let d = d * (i32::from(scale) - 32) as f32;
        for (out, q) in out.iter_mut().zip(codes) {
            *out = d * (i32::from(*q) - 4) as f32;
        }
    }
}

/// Q4_K, 144 bytes: `d` f16, `dmin` f16, 12 bytes of scales and minima (see [`scale_min`]), 128 bytes of nibbles.
/// `w = d scale q - dmin min`, one scale and minimum for each group of 32.
///
/// Nibbles come in quarters of 32 bytes: the low ones are one group of 32 weights, the high ones the next.
#[inline]
pub(super) fn q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    affine_groups(f16_at(block, 0), f16_at(block, 2), array(block, 4), &nibbles_by_32(array(block, 16)), out);
}

/// Q5_K, 176 bytes: `d`, `dmin` and scales as in Q4_K, 32 bytes of fifth bits (bit `g` of byte `b` is weight
/// `32 g + b`), 128 bytes of nibbles as in Q4_K.
#[inline]
pub(super) fn q5_k(block: &[u8; 176], out: &mut [f32; 256]) {
    let fifth = array::<32>(block, 16);
    let mut codes = nibbles_by_32(array(block, 48));
    for (g, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (code, bits) in codes.iter_mut().zip(fifth) {
            *code |= ((bits >> g) & 1) << 4;
        }
    }
    affine_groups(f16_at(block, 0), f16_at(block, 2), array(block, 4), &codes, out);
}

/// Q6_K, 210 bytes: 128 bytes of low nibbles, 64 bytes of high bits as in Q2_K, 16 i8 scales, `d` f16.
/// `w = d scale (q - 32)`, one scale for each group of 16.
///
/// Low nibbles come in two halves of 64 bytes for 128 weights, low nibbles first.
#[inline]
pub(super) fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let (d, scales) = (f16_at(block, 208), array::<16>(block, 192));
    let mut codes = two_bits(array(block, 128));
    let low = array::<128>(block, 0).as_chunks::<64>().0;
    for (codes, low) in codes.as_chunks_mut::<128>().0.iter_mut().zip(low) {
        for (i, low) in low.iter().enumerate() {
            codes[i] = codes[i] << 4 | low & 15;
            codes[i + 64] = codes[i + 64] << 4 | low >> 4;
        }
    }
    for ((out, codes), scale) in groups::<16>(out, &codes).zip(scales) {
        let d = d * f32::from(*scale as i8);
        for (out, q) in out.iter_mut().zip(codes) {
            *out = d * (i32::from(*q) - 32) as f32;
        }
    }
}

/// `w = d scale q - dmin min` over eight groups of 32.
#[inline]
fn affine_groups(d: f32, dmin: f32, packed: &[u8; 12], codes: &[u8; 256], out: &mut [f32; 256]) {
    for (i, (out, codes)) in groups::<32>(out, codes).enumerate() {
        let (scale, min) = scale_min(packed, i);
        let (d, m) = (d * f32::from(scale), dmin * f32::from(min));
        for (out, q) in out.iter_mut().zip(codes) {
            *out = d * f32::from(*q) - m;
        }
    }
}

/// Six-bit scale and minimum of group `i` of eight.
///
/// Groups 0 to 3 have them in the low six bits of bytes `i` and `4 + i`. Groups 4 to 7 have their low nibbles in byte
/// `4 + i` (scale low, minimum high) and their top two bits in the top bits of bytes `i - 4` and `i`.
#[inline]
pub fn scale_min(packed: &[u8; 12], i: usize) -> (u8, u8) {
    if i < 4 {
        (packed[i] & 63, packed[i + 4] & 63)
    } else {
        (packed[i + 4] & 15 | (packed[i - 4] >> 6) << 4, packed[i + 4] >> 4 | (packed[i] >> 6) << 4)
    }
}

/// Two-bit fields: each 32 bytes hold 128 values, the lowest fields of all bytes first.
#[inline]
fn two_bits(packed: &[u8; 64]) -> [u8; 256] {
    let mut codes = [0; 256];
    for (codes, packed) in codes.as_chunks_mut::<128>().0.iter_mut().zip(packed.as_chunks::<32>().0) {
        for (s, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (code, byte) in codes.iter_mut().zip(packed) {
                *code = (byte >> (2 * s)) & 3;
            }
        }
    }
    codes
}

/// Nibbles: each 32 bytes hold 64 values, low nibbles first.
#[inline]
fn nibbles_by_32(packed: &[u8; 128]) -> [u8; 256] {
    let mut codes = [0; 256];
    for (codes, packed) in codes.as_chunks_mut::<64>().0.iter_mut().zip(packed.as_chunks::<32>().0) {
        for (i, byte) in packed.iter().enumerate() {
            codes[i] = byte & 15;
            codes[i + 32] = byte >> 4;
        }
    }
    codes
}

/// Output and codes in groups of `N`.
#[inline]
fn groups<'a, const N: usize>(
    out: &'a mut [f32; 256],
    codes: &'a [u8; 256],
) -> impl Iterator<Item = (&'a mut [f32; N], &'a [u8; N])> {
    out.as_chunks_mut().0.iter_mut().zip(codes.as_chunks().0)
}
