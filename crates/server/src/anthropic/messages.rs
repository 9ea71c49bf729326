//! What was said: `system` and `messages` to messages of chat templates.
//!
//! - Empty text is dropped. A message of which nothing is left is left out, unless it is the user's.
//! - Text blocks of a message are one text, joined by line breaks; with images they are a list of parts.
//! - The line `x-anthropic-billing-header: ...` is dropped at the head of `system`, and nowhere else: its checksum changes from
//!   request to request, and so would all of the prompt.
//! - System text among the messages (role `system`, also `developer`) stays at its place.
//! - Each result of a tool is a message of its own, in order; what else the user said is one message after them.
//! - A call's arguments are its input as compact JSON, keys in the order sent; input that is no object is kept as text.
//! - Thinking of a message is one text, joined by line breaks; signatures and redacted thinking are dropped.
//! - What is well formed but cannot be read here (a PDF, a file kept by the API, an unknown block) is a note in its place, not an
//!   error: it comes again with each request, and the conversation would be over. In a message of the assistant it is left out,
//!   or the model would learn to write such notes.

use kapitsa::Message;
use kapitsa::turn::{ImageData, ImageSource};
use serde_json::{Map, Value, json};

use super::place::Placed;
use crate::error::{ApiError, clip};

/// How the line begins by which Claude Code says whom to bill.
const BILLING: &str = "x-anthropic-billing-header:";

/// What was said, with its images in order.
#[derive(Default)]
pub(super) struct Conversation {
    pub(super) messages: Vec<Message>,
    pub(super) images: Vec<ImageSource>,
}

impl Conversation {
    pub(super) fn read(body: &Placed<'_>) -> Result<Self, ApiError> {
        let mut conversation = Conversation::default();
        let mut system = blocks(body.field("system"))?;
        if let Some(Block::Text(text)) = system.first_mut()
            && text.starts_with(BILLING)
        {
            *text = text.split_once('\n').map_or("", |(_, rest)| rest);
        }
        conversation.system(system)?;
        let messages = body.required("messages")?;
        for message in messages.items()? {
            conversation.add(&message.object()?)?;
        }
        match conversation.messages.iter().any(|message| message.role != "system") {
            true => Ok(conversation),
            false => Err(ApiError::place(&messages.place, "holds nothing to answer, expected a message of the user")),
        }
    }

    fn add(&mut self, message: &Placed<'_>) -> Result<(), ApiError> {
        let content = blocks(message.field("content"))?;
        let role = message.required("role")?;
        match role.value.as_str() {
            Some("user") => self.user(content),
            Some("assistant") => self.assistant(content),
            Some("system" | "developer") => self.system(content),
            _ => Err(role.expected("user, assistant or system")),
        }
    }

    fn system(&mut self, content: Vec<Block<'_>>) -> Result<(), ApiError> {
        let said = Said::read(content)?;
        if let Some(image) = said.images.first() {
            return Err(ApiError::place(&image.place, "is an image, which only users and tools can send"));
        }
        if !said.is_empty() {
            self.push("system", said, Map::new());
        }
        Ok(())
    }

    fn user(&mut self, content: Vec<Block<'_>>) -> Result<(), ApiError> {
        let (mut said, mut has_results) = (Said::default(), false);
        for block in content {
            match block {
                Block::Other("tool_result", result) => {
                    self.result(&result)?;
                    has_results = true;
                }
                block => said.add(&block)?,
            }
        }
        if !(has_results && said.is_empty()) {
            self.push("user", said, Map::new());
        }
        Ok(())
    }

    fn result(&mut self, result: &Placed<'_>) -> Result<(), ApiError> {
        let id = result.required("tool_use_id")?.text()?;
        let mut said = Said::read(blocks(result.field("content"))?)?;
        // A failure is told by its text. Without one it would look like success.
        if result.optional("is_error", Placed::flag)? == Some(true) && said.is_empty() {
            said.text("error");
        }
        self.push("tool", said, Map::from_iter([("tool_call_id".to_owned(), id.into())]));
        Ok(())
    }

