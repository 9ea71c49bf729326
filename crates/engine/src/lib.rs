//! The loop: batch, forward, sample. Token ids in, token ids out.
//!
//! [`Runner`] pairs a model with a backend and runs batches of any shape; [`pages`] hands out KV memory; [`sample`] turns
//! logits into tokens; [`Engine`] joins them to generate a reply.
//!
//! Invariant: no text here.
#![forbid(unsafe_code)]

mod engine;
pub mod pages;
mod runner;
pub mod sample;

pub use engine::{Engine, EngineError, Finish, FinishReason, Request, Step};
pub use pages::Sequence;
pub use runner::Runner;
