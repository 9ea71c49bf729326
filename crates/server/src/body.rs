//! Bodies of requests: read with limits on size, time and on what all of them take together.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use crate::app::App;
use crate::error::ApiError;

/// How long the rest of a body that is too large is read and dropped, so that the client gets to read the answer.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// A body, and its share of the memory that bodies may take.
pub(crate) struct Bytes {
    bytes: Vec<u8>,
    _share: Option<OwnedSemaphorePermit>,
}

/// Reads a body.
///
/// # Errors
/// If it is too large, too slow or cut, or if all bodies together take too much memory.
pub(crate) async fn read(app: &App, request: Request<Body>) -> Result<Bytes, ApiError> {
    let limits = &app.options.limits;
    let declared = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let mut body = request.into_body();
    if declared.is_some_and(|declared: u64| declared > limits.body_bytes as u64) {
        return Err(too_large(body, limits.body_bytes));
    }
    let end = Instant::now() + limits.body_time;
    let mut bytes = Vec::new();
    let mut share: Option<OwnedSemaphorePermit> = None;
    loop {
        let frame = timeout_at(end.min(Instant::now() + limits.body_pause), body.frame()).await;
        let frame = frame.map_err(|_| {
            ApiError::status(StatusCode::REQUEST_TIMEOUT, "the body took too long to arrive; send it in one go")
        })?;
        let data = match frame {
            None => return Ok(Bytes { bytes, _share: share }),
            Some(Err(error)) => return Err(ApiError::invalid(format!("the body cannot be read: {error}"))),
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
        };
        if bytes.len() + data.len() > limits.body_bytes {
            return Err(too_large(body, limits.body_bytes));
        }
        bytes.extend_from_slice(&data);
        let missing = (bytes.len() >> 10).saturating_sub(share.as_ref().map_or(0, OwnedSemaphorePermit::num_permits));
        if missing > 0 {
            // Fits: a body's limit is below 4 TB.
            let more = app.body_kilobytes.clone().try_acquire_many_owned(missing as u32);
            let more = more.map_err(|_| ApiError::busy("too many large requests at a time; try again later"))?;
            match &mut share {
                Some(share) => share.merge(more),
                None => share = Some(more),
            }
        }
    }
}

fn too_large(mut body: Body, limit: usize) -> ApiError {
    tokio::spawn(tokio::time::timeout(DRAIN_TIME, async move { while let Some(Ok(_)) = body.frame().await {} }));
    ApiError::status(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("the body has more than {limit} bytes; send a shorter conversation or smaller images"),
    )
}

impl Bytes {
    /// The JSON object in it.
    pub(crate) fn json(self) -> Result<Value, ApiError> {
        let value: Value = serde_json::from_slice(&self.bytes)
            .map_err(|error| ApiError::invalid(format!("the body is not JSON: {error}")))?;
        match value {
            Value::Object(_) => Ok(value),
            _ => Err(ApiError::invalid("the body is JSON, but not an object")),
        }
    }
}

/// Takes the fields of `T` out of a JSON object; others are ignored.
///
/// # Errors
/// Names the field that is of another type or missing.
pub(crate) fn fields<T: DeserializeOwned>(value: &Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let message = error.into_inner().to_string();
        match path.as_str() {
            "." | "?" => ApiError::invalid(message),
            path => ApiError::field(path, format!("{path}: {message}")),
        }
    })
}
