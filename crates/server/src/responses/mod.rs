//! The OpenAI API: Responses, as pure functions from JSON to [`kapitsa::turn`] and back.
//!
//! [`read`] takes a request apart, [`Writer`] makes the events of a stream, [`Whole`] the response in one piece, and a [`Store`]
//! keeps responses for `previous_response_id`.
//!
//! Invariant: no clock, no randomness, no socket. Time and ids come in as arguments.

mod events;
mod input;
mod reasoning;
mod request;
pub(crate) mod routes;
mod store;
#[cfg(test)]
mod tests;
mod tools;
mod whole;

use events::Writer;
use request::ResponsesRequest;
pub(crate) use request::read;
use store::Pending;
pub(crate) use store::Store;
use whole::Whole;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::ApiError;

/// Longest text of a client in a message.
const SHOWN: usize = 200;

/// Takes `T` out of what stands at `place` of the request; fields that it does not have are ignored.
///
/// # Errors
/// Names the place of what is missing or of another type.
fn at<T: DeserializeOwned>(place: &str, value: &Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let place = match (place, error.path().to_string().as_str()) {
            (place, "." | "?") => place.to_owned(),
            ("", path) => path.to_owned(),
            (place, path) => format!("{place}.{path}"),
        };
        let message: String = error.into_inner().to_string().chars().take(SHOWN).collect();
        ApiError::field(&place, format!("{place}: {message}"))
    })
}

/// The error about what stands at `place`.
fn wrong(place: &str, what: impl std::fmt::Display) -> ApiError {
    let what: String = what.to_string().chars().take(SHOWN).collect();
    ApiError::place(place, what)
}

/// What a value is, for messages.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
