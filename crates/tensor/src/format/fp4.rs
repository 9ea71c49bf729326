//! Four-bit floats E2M1 with a scale for each small group: NVFP4, MXFP4; and MXFP8, which differs in its codes only.
//!
//! E2M1 has a sign, two bits of exponent and one of mantissa: 0, 0.5, 1, 1.5, 2, 3, 4, 6. Checkpoints and MLX packs
//! put weight `2i` in the low and weight `2i + 1` in the high nibble of byte `i`. GGUF blocks put the first half of a
//! group in the low nibbles and the second half in the high ones. Formulas: OCP Microscaling Formats (MX) 1.0,
//! sections 5 and 6.

use super::fp8::{e4m3, e8m0};
use super::{TensorScale, array, chunks, halves_of_nibbles};

/// Group length of MXFP4 and MXFP8.
pub(super) const MX_GROUP: usize = 32;
/// Group length of NVFP4.
pub(super) const NV_GROUP: usize = 16;

/// Values of the E2M1 codes.
const E2M1: [f32; 16] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];
/// Twice the values, as integers: code 8 is no negative zero.
const E2M1_DOUBLED: [f32; 16] = [0., 1., 2., 3., 4., 6., 8., 12., 0., -1., -2., -3., -4., -6., -8., -12.];

/// Row of NVFP4: a byte for two weights, an E4M3 scale for each group of 16, maybe a scale of the tensor.
#[inline]
pub(super) fn nvfp4_row(codes: &[u8], scales: &[u8], tensor: TensorScale, tensor_scale: f32, out: &mut [f32]) {
    for ((out, codes), scale) in out.as_chunks_mut::<NV_GROUP>().0.iter_mut().zip(chunks::<8>(codes)).zip(scales) {
        let scale = e4m3(*scale);
        let scale = match tensor {
            TensorScale::None => scale,
            TensorScale::Multiply | TensorScale::Amax => scale * tensor_scale,
            TensorScale::Divide => scale / tensor_scale,
        };
        pairs(scale, codes, out);
    }
}

/// Row of MXFP4: a byte for two weights, an E8M0 scale for each group of 32.
#[inline]
pub(super) fn mxfp4_row(codes: &[u8], scales: &[u8], out: &mut [f32]) {
    for ((out, codes), scale) in out.as_chunks_mut::<MX_GROUP>().0.iter_mut().zip(chunks::<16>(codes)).zip(scales) {
        pairs(e8m0(*scale), codes, out);
    }
}

/// Row of MXFP8: an E4M3 code for each weight, an E8M0 scale for each group of 32.
#[inline]
pub(super) fn mxfp8_row(codes: &[u8], scales: &[u8], out: &mut [f32]) {
    let groups = out.as_chunks_mut::<MX_GROUP>().0.iter_mut().zip(chunks::<MX_GROUP>(codes));
    for ((out, codes), scale) in groups.zip(scales) {
        let scale = e8m0(*scale);
        for (out, code) in out.iter_mut().zip(codes) {
            *out = e4m3(*code) * scale;
        }
    }
}

/// GGUF MXFP4, 17 bytes for 32 weights: an E8M0 scale, 16 bytes of nibbles. `w = scale e2m1(q)`.
#[inline]
pub(super) fn gguf_mxfp4(block: &[u8; 17], out: &mut [f32; 32]) {
    // The format is defined with doubled code values and this halved scale, which never is a NaN.
    let exponent = u32::from(block[0]);
    let half_scale = f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 });
    for (out, q) in out.iter_mut().zip(halves_of_nibbles(array(block, 1))) {
        *out = half_scale * E2M1_DOUBLED[usize::from(q & 15)];
    }
}

/// GGUF NVFP4, 36 bytes for 64 weights: four unsigned E4M3 scales, then 8 bytes of nibbles for each group of 16.
/// `w = scale e2m1(q)`.
#[inline]
pub(super) fn gguf_nvfp4(block: &[u8; 36], out: &mut [f32; 64]) {
    let codes = array::<32>(block, 4).as_chunks::<8>().0;
    for ((out, codes), scale) in out.as_chunks_mut::<16>().0.iter_mut().zip(codes).zip(array::<4>(block, 0)) {
        // Here the NaN code is a zero, and the sign bit is no part of the number: 0xff is 480.
        let half_scale = match scale {
            0x7f => 0.0,
            0xff => 240.0,
            _ => 0.5 * e4m3(scale & 0x7f),
        };
        for (i, code) in codes.iter().enumerate() {
            out[i] = half_scale * E2M1_DOUBLED[usize::from(code & 15)];
            out[i + 8] = half_scale * E2M1_DOUBLED[usize::from(code >> 4)];
        }
    }
}

/// `scale e2m1(q)` for pairs of nibbles, low one first.
#[inline]
fn pairs<const BYTES: usize, const LEN: usize>(scale: f32, codes: &[u8; BYTES], out: &mut [f32; LEN]) {
    for (out, code) in out.as_chunks_mut::<2>().0.iter_mut().zip(codes) {
        *out = [E2M1[usize::from(code & 15)] * scale, E2M1[usize::from(code >> 4)] * scale];
    }
}
