//! What a client asks for: the body of `/v1/messages`, and of `/v1/messages/count_tokens`, to a [`TurnRequest`].
//!
//! - Absent and null are the same. Unknown fields are ignored, among them `metadata`, `context_management`, `service_tier` and
//!   every `cache_control`. A known field of another type is refused, with its place.
//! - `max_tokens` may be absent: the context is the limit then.
//! - `thinking`: `enabled` and `adaptive` switch it on, `disabled` off; without it the template decides.
//! - `effort`: `xhigh` and `max` are `high`, the hardest that templates know.
//! - Tools of the API's own servers (with a `type` other than `custom`) are left out.
//!
//! What messages hold is read in [`messages`](super::messages).

use kapitsa::turn::{AnswerFormat, SamplingChanges, Thinking, Tool, ToolChoice, ToolInput, TurnRequest};
use serde_json::Value;

use super::messages::Conversation;
use super::place::Placed;
use crate::choice;
use crate::error::ApiError;

/// Most stop texts, and the bytes of each.
const MAX_STOPS: usize = 16;
const MAX_STOP_BYTES: usize = 1024;

/// A request, read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MessagesRequest {
    pub(crate) model: Option<String>,
    pub(crate) stream: bool,
    pub(crate) turn: TurnRequest,
}

/// Reads a body.
///
/// # Errors
/// Names the place of what cannot be read.
pub(crate) fn read(body: &Value) -> Result<MessagesRequest, ApiError> {
    let body = Placed::body(body)?;
    let Conversation { messages, images } = Conversation::read(&body)?;
    let tools = body.optional("tools", tools)?.unwrap_or_default();
    let (tool_choice, one_call) =
        body.optional("tool_choice", |choice| tool_choice(choice, &tools))?.unwrap_or_default();
    let output = body.optional("output_config", Placed::object)?;
    let format = output.as_ref().and_then(|output| output.field("format")).or_else(|| body.field("output_format"));
    let effort = output.map(|output| output.optional("effort", effort)).transpose()?.flatten();
    let sampling = SamplingChanges {
        temperature: body.optional("temperature", Placed::number)?,
        top_p: body.optional("top_p", Placed::number)?,
        top_k: body.optional("top_k", |top_k| top_k.count(0))?,
        ..SamplingChanges::default()
    };
    let turn = TurnRequest {
        messages,
        images,
        tools,
        tool_choice,
        one_call,
        format: format.map(answer_format).transpose()?.unwrap_or_default(),
        thinking: Thinking { effort, ..body.optional("thinking", thinking)?.unwrap_or_default() },
        sampling,
        stops: body.optional("stop_sequences", stops)?.unwrap_or_default(),
        max_tokens: body.optional("max_tokens", |tokens| tokens.count(1))?,
        logprobs: None,
    };
    Ok(MessagesRequest {
        model: body.optional("model", Placed::text)?.map(str::to_owned),
        stream: body.optional("stream", Placed::flag)?.unwrap_or_default(),
        turn,
    })
}

fn tools(list: Placed<'_>) -> Result<Vec<Tool>, ApiError> {
    let mut tools = vec![];
    for tool in list.items()? {
        let tool = tool.object()?;
        match tool.optional("type", Placed::text)? {
            None | Some("custom") => {}
            Some(kind) => {
                tracing::debug!(kind, "left out a tool of the API's own servers");
                continue;
            }
        }
        let name = tool.required("name")?;
        if name.value == "" {
            return Err(name.expected("a name"));
        }
        let schema = tool.required("input_schema")?.object()?;
        tools.push(Tool {
            name: name.text()?.to_owned(),
            description: tool.optional("description", Placed::text)?.map(str::to_owned),
            place: schema.place,
            input: ToolInput::Json {
                schema: schema.value.clone(),
                strict: tool.optional("strict", Placed::flag)?.unwrap_or_default(),
            },
        });
    }
    Ok(tools)
}

/// The choice, and whether there is to be only one call.
fn tool_choice(wanted: Placed<'_>, tools: &[Tool]) -> Result<(ToolChoice, bool), ApiError> {
    let (kind, wanted) = wanted.kind()?;
    let one_call = wanted.optional("disable_parallel_tool_use", Placed::flag)?.unwrap_or_default();
    let chosen = match kind {
        "auto" => ToolChoice::Auto,
        "none" => ToolChoice::None,
        "any" => ToolChoice::Required,
        "tool" => ToolChoice::Named(wanted.required("name")?.text()?.to_owned()),
        _ => return Err(wanted.required("type")?.expected("auto, any, none or tool")),
    };
    Ok((choice::checked(chosen, tools)?, one_call))
}

fn thinking(thinking: Placed<'_>) -> Result<Thinking, ApiError> {
    let (kind, thinking) = thinking.kind()?;
    let enabled = match kind {
        "enabled" | "adaptive" => true,
        "disabled" => false,
        _ => return Err(thinking.required("type")?.expected("enabled, adaptive or disabled")),
    };
    let budget = thinking.optional("budget_tokens", |budget| budget.count(0))?.filter(|_| enabled);
    Ok(Thinking { enabled: Some(enabled), budget, ..Thinking::default() })
}

fn effort(effort: Placed<'_>) -> Result<String, ApiError> {
    match effort.value.as_str() {
        Some(known @ ("low" | "medium" | "high")) => Ok(known.to_owned()),
        Some("xhigh" | "max") => Ok("high".to_owned()),
        _ => Err(effort.expected("low, medium, high, xhigh or max")),
    }
}

fn answer_format(format: Placed<'_>) -> Result<AnswerFormat, ApiError> {
    let (kind, format) = format.kind()?;
    if kind != "json_schema" {
        return Err(format.required("type")?.expected("json_schema"));
    }
    let schema = format.required("schema")?.object()?;
    Ok(AnswerFormat::JsonSchema { schema: schema.value.clone(), place: schema.place })
}

fn stops(list: Placed<'_>) -> Result<Vec<String>, ApiError> {
    let texts = list.items()?.map(Placed::text).collect::<Result<Vec<_>, _>>()?;
    if texts.len() > MAX_STOPS {
        return Err(ApiError::place(&list.place, format!("has {} texts, expected at most {MAX_STOPS}", texts.len())));
    }
    match texts.iter().position(|text| text.is_empty() || text.len() > MAX_STOP_BYTES) {
        None => Ok(texts.into_iter().map(str::to_owned).collect()),
        Some(index) => Err(ApiError::place(
            &format!("{}[{index}]", list.place),
            format!("has {} bytes, expected 1 to {MAX_STOP_BYTES}", texts[index].len()),
        )),
    }
}
