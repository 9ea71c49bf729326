//! Helpers that tests of several crates share: fixtures, tiny models, random data, a hub.
#![forbid(unsafe_code)]

pub mod agents;
pub mod convert;
pub mod fake_hub;
pub mod fixtures;
pub mod gguf;
mod gguf_lists;
pub mod python;
pub mod random;
mod real_models;
pub mod script;
pub mod tiny;

pub use fake_hub::FakeHub;
pub use fixtures::{Tensors, fixture};
pub use real_models::real_model;
