//! `POST /chat/completions`.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use kapitsa::turn::{TurnEnd, TurnEvent};
use serde::Serialize;
use utoipa::ToSchema;

use super::chat_request::{ChatFields, ChatRequest};
use super::choices::Head;
use super::logprobs::ChatLogprobs;
use super::options::Options;
use super::usage::Usage;
use crate::app::{App, new_id, now};
use crate::body::{self, fields};
use crate::error::{ApiError, Refusals};
use crate::prepare::prepare;
use crate::sse::{self, Event};
use crate::turns::{TurnWriter, Turns};

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
    /// `stop`, `length` or `tool_calls`.
    finish_reason: &'static str,
}

#[derive(Serialize, ToSchema)]
struct AssistantMessage {
    /// `assistant`.
    role: &'static str,
    /// Null if there is nothing but calls.
    content: Option<String>,
    /// What the model thought, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall>,
    /// Always null: this server has no refusals.
    #[schema(value_type = Option<String>)]
    refusal: Option<()>,
}

impl Default for AssistantMessage {
    fn default() -> Self {
        let content = Some(String::new());
        AssistantMessage { role: "assistant", content, reasoning_content: None, tool_calls: vec![], refusal: None }
    }
}

/// A call of a tool, or a piece of one.
#[derive(Serialize, ToSchema)]
struct ToolCall {
    /// In pieces: which call.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// `function`.
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'static str>,
    function: FunctionCall,
}

#[derive(Default, Serialize, ToSchema)]
struct FunctionCall {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// JSON; pieces of it, joined, are.
    arguments: String,
}

impl ToolCall {
    fn begin(index: Option<usize>, name: String) -> Self {
        let function = FunctionCall { name: Some(name), arguments: String::new() };
        ToolCall { index, id: Some(new_id("call_")), r#type: Some("function"), function }
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
    /// What the model thinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall>,
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
    let (options, turns, logprobs) = prepare(&app, move |app| {
        let body = body.json()?;
        let options: Options = fields(&body)?;
        app.check_model(options.model.as_deref())?;
        let chat: ChatFields = fields(&body)?;
        let mut turn = chat.turn(&options)?;
        let turns = Turns::start(app, &mut turn, options.replies()?)?;
        Ok((options, turns, turn.logprobs.is_some()))
    })
    .await?;
    let head = Head { id: new_id("chatcmpl-"), created: now(), model: app.model.id.clone() };
    let usage = Usage::new(turns.prompt_tokens);
    if options.streams() {
        let (count, includes_usage) = (turns.count, options.includes_usage());
        let writer = ChatWriter { app: app.clone(), head, usage, includes_usage, logprobs, count };
        return Ok(turns.events(&app, writer).into_response());
    }
    whole(&app, turns, head, usage, logprobs).await
}

async fn whole(app: &App, turns: Turns, head: Head, mut usage: Usage, logprobs: bool) -> Result<Response, ApiError> {
    let empty = |index| ChatChoice { index, logprobs: logprobs.then(ChatLogprobs::default), ..ChatChoice::default() };
    let mut all: Vec<ChatChoice> = (0..turns.count).map(empty).collect();
    let tokenizer = app.llm.tokenizer();
    let hear = |index: usize, event| {
        let ChatChoice { message, logprobs, finish_reason, .. } = &mut all[index];
        match event {
            TurnEvent::Prefill(_) | TurnEvent::CallEnds { .. } => {}
            TurnEvent::Thinking(text) => message.reasoning_content.get_or_insert_default().push_str(&text),
            TurnEvent::Text { text, tokens } => {
                message.content.get_or_insert_default().push_str(&text);
                if let Some(logprobs) = logprobs {
                    logprobs.add(tokenizer, &tokens);
                }
            }
            TurnEvent::CallBegins { name, .. } => message.tool_calls.push(ToolCall::begin(None, name)),
            TurnEvent::CallInput { index, piece } => message.tool_calls[index].function.arguments += &piece,
            TurnEvent::Finished { end, usage: turn } => {
                usage.add_turn(&turn);
                *finish_reason = reason(&end);
                if !message.tool_calls.is_empty() {
                    message.content.take_if(|content| content.is_empty());
                }
            }
        }
    };
    turns.whole(hear).await?;
    let Head { id, created, model } = head;
    Ok(Json(ChatCompletion { id, object: "chat.completion", created, model, choices: all, usage }).into_response())
}

/// The API's word for it.
fn reason(end: &TurnEnd) -> &'static str {
    match end {
        TurnEnd::Turn | TurnEnd::StopText(_) => "stop",
        TurnEnd::Calls => "tool_calls",
        TurnEnd::Length => "length",
    }
}

struct ChatWriter {
    app: Arc<App>,
    head: Head,
    usage: Usage,
    includes_usage: bool,
    logprobs: bool,
    /// Turns.
    count: usize,
}

impl ChatWriter {
    fn chunk(&self, choice: Option<ChunkChoice>, usage: Option<Usage>) -> String {
        let Head { id, created, model } = self.head.clone();
        let choices = choice.into_iter().collect();
        sse::data(&ChatChunk { id, object: "chat.completion.chunk", created, model, choices, usage })
    }

    fn delta(&self, index: usize, delta: Delta) -> Vec<String> {
        vec![self.chunk(Some(ChunkChoice { index, delta, ..ChunkChoice::default() }), None)]
    }

    fn call(&self, index: usize, call: ToolCall) -> Vec<String> {
        self.delta(index, Delta { tool_calls: vec![call], ..Delta::default() })
    }
}

impl TurnWriter for ChatWriter {
    fn opening(&mut self) -> Vec<String> {
        let delta = || Delta { role: Some("assistant"), content: Some(String::new()), ..Delta::default() };
        (0..self.count).flat_map(|index| self.delta(index, delta())).collect()
    }

    fn event(&mut self, index: usize, event: TurnEvent) -> Vec<String> {
        match event {
            TurnEvent::Prefill(_) | TurnEvent::CallEnds { .. } => vec![],
            TurnEvent::Thinking(text) => self.delta(index, Delta { reasoning_content: Some(text), ..Delta::default() }),
            TurnEvent::Text { text, tokens } => {
                let delta = Delta { content: Some(text), ..Delta::default() };
                let logprobs = self.logprobs.then(|| ChatLogprobs::new(self.app.llm.tokenizer(), &tokens));
                vec![self.chunk(Some(ChunkChoice { index, delta, logprobs, finish_reason: None }), None)]
            }
            TurnEvent::CallBegins { index: call, name } => self.call(index, ToolCall::begin(Some(call), name)),
            TurnEvent::CallInput { index: call, piece } => {
                let function = FunctionCall { name: None, arguments: piece };
                self.call(index, ToolCall { index: Some(call), id: None, r#type: None, function })
            }
            TurnEvent::Finished { end, usage } => {
                self.usage.add_turn(&usage);
                let finish_reason = Some(reason(&end));
                vec![self.chunk(Some(ChunkChoice { index, finish_reason, ..ChunkChoice::default() }), None)]
            }
        }
    }

    fn closing(&mut self) -> Vec<String> {
        let usage = self.includes_usage.then(|| self.chunk(None, Some(self.usage)));
        usage.into_iter().chain([sse::DONE.to_owned()]).collect()
    }

    fn failure(&mut self, error: ApiError) -> Vec<String> {
        vec![sse::data(error.body())]
    }

    fn sign_of_life(&mut self) -> String {
        sse::SIGN_OF_LIFE.to_owned()
    }
}
