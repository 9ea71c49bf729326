//! Errors: `{"type": "error", "error": {"type", "message"}, "request_id"}`.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::error::ApiError;

/// The body of an error. Errors within a stream have no id.
pub(crate) fn body(error: &ApiError, request_id: Option<&str>) -> Value {
    let detail = &json!(error.body())["error"];
    let message = detail["message"].as_str().unwrap_or_default();
    let message = match detail["code"] == "context_length_exceeded" {
        true => too_long(message).unwrap_or_else(|| message.to_owned()),
        false => message.to_owned(),
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

/// The form in which clients look for the numbers. [`ApiError::too_long`] has them in its message: the limit, then the prompt.
fn too_long(message: &str) -> Option<String> {
    let mut numbers = message.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let (limit, tokens) = (numbers.next()?, numbers.next()?);
    Some(format!("prompt is too long: {tokens} tokens > {limit} maximum"))
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
