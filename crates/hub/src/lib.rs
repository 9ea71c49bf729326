//! Models by name: which there are, where their files come from, and the folder that they lie in.
//!
//! Knows nothing of tensors: which families the engine builds and how much memory there is are told by the caller, as are
//! the home folder, the hub's address and the token.
#![forbid(unsafe_code)]

pub mod catalog;
mod error;
pub mod fit;
mod hash;
mod hf;
mod hub;
mod job;
mod local;
mod name;
mod pip;
mod place;

pub use error::HubError;
pub use hf::Timing;
pub use hub::{ENDPOINT, Hub, HubOptions, Wanted};
pub use job::{Phase, Progress};
pub use local::{Local, Removed};
pub use name::{FileName, Repository};
