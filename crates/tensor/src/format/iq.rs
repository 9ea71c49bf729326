//! GGUF blocks with codebooks: IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S (256 weights), IQ4_NL (32), IQ4_XS
//! (256).
//!
//! A code picks the magnitudes of eight (IQ3: four) weights at once from a codebook; their signs are stored apart, as
//! eight bits or as a 7-bit index (`even_signs`). Integers of more than one byte are little-endian, scales are F16.

use super::iq_grids::{IQ1, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS, IQ4_LEVELS, even_signs};
use super::{array, f16_at, halves_of_nibbles};

/// IQ2_XXS, 66 bytes: `d` f16, then for each 32 weights four bytes of codes and a u32 with four 7-bit sign indices
/// (lowest first) and a 4-bit scale on top. `w = ± d (0.5 + scale) / 4 magnitude`.
#[inline]
pub(super) fn iq2_xxs(block: &[u8; 66], out: &mut [f32; 256]) {
    let d = f16_at(block, 0);
    let packed = array::<64>(block, 2).as_chunks::<8>().0;
    for (out, packed) in out.as_chunks_mut::<32>().0.iter_mut().zip(packed) {
        let tail = u32::from_le_bytes(*array(packed, 4));
        let d = d * (0.5 + (tail >> 28) as f32) * 0.25;
        for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            signed(d, &IQ2_XXS[usize::from(packed[i])], even_signs(tail >> (7 * i)), out);
        }
    }
}

/// IQ2_XS, 74 bytes: `d` f16, 32 u16 (9 bits of code, 7 of sign index on top) for 8 weights each, 8 bytes of scales (a
/// nibble for 16 weights, low first). `w = ± d (0.5 + scale) / 4 magnitude`.
#[inline]
pub(super) fn iq2_xs(block: &[u8; 74], out: &mut [f32; 256]) {
    let d = f16_at(block, 0);
    let (codes, scales) = (array::<64>(block, 2).as_chunks::<2>().0, array::<8>(block, 66));
    for (i, (out, code)) in out.as_chunks_mut::<8>().0.iter_mut().zip(codes).enumerate() {
        let code = u16::from_le_bytes(*code);
        let d = d * (0.5 + nibble(scales, i / 2)) * 0.25;
        signed(d, &IQ2_XS[usize::from(code & 511)], even_signs(u32::from(code >> 9)), out);
    }
}

/// IQ2_S, 82 bytes: `d` f16, 32 bytes of code (low 8 bits, 8 weights each), 32 bytes of signs, 8 bytes of code bits 8
/// and 9 (four pairs a byte, lowest first), 8 bytes of scales as in IQ2_XS. `w = ± d (0.5 + scale) / 4 magnitude`.
#[inline]
pub(super) fn iq2_s(block: &[u8; 82], out: &mut [f32; 256]) {
    let d = f16_at(block, 0);
    let (low, signs) = (array::<32>(block, 2), array::<32>(block, 34));
    let (high, scales) = (array::<8>(block, 66), array::<8>(block, 74));
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let code = usize::from(low[i]) | usize::from((high[i / 4] >> (2 * (i % 4))) & 3) << 8;
        signed(d * (0.5 + nibble(scales, i / 2)) * 0.25, &IQ2_S[code], signs[i], out);
    }
}

/// IQ3_XXS, 98 bytes: `d` f16, 64 bytes of code for 4 weights each, eight u32 for 32 weights each with signs and scale
/// as in IQ2_XXS. `w = ± d (0.5 + scale) / 2 magnitude`.
#[inline]
pub(super) fn iq3_xxs(block: &[u8; 98], out: &mut [f32; 256]) {
    let d = f16_at(block, 0);
    let (codes, tails) = (array::<64>(block, 2).as_chunks::<8>().0, array::<32>(block, 66).as_chunks::<4>().0);
    for ((out, codes), tail) in out.as_chunks_mut::<32>().0.iter_mut().zip(codes).zip(tails) {
        let tail = u32::from_le_bytes(*tail);
        let d = d * (0.5 + (tail >> 28) as f32) * 0.5;
        for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let pair = [IQ3_XXS[usize::from(codes[2 * i])], IQ3_XXS[usize::from(codes[2 * i + 1])]];
            signed(d, join(&pair), even_signs(tail >> (7 * i)), out);
        }
    }
}

/// IQ3_S, 110 bytes: `d` f16, 64 bytes of code (low 8 bits, 4 weights each), 8 bytes of ninth bits, 32 bytes of signs,
/// 4 bytes of scales (a nibble for 32 weights, low first). `w = ± d (1 + 2 scale) magnitude`.
#[inline]
pub(super) fn iq3_s(block: &[u8; 110], out: &mut [f32; 256]) {
    let d = f16_at(block, 0);
    let (low, high) = (array::<64>(block, 2).as_chunks::<2>().0, array::<8>(block, 66));
    let (signs, scales) = (array::<32>(block, 74), array::<4>(block, 106));
    for (i, (out, low)) in out.as_chunks_mut::<8>().0.iter_mut().zip(low).enumerate() {
        let ninth = usize::from(high[i / 4] >> (2 * (i % 4)));
        let pair = [IQ3_S[usize::from(low[0]) | (ninth & 1) << 8], IQ3_S[usize::from(low[1]) | (ninth & 2) << 7]];
        signed(d * (1.0 + 2.0 * nibble(scales, i / 4)), join(&pair), signs[i], out);
    }
}

