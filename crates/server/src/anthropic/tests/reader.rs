//! A client that is strict about the order of events: an independent reading of the protocol.

use serde_json::{Value, json};

use crate::anthropic::events::Event;

/// What a client has at the end of a stream.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) message: Value,
    /// From an event `error`.
    pub(super) error: Option<Value>,
}

/// Reads a stream.
///
/// # Panics
/// Where it breaks the protocol, or ends early.
pub(super) fn read(events: &[Event]) -> Seen {
    let (mut seen, mut content, mut open, mut ended) = (Seen::default(), Vec::<Value>::new(), None, false);
    for (place, (name, data)) in events.iter().enumerate() {
        let at = format!("event {place}: {data}");
        assert_eq!(data["type"], *name, "{at}");
        assert!(!ended, "after the end, {at}");
        assert_eq!(*name == "message_start", place == 0, "{at}");
        match *name {
            "message_start" => {
                seen.message = data["message"].clone();
                let Value::Object(mut fields) = data["message"].clone() else { panic!("{at}") };
                for name in ["id", "model", "usage"] {
                    assert!(fields.remove(name).is_some(), "{at}");
                }
                let rest = json!({
                    "type": "message", "role": "assistant", "content": [], "stop_reason": null, "stop_sequence": null,
                });
                assert_eq!(Value::Object(fields), rest, "{at}");
                count_tokens(&seen.message["usage"], &at);
            }
            "ping" => {}
            "content_block_start" => {
                assert_eq!(open, None, "{at}");
                assert_eq!(data["index"], content.len(), "{at}");
                let block = &data["content_block"];
                match block["type"].as_str().unwrap() {
                    "text" => assert_eq!(*block, json!({ "type": "text", "text": "" })),
                    "thinking" => assert_eq!(*block, json!({ "type": "thinking", "thinking": "", "signature": "" })),
                    "tool_use" => {
                        assert_eq!(block["input"], json!({}), "{at}");
                        assert!(block["id"].is_string() && block["name"].is_string(), "{at}");
                    }
                    kind => panic!("{kind}, {at}"),
                }
                content.push(block.clone());
                open = Some(String::new());
            }
            "content_block_delta" => {
                let input = open.as_mut().unwrap_or_else(|| panic!("no block is open, {at}"));
                assert_eq!(data["index"], content.len() - 1, "{at}");
                let (block, delta) = (content.last_mut().unwrap(), &data["delta"]);
                let kinds = (block["type"].as_str().unwrap(), delta["type"].as_str().unwrap());
                let field = match kinds {
                    ("text", "text_delta") => "text",
                    ("thinking", "thinking_delta") => "thinking",
                    ("thinking", "signature_delta") => "signature",
                    ("tool_use", "input_json_delta") => {
                        *input += delta["partial_json"].as_str().unwrap();
                        continue;
                    }
                    kinds => panic!("{kinds:?}, {at}"),
                };
                // The signature ends a block.
                assert!(field == "text" || block["signature"] == "", "{at}");
                block[field] = format!("{}{}", block[field].as_str().unwrap(), delta[field].as_str().unwrap()).into();
            }
            "content_block_stop" => {
                let input = open.take().unwrap_or_else(|| panic!("no block is open, {at}"));
                assert_eq!(data["index"], content.len() - 1, "{at}");
                let block = content.last_mut().unwrap();
                assert!(block["type"] != "thinking" || block["signature"] != "", "{at}");
                if block["type"] == "tool_use" {
                    block["input"] = serde_json::from_str(&input).unwrap_or(Value::String(input));
                }
            }
            "message_delta" => {
                assert_eq!(open, None, "{at}");
                assert_eq!(seen.message["stop_reason"], Value::Null, "{at}");
                let reason = data["delta"]["stop_reason"].as_str().unwrap();
                let calls = content.iter().any(|block| block["type"] == "tool_use");
                match reason {
                    "tool_use" => assert!(calls, "{at}"),
                    "end_turn" | "max_tokens" | "stop_sequence" => {}
                    _ => panic!("{at}"),
                }
                assert_eq!(reason == "stop_sequence", data["delta"]["stop_sequence"].is_string(), "{at}");
                for field in ["stop_reason", "stop_sequence"] {
                    seen.message[field] = data["delta"][field].clone();
                }
                count_tokens(&data["usage"], &at);
                seen.message["usage"] = data["usage"].clone();
            }
            "message_stop" => {
                assert!(seen.message["stop_reason"].is_string(), "{at}");
                ended = true;
            }
            "error" => {
                assert!(data["error"]["type"].is_string() && data["error"]["message"].is_string(), "{at}");
                seen.error = Some(data["error"].clone());
                ended = true;
            }
            _ => panic!("{at}"),
        }
    }
    assert!(ended, "the stream has no end");
    seen.message["content"] = content.into();
    seen
}

fn count_tokens(usage: &Value, at: &str) {
    for field in ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"] {
        assert!(usage[field].is_u64(), "{field}, {at}");
    }
}
