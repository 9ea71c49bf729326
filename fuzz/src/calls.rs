//! Answers of models.

use kapitsa_dialects::{Dialect, End, Event, Reader, Tool};

const DIALECTS: [Dialect; 5] =
    [Dialect::HermesJson, Dialect::QwenXml, Dialect::Glm, Dialect::PlainJson, Dialect::NemotronJson];

/// Reads an answer whole and in pieces, which must mean the same, with arguments that are JSON.
pub fn calls(data: &[u8]) {
    let [how, size, text @ ..] = data else { return };
    let text = String::from_utf8_lossy(text);
    let dialect = DIALECTS[usize::from(how % 5)];
    let (starts_in_reasoning, end) = (how & 64 > 0, if how & 128 > 0 { End::Length } else { End::Stop });
    let schema =
        serde_json::json!({"properties": {"path": {"type": "string"}, "limit": {"type": ["integer", "array"]}}});
    let tools = [Tool { name: "read".into(), parameters: schema }];
    let read = |pieces: &[&str]| {
        let mut reader = Reader::new(dialect, &tools, starts_in_reasoning);
        let mut events = vec![];
        pieces.iter().for_each(|piece| reader.push(piece, &mut events));
        reader.finish(end, &mut events);
        joined(events)
    };
    let whole = read(&[&text]);
    let chars: Vec<char> = text.chars().collect();
    let pieces: Vec<String> = chars.chunks(usize::from(size % 16) + 1).map(|piece| piece.iter().collect()).collect();
    assert_eq!(read(&pieces.iter().map(String::as_str).collect::<Vec<_>>()), whole);
    for pair in whole.windows(2) {
        if let [Event::CallArguments { json, .. }, Event::CallEnds { .. }] = pair {
            assert!(serde_json::from_str::<serde_json::Map<_, _>>(json).is_ok(), "{json}");
        }
    }
}

fn joined(events: Vec<Event>) -> Vec<Event> {
    let mut joined: Vec<Event> = vec![];
    for event in events {
        match (joined.last_mut(), &event) {
            (Some(Event::Content(before)), Event::Content(text))
            | (Some(Event::Reasoning(before)), Event::Reasoning(text)) => before.push_str(text),
            (Some(Event::CallArguments { json, .. }), Event::CallArguments { json: more, .. }) => json.push_str(more),
            _ => joined.push(event),
        }
    }
    joined
}
