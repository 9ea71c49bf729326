//! Unquantised rows: little-endian F32, F16 and BF16.

use half::{f16, slice::HalfFloatSliceExt};

use super::chunks;

/// Copies a row of F32.
#[inline]
pub(super) fn f32_row(data: &[u8], out: &mut [f32]) {
    for (bytes, out) in chunks::<4>(data).iter().zip(out) {
        *out = f32::from_le_bytes(*bytes);
    }
}

/// Widens a row of F16. Runs in pieces because stored bytes need not be aligned, and conversion is fastest on slices.
#[inline]
pub(super) fn f16_row(data: &[u8], out: &mut [f32]) {
    const PIECE: usize = 64;
    for (bytes, out) in data.chunks(2 * PIECE).zip(out.chunks_mut(PIECE)) {
        let mut halves = [f16::ZERO; PIECE];
        for (bytes, half) in chunks::<2>(bytes).iter().zip(&mut halves) {
            *half = f16::from_le_bytes(*bytes);
        }
        halves[..out.len()].convert_to_f32_slice(out);
    }
}

/// Widens a row of BF16.
#[inline]
pub(super) fn bf16_row(data: &[u8], out: &mut [f32]) {
    for (bytes, out) in chunks::<2>(data).iter().zip(out) {
        *out = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
    }
}
