//! Plain data about numbers: element types, weight storage formats and weight handles.
//!
//! A [`Weight`] is a matrix as it was stored: a [`Format`] plus the bytes of its planes, usually borrowed from a memory
//! map. Every format has a documented block layout and an exact scalar dequantiser (`format/`); nothing here knows a
//! device, a file or a model.
#![forbid(unsafe_code)]

mod dtype;
pub mod format;
mod weight;

pub use bytes::Bytes;
pub use dtype::DType;
pub use format::{Format, GgufType};
pub use weight::{Weight, WeightError};
