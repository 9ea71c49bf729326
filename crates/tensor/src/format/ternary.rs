//! GGUF blocks of one-bit, ternary and two-bit weights: Q1_0, Q2_0, TQ1_0, TQ2_0.

use super::{array, f16_at};

/// Q1_0, 18 bytes for 128 weights: `d` f16, 16 bytes of signs, lowest bit first. `w = d` where the bit is set, else
/// `-d`.
#[inline]
pub(super) fn q1_0(block: &[u8; 18], out: &mut [f32; 128]) {
    let d = f16_at(block, 0);
    for (out, bits) in out.as_chunks_mut::<8>().0.iter_mut().zip(array::<16>(block, 2)) {
        for (i, out) in out.iter_mut().enumerate() {
            *out = if bits & (1 << i) == 0 { -d } else { d };
        }
    }
}

/// Q2_0, `BYTES` = 18 for `LEN` = 64 weights or 34 for 128: `d` f16, then four codes a byte, lowest bits first.
/// `w = d (q - 1)`.
#[inline]
pub(super) fn q2_0<const BYTES: usize, const LEN: usize>(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 0);
    for (out, byte) in out.as_chunks_mut::<4>().0.iter_mut().zip(&block[2..]) {
        for (i, out) in out.iter_mut().enumerate() {
            *out = d * (i32::from((byte >> (2 * i)) & 3) - 1) as f32;
        }
    }
}

/// TQ1_0, 54 bytes for 256 weights: 48 bytes with five base-3 digits each, 4 bytes with four, `d` f16. `w = d (q - 1)`.
///
/// A byte is a fraction of 256: times 3 gives its first digit as the carry, the remaining byte the next. The first 32
/// bytes hold weights 0 to 159 (all first digits first), the next 16 weights 160 to 239, the last 4 weights 240 to
/// 255.
#[inline]
pub(super) fn tq1_0(block: &[u8; 54], out: &mut [f32; 256]) {
    let d = f16_at(block, 52);
    let (first, rest) = out.split_at_mut(160);
    let (second, third) = rest.split_at_mut(80);
    digits(d, array::<32>(block, 0), first);
    digits(d, array::<16>(block, 32), second);
    digits(d, array::<4>(block, 48), third);
}

#[inline]
fn digits<const N: usize>(d: f32, packed: &[u8; N], out: &mut [f32]) {
    let mut rest = *packed;
    for out in out.as_chunks_mut::<N>().0 {
        for (out, byte) in out.iter_mut().zip(&mut rest) {
            let product = u16::from(*byte) * 3;
            *out = d * (i32::from(product >> 8) - 1) as f32;
            *byte = product as u8;
        }
    }
}

/// TQ2_0, 66 bytes for 256 weights: 64 bytes of codes, `d` f16. `w = d (q - 1)`.
///
/// Codes come in two halves of 32 bytes for 128 weights; bits `2s, 2s+1` of byte `b` are weight `32 s + b` of the half.
#[inline]
pub(super) fn tq2_0(block: &[u8; 66], out: &mut [f32; 256]) {
    let d = f16_at(block, 64);
    let packed = array::<64>(block, 0).as_chunks::<32>().0;
    for (out, packed) in out.as_chunks_mut::<128>().0.iter_mut().zip(packed) {
        for (s, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (out, byte) in out.iter_mut().zip(packed) {
                *out = d * (i32::from((byte >> (2 * s)) & 3) - 1) as f32;
            }
        }
    }
}
