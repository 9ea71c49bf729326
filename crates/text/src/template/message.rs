//! Chat messages as the APIs bring them, and the one form of them that templates are given.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A chat message.
///
/// `content` is text, null, or a list of parts (`{"type": "text", "text": ...}`). Whatever else a message has, such as
/// `tool_calls`, `tool_call_id`, `name` or `reasoning_content`, is in `fields` in the order it came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, `tool`, ...
    pub role: String,
    /// The text or its parts.
    #[serde(default)]
    pub content: Value,
    /// All other fields.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// Names that thinking goes by, in APIs and in templates.
const THINKING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// The parameter that text is given as where a call must have an object.
pub const TEXT_INPUT: &str = "input";

/// The arguments of a tool call in the one form of them, whatever a client made of what the model wrote: an object with its keys in
/// the order sent, also if it came as JSON text; the empty object if there is nothing. Keys are not sorted: some clients do that,
/// others put defaults first, and no order undoes both. What is no object is text.
pub fn call_arguments(arguments: &Value) -> Value {
    let empty = || Value::Object(Map::new());
    match arguments {
        Value::Null => empty(),
        Value::Object(_) => arguments.clone(),
        Value::String(text) if text.trim().is_empty() => empty(),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(object @ Value::Object(_)) => object,
            _ => arguments.clone(),
        },
        other => other.to_string().into(),
    }
}

impl Message {
    /// A message of text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: Value::String(content.into()), fields: Map::new() }
    }

    /// A system message.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }

    /// A user message.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    /// An assistant message.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new("assistant", content)
    }

    /// The text of the content, its parts joined as for a template; `None` if some part is no text.
    pub fn text(&self) -> Option<String> {
        match content(&self.content) {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// What was thought before the message, under any of the names of thinking; `None` if that is blank.
    pub fn thinking(&self) -> Option<&str> {
        let mut texts = THINKING.iter().filter_map(|name| self.fields.get(*name)?.as_str());
        texts.find(|text| !text.trim().is_empty())
    }

    /// The message as an object in canonical form. Fields that are null or an empty list of tool calls are left out,
    /// absent or null or empty content is the empty string, a list of text parts is one string (parts joined by line
    /// breaks), arguments of tool calls are as [`call_arguments`] has them, thinking has all names in use or none.
    ///
    /// `takes_text`: whether arguments can be text; it is asked for only if some are.
    pub(super) fn for_template(&self, knows_developer: bool, takes_text: &dyn Fn() -> bool) -> Map<String, Value> {
        let mut object = Map::new();
        let role = if self.role == "developer" && !knows_developer { "system" } else { &self.role };
        object.insert("role".to_owned(), role.into());
        object.insert("content".to_owned(), content(&self.content));
        for (name, value) in &self.fields {
            match (name.as_str(), value) {
                (_, Value::Null) => {}
                ("tool_calls", Value::Array(calls)) if calls.is_empty() => {}
                ("tool_calls", Value::Array(calls)) => {
                    object.insert(name.clone(), calls.iter().map(|call| tool_call(call, takes_text)).collect());
                }
                (name, _) if THINKING.contains(&name) => {}
                _ => drop(object.insert(name.clone(), value.clone())),
            }
        }
        if let Some(thinking) = self.thinking() {
            object.extend(THINKING.map(|name| (name.to_owned(), thinking.into())));
        }
        object
    }
}

fn content(content: &Value) -> Value {
    match content {
        Value::Null => "".into(),
        Value::Array(parts) => {
            let text = |part: &Value| match part {
                Value::String(text) => Some(text.clone()),
                Value::Object(part) if part.get("type").is_none_or(|kind| kind == "text") => {
                    part.get("text").and_then(Value::as_str).map(str::to_owned)
                }
                _ => None,
            };
            match parts.iter().map(text).collect::<Option<Vec<_>>>() {
                Some(texts) => texts.join("\n").into(),
                None => content.clone(),
            }
        }
        _ => content.clone(),
    }
}

/// A call with its arguments in the one form, as an object where the template has no place for text.
fn tool_call(call: &Value, takes_text: &dyn Fn() -> bool) -> Value {
    let Value::Object(call) = call else { return call.clone() };
    match call.get("function") {
        Some(Value::Object(function)) => {
            let mut call = call.clone();
            call.insert("function".to_owned(), named(function, takes_text).into());
            call.into()
        }
        _ => named(call, takes_text).into(),
    }
}

/// Name and arguments in this order, then what else is there: some templates write all of it, as it comes.
fn named(function: &Map<String, Value>, takes_text: &dyn Fn() -> bool) -> Map<String, Value> {
    let mut arguments = call_arguments(function.get("arguments").unwrap_or(&Value::Null));
    if arguments.is_string() && !takes_text() {
        arguments = Map::from_iter([(TEXT_INPUT.to_owned(), arguments)]).into();
    }
    let mut named = Map::new();
    named.extend(function.get("name").map(|name| ("name".to_owned(), name.clone())));
    named.insert("arguments".to_owned(), arguments);
    for (name, value) in function {
        named.entry(name).or_insert_with(|| value.clone());
    }
    named
}
