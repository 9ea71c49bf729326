//! What a client asks for.

use std::collections::BTreeMap;

use kapitsa_engine::sample::SamplingOptions;
use kapitsa_text::Message;
use serde_json::Value;

/// The next turn of a conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnRequest {
    /// What was said so far, the oldest first, in the form of chat templates: a tool call is
    /// `{"id", "type": "function", "function": {"name", "arguments"}}` in `tool_calls`, its result a message of role `tool` with
    /// `tool_call_id`, thinking is `reasoning_content` or `reasoning`, an image is a part `{"type": "image"}`. Arguments are an
    /// object or text, as the client sent them: templates are given the one form of both ([`call_arguments`](crate::call_arguments)).
    pub messages: Vec<Message>,
    /// The images of these parts, in order.
    pub images: Vec<ImageSource>,
    /// Tools that the model may call, in the order in which they were sent.
    pub tools: Vec<Tool>,
    /// Whether it must.
    pub tool_choice: ToolChoice,
    /// Only one call a turn.
    pub one_call: bool,
    /// What the text of the answer looks like.
    pub format: AnswerFormat,
    /// Whether and how long the model thinks first.
    pub thinking: Thinking,
    /// How tokens are chosen.
    pub sampling: SamplingChanges,
    /// Texts that end the turn; they are not part of it.
    pub stops: Vec<String>,
    /// Longest turn in tokens, thinking included.
    pub max_tokens: Option<usize>,
    /// Asks for the log-probability of every token of the text and of so many alternatives.
    pub logprobs: Option<usize>,
}

/// An image as the client sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSource {
    /// Where it stands in the request, for messages: `messages[2].content[1].image_url`.
    pub place: String,
    /// Its file.
    pub data: ImageData,
}

/// An image file in text form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageData {
    /// A URL, of which only `data:` is read.
    Url(String),
    /// Base64 alone.
    Base64(String),
}

/// A tool that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name, given back letter for letter.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// What it takes.
    pub input: ToolInput,
    /// Where the request says what it takes, for messages: `tools[3].function.parameters`.
    pub place: String,
}

/// What a tool takes.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolInput {
    /// A JSON object.
    Json {
        /// Its schema, as sent.
        schema: Value,
        /// Whether a call must obey it to the letter.
        strict: bool,
    },
    /// Text.
    Text {
        /// A grammar in Lark's notation that the text must follow.
        grammar: Option<String>,
    },
}

/// Whether the model must call a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// It may.
    #[default]
    Auto,
    /// It must not.
    None,
    /// It must call one.
    Required,
    /// It must call this one.
    Named(String),
}

/// What the text of an answer looks like.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum AnswerFormat {
    /// Anything.
    #[default]
    Text,
    /// A JSON object.
    JsonObject,
    /// JSON that obeys this schema.
    JsonSchema {
        /// Where it stands in the request, for messages.
        place: String,
        /// The schema.
        schema: Value,
    },
}

/// Whether and how long the model thinks before it answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thinking {
    /// On or off; as the template has it if `None`.
    pub enabled: Option<bool>,
    /// How hard, in the words of templates (`low`, `medium`, `high`).
    pub effort: Option<String>,
    /// Most tokens of thinking; then the answer begins.
    pub budget: Option<usize>,
    /// More variables for the template (`chat_template_kwargs`).
    pub variables: serde_json::Map<String, Value>,
}

/// How tokens are chosen: what the request says in place of the model's own settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingChanges {
    /// 0 takes the likeliest token.
    pub temperature: Option<f64>,
    /// Keep the likeliest tokens that make so much of the probability.
    pub top_p: Option<f64>,
    /// Keep the k likeliest tokens; 0 keeps all.
    pub top_k: Option<usize>,
    /// Keep tokens at least so likely, relative to the likeliest.
    pub min_p: Option<f64>,
    /// Taken from the logit of a token for each time it was written.
    pub frequency_penalty: Option<f64>,
    /// Taken from the logit of a token that was written.
    pub presence_penalty: Option<f64>,
    /// Divides the logits of tokens that were read or written.
    pub repetition_penalty: Option<f64>,
    /// Added to the logits of tokens.
    pub logit_bias: BTreeMap<u32, f64>,
    /// The same seed gives the same turn; drawn at random if `None`.
    pub seed: Option<u64>,
}

impl TurnRequest {
    /// The tools that may be called.
    pub fn offered_tools(&self) -> &[Tool] {
        match self.tool_choice {
            ToolChoice::None => &[],
            _ => &self.tools,
        }
    }
}

impl Thinking {
    /// As an API's word for effort has it: `none` is off, `minimal` is `low`.
    pub fn of_effort(effort: Option<&str>) -> Self {
        let (enabled, effort) = match effort {
            None => (None, None),
            Some("none") => (Some(false), None),
            Some("minimal") => (Some(true), Some("low")),
            Some(effort) => (Some(true), Some(effort)),
        };
        Thinking { enabled, effort: effort.map(str::to_owned), ..Thinking::default() }
    }
}

impl SamplingChanges {
    /// The model's settings with these in their place; `seed` is for a request that has none.
    pub fn over(&self, model: &SamplingOptions, seed: u64) -> SamplingOptions {
        let mut logit_bias = model.logit_bias.clone();
        logit_bias.extend(self.logit_bias.iter().map(|(&token, &bias)| (token, bias)));
        SamplingOptions {
            temperature: self.temperature.unwrap_or(model.temperature),
            top_p: self.top_p.unwrap_or(model.top_p),
            top_k: self.top_k.unwrap_or(model.top_k),
            min_p: self.min_p.unwrap_or(model.min_p),
            frequency_penalty: self.frequency_penalty.unwrap_or(model.frequency_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(model.presence_penalty),
            repetition_penalty: self.repetition_penalty.unwrap_or(model.repetition_penalty),
            logit_bias,
            seed: self.seed.unwrap_or(seed),
        }
    }
}
