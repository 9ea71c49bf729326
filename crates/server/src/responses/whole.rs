//! A turn as one response.

use kapitsa::turn::TurnEvent;
use serde_json::Value;

use super::Writer;

/// Reads a turn to its end.
pub(crate) struct Whole(Writer);

impl Whole {
    pub(crate) fn new(writer: Writer) -> Self {
        Whole(writer)
    }

    /// The response, when the turn is over.
    pub(crate) fn hear(&mut self, event: TurnEvent) -> Option<Value> {
        let (_, mut last) = self.0.hear(event).pop()?;
        Some(last["response"].take()).filter(Value::is_object)
    }
}
