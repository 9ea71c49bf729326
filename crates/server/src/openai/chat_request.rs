//! The fields of a request for a chat completion.

use kapitsa::turn::{AnswerFormat, Thinking, Tool, ToolChoice as Choice, ToolInput, TurnRequest};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::conversation::Conversation;
use super::options::{Options, length};
use crate::choice;
use crate::error::ApiError;

/// The body of a request. Fields that are not listed are ignored.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "the document describes the parts as one object; they are read one after the other")]
pub(crate) struct ChatRequest {
    #[serde(flatten)]
    options: Options,
    #[serde(flatten)]
    chat: ChatFields,
}

/// Fields that only Chat Completions has.
#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct ChatFields {
    /// The conversation, the oldest message first.
    #[schema(value_type = Vec<ChatMessage>, min_items = 1)]
    pub(super) messages: Vec<Map<String, Value>>,
    /// The newer name of `max_tokens`, and the one that counts if both are there.
    #[schema(minimum = 1)]
    max_completion_tokens: Option<i64>,
    /// Add the log-probability of every token.
    logprobs: Option<bool>,
    /// Add so many of the likeliest tokens; needs `logprobs`.
    #[schema(minimum = 0, maximum = 20)]
    top_logprobs: Option<i64>,
    /// Tools that the model may call.
    #[schema(value_type = Option<Vec<FunctionTool>>)]
    tools: Option<Vec<Value>>,
    /// Whether a tool must be called: one of the words, a tool, or a choice among some.
    #[schema(value_type = Option<ToolChoice>)]
    tool_choice: Option<Value>,
    /// Several calls a turn are allowed unless this is false.
    parallel_tool_calls: Option<bool>,
    /// How hard to think, in the words of the model's template: `low`, `medium`, `high`; `none` is not at all.
    reasoning_effort: Option<String>,
    /// Most tokens of thinking; then the answer begins.
    thinking_budget: Option<usize>,
    /// Variables for the model's chat template, such as `enable_thinking`.
    #[schema(value_type = Option<Object>)]
    chat_template_kwargs: Option<Map<String, Value>>,
    /// The older name of `tools`, which is not taken.
    #[schema(value_type = Option<Vec<Object>>, max_items = 0)]
    functions: Option<Vec<Value>>,
    /// The older name of `tool_choice`.
    #[schema(value_type = Option<ToolChoice>)]
    function_call: Option<Value>,
    /// What the content looks like.
    response_format: Option<ResponseFormat>,
    /// Must be `["text"]`.
    #[schema(value_type = Option<Vec<Modality>>)]
    modalities: Option<Vec<String>>,
    /// Must be null: there is no sound.
    #[schema(value_type = Option<Object>)]
    audio: Option<Value>,
    /// Must be null: nothing is looked up on the web.
    #[schema(value_type = Option<Object>)]
    web_search_options: Option<Value>,
}

#[derive(Debug, Deserialize, ToSchema)]
struct ResponseFormat {
    #[schema(value_type = ResponseFormatType)]
    r#type: String,
    /// For the type `json_schema`.
    json_schema: Option<SchemaFormat>,
}

#[derive(Debug, Deserialize, ToSchema)]
struct SchemaFormat {
    /// A JSON schema of supported keywords.
    #[schema(value_type = Object)]
    schema: Option<Value>,
}

/// What the document says of values that are checked by hand, so that the error can name what is there.
mod documented {
    #![expect(dead_code, reason = "for the document alone")]
    use serde::Deserialize;
    use utoipa::ToSchema;

    #[derive(Deserialize, ToSchema)]
    #[serde(rename_all = "snake_case")]
    pub(in crate::openai) enum ToolMode {
        None,
        Auto,
        Required,
    }

    #[derive(Deserialize, ToSchema)]
    #[serde(untagged)]
    pub(in crate::openai) enum ToolChoice {
        Mode(ToolMode),
        /// `{"type": "function", "function": {"name": ...}}`, or of the type `allowed_tools`.
        #[schema(value_type = Object)]
        Tools(serde_json::Value),
    }

    /// A tool; those of other types than `function` are left out.
    #[derive(Deserialize, ToSchema)]
    pub(in crate::openai) struct FunctionTool {
        r#type: String,
        function: Function,
    }

