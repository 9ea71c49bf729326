//! Errors: `{"type": "error", "error": {"type", "message"}, "request_id"}`.

use axum::http::StatusCode;
use serde_json::{Value, json};
use utoipa::{IntoResponses, ToSchema};

use crate::error::{ApiError, Overflow};

/// The body of an error, for the OpenAPI document.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description")]
pub(crate) struct MessageError {
    /// `error`.
    r#type: String,
    error: MessageErrorDetail,
    /// The same as in the header `request-id`.
    request_id: Option<String>,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "a description")]
struct MessageErrorDetail {
    r#type: String,
    message: String,
}

/// What a request of this API may be answered with instead, for the OpenAPI document. The statuses mean what they do elsewhere.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "a description")]
pub(crate) enum MessageRefusals {
    /// the request cannot be served as it is
    #[response(status = 400)]
    Invalid(MessageError),
    /// the loaded model has another name
    #[response(status = 404)]
    OtherModel(MessageError),
    /// the body took too long to arrive
    #[response(status = 408)]
    SlowBody(MessageError),
    /// the body is too large
    #[response(status = 413)]
    LargeBody(MessageError),
    /// slots and queue are full
    #[response(status = 429)]
    Busy(MessageError),
    /// a fault of the server
    #[response(status = 500)]
    Fault(MessageError),
    /// the engine has stopped
    #[response(status = 503)]
    Stopped(MessageError),
}

/// The body of an error. Errors within a stream have no id.
pub(crate) fn body(error: &ApiError, request_id: Option<&str>) -> Value {
    let detail = &json!(error.body())["error"];
    let message = match error.overflow {
        // The form in which clients look for the numbers.
        Some(Overflow { tokens, context }) => format!("prompt is too long: {tokens} tokens > {context} maximum"),
        None => detail["message"].as_str().unwrap_or_default().to_owned(),
    };
    let mut body = json!({ "type": "error", "error": { "type": kind(error.status), "message": message } });
    if let Some(id) = request_id {
        body["request_id"] = id.into();
    }
    body
}

fn kind(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_go_by_the_status() {
        let cases = [
            (ApiError::field("tools[0]", "tools[0] is wrong"), "invalid_request_error"),
            (ApiError::unauthorized("no key"), "authentication_error"),
            (ApiError::forbidden("no"), "permission_error"),
            (ApiError::not_found("none"), "not_found_error"),
            (ApiError::status(StatusCode::REQUEST_TIMEOUT, "slow"), "invalid_request_error"),
            (ApiError::status(StatusCode::PAYLOAD_TOO_LARGE, "large"), "request_too_large"),
            (ApiError::busy("full"), "rate_limit_error"),
            (ApiError::internal("oh"), "api_error"),
            (ApiError::unavailable("stopped"), "overloaded_error"),
        ];
        for (error, kind) in cases {
            assert_eq!(body(&error, Some("req_1"))["error"]["type"], kind, "{error:?}");
        }
        let expected = json!({
            "type": "error",
            "error": { "type": "invalid_request_error", "message": "stop is wrong" },
            "request_id": "req_1",
        });
        assert_eq!(body(&ApiError::invalid("stop is wrong"), Some("req_1")), expected);
    }

    #[test]
    fn a_prompt_that_is_too_long_has_its_numbers_where_clients_look() {
        for or_more in ["", " or more"] {
            let body = body(&ApiError::too_long(4096, 6012, or_more), None);
            assert_eq!(body["error"]["message"], "prompt is too long: 6012 tokens > 4096 maximum");
            assert_eq!(body["error"]["type"], "invalid_request_error");
            assert_eq!(body.get("request_id"), None);
        }
    }
}
