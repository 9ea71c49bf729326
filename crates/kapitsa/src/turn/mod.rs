//! A turn of the assistant as any API asks for it, and what happens while it is made.
//!
//! The APIs of the server are translated to [`TurnRequest`] and from [`TurnEvent`]; nothing behind these knows which API a
//! client speaks.

mod budget;
mod compiler;
mod constraint;
mod event;
mod grammar;
mod images;
mod prefix;
mod prompt;
mod request;
mod stream;
mod text_input;

pub(crate) use budget::Budget;
pub(crate) use compiler::Compiler;
pub(crate) use constraint::TurnConstraint;
pub use event::{TurnEnd, TurnEvent, TurnUsage};
pub(crate) use grammar::{Rules, Start};
pub(crate) use prefix::Prompts;
pub use prefix::{Cause, Difference, Part, TurnPrompt, difference};
pub use prompt::TEXT_INPUT;
pub(crate) use prompt::TemplateInput;
pub use request::{
    AnswerFormat, ImageData, ImageSource, SamplingChanges, Thinking, Tool, ToolChoice, ToolInput, TurnRequest,
};
pub use stream::TurnStream;
