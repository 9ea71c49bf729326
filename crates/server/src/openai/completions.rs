//! `POST /completions`: text that goes on.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use kapitsa::{Prompt, ReplyRequest, ReplyToken};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::choices::{Choices, Head, ReplyPart};
use super::logprobs::TextLogprobs;
use super::options::{MAX_CHOICES, Options};
use super::usage::Usage;
use crate::app::App;
use crate::body::{self, fields};
use crate::error::{ApiError, Refusals};
use crate::prepare::{self, prepare};
use crate::sse::Event;

/// Tokens of a completion that says no length: the API's own default.
const DEFAULT_TOKENS: usize = 16;

/// The body of a request. Fields that are not listed are ignored.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "the document describes the parts as one object; they are read one after the other")]
pub(crate) struct CompletionRequest {
    #[serde(flatten)]
    options: Options,
    #[serde(flatten)]
    completion: CompletionFields,
}

/// Fields that only Completions has.
#[derive(Debug, Deserialize, ToSchema)]
struct CompletionFields {
    /// A text, tokens, or a list of either.
    #[schema(value_type = Prompts)]
    prompt: Value,
    /// Add the log-probability of every token, and of so many of the likeliest ones.
    #[schema(minimum = 0, maximum = 20)]
    logprobs: Option<i64>,
    /// Must be false: the prompt is not repeated.
    #[schema(value_type = Option<bool>)]
    echo: Option<bool>,
    /// Must be empty: nothing is filled in.
    #[schema(max_length = 0)]
    suffix: Option<String>,
    /// Must be 1, or what `n` is.
    best_of: Option<i64>,
}

/// What the document says of `prompt`, which is checked by hand.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "for the document alone")]
enum Prompts {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    ListsOfTokens(Vec<Vec<u32>>),
}

/// A whole completion, or an event of a stream.
#[derive(Serialize, ToSchema)]
pub(crate) struct Completion {
    id: String,
    /// `text_completion`.
    object: &'static str,
    created: u64,
    /// The loaded model, whatever name was asked for.
    model: String,
    /// Those of the first prompt first.
    choices: Vec<TextChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Default, Serialize, ToSchema)]
struct TextChoice {
    index: usize,
    text: String,
    /// Null unless asked for.
    logprobs: Option<TextLogprobs>,
    /// `stop` or `length`; null before the end of a stream.
    finish_reason: Option<&'static str>,
}

/// Continues texts.
#[utoipa::path(post, path = "/v1/completions", operation_id = "complete", request_body = CompletionRequest, responses(
    (status = 200, description = "the completions", content(
        (Completion = "application/json"), (Event = "text/event-stream"),
    )),
    Refusals,
))]
pub(crate) async fn complete(State(app): State<Arc<App>>, request: Request<Body>) -> Result<Response, ApiError> {
    let body = body::read(&app, request).await?;
    let (options, choices, logprobs) = prepare(&app, move |app| {
        let body = body.json()?;
        let options: Options = fields(&body)?;
        app.check_model(options.model.as_deref())?;
        let completion: CompletionFields = fields(&body)?;
        completion.check_supported(&options)?;
        let logprobs = completion.logprobs()?;
        let replies = options.replies()?;
        let sampling = options.sampling(app.llm.default_sampling())?;
        let stops = options.stops()?;
        let max_tokens = Some(options.max_tokens()?.unwrap_or(DEFAULT_TOKENS));
        let requests: Vec<ReplyRequest> = prompts(app, completion.prompt, replies)?
            .into_iter()
            .map(|prompt| ReplyRequest {
                prompt,
                sampling: sampling.clone(),
                stops: stops.clone(),
                max_tokens,
                logprobs,
            })
            .collect();
        let choices = Choices::start(app, "cmpl-", &requests, replies)?;
        Ok((options, choices, logprobs.is_some()))
    })
    .await?;
    let chunks =
        TextChunks { app: app.clone(), head: choices.head.clone(), logprobs, lengths: vec![(0, 0); choices.count] };
    if options.streams() {
        return Ok(choices.events(&app, chunks, options.includes_usage()).into_response());
    }
    whole(choices, chunks).await
}

impl CompletionFields {
    /// Fails for what would change the completion and is not there.
    fn check_supported(&self, options: &Options) -> Result<(), ApiError> {
        let best_of = match self.best_of {
            None => false,
            Some(best_of) => best_of != options.replies()? as i64,
        };
        let refused = [
            (self.echo == Some(true), "echo", "the prompt is not repeated; leave it out"),
            (
                self.suffix.as_ref().is_some_and(|suffix| !suffix.is_empty()),
                "suffix",
                "text is only continued at its end",
            ),
            (best_of, "best_of", "all replies are returned; ask for them with n"),
        ];
        match refused.into_iter().find(|refused| refused.0) {
            None => Ok(()),
            Some((_, field, why)) => Err(ApiError::field(field, format!("{field}: {why}")).code("unsupported_value")),
        }
    }

