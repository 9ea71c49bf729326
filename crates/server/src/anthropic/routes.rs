//! `POST /messages` and `POST /messages/count_tokens`.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Request};
use axum::response::{IntoResponse, Response};
use kapitsa::turn::{TurnEvent, TurnUsage};
use serde::Serialize;
use utoipa::ToSchema;

use super::error::MessageRefusals;
use super::events::{Event, Writer};
use super::{error, request, whole::Whole};
use crate::app::{App, new_id};
use crate::error::ApiError;
use crate::prepare::prepare;
use crate::sse::NamedEvent;
use crate::turns::{TurnWriter, Turns};
use crate::{body, sse};

/// Makes a message.
///
/// The body is that of the Messages API: `system`, `messages`, `tools`, `tool_choice`, `thinking`, `output_config`, `max_tokens`,
/// `stop_sequences`, `stream` and the rest of it.
#[utoipa::path(post, path = "/v1/messages", operation_id = "messages", request_body = Object, responses(
    (status = 200, description = "the message, or its events", content(
        (Object = "application/json"), (NamedEvent = "text/event-stream"),
    )),
    MessageRefusals,
))]
pub(crate) async fn create(State(app): State<Arc<App>>, request: Request<Body>) -> Response {
    answered(message(&app, request).await)
}

/// Counts the tokens of a prompt, without the model. The body is that of `/v1/messages`.
#[utoipa::path(post, path = "/v1/messages/count_tokens", operation_id = "count_tokens", request_body = Object, responses(
    (status = 200, body = TokenCount), MessageRefusals,
))]
pub(crate) async fn count_tokens(State(app): State<Arc<App>>, request: Request<Body>) -> Response {
    answered(count(&app, request).await)
}

/// The tokens of a prompt.
#[derive(Serialize, ToSchema)]
struct TokenCount {
    input_tokens: usize,
}

async fn message(app: &Arc<App>, request: Request<Body>) -> Result<Response, ApiError> {
    let body = body::read(app, request).await?;
    let (stream, turns) = prepare(app, move |app| {
        let mut asked = request::read(&body.json()?)?;
        app.check_model(asked.model.as_deref())?;
        Ok((asked.stream, Turns::start(app, &mut asked.turn, 1)?))
    })
    .await?;
    let (id, model) = (new_id("msg_"), &app.model.id);
    let prompt = TurnUsage { prompt: turns.prompt_tokens, ..TurnUsage::default() };
    if stream {
        let (writer, opening) = Writer::start(&id, model, prompt);
        return Ok(turns.events(app, Messages { writer, opening }).into_response());
    }
    let mut whole = Whole::start(&id, model, prompt);
    turns.whole(|_, event| whole.hear(event)).await?;
    Ok(Json(whole.message()).into_response())
}

async fn count(app: &Arc<App>, request: Request<Body>) -> Result<Response, ApiError> {
    let body = body::read(app, request).await?;
    let input_tokens = prepare(app, move |app| {
        let mut asked = request::read(&body.json()?)?;
        app.check_model(asked.model.as_deref())?;
        Turns::count(app, &mut asked.turn)
    })
    .await?;
    Ok(Json(TokenCount { input_tokens }).into_response())
}

/// With errors in the form of this API, and an id that both have.
fn answered(answer: Result<Response, ApiError>) -> Response {
    let id = new_id("req_");
    let mut response = match answer {
        Ok(response) => response,
        Err(refusal) => {
            let body = Json(error::body(&refusal, Some(&id)));
            let mut response = refusal.into_response();
            // Its other headers stay.
            response.headers_mut().remove(axum::http::header::CONTENT_LENGTH);
            *response.body_mut() = body.into_response().into_body();
            response
        }
    };
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("request-id", id);
    }
    response
}

struct Messages {
    writer: Writer,
    opening: Vec<Event>,
}

impl TurnWriter for Messages {
    fn opening(&mut self) -> Vec<String> {
        sse::named(std::mem::take(&mut self.opening))
    }

    fn event(&mut self, _: usize, event: TurnEvent) -> Vec<String> {
        sse::named(self.writer.hear(event))
    }

    fn closing(&mut self) -> Vec<String> {
        vec![]
    }

    fn failure(&mut self, error: ApiError) -> Vec<String> {
        sse::named(vec![self.writer.fail(&error)])
    }

    fn sign_of_life(&mut self) -> String {
        sse::named(self.writer.sign_of_life()).concat()
    }
}
