//! The engine: one thread owns the device and runs steps over all live sequences. Token ids in, token ids out.
//!
//! A step is one forward pass: a row for every reply under way and a chunk of at most one prompt. The scheduler decides
//! who takes part, in plain data; the loop in `steps` carries it out: batch, forward, sample, events. [`Engine`] is the
//! handle, [`Generation`] one reply. What a reply says depends on its request alone: not on what else runs, nor on whether
//! it had to give up its memory in between. A [`Constraint`] of the request may say which tokens can come next.
//!
//! Invariant: no text here.
#![forbid(unsafe_code)]

mod constraint;
mod engine;
mod generation;
mod images;
mod logprobs;
mod pages;
mod reply;
mod request;
mod runner;
pub mod sample;
mod scheduler;
mod shared;
mod stats;
mod steps;

pub use constraint::{Constraint, TokenSet};
pub use engine::{Engine, Limits};
pub use generation::Generation;
pub use images::Image;
pub use logprobs::{MAX_TOP_LOGPROBS, TokenLogprob, TokenLogprobs};
pub use request::{EngineError, Event, Finish, FinishReason, Request};
pub use runner::{Runner, Snapshot};
pub use stats::{Stats, StepTimes};
