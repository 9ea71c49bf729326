//! Whatever a model writes: no panic, no lost text, and JSON.

mod common;

use common::{DIALECTS, joined, read, tools};
use kapitsa_dialects::{Dialect, End, Event};
use proptest::prelude::*;

/// Markup, JSON and text of all dialects.
const PIECES: &[&str] = &[
    "<tool_call>",
    "</tool_call>",
    "<TOOLCALL>[",
    "]</TOOLCALL>",
    "<function=read>",
    "</function>",
    "<parameter=path>",
    "<parameter=limit>",
    "</parameter>",
    "read",
    "<arg_key>",
    "path",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<think>",
    "</think>",
    "{\"name\": \"read\", \"arguments\": ",
    "{\"name\":",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    "\\",
    "\\u",
    "\\ud83d",
    "\\ude00",
    ",",
    ":",
    "null",
    "tru",
    "-1e5",
    "e999",
    "\n",
    " ",
    "`",
    "```",
    "json",
    "é",
    "日",
    "\0",
    "<",
    "/",
    "a b",
    "x",
    "\"path\":",
    "\"a\"",
    "[{\"name\": \"ls\"}",
    "<tool_call>{\"name\": \"edit\", \"arguments\": \"{",
];

fn soup() -> impl Strategy<Value = String> {
    let piece = prop_oneof![8 => proptest::sample::select(PIECES).prop_map(str::to_string), 1 => any::<char>().prop_map(String::from)];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

fn pieces(text: &str, size: usize) -> Vec<String> {
    text.chars().collect::<Vec<_>>().chunks(size).map(|piece| piece.iter().collect()).collect()
}

/// Calls begin and end in order, and what they say is an object.
fn check_calls(events: &[Event], end: End) {
    let mut next = 0;
    let mut open: Option<String> = None;
    for event in events {
        match event {
            Event::CallBegins { index, name } => {
                assert!(open.is_none() && *index == next && !name.is_empty(), "{events:?}");
                open = Some(String::new());
            }
            Event::CallArguments { index, json } => {
                assert_eq!(*index, next, "{events:?}");
                open.as_mut().expect("a call has begun").push_str(json);
            }
            Event::CallEnds { index } => {
                assert_eq!(*index, next, "{events:?}");
                let json = open.take().expect("a call has begun");
                let value: Result<serde_json::Value, _> = serde_json::from_str(&json);
                assert!(value.as_ref().is_ok_and(serde_json::Value::is_object), "{value:?}: {json}");
                next += 1;
            }
            Event::Reasoning(text) | Event::Content(text) => assert!(open.is_none() && !text.is_empty(), "{events:?}"),
        }
    }
    assert!(open.is_none() || end == End::Length, "{events:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, max_global_rejects: 1 << 20, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_text_is_read_alike_in_any_pieces(text in soup(), size in 1..9_usize, thinking: bool, cut: bool) {
        let end = if cut { End::Length } else { End::Stop };
        for dialect in DIALECTS {
            let whole = joined(read(dialect, &tools(), thinking, &[&text], end));
            check_calls(&whole, end);
            let pieces = pieces(&text, size);
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            prop_assert_eq!(&joined(read(dialect, &tools(), thinking, &pieces, end)), &whole, "{:?}", dialect);
        }
    }

    #[test]
    fn text_without_calls_comes_out_as_it_is(text in soup()) {
        prop_assume!(!text.contains("<think>"));
        for dialect in DIALECTS {
            let events = joined(read(dialect, &tools(), false, &[&text], End::Stop));
            if !events.iter().any(|event| matches!(event, Event::CallBegins { .. })) {
                let content = if text.is_empty() { vec![] } else { vec![Event::Content(text.clone())] };
                prop_assert_eq!(events, content);
            }
        }
    }

    #[test]
    fn text_between_tags_comes_out_as_it_is(text in "([a-z<>/=\"\\\\{}\n ]|é|</parameter>|<tool_call>|</function>|</tool_call>){0,40}") {
        // A closer at its end would be followed by what makes it count.
        let value = format!("{text}.");
        let after = ["</parameter></function>", "</parameter></tool_call>"];
        let squeezed: String = value.split_whitespace().collect();
        prop_assume!(!after.iter().any(|closers| squeezed.contains(closers)));
        let call = format!("<tool_call>\n<function=write>\n<parameter=content>\n{value}\n</parameter>\n</function>\n</tool_call>");
        let events = joined(read(Dialect::QwenXml, &tools(), false, &[&call], End::Stop));
        let [Event::CallBegins { .. }, Event::CallArguments { json, .. }, Event::CallEnds { .. }] = &events[..] else {
            panic!("{events:?}");
        };
        prop_assert_eq!(serde_json::from_str::<serde_json::Value>(json).unwrap(), serde_json::json!({ "content": value }));
    }

    #[test]
    fn json_passes_as_it_is(text in any::<String>(), key in any::<String>(), number: i64) {
        let value = serde_json::json!({ "content": text, key: [number, { "a": null, "b": text }, text], "z": text });
        for json in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let call = format!("<tool_call>\n{{\"name\": \"write\", \"arguments\": {json}}}\n</tool_call>");
            let events = joined(read(Dialect::HermesJson, &tools(), false, &[&call], End::Stop));
            prop_assert_eq!(&events[1], &Event::CallArguments { index: 0, json: json.clone() });
            prop_assert_eq!(events.len(), 3);
            let encoded = serde_json::Value::String(json.clone());
            let call = format!("<tool_call>\n{{\"name\": \"write\", \"arguments\": {encoded}}}\n</tool_call>");
            let events = joined(read(Dialect::HermesJson, &tools(), false, &[&call], End::Stop));
            prop_assert_eq!(&events[1], &Event::CallArguments { index: 0, json });
        }
    }
}
