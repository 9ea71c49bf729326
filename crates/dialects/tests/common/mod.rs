//! What these tests share.

use kapitsa_dialects::{Dialect, End, Event, Reader, Tool};
use serde_json::json;

pub(crate) const DIALECTS: [Dialect; 5] =
    [Dialect::HermesJson, Dialect::QwenXml, Dialect::NemotronJson, Dialect::Glm, Dialect::PlainJson];

pub(crate) fn tools() -> Vec<Tool> {
    let text = json!({ "type": "string" });
    let object = |properties| json!({ "type": "object", "properties": properties });
    let declared = [
        ("ls", object(json!({}))),
        ("read", object(json!({ "path": text, "limit": { "type": "integer" } }))),
        ("write", object(json!({ "path": text, "content": text }))),
        ("edit", object(json!({ "path": text, "edits": { "type": "array" }, "all": { "type": "boolean" } }))),
        (
            "types",
            json!({
                "type": "object",
                "$defs": { "count": { "type": "integer" } },
                "properties": {
                    "integer": { "type": "integer" },
                    "boolean": { "type": "boolean" },
                    "objects": { "type": "array", "items": { "type": "object" } },
                    "object": { "type": "object" },
                    "nullable": { "type": ["string", "null"] },
                    "either": { "anyOf": [{ "type": "string" }, { "type": "array" }] },
                    "referenced": { "$ref": "#/$defs/count" },
                    "any": {},
                    "text": text,
                },
            }),
        ),
    ];
    declared.map(|(name, parameters)| Tool { name: name.into(), parameters }).into()
}

pub(crate) fn read(
    dialect: Dialect,
    tools: &[Tool],
    starts_in_reasoning: bool,
    pieces: &[&str],
    end: End,
) -> Vec<Event> {
    let mut reader = Reader::new(dialect, tools, starts_in_reasoning);
    let mut events = vec![];
    for piece in pieces {
        reader.push(piece, &mut events);
    }
    reader.finish(end, &mut events);
    events
}

/// Events with neighbours of one kind joined.
pub(crate) fn joined(events: Vec<Event>) -> Vec<Event> {
    let mut joined: Vec<Event> = vec![];
    for event in events {
        match (joined.last_mut(), &event) {
            (Some(Event::Content(before)), Event::Content(text)) => before.push_str(text),
            (Some(Event::Reasoning(before)), Event::Reasoning(text)) => before.push_str(text),
            (Some(Event::CallArguments { index, json }), Event::CallArguments { index: same, json: more })
                if index == same =>
            {
                json.push_str(more);
            }
            _ => joined.push(event),
        }
    }
    joined
}
