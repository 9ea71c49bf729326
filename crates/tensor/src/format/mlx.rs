//! MLX affine quantisation: `w = code * scale + bias` for each group of a row.
//!
//! Planes: codes, scales, biases. The codes of a row are one little-endian stream of bits: code `i` is bits
//! `[i * bits, (i + 1) * bits)` of the row (files declare them as `[rows, cols * bits / 32]` u32). Scales and biases
//! are `[rows, cols / group]`; scales may be negative.

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
            1 => self.scaled_row::<1, 8>(codes, scales, biases, out),
            2 => self.scaled_row::<2, 4>(codes, scales, biases, out),
            3 => self.scaled_row::<3, 8>(codes, scales, biases, out),
            4 => self.scaled_row::<4, 2>(codes, scales, biases, out),
            5 => self.scaled_row::<5, 8>(codes, scales, biases, out),
            6 => self.scaled_row::<6, 4>(codes, scales, biases, out),
            _ => self.scaled_row::<8, 1>(codes, scales, biases, out),
        }
    }

    /// `LEN` is the least number of codes of `BITS` bits that fill whole bytes; these are read as one word.
    #[inline]
    fn scaled_row<const BITS: usize, const LEN: usize>(
        &self,
        codes: &[u8],
        scales: &[u8],
        biases: &[u8],
        out: &mut [f32],
    ) {
        let (group, bytes) = (self.group(), BITS * LEN / 8);
        for (i, (out, codes)) in out.chunks_exact_mut(group).zip(codes.chunks_exact(group / LEN * bytes)).enumerate() {
            let (scale, bias) = (self.scale_dtype.read(scales, i), self.scale_dtype.read(biases, i));
            for (out, codes) in out.as_chunks_mut::<LEN>().0.iter_mut().zip(codes.chunks_exact(bytes)) {
                let mut word = [0; 8];
                word[..bytes].copy_from_slice(codes);
                let word = u64::from_le_bytes(word);
                for (i, out) in out.iter_mut().enumerate() {
                    let q = (word >> (BITS * i)) as u8 & (0xff >> (8 - BITS));
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
