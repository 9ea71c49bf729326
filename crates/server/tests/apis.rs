//! The Messages and Responses APIs over HTTP, of a model whose words the test writes.

mod common;

use common::{Running, serve_script};
use kapitsa::Specials;
use kapitsa_testkit::script::Script;
use serde_json::{Value, json};

const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}{{ tools }}<tool_call>>";
const SAID: &str =
    "<think>Hm.</think>Look:<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"x\"}}\n</tool_call>";

fn say(server: &Running, script: &Script, text: &str) {
    script.say(server.llm.tokenizer().encode(text, Specials::AsText).unwrap());
}

fn message() -> Value {
    json!({"model": "m", "max_tokens": 500, "messages": [{"role": "user", "content": "go"}],
           "tools": [{"name": "read", "input_schema": {"type": "object"}}]})
}

fn response() -> Value {
    json!({"model": "m", "input": "go", "tools": [{"type": "function", "name": "read", "parameters": {"type": "object"}}]})
}

/// Names and data of a stream's events.
fn named(server: &Running, path: &str, mut body: Value) -> Vec<(String, Value)> {
    body["stream"] = true.into();
    let answer = server.post(path, &body);
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")), "{}", answer.text());
    let text = answer.text().to_owned();
    let events = text.split("\n\n").filter(|event| !event.is_empty() && !event.starts_with(':'));
    let event = |event: &str| {
        let (name, data) = event.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        let name = name.strip_prefix("event: ").unwrap();
        assert_eq!(data["type"], name);
        (name.to_owned(), data)
    };
    events.map(event).collect()
}

#[test]
fn messages_whole_and_streamed() {
    let (server, script) = serve_script(TEMPLATE);
    say(&server, &script, SAID);
    let answer = server.post("/v1/messages?beta=true", &message());
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.header("request-id").is_some_and(|id| id.starts_with("req_")));
    let whole = answer.json();
    let kinds: Vec<_> = whole["content"].as_array().unwrap().iter().map(|block| &block["type"]).collect();
    assert_eq!(kinds, ["thinking", "text", "tool_use"]);
    assert_eq!((&whole["stop_reason"], &whole["content"][2]["input"]), (&json!("tool_use"), &json!({"path": "x"})));
    let counted = server.post("/v1/messages/count_tokens", &message()).json();
    assert_eq!(counted["input_tokens"], whole["usage"]["input_tokens"]);

    say(&server, &script, SAID);
    let events = named(&server, "/v1/messages", message());
    assert_eq!((events[0].0.as_str(), events.last().unwrap().0.as_str()), ("message_start", "message_stop"));
    let input: String = events.iter().filter_map(|(_, event)| event["delta"]["partial_json"].as_str()).collect();
    assert_eq!(input, "{\"path\": \"x\"}");
}

#[test]
fn messages_that_cannot_be_served() {
    let (server, _) = serve_script(TEMPLATE);
    let answer = server.post("/v1/messages", &json!({"messages": 5}));
    assert_eq!((answer.status, &answer.json()["error"]["type"]), (400, &json!("invalid_request_error")));
    let mut long = message();
    long["messages"][0]["content"] = "x".repeat(400_000).into();
    let error = server.post("/v1/messages", &long).json();
    assert!(error["error"]["message"].as_str().unwrap().starts_with("prompt is too long: "), "{error}");
    let mut forced = message();
    forced["tool_choice"] = json!({"type": "tool", "name": "none"});
    assert_eq!(server.post("/v1/messages", &forced).status, 400);
}

#[test]
fn responses_whole_streamed_and_gone_on_from() {
    let (server, script) = serve_script(TEMPLATE);
    say(&server, &script, SAID);
    let answer = server.post("/v1/responses", &response());
    assert_eq!(answer.status, 200, "{}", answer.text());
    let whole = answer.json();
    let kinds: Vec<_> = whole["output"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call"]);
    assert_eq!(whole["status"], "completed");

    say(&server, &script, "done");
    let output = json!([{"type": "function_call_output", "call_id": whole["output"][2]["call_id"], "output": "1"}]);
    let next = json!({"input": output, "previous_response_id": whole["id"], "tools": response()["tools"]});
    let next = server.post("/v1/responses", &next).json();
    assert_eq!(next["output"][0]["content"][0]["text"], "done");
    assert!(next["usage"]["input_tokens"].as_u64() > whole["usage"]["input_tokens"].as_u64());

    say(&server, &script, SAID);
    let events = named(&server, "/v1/responses", response());
    assert_eq!((events[0].0.as_str(), events.last().unwrap().0.as_str()), ("response.created", "response.completed"));
    let numbers = events.iter().map(|(_, event)| event["sequence_number"].as_u64());
    assert!(numbers.eq((0..).map(Some).take(events.len())));

    let unknown = server.post("/v1/responses", &json!({"input": "a", "previous_response_id": "resp_0"}));
    assert_eq!((unknown.status, &unknown.error()["code"]), (400, &json!("previous_response_not_found")));
}

#[test]
fn models_are_listed_for_each_api() {
    let (server, _) = serve_script(TEMPLATE);
    assert_eq!(server.get("/v1/models").json()["object"], "list");
    let theirs = server.request("GET", "/v1/models", &[("anthropic-version", "2023-06-01")], b"").json();
    assert_eq!((&theirs["data"][0]["type"], &theirs["has_more"]), (&json!("model"), &json!(false)));
}
