//! Requests as agents send them, streams as a client reads them, conversations that go on, and hostile JSON.

mod client;
mod conversations;
mod hostile;
mod refusals;
mod requests;
mod streams;

use kapitsa::turn::{TurnEnd, TurnEvent, TurnUsage};
use serde_json::{Value, json};

use super::events::{Event, NewId, Spell};
use super::{ResponsesRequest, Writer, read};

/// The tools of streams here: one of each form.
fn body() -> Value {
    json!({
        "model": "local-model",
        "stream": true,
        "input": "Fix it.",
        "tools": [
            { "type": "function", "name": "read", "parameters": { "type": "object", "properties": { "path": { "type": "string" } } } },
            { "type": "custom", "name": "apply_patch", "format": { "type": "grammar", "syntax": "lark", "definition": "start: /.+/" } },
            { "type": "namespace", "name": "agents", "tools": [{ "type": "function", "name": "close_agent" }] },
        ],
    })
}

fn request(body: &Value) -> ResponsesRequest {
    read(body).unwrap_or_else(|error| panic!("{error:?}"))
}

fn writer(request: &ResponsesRequest) -> Writer {
    let mut count = 0;
    let new_id: NewId = Box::new(move |prefix| {
        count += 1;
        format!("{prefix}{count}")
    });
    let spell: Spell =
        Box::new(|tokens| tokens.iter().map(|token| json!({ "token": token.id, "logprob": -0.5 })).collect());
    Writer::new(request, "local-model", 1_700_000_000, new_id, spell)
}

/// All events of a stream.
fn stream(request: &ResponsesRequest, turn: &[TurnEvent]) -> Vec<Event> {
    let mut writer = writer(request);
    let mut events = writer.begin();
    events.extend(turn.iter().flat_map(|event| writer.hear(event.clone())));
    events
}

fn thinking(text: &str) -> TurnEvent {
    TurnEvent::Thinking(text.into())
}

fn text(text: &str) -> TurnEvent {
    TurnEvent::Text { text: text.into(), tokens: vec![] }
}

fn begins(index: usize, name: &str) -> TurnEvent {
    TurnEvent::CallBegins { index, name: name.into() }
}

fn piece(index: usize, piece: &str) -> TurnEvent {
    TurnEvent::CallInput { index, piece: piece.into() }
}

fn ends(index: usize) -> TurnEvent {
    TurnEvent::CallEnds { index }
}

fn finished(end: TurnEnd) -> TurnEvent {
    TurnEvent::Finished { end, usage: TurnUsage { prompt: 100, cached: 64, written: 20, thinking: 8 } }
}
