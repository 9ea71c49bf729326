//! Kapitsa: open a model, talk to it.
//!
//! The facade joins the engine (token ids) with text (tokenizer, template, stop strings), files and devices. Programs
//! and servers use this crate and no other.
#![forbid(unsafe_code)]

pub mod doctor;
mod error;
mod history;
mod images;
mod llm;
mod memory;
mod open;
mod resolve;
mod stream;
mod text;
pub mod turn;

pub use error::Error;
pub use images::{ImageFile, Prompt};
pub use kapitsa_cpu::Activations;
pub use kapitsa_engine::sample::SamplingOptions;
pub use kapitsa_engine::{Engine, EngineError, Image, MAX_TOP_LOGPROBS, Stats, StepTimes, TokenLogprob, TokenLogprobs};
pub use kapitsa_hub as hub;
pub use kapitsa_tensor::DType;
pub use kapitsa_text::{LocalTime, Message, Specials, TextError, Tokenizer, call_arguments};
pub use kapitsa_vision::{ImageError, ImageLimits};
pub use llm::{Event, FinishReason, Listen, Llm, Reply, ReplyRequest, open_tokenizer};
pub use memory::Memory;
pub use open::{OpenOptions, open_engine};
pub use resolve::{Located, locate_model, open_hub};
pub use stream::{ReplyEvent, ReplyStream, ReplyToken};
