//! `POST /responses`.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use kapitsa::turn::TurnEvent;

use super::{Pending, Whole, Writer, read};
use crate::app::{App, new_id, now};
use crate::error::{ApiError, Refusals};
use crate::openai::chat_logprobs;
use crate::prepare::prepare;
use crate::sse::NamedEvent;
use crate::turns::{TurnWriter, Turns};
use crate::{body, sse};

/// Makes a response.
///
/// The body is that of the Responses API: `input` as text or items, `instructions`, `tools`, `tool_choice`, `text.format`, `reasoning`,
/// `max_output_tokens`, `previous_response_id`, `stream` and the rest of it.
#[utoipa::path(post, path = "/v1/responses", operation_id = "responses", request_body = Object, responses(
    (status = 200, description = "the response, or its events", content(
        (Object = "application/json"), (NamedEvent = "text/event-stream"),
    )),
    Refusals,
))]
pub(crate) async fn create(State(app): State<Arc<App>>, request: Request<Body>) -> Result<Response, ApiError> {
    let body = body::read(&app, request).await?;
    let (asked, turns) = prepare(&app, move |app| {
        let mut asked = read(&body.json()?)?;
        app.check_model(asked.model.as_deref())?;
        app.responses().resume(&mut asked)?;
        let turns = Turns::start(app, &mut asked.turn, 1).map_err(|error| error.messages_are("input"))?;
        Ok((asked, turns))
    })
    .await?;
    let speller = app.clone();
    let spell = Box::new(move |tokens: &[_]| chat_logprobs(speller.llm.tokenizer(), tokens));
    let writer = Writer::new(&asked, &app.model.id, now(), Box::new(new_id), spell);
    let pending = Pending::new(&asked);
    if asked.stream {
        return Ok(turns.events(&app, Responses { app: app.clone(), writer, pending }).into_response());
    }
    let (mut whole, mut response) = (Whole::new(writer), None);
    turns.whole(|_, event| response = whole.hear(event).or(response.take())).await?;
    let response = response.unwrap_or_default();
    if let Some(pending) = pending {
        app.responses().keep(pending, &response);
    }
    Ok(Json(response).into_response())
}

struct Responses {
    app: Arc<App>,
    writer: Writer,
    /// What was said before, if the response is to be kept.
    pending: Option<Pending>,
}

impl TurnWriter for Responses {
    fn opening(&mut self) -> Vec<String> {
        sse::named(self.writer.begin())
    }

    fn event(&mut self, _: usize, event: TurnEvent) -> Vec<String> {
        let is_over = matches!(event, TurnEvent::Finished { .. });
        let events = self.writer.hear(event);
        let pending = if is_over { self.pending.take() } else { None };
        if let (Some(pending), Some((_, last))) = (pending, events.last()) {
            self.app.responses().keep(pending, &last["response"]);
        }
        sse::named(events)
    }

    fn closing(&mut self) -> Vec<String> {
        vec![]
    }

    fn failure(&mut self, error: ApiError) -> Vec<String> {
        sse::named(self.writer.fail(&error))
    }

    fn sign_of_life(&mut self) -> String {
        sse::named(self.writer.sign_of_life()).concat()
    }
}
