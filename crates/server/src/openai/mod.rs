//! The OpenAI API: Chat Completions, Completions, Models.

pub(crate) mod chat;
mod chat_request;
mod choices;
pub(crate) mod completions;
mod conversation;
mod logprobs;
pub(crate) mod models;
mod options;
#[cfg(test)]
mod tests;
mod usage;

pub(crate) use chat::ChatChunk;
pub(crate) use logprobs::chat_logprobs;

/// The turn that the body of a chat completion asks for.
#[cfg(test)]
pub(crate) fn read_chat(body: &serde_json::Value) -> Result<kapitsa::turn::TurnRequest, crate::error::ApiError> {
    use crate::body::fields;
    fields::<chat_request::ChatFields>(body)?.turn(&fields(body)?)
}
