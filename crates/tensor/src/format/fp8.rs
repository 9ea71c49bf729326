//! Eight-bit floats E4M3 and E5M2 with scales of a tensor, of a row or of 128 x 128 blocks.
//!
//! Codes are one byte a weight. Definitions: OCP 8-bit Floating Point Specification (OFP8) 1.0.

use crate::DType;

/// Rows and columns of a block with [`Fp8Scale::Block128`].
pub(super) const BLOCK: usize = 128;

/// FP8 weights: `w = code * scale`.
///
/// Two planes: a byte for each weight, then the scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fp8 {
    /// What a byte means.
    pub code: Fp8Code,
    /// What one scale covers.
    pub scale: Fp8Scale,
    /// Element type of the scales.
    pub scale_dtype: DType,
}

/// What a byte of an FP8 weight means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fp8Code {
    /// Sign, 4 exponent bits (bias 7), 3 mantissa bits; no infinities, 0x7f and 0xff are NaN. Largest value 448.
    E4m3,
    /// Sign, 5 exponent bits (bias 15), 2 mantissa bits: the upper byte of a binary16.
    E5m2,
}

/// What one scale of an FP8 weight covers. Scales multiply, also those that checkpoints call `weight_scale_inv`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fp8Scale {
    /// The whole tensor (`weight_scale`, a scalar).
    Tensor,
    /// One row (`weight_scale`, `[rows, 1]`).
    Channel,
    /// A block of 128 x 128 (`weight_scale_inv`, `[rows / 128, cols / 128]`, both rounded up: edge blocks are short).
    Block128,
}

impl Fp8 {
    /// Row `row` of a weight, from its codes and the whole plane of scales.
    #[inline]
    pub(super) fn row(&self, codes: &[u8], scales: &[u8], row: usize, out: &mut [f32]) {
        match self.code {
            Fp8Code::E4m3 => self.scaled_row(codes, scales, row, out, e4m3),
            Fp8Code::E5m2 => self.scaled_row(codes, scales, row, out, e5m2),
        }
    }

    #[inline]
    fn scaled_row(&self, codes: &[u8], scales: &[u8], row: usize, out: &mut [f32], decode: impl Fn(u8) -> f32 + Copy) {
        let (span, first) = match self.scale {
            Fp8Scale::Tensor => (out.len(), 0),
            Fp8Scale::Channel => (out.len(), row),
            Fp8Scale::Block128 => (BLOCK, row / BLOCK * out.len().div_ceil(BLOCK)),
        };
        for (i, (out, codes)) in out.chunks_mut(span).zip(codes.chunks(span)).enumerate() {
            let scale = self.scale_dtype.read(scales, first + i);
            for (out, code) in out.iter_mut().zip(codes) {
                *out = decode(*code) * scale;
            }
        }
    }
}

impl std::fmt::Display for Fp8 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let code = match self.code {
            Fp8Code::E4m3 => "e4m3",
            Fp8Code::E5m2 => "e5m2",
        };
        let scale = match self.scale {
            Fp8Scale::Tensor => "tensor",
            Fp8Scale::Channel => "channel",
            Fp8Scale::Block128 => "block128",
        };
        write!(f, "fp8-{code}-{scale}-{}", self.scale_dtype)
    }
}

/// Value of an E4M3 code.
#[inline]
pub(super) fn e4m3(code: u8) -> f32 {
    static VALUES: [f32; 256] = table(3);
    VALUES[usize::from(code)]
}

/// Value of an E5M2 code.
#[inline]
pub(super) fn e5m2(code: u8) -> f32 {
    static VALUES: [f32; 256] = table(2);
    VALUES[usize::from(code)]
}

/// Values of all codes with this many bits of mantissa (2 or 3; the rest but the sign is the exponent).
const fn table(mantissa_bits: u32) -> [f32; 256] {
    let bias = (1 << (6 - mantissa_bits)) - 1;
    let mut values = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        let magnitude = code & 0x7f;
        // Mantissa and exponent moved to their places in an F32 with the difference of the biases added.
        let aligned = (magnitude << (23 - mantissa_bits)) + ((127 - bias) << 23);
        let value = if magnitude >> mantissa_bits == 0 {
            // Exponent 0 is subnormal: with exponent 1 in its place the value has one leading one too many.
            f32::from_bits(aligned + (1 << 23)) - f32::from_bits((127 - bias + 1) << 23)
        } else if mantissa_bits == 3 && magnitude == 0x7f {
            f32::NAN
        } else if mantissa_bits == 2 && magnitude >= 0x7c {
            f32::from_bits(0x7f80_0000 | (magnitude << 21)) // infinity and NaNs, as in every IEEE 754 type
        } else {
            f32::from_bits(aligned)
        };
        values[code as usize] = if code < 128 { value } else { -value };
        code += 1;
    }
    values
}

/// Value of an E8M0 scale, `2^(code - 127)`; 0xff is NaN.
#[inline]
pub(super) fn e8m0(code: u8) -> f32 {
    f32::from_bits(match code {
        0 => 1 << 22, // 2^-127 is subnormal
        0xff => f32::NAN.to_bits(),
        _ => u32::from(code) << 23,
    })
}
