//! MLX affine quantisation: `w = code * scale + bias` for each group of a row.
//!
//! Planes: codes, scales, biases. The codes of a row are one little-endian stream of bits: code `i` is bits
//! `[i * bits, (i + 1) * bits)` of the row (files declare them as `[rows, cols * bits / 32]` u32). Scales and biases
//! are `[rows, cols / group]`; scales may be negative.

use super::chunks;
use crate::DType;

/// An MLX affine format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MlxAffine {
    bits: u8,
    group: u8,
    scale_dtype: DType,
}

impl MlxAffine {
    /// Codes of `bits` bits in groups of `group` columns, with scales and biases of `scale_dtype`.
    ///
    /// # Errors
    /// If `bits` is not 1, 2, 3, 4, 5, 6 or 8, or `group` not 32, 64 or 128.
    pub fn new(bits: u64, group: u64, scale_dtype: DType) -> Result<Self, String> {
        if !matches!(bits, 1..=6 | 8) {
            return Err(format!("mlx affine with {bits} bits, expected 1, 2, 3, 4, 5, 6 or 8"));
        }
        if !matches!(group, 32 | 64 | 128) {
            return Err(format!("mlx affine with groups of {group}, expected 32, 64 or 128"));
        }
        Ok(Self { bits: bits as u8, group: group as u8, scale_dtype })
    }

    /// Bits of a code.
    pub fn bits(&self) -> usize {
        self.bits.into()
    }

    /// Columns that share a scale and a bias.
    pub fn group(&self) -> usize {
        self.group.into()
    }

    /// Element type of scales and biases.
    pub fn scale_dtype(&self) -> DType {
        self.scale_dtype
    }

    /// One row, from its parts of the three planes.
    #[inline]
    pub(super) fn row(&self, codes: &[u8], scales: &[u8], biases: &[u8], out: &mut [f32]) {
        match self.bits {
            1 => self.unpacked_row(codes, scales, biases, out, unpack_bits),
            2 => self.unpacked_row(codes, scales, biases, out, unpack_pairs),
            3 => self.unpacked_row(codes, scales, biases, out, unpack::<3>),
            4 => self.unpacked_row(codes, scales, biases, out, unpack_nibbles),
            5 => self.unpacked_row(codes, scales, biases, out, unpack::<5>),
            6 => self.unpacked_row(codes, scales, biases, out, unpack::<6>),
            _ => self.unpacked_row(codes, scales, biases, out, |bytes: &[u8; 8]| *bytes),
        }
    }

    /// `unpack` turns the `N` bytes of eight codes into one byte each.
    #[inline]
    fn unpacked_row<const N: usize>(
        &self,
        codes: &[u8],
        scales: &[u8],
        biases: &[u8],
        out: &mut [f32],
        unpack: impl Fn(&[u8; N]) -> [u8; 8],
    ) {
        let group = self.group();
        let groups = out.chunks_exact_mut(group).zip(codes.chunks_exact(group / 8 * N));
        for (i, (out, codes)) in groups.enumerate() {
            let (scale, bias) = (self.scale_dtype.read(scales, i), self.scale_dtype.read(biases, i));
            for (out, codes) in out.as_chunks_mut::<8>().0.iter_mut().zip(chunks::<N>(codes)) {
                for (out, q) in out.iter_mut().zip(unpack(codes)) {
                    *out = f32::from(q) * scale + bias;
                }
            }
        }
    }
}

impl std::fmt::Display for MlxAffine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { bits, group, scale_dtype } = self;
        write!(f, "mlx-{bits}bit-g{group}-{scale_dtype}")
    }
}

#[inline]
fn unpack_bits(bytes: &[u8; 1]) -> [u8; 8] {
    std::array::from_fn(|i| u8::from(bytes[0] & (1 << i) != 0))
}

#[inline]
fn unpack_pairs(bytes: &[u8; 2]) -> [u8; 8] {
    std::array::from_fn(|i| (bytes[i / 4] >> (2 * (i % 4))) & 3)
}

#[inline]
fn unpack_nibbles(bytes: &[u8; 4]) -> [u8; 8] {
    std::array::from_fn(|i| (bytes[i / 2] >> (4 * (i % 2))) & 15)
}

/// Eight codes of `BITS` bits: as many bytes as a code has bits.
#[inline]
fn unpack<const BITS: usize>(bytes: &[u8; BITS]) -> [u8; 8] {
    let mut word = [0; 8];
    word[..BITS].copy_from_slice(bytes);
    let word = u64::from_le_bytes(word);
    std::array::from_fn(|i| (word >> (BITS * i)) as u8 & ((1 << BITS) - 1))
}
