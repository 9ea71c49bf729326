//! Kapitsa: open a model, talk to it.
//!
//! The facade joins the engine (token ids) with text (tokenizer, template, stop strings), files and devices. Programs
//! and servers use this crate and no other.
#![forbid(unsafe_code)]

mod error;
mod open;

pub use error::Error;
pub use kapitsa_engine::Engine;
pub use kapitsa_engine::sample::SamplingOptions;
pub use kapitsa_tensor::DType;
pub use open::{OpenOptions, open_engine};
