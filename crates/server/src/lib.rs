//! A model over HTTP, in the forms of the OpenAI API.
//!
//! [`bind`] takes an address, [`Bound::serve`] puts a model behind it, [`Server::run`] answers until it is told to stop.
//! A request's way: `connection` (sockets, time-outs) → `router` (paths) → `guard` (host, key) → `openai` (wire forms to
//! [`kapitsa::ReplyRequest`] and back) → the engine, through [`kapitsa::Llm`] alone. `docs/server.md` says what is honoured.
//!
//! Invariant: no thread of the runtime computes; reading a request into tokens goes to a thread of its own (`prepare`).
#![forbid(unsafe_code)]

mod anthropic;
mod app;
mod body;
mod choice;
mod connection;
mod error;
mod guard;
mod health;
mod metrics;
mod openai;
mod openapi;
mod options;
mod prepare;
mod responses;
mod router;
mod server;
mod sse;
#[cfg(test)]
mod tests;
mod turns;

pub use openapi::document;
pub use options::{Limits, ServedModel, ServerOptions};
pub use server::{Bound, ServeError, Server, Stopper, bind};
