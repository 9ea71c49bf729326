//! Whatever a body holds, the worst is a short error.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

use super::stream;
use crate::responses::read;

const NAMES: [&str; 40] = [
    "allowed_tools",
    "arguments",
    "assistant",
    "call_id",
    "content",
    "custom",
    "custom_tool_call",
    "definition",
    "developer",
    "encrypted_content",
    "format",
    "function",
    "function_call",
    "function_call_output",
    "grammar",
    "image_url",
    "include",
    "input",
    "input_image",
    "input_text",
    "instructions",
    "json_schema",
    "lark",
    "message",
    "mode",
    "name",
    "namespace",
    "output",
    "parameters",
    "reasoning",
    "regex",
    "role",
    "schema",
    "summary",
    "syntax",
    "text",
    "tool_choice",
    "tools",
    "type",
    "user",
];

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        select(&NAMES[..]).prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            vec((select(&NAMES[..]), inner), 0..6).prop_map(|fields| fields
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect::<Map<_, _>>()
                .into()),
        ]
    })
}

/// A request with something of everything.
fn rich() -> Value {
    json!({
        "model": "m", "stream": true, "store": true, "instructions": "x", "parallel_tool_calls": false, "temperature": 0.5,
        "top_p": 1, "top_logprobs": 2, "include": ["reasoning.encrypted_content"], "max_output_tokens": 9,
        "reasoning": { "effort": "low", "summary": "auto" },
        "text": { "format": { "type": "json_schema", "name": "a", "schema": { "type": "object" }, "strict": true } },
        "tool_choice": { "type": "allowed_tools", "mode": "auto", "tools": [{ "type": "function", "name": "f" }] },
        "tools": [
            { "type": "function", "name": "f", "parameters": { "type": "object" }, "strict": null },
            { "type": "custom", "name": "c", "format": { "type": "grammar", "syntax": "regex", "definition": "a" } },
            { "type": "namespace", "name": "n", "tools": [{ "type": "function", "name": "g" }] },
        ],
        "input": [
            { "role": "user", "content": [{ "type": "input_text", "text": "x" }, { "type": "input_image", "image_url": "data:" }] },
            { "type": "reasoning", "summary": [{ "type": "summary_text", "text": "x" }], "content": null, "encrypted_content": "x" },
            { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "x" }] },
            { "type": "function_call", "call_id": "1", "name": "f", "arguments": "{}" },
            { "type": "custom_tool_call", "call_id": "2", "name": "c", "input": "x" },
            { "type": "function_call_output", "call_id": "1", "output": [{ "type": "input_image", "image_url": "data:" }] },
            { "type": "custom_tool_call_output", "call_id": "2", "output": "x" },
        ],
    })
}

/// All places of a value, the value itself first.
fn pointers(value: &Value, at: String, found: &mut Vec<String>) {
    found.push(at.clone());
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| pointers(item, format!("{at}/{index}"), found));
        }
        Value::Object(fields) => fields.iter().for_each(|(name, field)| pointers(field, format!("{at}/{name}"), found)),
        _ => {}
    }
}

fn survives(body: &Value) {
    match read(body) {
        Ok(request) => drop(stream(&request, &[])),
        Err(error) => {
            let shown = serde_json::to_string(error.body()).unwrap();
            assert!(error.status == 400 && shown.len() < 4000, "{shown}");
        }
    }
}

proptest! {
    #[test]
    fn any_json_is_read_or_refused(body in any_json()) {
        survives(&body);
        survives(&json!({ "input": body }));
        survives(&json!({ "input": [body] }));
        survives(&json!({ "input": "x", "tools": [body], "tool_choice": body }));
    }

    #[test]
    fn a_request_with_something_else_somewhere_is_read_or_refused(places in vec((any::<prop::sample::Index>(), any_json()), 1..4)) {
        let mut body = rich();
        assert!(read(&body).is_ok());
        for (place, value) in places {
            let mut found = vec![];
            pointers(&body, String::new(), &mut found);
            *body.pointer_mut(place.get::<String>(&found)).unwrap() = value;
        }
        survives(&body);
    }
}

#[test]
fn a_long_text_in_the_wrong_place_makes_no_long_error() {
    let long = "x".repeat(1_000_000);
    survives(&json!({ "input": [long] }));
    survives(&json!({ "input": [{ "role": long }] }));
    survives(&json!({ "input": [{ "role": "user", "content": [{ "type": long }] }] }));
    survives(&json!({ "input": "x", "tool_choice": long }));
    survives(&json!({ "input": "x", "stream": long }));
    survives(&json!({ "input": "x", "tools": [{ "type": "function", "name": "f", "parameters": long }] }));
}
