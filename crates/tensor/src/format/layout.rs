//! How the bytes of a weight are spread over planes.

use std::ops::Range;

/// One stored array of a weight.
///
/// Row `r` of the weight lies in unit `r / rows_per_unit` of the plane; units follow each other without padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plane {
    /// Units of `bytes` bytes, each serving `rows` consecutive rows. The last unit may serve fewer.
    Rows { rows: usize, bytes: usize },
    /// `bytes` bytes that all rows share, such as a scale of the whole tensor.
    Shared { bytes: usize },
}

impl Plane {
    /// A plane in which each row has `bytes` bytes of its own.
    pub(super) const fn per_row(bytes: usize) -> Self {
        Plane::Rows { rows: 1, bytes }
    }

    /// Size of the plane for `rows` rows, or `None` if that overflows.
    pub(super) fn size(self, rows: usize) -> Option<usize> {
        match self {
            Plane::Rows { rows: per_unit, bytes } => rows.div_ceil(per_unit).checked_mul(bytes),
            Plane::Shared { bytes } => Some(bytes),
        }
    }

    /// The bytes that rows `first .. first + rows` need, for a range inside the weight.
    ///
    /// # Errors
    /// If `first` is not the first row of a unit: the slice could not be described as a plane of its own.
    pub(super) fn slice(self, first: usize, rows: usize) -> Result<Range<usize>, String> {
        match self {
            Plane::Rows { rows: per_unit, bytes } => {
                if !first.is_multiple_of(per_unit) {
                    return Err(format!(
                        "row {first} shares scales with the row before it, expected a cut at a multiple of {per_unit}"
                    ));
                }
                let start = first / per_unit;
                Ok(start * bytes..(start + rows.div_ceil(per_unit)) * bytes)
            }
            Plane::Shared { bytes } => Ok(0..bytes),
        }
    }
}
