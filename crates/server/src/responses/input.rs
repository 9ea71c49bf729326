//! The items of `input` as messages.
//!
//! Items of the assistant that follow each other are one message: its thinking, its text, its calls. What this server does not
//! know is left out, but for references to items, whose loss would change the answer.

use kapitsa::Message;
use kapitsa::turn::{ImageData, ImageSource, TEXT_INPUT};
use serde::Deserialize;
use serde_json::{Value, json};

use super::tools::Offers;
use super::{at, kind, reasoning, wrong};
use crate::error::ApiError;

/// What was said, with the images apart. Parts `{"type": "image"}` stand for them, as templates have it.
#[derive(Clone, Debug, Default)]
pub(super) struct Conversation {
    pub(super) messages: Vec<Message>,
    pub(super) images: Vec<ImageSource>,
}

#[derive(Deserialize)]
#[serde(expecting = "an item")]
struct Kind {
    r#type: Option<String>,
}

#[derive(Deserialize)]
#[serde(expecting = "a message")]
struct Said {
    role: String,
    #[serde(default)]
    content: Value,
}

#[derive(Deserialize)]
#[serde(expecting = "a reasoning item")]
struct Thought {
    summary: Option<Vec<ThoughtPart>>,
    content: Option<Vec<ThoughtPart>>,
    encrypted_content: Option<String>,
}

#[derive(Deserialize)]
#[serde(expecting = "a part")]
struct ThoughtPart {
    #[serde(default)]
    text: String,
}

#[derive(Deserialize)]
#[serde(expecting = "a call")]
struct Call {
    call_id: String,
    name: String,
    namespace: Option<String>,
    #[serde(default)]
    arguments: Value,
    #[serde(default)]
    input: String,
}

#[derive(Deserialize)]
#[serde(expecting = "the output of a call")]
struct Output {
    call_id: String,
    #[serde(default)]
    output: Value,
}

#[derive(Deserialize)]
#[serde(expecting = "a part")]
struct Part {
    r#type: String,
    text: Option<String>,
    refusal: Option<String>,
    image_url: Option<String>,
    filename: Option<String>,
}

impl Conversation {
    /// Adds the input of a request: the text of the user, or items.
    pub(super) fn add(&mut self, input: &Value, offers: &Offers) -> Result<(), ApiError> {
        match input {
            Value::Null => Ok(()),
            Value::String(text) => {
                self.messages.push(Message::user(text));
                Ok(())
            }
            Value::Array(items) => {
                let mut items = items.iter().enumerate();
                items.try_for_each(|(index, item)| self.add_item(&format!("input[{index}]"), item, offers))
            }
            other => Err(wrong("input", format!("is {}, expected text or a list of items", kind(other)))),
        }
    }

    pub(super) fn add_item(&mut self, place: &str, item: &Value, offers: &Offers) -> Result<(), ApiError> {
        let Kind { r#type } = at(place, item)?;
        match r#type.as_deref().unwrap_or("message") {
            "message" => self.add_message(place, at(place, item)?),
            "reasoning" => {
                if let Some(text) = at::<Thought>(place, item)?.text() {
                    self.think(&text);
                }
                Ok(())
            }
            "function_call" => {
                let call: Call = at(place, item)?;
                // Whatever is in the text: a template is given the one form of it.
                if !matches!(call.arguments, Value::Null | Value::String(_) | Value::Object(_)) {
                    let what = format!("is {}, expected text", kind(&call.arguments));
                    return Err(wrong(&format!("{place}.arguments"), what));
                }
                self.call(call.call_id, offers.offered(call.namespace.as_deref(), &call.name), call.arguments);
                Ok(())
            }
            "custom_tool_call" => {
                let call: Call = at(place, item)?;
                self.call(
                    call.call_id,
                    offers.offered(call.namespace.as_deref(), &call.name),
                    json!({ TEXT_INPUT: call.input }).to_string(),
                );
                Ok(())
            }
            "function_call_output" | "custom_tool_call_output" => {
                let Output { call_id, output } = at(place, item)?;
                let parts = self.parts(&format!("{place}.output"), "tool", &output)?;
                let mut message = Message { role: "tool".into(), content: content(parts), ..Message::default() };
                message.fields.insert("tool_call_id".into(), call_id.into());
                self.messages.push(message);
                Ok(())
            }
            "item_reference" => {
                Err(wrong(place, "refers to an item by its id; items are not kept here, send the item itself"))
            }
            other => {
                tracing::debug!(place, kind = other, "an item of a kind unknown here is left out");
                Ok(())
            }
        }
    }

