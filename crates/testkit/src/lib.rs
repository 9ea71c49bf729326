//! Helpers that tests of several crates share: fixtures, tiny models, random data.
#![forbid(unsafe_code)]

pub mod convert;
pub mod fixtures;
pub mod gguf;
pub mod random;
mod real_models;
pub mod tiny;

pub use fixtures::{Tensors, fixture};
pub use real_models::real_model;
