//! The OpenAI API: Chat Completions, Completions, Models.

pub(crate) mod chat;
mod chat_request;
mod choices;
pub(crate) mod completions;
mod conversation;
mod logprobs;
pub(crate) mod models;
mod options;
mod usage;

pub(crate) use chat::ChatChunk;
pub(crate) use logprobs::chat_logprobs;