    fn add_message(&mut self, place: &str, Said { role, content: said }: Said) -> Result<(), ApiError> {
        if !matches!(role.as_str(), "system" | "developer" | "user" | "assistant") {
            let what = format!("is `{role}`, expected system, developer, user or assistant");
            return Err(wrong(&format!("{place}.role"), what));
        }
        let parts = self.parts(&format!("{place}.content"), &role, &said)?;
        if role == "assistant" {
            self.say(parts);
        } else {
            self.messages.push(Message { role, content: content(parts), ..Message::default() });
        }
        Ok(())
    }

    fn parts(&mut self, place: &str, role: &str, content: &Value) -> Result<Vec<Value>, ApiError> {
        match content {
            Value::Null => Ok(vec![]),
            Value::String(text) => Ok(vec![text_part(text)]),
            Value::Array(parts) => {
                let parts = parts.iter().enumerate();
                parts.map(|(index, part)| self.part(format!("{place}[{index}]"), role, part)).collect()
            }
            other => Err(wrong(place, format!("is {}, expected text or a list of parts", kind(other)))),
        }
    }

    /// A part in the form of templates.
    fn part(&mut self, place: String, role: &str, part: &Value) -> Result<Value, ApiError> {
        let Part { r#type, text, refusal, image_url, filename } = at(&place, part)?;
        let missing = |field: &str| wrong(&place, format!("is of type {type}, but has no {field}"));
        match r#type.as_str() {
            "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => {
                Ok(text_part(&text.ok_or_else(|| missing("text"))?))
            }
            "refusal" => Ok(text_part(&refusal.ok_or_else(|| missing("refusal"))?)),
            "input_image" if matches!(role, "user" | "tool") => {
                let url = image_url.ok_or_else(|| missing("image_url; files are not kept here"))?;
                self.images.push(ImageSource { place: format!("{place}.image_url"), data: ImageData::Url(url) });
                Ok(json!({ "type": "image" }))
            }
            "input_image" => Err(wrong(&place, "is an image, which only the user and outputs of tools can have")),
            "input_file" => {
                let name = filename.unwrap_or_else(|| "without a name".into());
                Ok(text_part(&format!("[file {name}: left out, only text and images can be read here]")))
            }
            other => Err(wrong(&place, format!("is of type `{other}`, expected text or an image"))),
        }
    }

    /// The message of the assistant that goes on.
    fn assistant(&mut self) -> &mut Message {
        if self.messages.last().is_none_or(|last| last.role != "assistant") {
            self.messages.push(Message { role: "assistant".into(), ..Message::default() });
        }
        let last = self.messages.len() - 1;
        &mut self.messages[last]
    }

    fn think(&mut self, text: &str) {
        match self.assistant().fields.entry("reasoning_content").or_insert_with(|| "".into()) {
            Value::String(before) if before.is_empty() => before.push_str(text),
            Value::String(before) => before.extend(["\n\n", text]),
            _ => {}
        }
    }

    /// Text that is empty is none: whether a client sends it beside calls or not, the prompt is the same.
    fn say(&mut self, mut parts: Vec<Value>) {
        parts.retain(|part| part["text"] != "");
        let said = &mut self.assistant().content;
        match said {
            _ if parts.is_empty() => {}
            Value::Array(before) => before.extend(parts),
            Value::String(before) => {
                parts.insert(0, text_part(before));
                *said = parts.into();
            }
            _ => *said = content(parts),
        }
    }

    fn call(&mut self, id: String, name: &str, arguments: impl Into<Value>) {
        let arguments = arguments.into();
        let call = json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
        if let Value::Array(calls) = self.assistant().fields.entry("tool_calls").or_insert_with(|| json!([])) {
            calls.push(call);
        }
    }
}

impl Thought {
    /// The summary; else what this server hid in it; else the raw text.
    fn text(self) -> Option<String> {
        let joined = |parts: Option<Vec<ThoughtPart>>| {
            let texts: Vec<String> = parts.into_iter().flatten().map(|part| part.text).collect();
            Some(texts.join("\n\n")).filter(|text| !text.is_empty())
        };
        let hidden = || self.encrypted_content.as_deref().and_then(reasoning::unseal).filter(|text| !text.is_empty());
        joined(self.summary).or_else(hidden).or_else(|| joined(self.content))
    }
}

fn text_part(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// Parts as content; a single text is itself.
fn content(mut parts: Vec<Value>) -> Value {
    match parts.as_mut_slice() {
        [] => "".into(),
        [part] if part["type"] == "text" => part["text"].take(),
        _ => parts.into(),
    }
}
