//! Weight storage formats: block layouts and exact scalar dequantisers.
//!
//! A weight is a matrix `[rows, cols]` whose rows are stored one after the other. The bytes of a format lie in one or more
//! *planes* (codes, scales, biases, ...), each a dense array of its own; see [`Format::planes`] for their order.

mod layout;
mod plain;

use bytes::Bytes;

use crate::DType;
use layout::Plane;

/// How a weight matrix is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// IEEE 754 binary32. One plane.
    F32,
    /// IEEE 754 binary16. One plane.
    F16,
    /// bfloat16. One plane.
    Bf16,
}

impl Format {
    /// Columns come in blocks of this many values; a matrix has a whole number of blocks in each row.
    pub fn block_len(&self) -> usize {
        match self {
            Format::F32 | Format::F16 | Format::Bf16 => 1,
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
    /// If `planes` are not those of [`planes`](Self::planes) for this shape (they may be larger), or `row >= rows`.
    pub fn dequantize(&self, planes: &[Bytes], rows: usize, row: usize, out: &mut [f32]) {
        assert!(row < rows, "row {row} of {rows}");
        let cols = out.len();
        match self {
            Format::F32 => plain::f32_row(nth(&planes[0], row, cols * 4), out),
            Format::F16 => plain::f16_row(nth(&planes[0], row, cols * 2), out),
            Format::Bf16 => plain::bf16_row(nth(&planes[0], row, cols * 2), out),
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
        // No format needs more than 4 bytes a value, so nothing below this product overflows in an intermediate step.
        rows.checked_mul(cols).and_then(|n| n.checked_mul(4)).ok_or_else(|| too_large(rows, cols))?;
        Ok(match self {
            Format::F32 => vec![Plane::per_row(cols * 4)],
            Format::F16 | Format::Bf16 => vec![Plane::per_row(cols * 2)],
        })
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
