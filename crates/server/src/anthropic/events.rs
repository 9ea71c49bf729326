//! The events of a stream.
//!
//! Blocks come one at a time. A block ends where one of another kind begins, a call also with its own end.
//!
//! - `stop_reason` is `max_tokens` if the limit ended the turn, else `tool_use` if any call is complete, else `stop_sequence` or
//!   `end_turn`.
//! - A call without input has the input `{}`. What there is of a call that the limit cut stays as it was sent.
//! - Signs of life are empty deltas of the open block, or of an empty text block: Claude Code's clock does not count pings. Text
//!   that follows goes on in that block; anything else begins the next one, and clients send the empty one back, which
//!   [`messages`](super::messages) drops.

use kapitsa::turn::{TurnEnd, TurnEvent, TurnUsage};
use serde_json::{Map, Value, json};

use super::error;
use crate::error::ApiError;

/// A name, and data in which it is the `type`.
pub(crate) type Event = (&'static str, Value);

/// What thinking is signed with. Clients return it; some drop thinking that has none. Nothing reads it.
const SIGNATURE: &str = "a2FwaXRzYQ==";

/// Writes the events of one message.
pub(crate) struct Writer {
    /// What ids of calls begin with.
    call_prefix: String,
    /// The index of the open block, or of the next.
    index: usize,
    open: Option<Open>,
    /// Calls that are complete.
    calls: usize,
    ended: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Open {
    Text,
    Thinking,
    Call { has_input: bool },
}

impl Writer {
    /// Begins a message. Its id, `msg_...`, is one that no other has: those of its calls come of it.
    pub(crate) fn start(id: &str, model: &str, prompt: TurnUsage) -> (Self, Vec<Event>) {
        let message = json!({
            "id": id, "type": "message", "role": "assistant", "model": model, "content": [],
            "stop_reason": null, "stop_sequence": null, "usage": usage(prompt),
        });
        let call_prefix = format!("toolu_{}", id.strip_prefix("msg_").unwrap_or(id));
        let writer = Writer { call_prefix, index: 0, open: None, calls: 0, ended: false };
        (writer, vec![event("message_start", [("message", message)]), event("ping", [])])
    }

    /// What to send for an event of the turn.
    pub(crate) fn hear(&mut self, event: TurnEvent) -> Vec<Event> {
        let mut events = vec![];
        if self.ended {
            return events;
        }
        match event {
            TurnEvent::Prefill(_) => {}
            TurnEvent::Thinking(piece) => self.piece(Open::Thinking, &piece, &mut events),
            TurnEvent::Text { text, .. } => self.piece(Open::Text, &text, &mut events),
            TurnEvent::CallBegins { index, name } => {
                let id = format!("{}_{index}", self.call_prefix);
                let block = json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
                self.begin(Open::Call { has_input: false }, block, &mut events);
            }
            TurnEvent::CallInput { piece, .. } => {
                if matches!(self.open, Some(Open::Call { .. })) && !piece.is_empty() {
                    self.open = Some(Open::Call { has_input: true });
                    events.push(self.delta(Open::Call { has_input: true }, &piece));
                }
            }
            TurnEvent::CallEnds { .. } => {
                if let Some(open @ Open::Call { has_input }) = self.open {
                    if !has_input {
                        events.push(self.delta(open, "{}"));
                    }
                    self.calls += 1;
                    self.close(&mut events);
                }
            }
            TurnEvent::Finished { end, usage } => self.finish(end, usage, &mut events),
        }
        events
    }

    /// What to send after a silence.
    pub(crate) fn sign_of_life(&mut self) -> Vec<Event> {
        let mut events = vec![];
        if !self.ended {
            if self.open.is_none() {
                self.begin(Open::Text, Open::Text.block(), &mut events);
            }
            events.extend(self.open.map(|open| self.delta(open, "")));
        }
        events
    }

    /// What to send when the turn fails. Nothing follows.
    pub(crate) fn fail(&mut self, error: &ApiError) -> Event {
        self.ended = true;
        ("error", error::body(error, None))
    }

    /// More thinking or text.
    fn piece(&mut self, kind: Open, piece: &str, events: &mut Vec<Event>) {
        if piece.is_empty() {
            return;
        }
        if self.open != Some(kind) {
            self.begin(kind, kind.block(), events);
        }
        events.push(self.delta(kind, piece));
    }

    fn begin(&mut self, open: Open, block: Value, events: &mut Vec<Event>) {
        self.close(events);
        self.open = Some(open);
        events.push(event("content_block_start", [("index", self.index.into()), ("content_block", block)]));
    }

    /// A delta of the open block, which is of this kind.
    fn delta(&self, open: Open, piece: &str) -> Event {
        let (kind, field) = match open {
            Open::Text => ("text_delta", "text"),
            Open::Thinking => ("thinking_delta", "thinking"),
            Open::Call { .. } => ("input_json_delta", "partial_json"),
        };
        self.delta_of(kind, field, piece)
    }

    fn delta_of(&self, kind: &str, field: &str, piece: &str) -> Event {
        let delta = json!({ "type": kind, field: piece });
        event("content_block_delta", [("index", self.index.into()), ("delta", delta)])
    }

    fn close(&mut self, events: &mut Vec<Event>) {
        let Some(open) = self.open.take() else { return };
        if open == Open::Thinking {
            events.push(self.delta_of("signature_delta", "signature", SIGNATURE));
        }
        events.push(event("content_block_stop", [("index", self.index.into())]));
        self.index += 1;
    }

    fn finish(&mut self, end: TurnEnd, turn: TurnUsage, events: &mut Vec<Event>) {
        self.close(events);
        let (reason, stop) = match end {
            TurnEnd::Length => ("max_tokens", None),
            _ if self.calls > 0 => ("tool_use", None),
            TurnEnd::StopText(text) => ("stop_sequence", Some(text)),
            TurnEnd::Turn | TurnEnd::Calls => ("end_turn", None),
        };
        let delta = json!({ "stop_reason": reason, "stop_sequence": stop });
        events.push(event("message_delta", [("delta", delta), ("usage", usage(turn))]));
        events.push(event("message_stop", []));
        self.ended = true;
    }
}

impl Open {
    /// An empty block of text or thinking.
    fn block(self) -> Value {
        match self {
            Open::Thinking => json!({ "type": "thinking", "thinking": "", "signature": "" }),
            _ => json!({ "type": "text", "text": "" }),
        }
    }
}

fn usage(turn: TurnUsage) -> Value {
    json!({
        "input_tokens": turn.prompt.saturating_sub(turn.cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": turn.cached,
        "output_tokens": turn.written,
    })
}

fn event<const N: usize>(name: &'static str, fields: [(&str, Value); N]) -> Event {
    let mut data = Map::from_iter([("type".to_owned(), name.into())]);
    data.extend(fields.map(|(name, value)| (name.to_owned(), value)));
    (name, data.into())
}
