//! Text on both sides of the model: tokenizers, chat templates, detokenizing, stop strings.
//!
//! Everything here is a pure function of its arguments: no file, clock, environment or random number is read, and no
//! tensor is known. Tokenizer files and chat templates come from strangers; whatever they hold, the worst result is an
//! error value, reached in bounded time and memory.
#![forbid(unsafe_code)]

mod detokenizer;
mod error;
mod prompt;
mod stop;
mod template;
mod tokenizer;

pub use detokenizer::Detokenizer;
pub use error::TextError;
pub use prompt::Prompt;
pub use stop::{StopMatcher, StopStep};
pub use template::{ChatTemplate, LocalTime, Message, RenderOptions, TEXT_INPUT, call_arguments};
pub use tokenizer::{GgufVocabulary, Specials, Tokenizer};
