//! A weight matrix as it was stored.

use std::sync::Arc;

use bytes::Bytes;

use crate::Format;

/// A matrix `[rows, cols]` (output, input) in its stored format.
///
/// Cloning is cheap: the planes are reference-counted views, usually of a memory-mapped file.
#[derive(Clone)]
pub struct Weight {
    name: Arc<str>,
    format: Format,
    rows: usize,
    cols: usize,
    planes: Vec<Bytes>,
}

/// Why bytes cannot be a weight of a format and shape.
#[derive(Debug, thiserror::Error)]
#[error("weight `{name}`: {reason}")]
pub struct WeightError {
    /// The tensor's name in its file.
    pub name: String,
    /// What was found and what was expected.
    pub reason: String,
}

impl Weight {
    /// Binds `planes` (see [`Format::planes`]) to a shape.
    ///
    /// # Errors
    /// If `cols` is not a multiple of the format's block, if a size overflows, or if a plane has another size than the
    /// shape demands. After this no read of the weight can be out of bounds.
    pub fn new(
        name: impl Into<Arc<str>>,
        format: Format,
        rows: usize,
        cols: usize,
        planes: Vec<Bytes>,
    ) -> Result<Self, WeightError> {
        let name = name.into();
        let fail = |reason| WeightError { name: name.to_string(), reason };
        let expected = format.planes(rows, cols).map_err(fail)?;
        let found: Vec<usize> = planes.iter().map(Bytes::len).collect();
        if found != expected {
            return Err(fail(format!(
                "{format} [{rows}, {cols}] has planes of {found:?} bytes, expected {expected:?}"
            )));
        }
        Ok(Weight { name, format, rows, cols, planes })
    }

    /// Name of the tensor in its file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How the weight is stored.
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// Number of outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The stored bytes, in the order that [`Format::planes`] documents.
    pub fn planes(&self) -> &[Bytes] {
        &self.planes
    }

    /// Bytes that a full read of the weight touches.
    pub fn bytes(&self) -> usize {
        self.planes.iter().map(Bytes::len).sum()
    }

    /// Rows `first_row .. first_row + rows` as a weight of their own, sharing the bytes.
    ///
    /// Stacked matrices (the experts `[experts, out, in]` of a layer) are one weight of `experts * out` rows; this
    /// takes one of them out.
    ///
    /// # Errors
    /// If the range is empty or reaches past the last row, or if its first row shares a block of scales with the row
    /// before it (FP8 with 128 x 128 blocks can be cut at multiples of 128 only).
    pub fn view(&self, name: impl Into<Arc<str>>, first_row: usize, rows: usize) -> Result<Self, WeightError> {
        let planes = self
            .format
            .slice(&self.planes, self.rows, self.cols, first_row, rows)
            .map_err(|reason| WeightError { name: self.name.to_string(), reason })?;
        Ok(Weight { name: name.into(), format: self.format, rows, cols: self.cols, planes })
    }

    /// Writes row `row` as exact f32 values to `out` (`[cols]`).
    ///
    /// # Panics
    /// If `row >= rows` or `out.len() != cols`.
    pub fn dequantize(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows, "row {row} of {self:?}");
        assert_eq!(out.len(), self.cols, "{self:?}");
        self.format.dequantize(&self.planes, self.rows, row, out);
    }
}

impl std::fmt::Debug for Weight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} [{}, {}]", self.name, self.format, self.rows, self.cols)
    }
}
