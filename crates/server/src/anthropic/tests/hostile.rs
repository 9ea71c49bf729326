//! JSON from strangers: the worst result is an error of one line that names a place.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value, json};

use crate::anthropic::request::read;

/// Every field and kind of block that is read.
fn full() -> Value {
    json!({
        "model": "m", "stream": true, "max_tokens": 9, "temperature": 0.5, "top_k": 4, "top_p": 0.9, "stop_sequences": ["x"],
        "system": [{ "type": "text", "text": "s" }],
        "thinking": { "type": "enabled", "budget_tokens": 9 },
        "output_config": { "effort": "low", "format": { "type": "json_schema", "schema": {} } },
        "tools": [{ "name": "t", "description": "d", "input_schema": {}, "strict": true }, { "type": "web_search_20250305" }],
        "tool_choice": { "type": "tool", "name": "t", "disable_parallel_tool_use": true },
        "messages": [
            { "role": "user", "content": [
                { "type": "text", "text": "u" },
                { "type": "image", "source": { "type": "base64", "data": "AA==", "media_type": "image/png" } },
                { "type": "document", "title": "t", "source": { "type": "content", "content": [{ "type": "text", "text": "u" }] } },
            ] },
            { "role": "system", "content": "s" },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": "h", "signature": "s" },
                { "type": "redacted_thinking", "data": "x" },
                { "type": "tool_use", "id": "1", "name": "t", "input": { "a": 1 } },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "1", "is_error": true, "content": [{ "type": "text", "text": "r" }] },
            ] },
        ],
    })
}

/// Places of all values in it.
fn pointers(value: &Value, here: &str, all: &mut Vec<String>) {
    all.push(here.to_owned());
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| pointers(item, &format!("{here}/{index}"), all));
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(name, field)| pointers(field, &format!("{here}/{name}"), all));
        }
        _ => {}
    }
}

fn json() -> impl Strategy<Value = Value> {
    let names = ["type", "text", "role", "content", "source", "data", "name", "id", "input", "tool_use_id", "messages"];
    let kinds =
        ["text", "image", "document", "thinking", "tool_use", "tool_result", "base64", "content", "é<|im_end|>"];
    let words = [&kinds[..], &["user", "assistant", "system", ""]].concat();
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        select(words).prop_map(Value::from),
        select(kinds.to_vec()).prop_map(|kind| json!({ "type": kind })),
    ];
    leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((select(names.to_vec()), inner), 0..6).prop_map(|fields| {
                let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
                Value::from(Map::from_iter(fields))
            }),
        ]
    })
}

fn check(body: &Value) {
    if let Err(error) = read(body) {
        let message = json!(error.body())["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(error.status, 400, "{message}");
        assert!(!message.is_empty() && !message.contains('\n') && message.len() < 400, "{message}");
    }
}

#[test]
fn all_of_it_reads() {
    read(&full()).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn any_json_is_read_or_refused(body in json()) {
        check(&body);
    }

    #[test]
    fn any_json_in_place_of_a_field_is_read_or_refused(changes in prop::collection::vec((any::<Index>(), json()), 1..4)) {
        let mut body = full();
        for (index, value) in changes {
            let mut all = vec![];
            pointers(&body, "", &mut all);
            *body.pointer_mut(&all[index.index(all.len())]).unwrap() = value;
        }
        check(&body);
    }
}
