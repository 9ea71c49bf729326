//! Helpers that tests of several crates share: fixtures, tiny models, random data.
#![forbid(unsafe_code)]

pub mod convert;
pub mod fixtures;
pub mod gguf;
pub mod random;

pub use fixtures::{Tensors, fixture};
