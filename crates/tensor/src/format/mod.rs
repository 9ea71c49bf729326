//! Weight storage formats: block layouts and exact scalar dequantisers.
//!
//! A weight is a matrix `[rows, cols]` whose rows are stored one after the other. The bytes of a format lie in one or
//! more *planes* (codes, scales, biases, ...), each a dense array of its own; see [`Format::planes`] for their order.

mod fp4;
mod fp8;
mod gguf;
mod iq;
mod iq_grids;
mod k_quants;
mod layout;
mod legacy;
mod mlx;
mod plain;
mod ternary;

use bytes::Bytes;
use half::f16;

use crate::DType;
use layout::Plane;

pub use fp8::{Fp8, Fp8Code, Fp8Scale};
pub use gguf::GgufType;
pub use k_quants::scale_min;
pub use mlx::MlxAffine;

/// How a weight matrix is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// IEEE 754 binary32. One plane.
    F32,
    /// IEEE 754 binary16. One plane.
    F16,
    /// bfloat16. One plane.
    Bf16,
    /// Blocks of GGUF. One plane.
    Gguf(GgufType),
    /// MLX affine: planes of codes, scales, biases.
    MlxAffine(MlxAffine),
    /// E2M1 in groups of 32 with E8M0 scales: planes of codes (two a byte, low nibble first) and scales.
    Mxfp4,
    /// E4M3 in groups of 32 with E8M0 scales: planes of codes and scales.
    Mxfp8,
    /// E2M1 in groups of 16 with E4M3 scales: planes of codes (two a byte, low nibble first), scales and, unless it is
    /// [`TensorScale::None`], the scale of the tensor (one F32).
    Nvfp4(TensorScale),
    /// Eight-bit floats: planes of codes and scales.
    Fp8(Fp8),
}

/// What the scale of the tensor does in [`Format::Nvfp4`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorScale {
    /// There is none (MLX).
    None,
    /// `w = e2m1 * (scale * tensor_scale)`: `weight_scale_2` of ModelOpt.
    Multiply,
    /// `w = e2m1 * (scale / tensor_scale)`: `weight_global_scale` of compressed-tensors.
    Divide,
    /// `w = e2m1 * (scale * (tensor_scale / 2688))`: `global_scale` of MLX, the largest magnitude of the tensor. 2688
    /// is 6 * 448, the largest code times the largest scale.
    Amax,
}

impl TensorScale {
    fn is_stored(self) -> bool {
        self != TensorScale::None
    }
}

impl Format {
    /// Columns come in blocks of this many values; a matrix has a whole number of blocks in each row.
    pub fn block_len(&self) -> usize {
        match self {
            Format::F32 | Format::F16 | Format::Bf16 | Format::Fp8(_) => 1,
            Format::Gguf(kind) => kind.block_len(),
            Format::MlxAffine(mlx) => mlx.group(),
            Format::Mxfp4 | Format::Mxfp8 => fp4::MX_GROUP,
            Format::Nvfp4(_) => fp4::NV_GROUP,
        }
    }

    /// The format of a GGUF tensor with this type id; `None` for integers, F64 and ids that this engine does not know.
    ///
    /// Id 42 gives [`GgufType::Q2_0`]; see [`GgufType::q2_0_of_size`].
    pub fn from_gguf_id(id: u32) -> Option<Self> {
        match id {
            0 => Some(Format::F32),
            1 => Some(Format::F16),
            30 => Some(Format::Bf16),
            _ => GgufType::from_id(id).map(Format::Gguf),
        }
    }

    /// Bytes of each plane of a `[rows, cols]` weight, in storage order.
    ///
    /// # Errors
    /// Says why the shape is impossible: no rows or columns, columns that are not a multiple of
    /// [`block_len`](Self::block_len), or a size that overflows.
    pub fn planes(&self, rows: usize, cols: usize) -> Result<Vec<usize>, String> {
        self.layout(rows, cols)?
            .into_iter()
            .map(|plane| plane.size(rows).ok_or_else(|| too_large(rows, cols)))
            .collect()
    }

