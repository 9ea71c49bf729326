//! A client that takes nothing for granted: it reads a stream by the rules of the protocol.

use serde_json::Value;

use crate::responses::events::Event;
use crate::responses::reasoning;

/// An item under way, as the client puts it together.
struct Item {
    /// As it was announced.
    announced: Value,
    text: String,
    steps: Vec<&'static str>,
}

/// Steps of an item, in order, and how its events are named.
fn steps(kind: &str) -> (&'static [&'static str], &'static str) {
    match kind {
        "reasoning" => (
            &[
                "response.reasoning_summary_part.added",
                "response.reasoning_summary_text.delta",
                "response.reasoning_summary_text.done",
                "response.reasoning_summary_part.done",
            ],
            "text",
        ),
        "message" => (
            &[
                "response.content_part.added",
                "response.output_text.delta",
                "response.output_text.done",
                "response.content_part.done",
            ],
            "text",
        ),
        "function_call" => {
            (&["response.function_call_arguments.delta", "response.function_call_arguments.done"], "arguments")
        }
        "custom_tool_call" => {
            (&["response.custom_tool_call_input.delta", "response.custom_tool_call_input.done"], "input")
        }
        other => panic!("an item of kind {other}"),
    }
}

/// The last response. Panics where a rule is broken.
pub(super) fn read(events: &[Event]) -> Value {
    let id = &events[0].1["response"]["id"];
    assert!(id.as_str().is_some_and(|id| id.starts_with("resp_")), "{id}");
    assert_eq!([events[0].0, events[1].0], ["response.created", "response.in_progress"]);
    let mut ids = vec![id.clone()];
    let mut items: Vec<Value> = vec![];
    let mut open: Option<Item> = None;
    let (last, before) = events.split_last().unwrap();
    for (number, (name, data)) in events.iter().enumerate() {
        assert_eq!((data["type"].as_str(), data["sequence_number"].as_u64()), (Some(*name), Some(number as u64)));
    }
    for (name, data) in before {
        match *name {
            "response.created" | "response.in_progress" => {
                let response = &data["response"];
                assert_eq!((&response["id"], &response["object"]), (id, &"response".into()));
                assert_eq!((&response["status"], &response["output"]), (&"in_progress".into(), &Value::Array(vec![])));
                assert!(
                    response["usage"].is_null() && response["created_at"].is_u64() && response["model"].is_string()
                );
            }
            "response.output_item.added" => {
                assert!(open.is_none(), "two items are open: {data}");
                assert_eq!(data["output_index"], items.len());
                let item = &data["item"];
                assert_eq!(item["status"], "in_progress");
                let prefix = match item["type"].as_str().unwrap() {
                    "reasoning" => "rs_",
                    "message" => "msg_",
                    "function_call" => "fc_",
                    _ => "ctc_",
                };
                assert!(item["id"].as_str().unwrap().starts_with(prefix), "{item}");
                let new = [&item["id"], &item["call_id"]].into_iter().filter(|id| !id.is_null());
                for id in new {
                    assert!(!ids.contains(id), "{id} twice");
                    ids.push(id.clone());
                }
                assert_eq!(whole_text(item), "");
                open = Some(Item { announced: item.clone(), text: String::new(), steps: vec![] });
            }
            "response.output_item.done" => {
                let item = open.take().expect("an item is open");
                assert_eq!(data["output_index"], items.len());
                item.check_done(&data["item"]);
                items.push(data["item"].clone());
            }
            name => open.as_mut().expect("an item is open").hear(name, data, items.len()),
        }
    }
    let (name, data) = last;
    let response = &data["response"];
    assert_eq!(
        (&response["id"], &response["output"]),
        (id, &Value::Array(items)),
        "the items are those that were done"
    );
    let status = response["status"].as_str().unwrap();
    assert_eq!(*name, format!("response.{status}"));
    assert_eq!(response["error"].is_null(), status != "failed");
    assert_eq!(response["incomplete_details"].is_null(), status != "incomplete");
    if status == "failed" {
        assert!(response["error"]["code"].is_string() && response["error"]["message"].is_string());
    } else {
        assert!(open.is_none(), "an item is left open");
        let usage = &response["usage"];
        let count = |pointer| usage.pointer(pointer).and_then(Value::as_u64).unwrap();
        assert_eq!(count("/total_tokens"), count("/input_tokens") + count("/output_tokens"));
        assert!(count("/input_tokens_details/cached_tokens") <= count("/input_tokens"));
        assert!(count("/output_tokens_details/reasoning_tokens") <= count("/output_tokens"));
    }
    response.clone()
}

/// What an item holds, wherever it holds it.
fn whole_text(item: &Value) -> String {
    let of_parts =
        |parts: &Value| parts.as_array().unwrap().iter().map(|part| part["text"].as_str().unwrap()).collect();
    match item["type"].as_str().unwrap() {
        "reasoning" => of_parts(&item["summary"]),
        "message" => of_parts(&item["content"]),
        "function_call" => item["arguments"].as_str().unwrap().into(),
        _ => item["input"].as_str().unwrap().into(),
    }
}

impl Item {
    fn kind(&self) -> &str {
        self.announced["type"].as_str().unwrap()
    }

    fn hear(&mut self, name: &'static str, data: &Value, index: usize) {
        let (steps, field) = steps(self.kind());
        assert_eq!((&data["item_id"], data["output_index"].as_u64()), (&self.announced["id"], Some(index as u64)));
        let at = |name| steps.iter().position(|step| *step == name);
        let step = at(name).unwrap_or_else(|| panic!("{name} in a {}", self.kind()));
        let before = self.steps.last().map(|step| at(*step).unwrap());
        let follows =
            before.map_or(step == 0, |before| step == before + 1 || step == before && name.ends_with("delta"));
        // What is empty has no delta.
        let skips =
            step > 0 && steps[step - 1].ends_with("delta") && before.map_or(step == 1, |before| step == before + 2);
        assert!(follows || skips, "{name} after {before:?}");
        self.steps.push(name);
        match self.kind() {
            "reasoning" => assert_eq!(data["summary_index"], 0),
            "message" => assert_eq!(data["content_index"], 0),
            _ => {}
        }
        match name.rsplit('.').next() {
            Some("added") => assert_eq!(data["part"]["text"], ""),
            Some("delta") => self.text.push_str(data["delta"].as_str().unwrap()),
            _ if name.contains("part") => assert_eq!(data["part"]["text"], self.text),
            _ => assert_eq!(data[field], self.text),
        }
    }

    fn check_done(&self, item: &Value) {
        let last = steps(self.kind()).0.last();
        assert_eq!(self.steps.last(), last, "the item is not at its end");
        for field in ["type", "id", "role", "call_id", "name", "namespace"] {
            assert_eq!(item[field], self.announced[field], "{field}");
        }
        assert!(item["status"] == "completed" || item["status"] == "incomplete");
        assert_eq!(whole_text(item), self.text);
        if self.kind() == "reasoning" {
            assert_eq!(reasoning::unseal(item["encrypted_content"].as_str().unwrap()).unwrap(), self.text);
        }
    }
}
