//! The messages of a request, with their images apart.

use kapitsa::Message;
use kapitsa::turn::{ImageData, ImageSource};
use serde_json::{Map, Value, json};

use crate::error::{ApiError, clip, shown};

const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// What was said. Parts `{"type": "image"}` stand for the images, as templates have it.
#[derive(Default)]
pub(super) struct Conversation {
    pub(super) messages: Vec<Message>,
    pub(super) images: Vec<ImageSource>,
}

impl Conversation {
    /// The messages, checked as far as a template cannot say what is wrong.
    pub(super) fn new(messages: Vec<Map<String, Value>>) -> Result<Self, ApiError> {
        if messages.is_empty() {
            return Err(ApiError::field("messages", "messages is empty, expected at least one message"));
        }
        let mut conversation = Conversation::default();
        for fields in messages {
            conversation.add(fields)?;
        }
        Ok(conversation)
    }

    fn add(&mut self, mut fields: Map<String, Value>) -> Result<(), ApiError> {
        let place = format!("messages[{}]", self.messages.len());
        let wrong = |field: &str, what: String| Err(ApiError::place(&format!("{place}.{field}"), what));
        let role = match fields.remove("role") {
            Some(Value::String(role)) if ROLES.contains(&role.as_str()) => role,
            Some(found) => return wrong("role", format!("is {}, expected one of {}", shown(&found), ROLES.join(", "))),
            None => return wrong("role", format!("is missing, expected one of {}", ROLES.join(", "))),
        };
        let content = match fields.remove("content").unwrap_or_default() {
            content @ (Value::Null | Value::String(_)) => content,
            Value::Array(parts) => {
                let parts = parts.into_iter().enumerate();
                let part = |(index, part)| self.part(&role, format!("{place}.content[{index}]"), part);
                Value::Array(parts.map(part).collect::<Result<_, _>>()?)
            }
            other => return wrong("content", format!("is {}, expected text or a list of parts", shown(&other))),
        };
        if let Some(calls) = fields.get("tool_calls").filter(|calls| !calls.is_null() && !calls.is_array()) {
            return wrong("tool_calls", format!("is {}, expected a list", shown(calls)));
        }
        self.messages.push(Message { role, content, fields });
        Ok(())
    }

    /// A part in the form of templates.
    fn part(&mut self, role: &str, place: String, mut part: Value) -> Result<Value, ApiError> {
        let kind = match part.get("type").and_then(Value::as_str) {
            // What an assistant did not say is said in its history as a refusal, which is text like any other.
            Some(kind @ ("text" | "refusal")) => kind.to_owned(),
            Some("image_url") => {
                if !matches!(role, "user" | "tool") {
                    return Err(ApiError::place(&place, "is an image, which only messages of user and tool can have"));
                }
                self.image(format!("{place}.image_url"), &part["image_url"])?;
                return Ok(json!({ "type": "image" }));
            }
            Some(kind) => {
                return Err(ApiError::place(
                    &place,
                    format!("is of type `{}`, expected text or image_url", clip(kind)),
                ));
            }
            None => return Err(ApiError::place(&place, "has no type, expected text or image_url")),
        };
        match part[&kind].take() {
            text @ Value::String(_) => Ok(json!({ "type": "text", "text": text })),
            _ => Err(ApiError::place(&place, format!("is of type {kind}, but has no {kind}"))),
        }
    }

    fn image(&mut self, place: String, image: &Value) -> Result<(), ApiError> {
        let Some(url) = image.get("url").and_then(Value::as_str) else {
            return Err(ApiError::place(&place, "has no url, expected one that begins with data:image/png;base64,"));
        };
        self.images.push(ImageSource { place, data: ImageData::Url(url.into()) });
        Ok(())
    }
}
