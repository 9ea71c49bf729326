//! The message of a request that is not streamed: the events of its stream, put together.
//!
//! The `input` of a call is always an object, `{}` for what the limit cut so that it is no JSON. The call stays: clients tell by
//! `max_tokens` after a call that it was cut.

use kapitsa::turn::{TurnEvent, TurnUsage};
use serde_json::{Map, Value};

use super::events::{Event, Writer};

/// A message that grows.
pub(crate) struct Whole {
    writer: Writer,
    message: Value,
    blocks: Vec<Value>,
    /// The input of the last call as far as it has come.
    input: String,
}

impl Whole {
    /// As [`Writer::start`].
    pub(crate) fn start(id: &str, model: &str, prompt: TurnUsage) -> Self {
        let (writer, events) = Writer::start(id, model, prompt);
        let mut whole = Whole { writer, message: Value::Null, blocks: vec![], input: String::new() };
        events.into_iter().for_each(|event| whole.add(event));
        whole
    }

    /// Takes an event of the turn.
    pub(crate) fn hear(&mut self, event: TurnEvent) {
        self.writer.hear(event).into_iter().for_each(|event| self.add(event));
    }

    /// The message, complete once the turn has finished.
    pub(crate) fn message(mut self) -> Value {
        self.message["content"] = self.blocks.into();
        self.message
    }

    fn add(&mut self, (name, mut data): Event) {
        match name {
            "message_start" => self.message = data["message"].take(),
            "content_block_start" => self.blocks.push(data["content_block"].take()),
            "content_block_delta" => self.delta(&data["delta"]),
            "content_block_stop" => {
                if let Some(call) = self.blocks.last_mut().filter(|block| block["type"] == "tool_use") {
                    call["input"] = serde_json::from_str::<Map<_, _>>(&self.input).unwrap_or_default().into();
                    self.input.clear();
                }
            }
            "message_delta" => {
                for field in ["stop_reason", "stop_sequence"] {
                    self.message[field] = data["delta"][field].take();
                }
                self.message["usage"] = data["usage"].take();
            }
            _ => {}
        }
    }

    fn delta(&mut self, delta: &Value) {
        if let Some(piece) = delta["partial_json"].as_str() {
            self.input += piece;
        }
        for field in ["text", "thinking", "signature"] {
            if let Some(piece) = delta[field].as_str()
                && let Some(Value::String(text)) = self.blocks.last_mut().and_then(|block| block.get_mut(field))
            {
                text.push_str(piece);
            }
        }
    }
}
