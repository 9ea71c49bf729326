//! The tools of a request and the choice among them.
//!
//! Tools that a server would have to run, and kinds that are unknown, cannot be offered to the model and are left out.

use kapitsa::turn::{Tool, ToolChoice, ToolInput};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{at, kind, wrong};
use crate::error::ApiError;

/// Most tools of a request; agents send a few dozens.
const MAX_TOOLS: usize = 1024;

#[derive(Deserialize)]
#[serde(expecting = "a tool")]
struct Kind {
    r#type: String,
}

#[derive(Deserialize)]
#[serde(expecting = "a tool")]
struct Fields {
    name: String,
    description: Option<String>,
    /// Of functions.
    parameters: Option<Map<String, Value>>,
    strict: Option<bool>,
    /// Of tools that take text.
    format: Option<Format>,
    /// Of namespaces.
    #[serde(default)]
    tools: Value,
}

#[derive(Deserialize)]
#[serde(expecting = "a format")]
struct Format {
    syntax: Option<String>,
    definition: Option<String>,
}

#[derive(Deserialize)]
#[serde(expecting = "a choice")]
struct Choice {
    r#type: String,
    name: Option<String>,
    mode: Option<String>,
    tools: Option<Vec<Choice>>,
}

/// The tools that the model can be offered, in the order in which they were sent.
pub(super) fn read(list: &Value) -> Result<Vec<Tool>, ApiError> {
    let mut tools = vec![];
    add(&mut tools, "tools", None, list)?;
    Ok(tools)
}

fn add(tools: &mut Vec<Tool>, place: &str, namespace: Option<&str>, list: &Value) -> Result<(), ApiError> {
    let list = match list {
        Value::Null => return Ok(()),
        Value::Array(list) => list,
        other => return Err(wrong(place, format!("is {}, expected a list", kind(other)))),
    };
    for (index, tool) in list.iter().enumerate() {
        let place = format!("{place}[{index}]");
        let Kind { r#type: kind } = at(&place, tool)?;
        if !matches!((kind.as_str(), namespace), ("function" | "custom", _) | ("namespace", None)) {
            tracing::debug!(place, kind, "a tool of a kind that cannot be offered is left out");
            continue;
        }
        let fields: Fields = at(&place, tool)?;
        let input = match kind.as_str() {
            "namespace" => {
                add(tools, &format!("{place}.tools"), Some(&fields.name), &fields.tools)?;
                continue;
            }
            "custom" => ToolInput::Text {
                grammar: fields.format.and_then(|format| format.grammar(&place).transpose()).transpose()?,
            },
            _ => ToolInput::Json {
                schema: fields.parameters.map_or_else(|| json!({ "type": "object", "properties": {} }), Value::Object),
                strict: fields.strict == Some(true),
            },
        };
        // The model could only say the name, which would mean the first.
        if tools.iter().any(|tool| tool.name == fields.name) {
            tracing::debug!(place, name = fields.name, "a tool with the name of another is left out");
            continue;
        }
        if tools.len() == MAX_TOOLS {
            return Err(wrong(&place, format!("is one more than the {MAX_TOOLS} that a request may have")));
        }
        let Fields { name, description, .. } = fields;
        tools.push(Tool { name, namespace: namespace.map(str::to_owned), description, input });
    }
    Ok(())
}

impl Format {
    /// The grammar in Lark's notation, if the text must follow one.
    fn grammar(self, place: &str) -> Result<Option<String>, ApiError> {
        match (self.syntax.as_deref(), self.definition) {
            (None, _) => Ok(None),
            (Some("lark"), Some(definition)) => Ok(Some(definition)),
            (Some("regex"), Some(pattern)) => Ok(Some(format!("start: /{}/", in_slashes(&pattern)))),
            (Some("lark" | "regex"), None) => Err(wrong(&format!("{place}.format"), "has no definition")),
            (Some(other), _) => {
                Err(wrong(&format!("{place}.format.syntax"), format!("is `{other}`, expected lark or regex")))
            }
        }
    }
}

/// A pattern as Lark has it between slashes, on one line.
fn in_slashes(pattern: &str) -> String {
    let mut escaped = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => escaped.extend(std::iter::once(char).chain(chars.next())),
            '/' => escaped.push_str("\\/"),
            '\n' => escaped.push_str("\\n"),
            _ => escaped.push(char),
        }
    }
    escaped
}

/// Whether the model must call a tool. Tools that it is not allowed leave the list.
pub(super) fn choose(choice: &Value, tools: &mut Vec<Tool>) -> Result<ToolChoice, ApiError> {
    let chosen = match choice {
        Value::Null => ToolChoice::Auto,
        Value::String(mode) => by_mode("tool_choice", mode)?,
        _ => at::<Choice>("tool_choice", choice)?.among(tools)?,
    };
    match &chosen {
        ToolChoice::Required if tools.is_empty() => {
            Err(wrong("tool_choice", "is required, but there is no tool that can be offered"))
        }
        ToolChoice::Named(name) if tools.iter().all(|tool| tool.name != *name) => {
            Err(wrong("tool_choice", format!("names `{name}`, which is none of the tools")))
        }
        _ => Ok(chosen),
    }
}

fn by_mode(place: &str, mode: &str) -> Result<ToolChoice, ApiError> {
    match mode {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "required" => Ok(ToolChoice::Required),
        other => Err(wrong(place, format!("is `{other}`, expected none, auto, required or a tool"))),
    }
}

impl Choice {
    fn among(self, tools: &mut Vec<Tool>) -> Result<ToolChoice, ApiError> {
        match (self.r#type.as_str(), self.name) {
            ("function" | "custom", Some(name)) => Ok(ToolChoice::Named(name)),
            ("function" | "custom", None) => Err(wrong("tool_choice", "has no name")),
            ("allowed_tools", _) => {
                let choice = by_mode("tool_choice.mode", self.mode.as_deref().unwrap_or("auto"))?;
                let mut allowed: Vec<String> = self.tools.into_iter().flatten().filter_map(|tool| tool.name).collect();
                // The others may stay: a list that does not change keeps the prompt as it was.
                if choice == ToolChoice::Required && allowed.len() == 1 {
                    return Ok(ToolChoice::Named(allowed.remove(0)));
                }
                tools.retain(|tool| allowed.contains(&tool.name));
                Ok(choice)
            }
            (other, _) => {
                let what = format!("is `{other}`, which cannot be offered; expected function, custom or allowed_tools");
                Err(wrong("tool_choice.type", what).code("unsupported_value"))
            }
        }
    }
}
