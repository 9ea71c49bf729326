//! The CPU backend: the ops of `kapitsa-ops` on a thread pool.
//!
//! Weights are multiplied as they are stored: a tile of rows is dequantised into scratch, used for every row of the batch
//! and forgotten. Every output element is computed by one thread, in an order fixed by the shapes alone, so neither batch
//! nor threads nor instruction set change a bit.
#![deny(unsafe_op_in_unsafe_fn)]

mod attention;
mod backend;
mod lanes;
mod product;
mod rows;
mod shared;

pub use backend::Cpu;