    #[derive(Deserialize, ToSchema)]
    pub(in crate::openai) struct Function {
        name: String,
        description: Option<String>,
        /// A JSON schema.
        #[schema(value_type = Option<Object>)]
        parameters: Option<serde_json::Value>,
        /// Arguments obey `parameters` to the letter.
        strict: Option<bool>,
    }

    #[derive(Deserialize, ToSchema)]
    #[serde(rename_all = "snake_case")]
    pub(in crate::openai) enum ResponseFormatType {
        Text,
        JsonObject,
        JsonSchema,
    }

    #[derive(Deserialize, ToSchema)]
    #[serde(rename_all = "snake_case")]
    pub(in crate::openai) enum Modality {
        Text,
    }

    #[derive(Deserialize, ToSchema)]
    #[serde(rename_all = "snake_case")]
    pub(in crate::openai) enum Role {
        System,
        /// The same as `system`.
        Developer,
        User,
        Assistant,
        Tool,
    }

    /// A message. Other fields reach the model's chat template as they are.
    #[derive(Deserialize, ToSchema)]
    pub(in crate::openai) struct ChatMessage {
        role: Role,
        content: Option<Content>,
    }

    #[derive(Deserialize, ToSchema)]
    #[serde(untagged)]
    pub(in crate::openai) enum Content {
        Text(String),
        Parts(Vec<Part>),
    }

    /// A part of a message.
    #[derive(Deserialize, ToSchema)]
    #[serde(tag = "type", rename_all = "snake_case")]
    pub(in crate::openai) enum Part {
        Text {
            text: String,
        },
        /// In messages of `user` and `tool`, if the model sees images. At most 32 a request.
        ImageUrl {
            image_url: ImageUrl,
        },
    }

    #[derive(Deserialize, ToSchema)]
    pub(in crate::openai) struct ImageUrl {
        /// `data:image/png;base64,...`; also JPEG, WebP, GIF and BMP. Nothing is ever fetched.
        url: String,
    }
}
use documented::{ChatMessage, FunctionTool, Modality, ResponseFormatType, ToolChoice};

impl ChatFields {
    /// The turn that is asked for.
    ///
    /// # Errors
    /// If a field is of the wrong kind, or not supported.
    pub(super) fn turn(self, options: &Options) -> Result<TurnRequest, ApiError> {
        self.check_supported()?;
        let (logprobs, max_tokens) = (self.logprobs()?, self.max_tokens(options)?);
        let tools = self.tools.unwrap_or_default();
        let mut tools = tools.iter().enumerate().filter_map(tool).collect::<Result<_, _>>()?;
        let tool_choice = tool_choice(self.tool_choice.as_ref(), &mut tools)?;
        let Conversation { messages, images } = Conversation::new(self.messages)?;
        Ok(TurnRequest {
            messages,
            images,
            tools,
            tool_choice,
            one_call: self.parallel_tool_calls == Some(false),
            format: self.response_format.map_or(Ok(AnswerFormat::Text), ResponseFormat::answer)?,
            thinking: Thinking {
                budget: self.thinking_budget,
                variables: self.chat_template_kwargs.unwrap_or_default(),
                ..Thinking::of_effort(self.reasoning_effort.as_deref())
            },
            sampling: options.changes()?,
            stops: options.stops()?,
            max_tokens,
            logprobs,
        })
    }

    /// Fails for what would change the reply and is not there yet.
    fn check_supported(&self) -> Result<(), ApiError> {
        let is_chosen = |choice: &Option<Value>| match choice {
            None | Some(Value::Null) => false,
            Some(Value::String(choice)) => choice != "none" && choice != "auto",
            Some(_) => true,
        };
        let older = "is not taken; send `tools`";
        let has_any = |list: &Option<Vec<Value>>| list.as_ref().is_some_and(|list| !list.is_empty());
        let is_there = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
        let other_modality = self.modalities.iter().flatten().any(|modality| modality != "text");
        let refused = [
            (has_any(&self.functions), "functions", older),
            (is_chosen(&self.function_call), "function_call", older),
            (other_modality, "modalities", "only `text` is supported"),
            (is_there(&self.audio), "audio", "there is no sound; leave it out"),
            (is_there(&self.web_search_options), "web_search_options", "there is no web search; leave it out"),
        ];
        match refused.into_iter().find(|refused| refused.0) {
            None => Ok(()),
            Some((_, field, why)) => Err(ApiError::field(field, format!("{field}: {why}")).code("unsupported_value")),
        }
    }