    /// The planes of rows `first .. first + rows` of a weight with `of` rows, as views.
    ///
    /// # Errors
    /// If the range is empty or not inside the weight, or if it begins in the middle of rows that share a scale.
    pub(crate) fn slice(
        &self,
        planes: &[Bytes],
        of: usize,
        cols: usize,
        first: usize,
        rows: usize,
    ) -> Result<Vec<Bytes>, String> {
        if rows == 0 || first.checked_add(rows).is_none_or(|end| end > of) {
            return Err(format!("{rows} rows from {first} on, expected a part of {of} rows"));
        }
        let layout = self.layout(of, cols)?;
        layout.into_iter().zip(planes).map(|(plane, bytes)| Ok(bytes.slice(plane.slice(first, rows)?))).collect()
    }

    /// Writes row `row` of a weight with `rows` rows and `out.len()` columns to `out`, exact in f32.
    ///
    /// # Panics
    /// If `row >= rows`, or if `planes` are smaller than [`planes`](Self::planes) demands for this shape. A [`Weight`]
    /// has been checked.
    ///
    /// [`Weight`]: crate::Weight
    pub fn dequantize(&self, planes: &[Bytes], rows: usize, row: usize, out: &mut [f32]) {
        let cols = out.len();
        assert!(row < rows && cols.is_multiple_of(self.block_len()), "row {row} of {self} [{rows}, {cols}]");
        match self {
            Format::F32 => plain::f32_row(nth(&planes[0], row, cols * 4), out),
            Format::F16 => plain::f16_row(nth(&planes[0], row, cols * 2), out),
            Format::Bf16 => plain::bf16_row(nth(&planes[0], row, cols * 2), out),
            Format::Gguf(kind) => kind.row(nth(&planes[0], row, cols / kind.block_len() * kind.block_bytes()), out),
            Format::MlxAffine(mlx) => {
                let codes = nth(&planes[0], row, cols / 8 * mlx.bits());
                let factors = cols / mlx.group() * mlx.scale_dtype().bytes();
                mlx.row(codes, nth(&planes[1], row, factors), nth(&planes[2], row, factors), out);
            }
            Format::Mxfp4 => {
                fp4::mxfp4_row(nth(&planes[0], row, cols / 2), nth(&planes[1], row, cols / fp4::MX_GROUP), out);
            }
            Format::Mxfp8 => {
                fp4::mxfp8_row(nth(&planes[0], row, cols), nth(&planes[1], row, cols / fp4::MX_GROUP), out)
            }
            Format::Nvfp4(tensor) => {
                let scale = match tensor {
                    TensorScale::None => 1.0,
                    TensorScale::Multiply | TensorScale::Divide => DType::F32.read(&planes[2], 0),
                    TensorScale::Amax => DType::F32.read(&planes[2], 0) / 2688.0,
                };
                let (codes, scales) = (nth(&planes[0], row, cols / 2), nth(&planes[1], row, cols / fp4::NV_GROUP));
                fp4::nvfp4_row(codes, scales, *tensor, scale, out);
            }
            Format::Fp8(fp8) => fp8.row(nth(&planes[0], row, cols), &planes[1], row, out),
        }
    }

