//! How models write tool calls, reasoning and the end of a turn, and how that is read back while it comes.
//!
//! A [`Reader`] is given an answer in pieces and puts out [`Event`]s: reasoning, content, and calls whose arguments
//! stream as JSON. How the text is cut into pieces makes no difference to what the events say. Work is linear in the
//! text. Held back is only what may still become markup (some hundred bytes), a value that must be whole to be JSON, and
//! arguments that come before their call's name.
//!
//! # Rules
//!
//! **Reasoning** is split off first.
//! - `<think>` opens it where nothing but white space has come before, or after earlier reasoning. The first `</think>`
//!   closes it. Dropped are newlines after `<think>`, one newline before `</think>`, and newlines after `</think>`.
//! - A call in reasoning is a draft. If reasoning is never closed, the model ends its turn, and the reasoning ends in
//!   complete calls, then these are delivered, once, after the reasoning.
//!
//! **Content** is all that is neither reasoning nor a call, byte for byte.
//! - White space is dropped between calls and after a call, and before a call that nothing else comes before.
//! - Markup is a call only if it reads as one up to a name and what must follow it. Else it is text.
//! - Markup in a code fence or in a code span of one line is text. If the fence is never closed, the model ends its turn,
//!   and the text ends in complete calls, then these are delivered after it.
//! - Without declared tools all markup is text. With tools, a call of one that was not declared is a call.
//!
//! **Values between tags** ([`Dialect::QwenXml`], [`Dialect::Glm`]) are text, byte for byte, if the declared schema says
//! string or the parameter is not declared. Else they are JSON if they read as JSON of a declared type, and text if not.
//! In [`Dialect::QwenXml`] one newline at each side of a value belongs to the tags.
//! - A closer in a value counts if the next parameter or the end of the call follows, after white space or none.
//! - If parameters were opened in the value, closers are theirs, until a declared parameter follows that has not been
//!   given, or the whole call is closed and another call follows or nothing. The latter also closes a value whose own
//!   closer is missing.
//!
//! **JSON** passes as it is. Repaired are single quotes, quotes and control characters that are not escaped, words that
//! are not JSON, missing and surplus commas and closers.
//! - A quote ends a value if the next member, a closer of what is open or the end follows, after white space or none.
//! - A string for `arguments` is read as the object that it holds. `null` is `{}`. What is no object becomes the member
//!   `arguments` of one.
//! - Text after the value is content.
//!
//! **The end of the turn** ends a call that is not closed, unless it came from the limit ([`End::Length`]): such a call
//! has no [`Event::CallEnds`], and its arguments may be cut anywhere.
#![forbid(unsafe_code)]

mod answer;
mod arguments;
mod dialect;
mod draft;
mod envelope;
mod event;
mod form;
mod glm;
mod hermes;
mod json;
mod look;
mod nemotron;
mod parameters;
mod plain;
mod quotes;
mod qwen;
mod reader;
mod schema;

pub use dialect::{Dialect, MARKUP};
pub use event::{End, Event};
pub use form::{Arguments, Form};
pub use reader::{Reader, Tool};
