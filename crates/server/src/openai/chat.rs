//! `POST /chat/completions`.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use kapitsa::{Error, ImageFile, Prompt, ReplyRequest, ReplyToken};
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use utoipa::ToSchema;

use super::chat_request::{ChatFields, ChatRequest};
use super::choices::{Choices, Chunks, Head, ReplyPart};
use super::conversation::Conversation;
use super::logprobs::ChatLogprobs;
use super::options::Options;
use super::usage::Usage;
use crate::app::App;
use crate::body::{self, fields};
use crate::error::{ApiError, Refusals};
use crate::prepare::{self, prepare};
use crate::sse::Event;

/// A whole reply.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChatCompletion {
    id: String,
    /// `chat.completion`.
    object: &'static str,
    created: u64,
    /// The loaded model, whatever name was asked for.
    model: String,
    choices: Vec<ChatChoice>,
    usage: Usage,
}

#[derive(Default, Serialize, ToSchema)]
struct ChatChoice {
    index: usize,
    message: AssistantMessage,
    /// Null unless asked for.
    logprobs: Option<ChatLogprobs>,
    /// `stop` or `length`.
    finish_reason: &'static str,
}

#[derive(Serialize, ToSchema)]
struct AssistantMessage {
    /// `assistant`.
    role: &'static str,
    content: String,
    /// Always null: this server has no refusals.
    #[schema(value_type = Option<String>)]
    refusal: Option<()>,
}

impl Default for AssistantMessage {
    fn default() -> Self {
        AssistantMessage { role: "assistant", content: String::new(), refusal: None }
    }
}

/// An event of a stream.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChatChunk {
    id: String,
    /// `chat.completion.chunk`.
    object: &'static str,
    created: u64,
    model: String,
    /// Empty in the chunk that has `usage`.
    choices: Vec<ChunkChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Default, Serialize, ToSchema)]
struct ChunkChoice {
    index: usize,
    delta: Delta,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<&'static str>,
}

#[derive(Default, Serialize, ToSchema)]
struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
}

/// Replies to a conversation.
#[utoipa::path(post, path = "/v1/chat/completions", operation_id = "chat", request_body = ChatRequest, responses(
    (status = 200, description = "the reply", content(
        (ChatCompletion = "application/json"), (Event = "text/event-stream"),
    )),
    Refusals,
))]
pub(crate) async fn complete(State(app): State<Arc<App>>, request: Request<Body>) -> Result<Response, ApiError> {
    let body = body::read(&app, request).await?;
    let (options, choices, logprobs) = prepare(&app, move |app| {
        let body = body.json()?;
        let options: Options = fields(&body)?;
        app.check_model(options.model.as_deref())?;
        let chat: ChatFields = fields(&body)?;
        chat.check_supported()?;
        let (logprobs, max_tokens) = (chat.logprobs()?, chat.max_tokens(&options)?);
        let sampling = options.sampling(app.llm.default_sampling())?;
        let (stops, replies) = (options.stops()?, options.replies()?);
        // Last: it may take seconds.
        let (prompt, images_share) = prompt(app, chat)?;
        let request = ReplyRequest { prompt, sampling, stops, max_tokens, logprobs };
        let mut choices = Choices::start(app, "chatcmpl-", &[request], replies)?;
        choices.images_share = Some(images_share);
        Ok((options, choices, logprobs.is_some()))
    })
    .await?;
    if options.streams() {
        let chunks = ChatChunks { app: app.clone(), head: choices.head.clone(), logprobs };
        return Ok(choices.events(&app, chunks, options.includes_usage()).into_response());
    }
    whole(&app, choices, logprobs).await
}

/// The prompt of the conversation, and its share of the memory that images may take.
fn prompt(app: &App, chat: ChatFields) -> Result<(Prompt, OwnedSemaphorePermit), ApiError> {
    let conversation = Conversation::new(app, chat.messages)?;
    let text_bytes = conversation.text_bytes();
    let Conversation { messages, images, image_places } = conversation;
    let placed = |error| match error {
        Error::Image { index, source } => {
            let place = &image_places[index];
            ApiError::field(place, format!("{place}: {source}"))
        }
        error => error.into(),
    };
    let images = app.llm.image_files(images).map_err(placed)?;
    prepare::check_length(app, text_bytes, images.iter().map(ImageFile::tokens).sum())?;
    let share = app.images_share(&images)?;
    let prompt = app.llm.chat_prompt(&messages, &images, app.options.now.map(|now| now())).map_err(placed)?;
    match prompt.tokens.is_empty() {
        true => Err(ApiError::field("messages", "the messages make an empty prompt; at least one token is needed")),
        false => Ok((prompt, share)),
    }
}

async fn whole(app: &App, choices: Choices, logprobs: bool) -> Result<Response, ApiError> {
    let empty = |index| ChatChoice { index, logprobs: logprobs.then(ChatLogprobs::default), ..ChatChoice::default() };
    let mut all: Vec<ChatChoice> = (0..choices.count).map(empty).collect();
    let tokenizer = app.llm.tokenizer();
    let (head, usage) = choices
        .whole(|index, part| match part {
            ReplyPart::Piece(text, tokens) => {
                all[index].message.content += &text;
                if let Some(logprobs) = &mut all[index].logprobs {
                    logprobs.add(tokenizer, &tokens);
                }
            }
            ReplyPart::End(reply) => all[index].finish_reason = reply.reason.name(),
        })
        .await?;
    let Head { id, created, model } = head;
    Ok(Json(ChatCompletion { id, object: "chat.completion", created, model, choices: all, usage }).into_response())
}

struct ChatChunks {
    app: Arc<App>,
    head: Head,
    logprobs: bool,
}

impl ChatChunks {
    fn chunk(&self, choice: Option<ChunkChoice>, usage: Option<Usage>) -> ChatChunk {
        let Head { id, created, model } = self.head.clone();
        let choices = choice.into_iter().collect();
        ChatChunk { id, object: "chat.completion.chunk", created, model, choices, usage }
    }
}

impl Chunks for ChatChunks {
    type Chunk = ChatChunk;

    fn opening(&mut self, index: usize) -> Option<ChatChunk> {
        let delta = Delta { role: Some("assistant"), content: Some(String::new()) };
        Some(self.chunk(Some(ChunkChoice { index, delta, ..ChunkChoice::default() }), None))
    }

    fn piece(&mut self, index: usize, text: String, tokens: &[ReplyToken]) -> ChatChunk {
        let delta = Delta { role: None, content: Some(text) };
        let logprobs = self.logprobs.then(|| ChatLogprobs::new(self.app.llm.tokenizer(), tokens));
        self.chunk(Some(ChunkChoice { index, delta, logprobs, finish_reason: None }), None)
    }

    fn end(&mut self, index: usize, reason: &'static str) -> ChatChunk {
        self.chunk(Some(ChunkChoice { index, finish_reason: Some(reason), ..ChunkChoice::default() }), None)
    }

    fn usage(&mut self, usage: Usage) -> ChatChunk {
        self.chunk(None, Some(usage))
    }
}