    fn logprobs(&self) -> Result<Option<usize>, ApiError> {
        let most = kapitsa::MAX_TOP_LOGPROBS;
        match self.logprobs {
            None => Ok(None),
            Some(count) if (0..=most as i64).contains(&count) => Ok(Some(count as usize)),
            Some(count) => Err(ApiError::field("logprobs", format!("logprobs is {count}, expected 0 to {most}"))),
        }
    }
}

/// The prompts as tokens.
fn prompts(app: &App, prompt: Value, replies: usize) -> Result<Vec<Prompt>, ApiError> {
    let wrong = || ApiError::field("prompt", "prompt is neither text nor tokens, nor a list of either");
    let text = |text: &str| -> Result<Prompt, ApiError> {
        prepare::check_length(app, text.len(), 0)?;
        app.llm.plain_prompt(text).map_err(|error| ApiError::from(error).param("prompt"))
    };
    let tokens = |list: &[Value]| -> Result<Prompt, ApiError> {
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        list.iter().map(id).collect::<Option<Vec<u32>>>().map(Prompt::from).ok_or_else(wrong)
    };
    let prompts = match &prompt {
        Value::String(prompt) => vec![text(prompt)?],
        Value::Array(list) if list.is_empty() => {
            return Err(ApiError::field("prompt", "prompt is an empty list; at least one token is needed"));
        }
        Value::Array(list) if list.iter().all(Value::is_number) => vec![tokens(list)?],
        Value::Array(list) => {
            if list.len() * replies > MAX_CHOICES {
                let message =
                    format!("{} prompts with n = {replies}, expected at most {MAX_CHOICES} replies", list.len());
                return Err(ApiError::field("prompt", message));
            }
            let prompts = list.iter().map(|prompt| match prompt {
                Value::String(prompt) => text(prompt),
                Value::Array(list) => tokens(list),
                _ => Err(wrong()),
            });
            prompts.collect::<Result<_, _>>()?
        }
        _ => return Err(wrong()),
    };
    Ok(prompts)
}

async fn whole(choices: Choices, mut chunks: TextChunks) -> Result<Response, ApiError> {
    let empty =
        |index| TextChoice { index, logprobs: chunks.logprobs.then(TextLogprobs::default), ..TextChoice::default() };
    let mut all: Vec<TextChoice> = (0..choices.count).map(empty).collect();
    let (_, usage) = choices
        .whole(|index, part| match part {
            ReplyPart::Piece(text, tokens) => {
                chunks.add_logprobs(index, &text, &tokens, &mut all[index].logprobs);
                all[index].text += &text;
            }
            ReplyPart::End(reply) => all[index].finish_reason = Some(reply.reason.name()),
        })
        .await?;
    Ok(Json(Completion { choices: all, ..chunks.chunk(None, Some(usage)) }).into_response())
}

/// What a stream of completions says.
pub(super) struct TextChunks {
    app: Arc<App>,
    head: Head,
    logprobs: bool,
    /// Bytes and characters of each choice's text so far.
    lengths: Vec<(usize, usize)>,
}

impl TextChunks {
    fn chunk(&self, choice: Option<TextChoice>, usage: Option<Usage>) -> Completion {
        let Head { id, created, model } = self.head.clone();
        Completion { id, object: "text_completion", created, model, choices: choice.into_iter().collect(), usage }
    }

    fn add_logprobs(&mut self, index: usize, text: &str, tokens: &[ReplyToken], logprobs: &mut Option<TextLogprobs>) {
        let (bytes, characters) = &mut self.lengths[index];
        if let Some(logprobs) = logprobs {
            logprobs.add(self.app.llm.tokenizer(), tokens, text, *bytes, *characters);
        }
        *bytes += text.len();
        *characters += text.chars().count();
    }

    pub(super) fn piece(&mut self, index: usize, text: String, tokens: &[ReplyToken]) -> Completion {
        let mut logprobs = self.logprobs.then(TextLogprobs::default);
        self.add_logprobs(index, &text, tokens, &mut logprobs);
        self.chunk(Some(TextChoice { index, text, logprobs, finish_reason: None }), None)
    }

    pub(super) fn end(&mut self, index: usize, reason: &'static str) -> Completion {
        self.chunk(Some(TextChoice { index, finish_reason: Some(reason), ..TextChoice::default() }), None)
    }

    pub(super) fn usage(&mut self, usage: Usage) -> Completion {
        self.chunk(None, Some(usage))
    }
}
