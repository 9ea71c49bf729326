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

/// Names that thinking goes by; templates read the first or the second.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

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

    /// The message as an object in canonical form. Fields that are null or an empty list of tool calls are left out,
    /// absent or null or empty content is the empty string, a list of text parts is one string (parts joined by line
    /// breaks), arguments of tool calls that are JSON text are parsed, thinking has both names in use.
    pub(super) fn for_template(&self, knows_developer: bool) -> Map<String, Value> {
        let mut object = Map::new();
        let role = if self.role == "developer" && !knows_developer { "system" } else { &self.role };
        object.insert("role".to_owned(), role.into());
        object.insert("content".to_owned(), content(&self.content));
        for (name, value) in &self.fields {
            match (name.as_str(), value) {
                (_, Value::Null) => {}
                ("tool_calls", Value::Array(calls)) if calls.is_empty() => {}
                ("tool_calls", Value::Array(calls)) => {
                    object.insert(name.clone(), calls.iter().map(tool_call).collect());
                }
                _ => drop(object.insert(name.clone(), value.clone())),
            }
        }
        if let Some(thinking) = REASONING.iter().find_map(|name| object.get(*name)).cloned() {
            for name in &REASONING[..2] {
                object.entry(*name).or_insert_with(|| thinking.clone());
            }
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

/// Templates expect the arguments as an object; the OpenAI API has them as JSON text. Text that is not JSON stays text.
fn tool_call(call: &Value) -> Value {
    let mut call = call.clone();
    let parse = |holder: &mut Map<String, Value>| {
        if let Some(Value::String(text)) = holder.get("arguments") {
            let parsed = match text.trim() {
                "" => Ok(Value::Object(Map::new())),
                text => serde_json::from_str(text),
            };
            if let Ok(arguments @ Value::Object(_)) = parsed {
                holder.insert("arguments".to_owned(), arguments);
            }
        }
    };
    if let Value::Object(call) = &mut call {
        parse(call);
        if let Some(Value::Object(function)) = call.get_mut("function") {
            parse(function);
        }
    }
    call
}
