//! The ops of a forward pass, named after the model's mathematics.
//!
//! A model records its forward pass once for each shape bucket ([`Recorder`]) into a [`Program`]: a list of typed,
//! checked ops over tensors whose places in one arena are planned by liveness. A [`Backend`] runs programs. Everything
//! that changes from step to step (tokens, positions, parents, lengths, pages) is data in a [`Batch`], so one program
//! serves every step of its bucket.
//!
//! Each op has its own file: its arguments, its shape rule and its plain scalar reference, which defines it.
//! [`reference::Reference`] is the backend that runs the references; fast kernels are tested against it.
//!
//! Invariants: recording cannot fail at run time (a wrong shape is a bug of ours and asserts; models check their weights
//! at load and record once there), running can. An op has at most one output. No op reduces over rows, so a row's
//! result cannot depend on its neighbours.
#![forbid(unsafe_code)]

mod add;
mod attention;
mod backend;
mod batch;
mod embed;
mod expert_combine;
mod expert_linear;
mod expert_weights;
mod gather_rows;
pub mod kv;
mod kv_write;
mod linear;
mod op;
mod plan;
mod program;
mod recorder;
pub mod reference;
mod rms_norm;
mod rotary;
mod route;
mod silu_mul;
mod tensor;

pub use add::Add;
pub use attention::Attention;
pub use backend::{Backend, DeviceError, Outputs};
pub use batch::{Batch, SequenceContext};
pub use embed::Embed;
pub use expert_combine::ExpertCombine;
pub use expert_linear::ExpertLinear;
pub use expert_weights::ExpertWeights;
pub use gather_rows::GatherRows;
pub use kv_write::KvWrite;
pub use linear::Linear;
pub use op::{Op, Rule};
pub use program::{Capacity, Program, Tap};
pub use recorder::Recorder;
pub use rms_norm::RmsNorm;
pub use rotary::{Frequencies, PairLayout, Rotary, RotaryAngles};
pub use route::Route;
pub use silu_mul::SiluMul;
pub use tensor::{ElementType, Rows, Tensor, Vector};
