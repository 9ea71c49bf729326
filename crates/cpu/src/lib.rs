//! The CPU backend: the ops of `kapitsa-ops` on a pool of threads.
//!
//! Weights are packed at load into panels of 16 outputs (`packed`); one product kernel (`kernel`), written over 16 lanes
//! (`simd`), multiplies tiles of rows by them. Quantised weights meet activations in eight bits (`activations`) unless
//! [`Activations::F32`] is asked for; formats without a layout are dequantised a panel at a time. Every output is computed
//! by one thread, in an order fixed by the shapes alone, so neither batch nor threads nor instruction set change a bit.
#![deny(unsafe_op_in_unsafe_fn)]

mod activations;
mod attention;
mod backend;
mod element;
mod exp;
mod isa;
mod kernel;
mod kv_write;
mod limits;
mod linear;
mod memory;
mod packed;
mod pool;
mod recurrent;
mod rows;
mod shared;
mod simd;
mod step;
mod tune;

pub use backend::{Activations, Cpu, CpuOptions};
pub use isa::{Isa, features};
pub use limits::{float_peak, integer_peak, read_bandwidth};
pub use tune::Tiles;
