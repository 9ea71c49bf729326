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
mod columns;
mod concat;
mod embed;
mod expert_combine;
mod expert_linear;
mod expert_weights;
mod full_attention;
mod gated_delta;
mod gather_rows;
mod gelu;
mod input;
pub mod kv;
mod kv_write;
mod layer_norm;
mod linear;
mod mamba2;
mod merge_rows;
mod op;
mod plan;
mod program;
mod recorder;
pub mod reference;
mod relu2;
mod rms_norm;
mod rotary;
mod route;
mod router_scores;
mod short_conv;
mod sigmoid_mul;
mod silu_mul;
pub mod state;
mod tensor;

pub use add::Add;
pub use attention::Attention;
pub use backend::{Backend, DeviceError, Outputs};
pub use batch::{Batch, SequenceContext, Walk};
pub use columns::Columns;
pub use concat::Concat;
pub use embed::Embed;
pub use expert_combine::ExpertCombine;
pub use expert_linear::ExpertLinear;
pub use expert_weights::{ExpertWeights, Score};
pub use full_attention::FullAttention;
pub use gated_delta::{DeltaShape, GatedDelta, KeyHeads};
pub use gather_rows::GatherRows;
pub use gelu::{Gelu, GeluKind};
pub use input::Input;
pub use kv_write::KvWrite;
pub use layer_norm::LayerNorm;
pub use linear::Linear;
pub use mamba2::{Mamba2, MambaShape};
pub use merge_rows::MergeRows;
pub use op::{Op, Rule};
pub use program::{Capacity, Program, Tap};
pub use recorder::Recorder;
pub use relu2::Relu2;
pub use rms_norm::RmsNorm;
pub use rotary::{Frequencies, PairLayout, Rotary, RotaryAngles};
pub use route::{ExpertGroups, Route};
pub use router_scores::RouterScores;
pub use short_conv::ShortConv;
pub use sigmoid_mul::{SigmoidMul, sigmoid};
pub use silu_mul::SiluMul;
pub use tensor::{ElementType, Rows, Tensor, Vector};
