//! The tools of a request and the choice among them.
//!
//! Tools that a server would have to run, and kinds that are unknown, cannot be offered to the model and are left out.

use kapitsa::turn::{Tool, ToolChoice, ToolInput};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{at, kind, wrong};
use crate::choice;
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

/// The tools that the model can be offered, in the order in which they were sent, and what the API calls them.
pub(super) fn read(list: &Value) -> Result<(Vec<Tool>, Offers), ApiError> {
    let (mut tools, mut offers) = (vec![], Offers::default());
    add(&mut tools, &mut offers, "tools", None, list)?;
    Ok((tools, offers))
}

/// What the API calls the tools that the model is offered.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Offers(Vec<Offer>);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Offer {
    /// The name that the model knows: the tool's own, or with its namespace in front if another tool has that name.
    offered: String,
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) takes_text: bool,
}

impl Offers {
    /// The tool that the model calls by a name.
    pub(super) fn called(&self, offered: &str) -> Option<&Offer> {
        self.0.iter().find(|offer| offer.offered == offered)
    }

    /// The name by which the model knows a tool.
    pub(super) fn offered<'a>(&'a self, namespace: Option<&str>, name: &'a str) -> &'a str {
        let is_meant = |offer: &&Offer| offer.name == name && offer.namespace.as_deref() == namespace;
        self.0.iter().find(is_meant).map_or(name, |offer| &offer.offered)
    }
}

fn add(
    tools: &mut Vec<Tool>,
    offers: &mut Offers,
    place: &str,
    namespace: Option<&str>,
    list: &Value,
) -> Result<(), ApiError> {
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
        let (input, within) = match kind.as_str() {
            "namespace" => {
                add(tools, offers, &format!("{place}.tools"), Some(&fields.name), &fields.tools)?;
                continue;
            }
            "custom" => {
                let grammar = fields.format.and_then(|format| format.grammar(&place).transpose()).transpose()?;
                (ToolInput::Text { grammar }, "format.definition")
            }
            _ => {
                let none = || json!({ "type": "object", "properties": {} });
                let schema = fields.parameters.map_or_else(none, Value::Object);
                (ToolInput::Json { schema, strict: fields.strict == Some(true) }, "parameters")
            }
        };
        if tools.len() == MAX_TOOLS {
            return Err(wrong(&place, format!("is one more than the {MAX_TOOLS} that a request may have")));
        }
        let names = [Some(fields.name.clone()), namespace.map(|namespace| format!("{namespace}__{}", fields.name))];
        let Some(offered) = names.into_iter().flatten().find(|name| offers.called(name).is_none()) else {
            tracing::debug!(place, name = fields.name, "a tool with the name of another is left out");
            continue;
        };
        tools.push(Tool {
            name: offered.clone(),
            description: fields.description,
            place: format!("{place}.{within}"),
            input,
        });
        let takes_text = within == "format.definition";
        offers.0.push(Offer { offered, name: fields.name, namespace: namespace.map(str::to_owned), takes_text });
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
pub(super) fn choose(wanted: &Value, tools: &mut Vec<Tool>) -> Result<ToolChoice, ApiError> {
    let chosen = match wanted {
        Value::Null => ToolChoice::Auto,
        Value::String(mode) => choice::by_mode("tool_choice", mode)?,
        _ => at::<Choice>("tool_choice", wanted)?.among(tools)?,
    };
    choice::checked(chosen, tools)
}

impl Choice {
    fn among(self, tools: &mut Vec<Tool>) -> Result<ToolChoice, ApiError> {
        match (self.r#type.as_str(), self.name) {
            ("function" | "custom", Some(name)) => Ok(ToolChoice::Named(name)),
            ("function" | "custom", None) => Err(wrong("tool_choice", "has no name")),
            ("allowed_tools", _) => {
                let mode = choice::by_mode("tool_choice.mode", self.mode.as_deref().unwrap_or("auto"))?;
                let allowed = self.tools.into_iter().flatten().filter_map(|tool| tool.name).collect();
                Ok(choice::among(mode, allowed, tools))
            }
            (other, _) => {
                let what = format!("is `{other}`, which cannot be offered; expected function, custom or allowed_tools");
                Err(wrong("tool_choice.type", what).code("unsupported_value"))
            }
        }
    }
}