/// IQ1_S, 50 bytes: `d` f16, 32 bytes of code (low 8 bits, 8 weights each), eight u16 for 32 weights each: four times
/// three high bits of code (lowest first), 3 bits of scale, the sign of the shift on top.
/// `w = d (2 scale + 1) (codebook ± 1/8)`, minus if the top bit is set.
#[inline]
pub(super) fn iq1_s(block: &[u8; 50], out: &mut [f32; 256]) {
    let d = f16_at(block, 0);
    let (low, high) = (array::<32>(block, 2).as_chunks::<4>().0, array::<16>(block, 34).as_chunks::<2>().0);
    for ((out, low), high) in out.as_chunks_mut::<32>().0.iter_mut().zip(low).zip(high) {
        let high = u16::from_le_bytes(*high);
        let d = d * f32::from(2 * ((high >> 12) & 7) + 1);
        for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let code = usize::from(low[i]) | usize::from((high >> (3 * i)) & 7) << 8;
            shifted(d, code, high & 0x8000 != 0, out);
        }
    }
}

/// IQ1_M, 56 bytes: 32 bytes of code (low 8 bits, 8 weights each), 16 bytes with a nibble for each code (three high
/// bits, the sign of the shift on top, low nibble first), four u16 with four 3-bit scales each (16 weights each,
/// lowest first). The top nibbles of the four u16 are the F16 factor `d`, lowest first. `w` as in IQ1_S.
#[inline]
pub(super) fn iq1_m(block: &[u8; 56], out: &mut [f32; 256]) {
    let (low, high) = (array::<32>(block, 0), array::<16>(block, 32));
    let mut scales = [0u16; 4];
    let mut d = 0;
    for (i, (scale, bytes)) in scales.iter_mut().zip(array::<8>(block, 48).as_chunks().0).enumerate() {
        *scale = u16::from_le_bytes(*bytes);
        d |= (*scale >> 12) << (4 * i);
    }
    let d = half::f16::from_bits(d).to_f32();
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let high = high[i / 2] >> (4 * (i % 2));
        let code = usize::from(low[i]) | usize::from(high & 7) << 8;
        let scale = (scales[i / 8] >> (3 * (i / 2 % 4))) & 7;
        shifted(d * f32::from(2 * scale + 1), code, high & 8 != 0, out);
    }
}

/// IQ4_NL, 18 bytes: `d` f16, 16 bytes of nibbles (low ones are weights 0 to 15). `w = d level(q)`.
#[inline]
pub(super) fn iq4_nl(block: &[u8; 18], out: &mut [f32; 32]) {
    levels(f16_at(block, 0), array(block, 2), out);
}

/// IQ4_XS, 136 bytes: `d` f16, u16 of scale bits 4 and 5 (eight pairs, lowest first), 4 bytes of low scale nibbles (low
/// first), then 16 bytes of nibbles for each 32 weights as in IQ4_NL. `w = d (scale - 32) level(q)`.
#[inline]
pub(super) fn iq4_xs(block: &[u8; 136], out: &mut [f32; 256]) {
    let d = f16_at(block, 0);
    let (high, low) = (u16::from_le_bytes(*array(block, 2)), array::<4>(block, 4));
    let codes = array::<128>(block, 8).as_chunks().0;
    for (i, (out, codes)) in out.as_chunks_mut().0.iter_mut().zip(codes).enumerate() {
        let scale = i32::from((low[i / 2] >> (4 * (i % 2))) & 15) | i32::from((high >> (2 * i)) & 3) << 4;
        levels(d * (scale - 32) as f32, codes, out);
    }
}

#[inline]
fn levels(d: f32, codes: &[u8; 16], out: &mut [f32; 32]) {
    for (out, q) in out.iter_mut().zip(halves_of_nibbles(codes)) {
        *out = d * IQ4_LEVELS[usize::from(q & 15)];
    }
}

/// `± d magnitude`, minus where the bit of the weight is set.
#[inline]
fn signed(d: f32, magnitudes: &[u8; 8], signs: u8, out: &mut [f32; 8]) {
    for (i, (out, magnitude)) in out.iter_mut().zip(magnitudes).enumerate() {
        let sign = u32::from(signs) << (31 - i) & 0x8000_0000;
        *out = f32::from_bits((d * f32::from(*magnitude)).to_bits() ^ sign);
    }
}

/// `d (codebook ± 1/8)`.
#[inline]
fn shifted(d: f32, code: usize, down: bool, out: &mut [f32; 8]) {
    let shift = if down { -0.125 } else { 0.125 };
    for (out, w) in out.iter_mut().zip(&IQ1[code & 2047]) {
        *out = d * (f32::from(*w) + shift);
    }
}

/// Two codebook entries of four as one of eight.
#[inline]
fn join(pair: &[[u8; 4]; 2]) -> &[u8; 8] {
    array(pair.as_flattened(), 0)
}

/// Nibble `index` of `bytes`, low one first.
#[inline]
fn nibble(bytes: &[u8], index: usize) -> f32 {
    f32::from((bytes[index / 2] >> (4 * (index % 2))) & 15)
}
