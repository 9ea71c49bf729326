//! Handles of the values that a program computes, and small learned vectors.

use std::sync::Arc;

/// Which rows a tensor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rows {
    /// Every row of the batch.
    Batch,
    /// Only the rows whose logits are wanted, in the batch's order.
    Wanted,
}

/// Element type of an activation; both are four bytes wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// IEEE 754 binary32.
    F32,
    /// Unsigned indices.
    U32,
}

/// An activation `[rows, width]` of the program that recorded it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tensor {
    pub(crate) index: usize,
    pub(crate) rows: Rows,
    pub(crate) width: usize,
    pub(crate) element: ElementType,
}

impl Tensor {
    /// Which rows it has.
    pub fn rows(&self) -> Rows {
        self.rows
    }

    /// Elements of one row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Type of its elements.
    pub fn element(&self) -> ElementType {
        self.element
    }

    pub(crate) fn is_f32(&self) -> bool {
        self.element == ElementType::F32
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tensor { index, rows, width, element } = self;
        let rows = match rows {
            Rows::Batch => "rows",
            Rows::Wanted => "wanted",
        };
        let element = match element {
            ElementType::F32 => "",
            ElementType::U32 => " u32",
        };
        write!(f, "%{index}[{rows}, {width}{element}]")
    }
}

/// A learned vector (norm weight, bias), widened to f32 at load; cheap to clone.
#[derive(Clone)]
pub struct Vector {
    name: Arc<str>,
    values: Arc<[f32]>,
}

impl Vector {
    /// A named vector.
    pub fn new(name: impl Into<Arc<str>>, values: impl Into<Arc<[f32]>>) -> Self {
        Vector { name: name.into(), values: values.into() }
    }

    /// Its values.
    pub fn values(&self) -> &[f32] {
        &self.values
    }
}

impl std::fmt::Debug for Vector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} [{}]", self.name, self.values.len())
    }
}