    /// The planes of this format for `cols` columns, after checking the shape.
    fn layout(&self, rows: usize, cols: usize) -> Result<Vec<Plane>, String> {
        if rows == 0 || cols == 0 {
            return Err(format!("shape [{rows}, {cols}] is empty, expected at least one row and one column"));
        }
        let block = self.block_len();
        if !cols.is_multiple_of(block) {
            return Err(format!("{cols} columns, expected a multiple of {block} for {self}"));
        }
        // No format needs more than 4 bytes a value in one plane, so no product below overflows.
        rows.checked_mul(cols).and_then(|n| n.checked_mul(4)).ok_or_else(|| too_large(rows, cols))?;
        Ok(match self {
            Format::F32 => vec![Plane::per_row(cols * 4)],
            Format::F16 | Format::Bf16 => vec![Plane::per_row(cols * 2)],
            Format::Gguf(kind) => vec![Plane::per_row(cols / kind.block_len() * kind.block_bytes())],
            Format::MlxAffine(mlx) => {
                let factors = Plane::per_row(cols / mlx.group() * mlx.scale_dtype().bytes());
                vec![Plane::per_row(cols / 8 * mlx.bits()), factors, factors]
            }
            Format::Mxfp4 => vec![Plane::per_row(cols / 2), Plane::per_row(cols / fp4::MX_GROUP)],
            Format::Mxfp8 => vec![Plane::per_row(cols), Plane::per_row(cols / fp4::MX_GROUP)],
            Format::Nvfp4(tensor) => {
                let mut planes = vec![Plane::per_row(cols / 2), Plane::per_row(cols / fp4::NV_GROUP)];
                planes.extend(tensor.is_stored().then_some(Plane::Shared { bytes: 4 }));
                planes
            }
            Format::Fp8(fp8) => {
                let bytes = fp8.scale_dtype.bytes();
                let scales = match fp8.scale {
                    Fp8Scale::Tensor => Plane::Shared { bytes },
                    Fp8Scale::Channel => Plane::per_row(bytes),
                    Fp8Scale::Block128 => Plane::Rows { rows: fp8::BLOCK, bytes: cols.div_ceil(fp8::BLOCK) * bytes },
                };
                vec![Plane::per_row(cols), scales]
            }
        })
    }
}

impl From<GgufType> for Format {
    fn from(kind: GgufType) -> Self {
        Format::Gguf(kind)
    }
}

impl From<DType> for Format {
    fn from(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Format::F32,
            DType::F16 => Format::F16,
            DType::Bf16 => Format::Bf16,
        }
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Format::F32 => f.write_str("f32"),
            Format::F16 => f.write_str("f16"),
            Format::Bf16 => f.write_str("bf16"),
            Format::Gguf(kind) => f.write_str(kind.name()),
            Format::MlxAffine(mlx) => mlx.fmt(f),
            Format::Mxfp4 => f.write_str("mxfp4"),
            Format::Mxfp8 => f.write_str("mxfp8"),
            Format::Nvfp4(_) => f.write_str("nvfp4"),
            Format::Fp8(fp8) => fp8.fmt(f),
        }
    }
}

fn too_large(rows: usize, cols: usize) -> String {
    format!("shape [{rows}, {cols}] is larger than the address space")
}

/// Unit `index` of a plane of equal units.
#[inline]
fn nth(plane: &[u8], index: usize, bytes: usize) -> &[u8] {
    &plane[index * bytes..][..bytes]
}

/// `data` as arrays of `N` bytes; a shorter rest is left out.
#[inline]
fn chunks<const N: usize>(data: &[u8]) -> &[[u8; N]] {
    data.as_chunks().0
}

/// Decodes a row of blocks of `BYTES` bytes and `LEN` weights.
#[inline]
fn blocks<const BYTES: usize, const LEN: usize>(
    data: &[u8],
    out: &mut [f32],
    decode: impl Fn(&[u8; BYTES], &mut [f32; LEN]),
) {
    for (block, out) in chunks(data).iter().zip(out.as_chunks_mut().0) {
        decode(block, out);
    }
}

/// `N` bytes of a block from byte `at` on. Blocks have fixed sizes, so the check disappears when this is inlined.
#[inline]
fn array<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    block[at..].first_chunk().expect("a field lies inside its block")
}

/// The F16 at byte `at` of a block.
#[inline]
fn f16_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes(*array(block, at)).to_f32()
}

/// The low nibbles of all bytes, then the high nibbles of all bytes.
#[inline]
fn halves_of_nibbles(bytes: &[u8; 16]) -> [u8; 32] {
    std::array::from_fn(|i| if i < 16 { bytes[i] & 15 } else { bytes[i - 16] >> 4 })
}
