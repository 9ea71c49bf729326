//! Errors in the form of the API: a status and `{"error": {"message", "type", "param", "code"}}`.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use kapitsa::{EngineError, Error, TextError};
use serde::Serialize;
use serde_json::Value;
use utoipa::{IntoResponses, ToSchema};

/// Seconds after which a client that met a full queue may come again.
const RETRY_AFTER: &str = "2";

/// Why a request is not served.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    body: ErrorBody,
    /// Of a prompt that does not fit.
    pub(crate) overflow: Option<Overflow>,
}

/// Tokens of a prompt that does not fit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overflow {
    /// At least so many.
    pub(crate) tokens: usize,
    pub(crate) context: usize,
}

/// The body of an error.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    error: ErrorDetail,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
struct ErrorDetail {
    /// For people.
    message: String,
    /// The class of the error.
    r#type: &'static str,
    /// The field at fault, such as `messages[2].content`.
    param: Option<String>,
    /// For programs.
    code: Option<&'static str>,
}

/// What a request for a reply may be answered with instead, for the OpenAPI document.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "a description")]
pub(crate) enum Refusals {
    /// the request cannot be served as it is
    #[response(status = 400)]
    Invalid(ErrorBody),
    /// the loaded model has another name
    #[response(status = 404)]
    OtherModel(ErrorBody),
    /// the body took too long to arrive
    #[response(status = 408)]
    SlowBody(ErrorBody),
    /// the body is too large
    #[response(status = 413)]
    LargeBody(ErrorBody),
    /// slots and queue are full
    #[response(status = 429)]
    Busy(ErrorBody),
    /// a fault of the server
    #[response(status = 500)]
    Fault(ErrorBody),
    /// the engine has stopped
    #[response(status = 503)]
    Stopped(ErrorBody),
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        let error = ErrorDetail { message: message.into(), r#type: kind, param: None, code: None };
        ApiError { status, body: ErrorBody { error }, overflow: None }
    }

    /// The request cannot be served as it is.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// As [`invalid`](Self::invalid), because of a field.
    pub(crate) fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::invalid(message).param(param)
    }

    /// As [`field`](Self::field), with a message that begins with the field.
    pub(crate) fn place(place: &str, what: impl std::fmt::Display) -> Self {
        Self::field(place, format!("{place} {what}"))
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", message)
    }

    /// With another status, as a fault of the client.
    pub(crate) fn status(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, "invalid_request_error", message)
    }

    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "authentication_error", message).code("invalid_api_key")
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "permission_error", message)
    }

    /// Slots and queue are full.
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message).code("server_busy")
    }

    /// The engine has stopped.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", message).code("engine_stopped")
    }

    /// A fault of ours.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    pub(crate) fn code(mut self, code: &'static str) -> Self {
        self.body.error.code = Some(code);
        self
    }

    pub(crate) fn param(mut self, param: impl Into<String>) -> Self {
        self.body.error.param = Some(param.into());
        self
    }

    /// For an API that calls the messages otherwise.
    pub(crate) fn messages_are(self, field: &str) -> Self {
        if self.body.error.param.as_deref() == Some("messages") { self.param(field) } else { self }
    }

    /// The prompt does not fit. Clients look for the code or for words of the message.
    pub(crate) fn too_long(context: usize, tokens: usize, or_more: &str) -> Self {
        let error = Self::field(
            "messages",
            format!(
                "this model's maximum context length is {context} tokens, but your messages resulted in {tokens} \
                 tokens{or_more}; please reduce the length of the messages"
            ),
        )
        .code("context_length_exceeded");
        ApiError { overflow: Some(Overflow { tokens, context }), ..error }
    }

    /// What a stream that has begun sends.
    pub(crate) fn body(&self) -> &ErrorBody {
        &self.body
    }
}

/// A value for a message.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("`{}`", clip(text)),
        Value::Null => "null".into(),
        Value::Bool(_) => "a boolean".into(),
        Value::Number(number) => number.to_string(),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
    }
}

/// As much of a text as a message or note shows.
pub(crate) fn clip(text: &str) -> String {
    text.chars().take(60).collect()
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Engine(error) => match error {
                EngineError::PromptTooLong { tokens, context } => Self::too_long(context, tokens, ""),
                EngineError::Busy { .. } => Self::busy(message),
                EngineError::Options(options) => Self::field(options.field, message),
                EngineError::TooManyLogprobs { .. } => Self::field("top_logprobs", message),
                EngineError::EmptyPrompt | EngineError::UnknownToken { .. } => Self::field("prompt", message),
                EngineError::Images { .. } => Self::field("messages", message),
                EngineError::Stopped => Self::unavailable("the engine has stopped; the server has to be started again"),
                // Another try would end the same way.
                EngineError::Constraint { .. } => Self::invalid(message).code("unsupported_value"),
                EngineError::Sample(_) | EngineError::Device(_) | EngineError::Crashed { .. } => {
                    Self::internal(message)
                }
            },
            Error::Grammar { place, .. } => Self::field(place, message).code("unsupported_value"),
            Error::Text(TextError::EmptyStop { .. }) => Self::field("stop", message),
            Error::Text(_) | Error::NoTemplate | Error::NoVision | Error::Image { .. } | Error::ImagePlaces { .. } => {
                Self::field("messages", message)
            }
            _ => Self::internal(message),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body)).into_response();
        let headers = response.headers_mut();
        match self.status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            // The rest of the request is not read.
            StatusCode::REQUEST_TIMEOUT | StatusCode::PAYLOAD_TOO_LARGE => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}
