//! GGUF blocks of 32 weights with one scale: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.
//!
//! Scales are little-endian F16. The four-bit formats put weights 0 to 15 in the low nibbles and weights 16 to 31 in
//! the high nibbles of 16 bytes.

use super::{array, f16_at, halves_of_nibbles};

/// Q4_0, 18 bytes: `d` f16, 16 bytes of nibbles. `w = d (q - 8)`.
#[inline]
pub(super) fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let d = f16_at(block, 0);
    for (out, q) in out.iter_mut().zip(halves_of_nibbles(array(block, 2))) {
        *out = d * (i32::from(q) - 8) as f32;
    }
}

/// Q4_1, 20 bytes: `d` f16, `m` f16, 16 bytes of nibbles. `w = d q + m`.
#[inline]
pub(super) fn q4_1(block: &[u8; 20], out: &mut [f32; 32]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    for (out, q) in out.iter_mut().zip(halves_of_nibbles(array(block, 4))) {
        *out = d * f32::from(q) + m;
    }
}

/// Q5_0, 22 bytes: `d` f16, u32 whose bit `i` is the fifth bit of weight `i`, 16 bytes of nibbles. `w = d (q - 16)`.
#[inline]
pub(super) fn q5_0(block: &[u8; 22], out: &mut [f32; 32]) {
    let d = f16_at(block, 0);
    for (out, q) in out.iter_mut().zip(five_bits(array(block, 2), array(block, 6))) {
        *out = d * (i32::from(q) - 16) as f32;
    }
}

/// Q5_1, 24 bytes: `d` f16, `m` f16, u32 of fifth bits, 16 bytes of nibbles. `w = d q + m`.
#[inline]
pub(super) fn q5_1(block: &[u8; 24], out: &mut [f32; 32]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    for (out, q) in out.iter_mut().zip(five_bits(array(block, 4), array(block, 8))) {
        *out = d * f32::from(q) + m;
    }
}

/// Q8_0, 34 bytes: `d` f16, 32 i8. `w = d q`.
#[inline]
pub(super) fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let d = f16_at(block, 0);
    for (out, q) in out.iter_mut().zip(array::<32>(block, 2)) {
        *out = d * f32::from(*q as i8);
    }
}

/// Nibbles with the fifth bits on top.
#[inline]
fn five_bits(fifth: &[u8; 4], nibbles: &[u8; 16]) -> [u8; 32] {
    // Each byte of bits is copied next to its eight weights first, so that the loop runs on vectors of bytes.
    let fifth = fifth.map(|bits| [bits; 8]);
    let masks = [[1, 2, 4, 8, 16, 32, 64, 128]; 4];
    let mut codes = halves_of_nibbles(nibbles);
    for ((code, bits), mask) in codes.iter_mut().zip(fifth.as_flattened()).zip(masks.as_flattened()) {
        *code |= if bits & mask == 0 { 0 } else { 16 };
    }
    codes
}
