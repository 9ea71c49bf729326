//! A request in the one form of a turn.

use kapitsa::Message;
use kapitsa::turn::{AnswerFormat, SamplingChanges, Thinking, TurnRequest};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::input::Conversation;
use super::tools::{self, Offers};
use super::{at, wrong};
use crate::error::ApiError;

/// A request, and what its response says of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ResponsesRequest {
    /// Any name is served by the loaded model, unless the server takes names strictly.
    pub(crate) model: Option<String>,
    /// Send events.
    pub(crate) stream: bool,
    /// The response that this one goes on from: `Store::resume` puts what was said there into `turn`.
    pub(crate) previous_response_id: Option<String>,
    /// Whether a later request may go on from this one.
    pub(crate) store: bool,
    /// Whether the first message of `turn` is `instructions`, which hold for this request only.
    pub(crate) instructed: bool,
    /// What is asked for.
    pub(crate) turn: TurnRequest,
    /// What the API calls the tools of `turn`.
    pub(super) offers: Offers,
    /// Fields that the response repeats.
    pub(crate) echo: Map<String, Value>,
}

#[derive(Deserialize)]
struct Fields {
    model: Option<String>,
    stream: Option<bool>,
    store: Option<bool>,
    previous_response_id: Option<String>,
    instructions: Option<String>,
    parallel_tool_calls: Option<bool>,
    reasoning: Option<Reasoning>,
    /// Ours: most tokens of thinking.
    thinking_budget: Option<usize>,
    text: Option<Text>,
    include: Option<Vec<String>>,
    max_output_tokens: Option<i64>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_logprobs: Option<i64>,
}

#[derive(Deserialize)]
struct Reasoning {
    effort: Option<String>,
}

#[derive(Deserialize)]
struct Text {
    format: Option<Format>,
}

#[derive(Deserialize)]
struct Format {
    r#type: String,
    schema: Option<Value>,
}

/// Fields that would change the answer and are not there.
const REFUSED: [(&str, &str); 3] = [
    ("background", "responses are not made in the background; leave it out"),
    ("conversation", "conversations are not kept; send what was said as input"),
    ("prompt", "prompts are not kept; send the text as instructions or input"),
];

/// Reads the body of a request.
///
/// # Errors
/// Names the place of what is missing, of another type or cannot be honoured.
pub(crate) fn read(body: &Value) -> Result<ResponsesRequest, ApiError> {
    let fields: Fields = at("", body)?;
    let is_asked = |field: &str| !matches!(body[field], Value::Null | Value::Bool(false));
    if let Some((field, why)) = REFUSED.into_iter().find(|(field, _)| is_asked(field)) {
        return Err(ApiError::field(field, format!("{field}: {why}")).code("unsupported_value"));
    }
    let instructions = fields.instructions.as_deref().filter(|text| !text.is_empty());
    let mut conversation = Conversation::default();
    conversation.messages.extend(instructions.map(Message::system));
    let (mut tools, offers) = tools::read(&body["tools"])?;
    conversation.add(&body["input"], &offers)?;
    if conversation.messages.is_empty() && fields.previous_response_id.is_none() {
        return Err(wrong("input", "is empty, expected text or at least one item"));
    }
    let tool_choice = tools::choose(&body["tool_choice"], &mut tools)?;
    let format = fields.text.as_ref().and_then(|text| text.format.as_ref());
    let turn = TurnRequest {
        messages: conversation.messages,
        images: conversation.images,
        tools,
        tool_choice,
        one_call: fields.parallel_tool_calls == Some(false),
        format: format.map_or(Ok(AnswerFormat::Text), Format::answer)?,
        thinking: Thinking {
            budget: fields.thinking_budget,
            ..Thinking::of_effort(fields.reasoning.as_ref().and_then(|reasoning| reasoning.effort.as_deref()))
        },
        sampling: SamplingChanges {
            temperature: fields.temperature,
            top_p: fields.top_p,
            ..SamplingChanges::default()
        },
        stops: vec![],
        max_tokens: fields.max_tokens()?,
        logprobs: fields.logprobs()?,
    };
    Ok(ResponsesRequest {
        instructed: instructions.is_some(),
        model: fields.model,
        stream: fields.stream == Some(true),
        previous_response_id: fields.previous_response_id,
        store: fields.store != Some(false),
        turn,
        offers,
        echo: echo(body),
    })
}

impl Fields {
    fn max_tokens(&self) -> Result<Option<usize>, ApiError> {
        match self.max_output_tokens {
            Some(tokens) if tokens < 1 => Err(wrong("max_output_tokens", format!("is {tokens}, expected at least 1"))),
            tokens => Ok(tokens.map(|tokens| usize::try_from(tokens).unwrap_or(usize::MAX))),
        }
    }

    fn logprobs(&self) -> Result<Option<usize>, ApiError> {
        let most = kapitsa::MAX_TOP_LOGPROBS;
        let count = self.top_logprobs.unwrap_or(0);
        if !(0..=most as i64).contains(&count) {
            return Err(wrong("top_logprobs", format!("is {count}, expected 0 to {most}")));
        }
        let included = self.include.iter().flatten().any(|name| name == "message.output_text.logprobs");
        Ok((included || count > 0).then_some(count as usize))
    }
}

impl Format {
    fn answer(&self) -> Result<AnswerFormat, ApiError> {
        match (self.r#type.as_str(), &self.schema) {
            ("text", _) => Ok(AnswerFormat::Text),
            ("json_object", _) => Ok(AnswerFormat::JsonObject),
            ("json_schema", Some(schema)) => {
                Ok(AnswerFormat::JsonSchema { place: "text.format.schema".into(), schema: schema.clone() })
            }
            ("json_schema", None) => Err(wrong("text.format", "is of type json_schema, but has no schema")),
            (other, _) => {
                Err(wrong("text.format.type", format!("is `{other}`, expected text, json_object or json_schema")))
            }
        }
    }
}

/// Fields that a response always has, as sent or as they are by default, and those that it has if they were sent.
fn echo(body: &Value) -> Map<String, Value> {
    let defaults = json!({
        "instructions": null,
        "max_output_tokens": null,
        "metadata": {},
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "reasoning": { "effort": null, "summary": null },
        "store": true,
        "temperature": null,
        "text": { "format": { "type": "text" } },
        "tool_choice": "auto",
        "tools": [],
        "top_p": null,
        "truncation": "disabled",
    });
    let Value::Object(mut echo) = defaults else { return Map::new() };
    let optional = ["prompt_cache_key", "safety_identifier", "service_tier", "top_logprobs", "user"];
    let names: Vec<String> = echo.keys().cloned().chain(optional.map(str::to_owned)).collect();
    for name in names {
        if let Some(sent) = body.get(&name).filter(|sent| !sent.is_null()) {
            echo.insert(name, sent.clone());
        }
    }
    echo
}
