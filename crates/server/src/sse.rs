//! Server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, unfold};
use serde::Serialize;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use utoipa::ToSchema;

/// The last event of a stream in which all went well.
pub(crate) const DONE: &str = "data: [DONE]\n\n";

/// A comment: clients skip it, and know that somebody is there.
pub(crate) const SIGN_OF_LIFE: &str = ": keep-alive\n\n";

/// An event of a stream.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the document alone")]
pub(crate) struct Event {
    /// JSON: a `ChatChunk` or a `Completion`, or an `ErrorBody` as the last one of a stream that failed. The last one of a stream
    /// in which all went well is `[DONE]`.
    data: String,
}

/// An event of a stream of the Responses or the Messages API.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the document alone")]
pub(crate) struct NamedEvent {
    event: String,
    /// JSON, whose `type` is the event's name.
    data: String,
}

/// Events, each as it is sent.
pub(crate) struct Events(BoxStream<'static, Result<Bytes, Infallible>>);

/// An event of one line.
pub(crate) fn data(value: &impl Serialize) -> String {
    match serde_json::to_string(value) {
        Ok(json) => format!("data: {json}\n\n"),
        // Wire types have string keys and finite numbers.
        Err(error) => format!("data: {{\"error\":{{\"message\":\"{error}\",\"type\":\"server_error\"}}}}\n\n"),
    }
}

/// Events with names.
pub(crate) fn named(events: Vec<(&'static str, Value)>) -> Vec<String> {
    events.into_iter().map(|(name, value)| format!("event: {name}\n{}", data(&value))).collect()
}

/// Events that are sent as they come.
pub(crate) fn events(events: BoxStream<'static, String>) -> Events {
    Events(events.map(|event| Ok(Bytes::from(event))).boxed())
}

/// Adds a sign of life whenever there was nothing to send for `silence`, by the clock.
pub(crate) fn with_signs_of_life(events: BoxStream<'static, String>, silence: Duration) -> Events {
    let next = move |mut events: BoxStream<'static, String>| async move {
        let event = match timeout_at(Instant::now() + silence, events.next()).await {
            Ok(event) => event?,
            Err(_) => SIGN_OF_LIFE.to_owned(),
        };
        Some((Ok(Bytes::from(event)), events))
    };
    Events(unfold(events, next).boxed())
}

impl IntoResponse for Events {
    fn into_response(self) -> Response {
        let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
        (headers, Body::from_stream(self.0)).into_response()
    }
}