    /// Longest reply in tokens.
    fn max_tokens(&self, options: &Options) -> Result<Option<usize>, ApiError> {
        let older = options.max_tokens()?;
        Ok(length("max_completion_tokens", self.max_completion_tokens)?.or(older))
    }

    /// How many alternatives for each token, if log-probabilities are wanted.
    fn logprobs(&self) -> Result<Option<usize>, ApiError> {
        let most = kapitsa::MAX_TOP_LOGPROBS;
        let count = self.top_logprobs.unwrap_or(0);
        if !(0..=most as i64).contains(&count) {
            return Err(ApiError::field("top_logprobs", format!("top_logprobs is {count}, expected 0 to {most}")));
        }
        match self.logprobs {
            Some(true) => Ok(Some(count as usize)),
            _ if count == 0 => Ok(None),
            _ => Err(ApiError::field("top_logprobs", "top_logprobs needs logprobs to be true")),
        }
    }
}

impl ResponseFormat {
    fn answer(self) -> Result<AnswerFormat, ApiError> {
        let wrong = |field: &str, what: &str| Err(ApiError::place(field, what));
        let place = "response_format.json_schema.schema";
        match (self.r#type.as_str(), self.json_schema.and_then(|format| format.schema)) {
            ("text", _) => Ok(AnswerFormat::Text),
            ("json_object", _) => Ok(AnswerFormat::JsonObject),
            ("json_schema", Some(schema)) => Ok(AnswerFormat::JsonSchema { place: place.into(), schema }),
            ("json_schema", None) => wrong(place, "is missing, expected a JSON schema"),
            _ => wrong("response_format.type", "is unknown, expected text, json_object or json_schema"),
        }
    }
}

/// Whether a tool must be called. Tools that it is not allowed leave the list.
fn tool_choice(wanted: Option<&Value>, tools: &mut Vec<Tool>) -> Result<Choice, ApiError> {
    let name = |tool: &Value| tool["function"]["name"].as_str().map(str::to_owned);
    let wrong = |field: &str, what: &str| Err(ApiError::place(field, what));
    let chosen = match wanted {
        None | Some(Value::Null) => Choice::Auto,
        Some(Value::String(mode)) => choice::by_mode("tool_choice", mode)?,
        Some(wanted) if wanted["type"] == "function" => match name(wanted) {
            Some(name) => Choice::Named(name),
            None => return wrong("tool_choice.function.name", "is missing, expected the name of a tool"),
        },
        Some(wanted) if wanted["type"] == "allowed_tools" => {
            let allowed = &wanted["allowed_tools"];
            let names = allowed["tools"].as_array().into_iter().flatten().filter_map(name).collect();
            let mode = choice::by_mode("tool_choice.allowed_tools.mode", allowed["mode"].as_str().unwrap_or("auto"))?;
            choice::among(mode, names, tools)
        }
        Some(_) => return wrong("tool_choice", "is unknown, expected none, auto, required or a tool"),
    };
    choice::checked(chosen, tools)
}

/// A tool of the request; `None` for one of a type that is not known.
fn tool((index, tool): (usize, &Value)) -> Option<Result<Tool, ApiError>> {
    match tool["type"].as_str() {
        Some("function") => Some(function(index, tool)),
        kind => {
            tracing::debug!(index, kind, "a tool is left out");
            None
        }
    }
}

fn function(index: usize, tool: &Value) -> Result<Tool, ApiError> {
    let wrong = |field: &str, what: &str| Err(ApiError::place(&format!("tools[{index}].{field}"), what));
    let function = &tool["function"];
    let Some(name) = function["name"].as_str().filter(|name| !name.is_empty()) else {
        return wrong("function.name", "is missing, expected a name");
    };
    let schema = match &function["parameters"] {
        Value::Null => json!({"type": "object", "properties": {}}),
        schema @ Value::Object(_) => schema.clone(),
        _ => return wrong("function.parameters", "is no JSON schema, expected an object"),
    };
    Ok(Tool {
        name: name.into(),
        description: function["description"].as_str().map(str::to_owned),
        input: ToolInput::Json { schema, strict: function["strict"] == true },
        place: format!("tools[{index}].function.parameters"),
    })
}