    fn assistant(&mut self, content: Vec<Block<'_>>) -> Result<(), ApiError> {
        let (mut said, mut thinking, mut calls) = (Said::default(), vec![], vec![]);
        for block in content {
            match block {
                Block::Text(text) => said.text(text),
                Block::Other("thinking", block) => thinking.extend(block.optional("thinking", Placed::text)?),
                Block::Other("tool_use", block) => calls.push(call(&block)?),
                Block::Other("image", block) => {
                    return Err(ApiError::place(&block.place, "is an image, which only users and tools can send"));
                }
                Block::Other(kind, block) => tracing::debug!(kind, place = block.place, "left out a block"),
            }
        }
        let mut fields = Map::new();
        let thinking = thinking.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n");
        if !thinking.is_empty() {
            fields.insert("reasoning_content".to_owned(), thinking.into());
        }
        if !calls.is_empty() {
            fields.insert("tool_calls".to_owned(), calls.into());
        }
        if !said.is_empty() || !fields.is_empty() {
            self.push("assistant", said, fields);
        }
        Ok(())
    }

    fn push(&mut self, role: &str, said: Said, fields: Map<String, Value>) {
        let content = said.content();
        self.messages.push(Message { role: role.to_owned(), content, fields });
        self.images.extend(said.images);
    }
}

/// A block of content.
enum Block<'a> {
    /// Not empty.
    Text(&'a str),
    /// Another type.
    Other(&'a str, Placed<'a>),
}

/// The blocks of content, which may be text alone, or absent.
fn blocks(content: Option<Placed<'_>>) -> Result<Vec<Block<'_>>, ApiError> {
    let Some(content) = content else { return Ok(vec![]) };
    let mut blocks = vec![];
    match content.value {
        Value::String(text) => blocks.push(Block::Text(text)),
        Value::Array(_) => {
            for block in content.items()? {
                blocks.push(match block.kind()? {
                    ("text", block) => Block::Text(block.required("text")?.text()?),
                    (kind, block) => Block::Other(kind, block),
                });
            }
        }
        _ => return Err(content.expected("text or a list of blocks")),
    }
    blocks.retain(|block| !matches!(block, Block::Text("")));
    Ok(blocks)
}

/// A call in the form of templates.
fn call(block: &Placed<'_>) -> Result<Value, ApiError> {
    let (id, name) = (block.required("id")?.text()?, block.required("name")?.text()?);
    let arguments = match block.field("input").map(|input| input.value) {
        None => "{}".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(input) => input.to_string(),
    };
    Ok(json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } }))
}

/// Text and images of a message.
#[derive(Default)]
struct Said {
    /// As templates have them.
    parts: Vec<Value>,
    images: Vec<ImageSource>,
}

impl Said {
    fn read(blocks: Vec<Block<'_>>) -> Result<Self, ApiError> {
        let mut said = Said::default();
        blocks.iter().try_for_each(|block| said.add(block))?;
        Ok(said)
    }

    fn add(&mut self, block: &Block<'_>) -> Result<(), ApiError> {
        match block {
            Block::Text(text) => self.text(text),
            Block::Other("image", block) => self.image(block)?,
            Block::Other("document", block) => self.document(block)?,
            Block::Other("thinking" | "redacted_thinking", _) => {}
            Block::Other(kind, _) => self.note(kind, "block"),
        }
        Ok(())
    }

    fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.parts.push(json!({ "type": "text", "text": text }));
        }
    }

    /// Says that something is not there.
    fn note(&mut self, kind: &str, what: &str) {
        self.text(&format!("[{what} of type {}: it cannot be read here]", clip(kind)));
    }

    fn image(&mut self, block: &Placed<'_>) -> Result<(), ApiError> {
        let (kind, source) = block.required("source")?.kind()?;
        let data = match kind {
            "base64" => ImageData::Base64(source.required("data")?.text()?.to_owned()),
            "url" => ImageData::Url(source.required("url")?.text()?.to_owned()),
            kind => {
                self.note(kind, "image");
                return Ok(());
            }
        };
        self.parts.push(json!({ "type": "image" }));
        self.images.push(ImageSource { place: source.place, data });
        Ok(())
    }

    fn document(&mut self, block: &Placed<'_>) -> Result<(), ApiError> {
        for name in ["title", "context"] {
            self.text(block.optional(name, Placed::text)?.unwrap_or_default());
        }
        let (kind, source) = block.required("source")?.kind()?;
        match kind {
            "text" => self.text(source.required("data")?.text()?),
            "content" => blocks(source.field("content"))?.iter().try_for_each(|block| self.add(block))?,
            kind => self.note(source.optional("media_type", Placed::text)?.unwrap_or(kind), "document"),
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// One text, or a list of parts where there are images.
    fn content(&self) -> Value {
        if self.images.is_empty() {
            let texts: Vec<&str> = self.parts.iter().filter_map(|part| part["text"].as_str()).collect();
            return texts.join("\n").into();
        }
        self.parts.clone().into()
    }
}
