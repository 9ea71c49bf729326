//! Readers of model files: GGUF, Hugging Face safetensors and MLX packs.
//!
//! [`Checkpoint::open`] maps the files and checks their headers; [`Config`] gives the configuration and [`Weights`] the
//! tensors, both under Hugging Face names whatever the container, so that a model is written once. Weights stay as they
//! are stored: the bytes of a [`Weight`](kapitsa_tensor::Weight) are slices of the mapped file.
//!
//! Files come from strangers. Every count, length and offset is checked against the file before it is used or anything is
//! allocated for it; errors are values of [`LoadError`] that name the file, the tensor or key, and the next step.
//!
//! **A mapped file must not change while the model lives.** Overwriting it in place changes weights under a running model,
//! truncating it kills the process when the lost pages are touched. Replace model files by writing aside and renaming.
#![deny(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

mod bind;
mod checkpoint;
mod composite;
mod config;
mod error;
mod folder;
pub mod gguf;
mod map;
mod mlx;
mod safetensors;
mod store;
mod weights;

pub use checkpoint::{Checkpoint, Container, TensorInfo, TokenizerFiles};
pub use config::Config;
pub use error::{LoadError, short};
pub use weights::Weights;
