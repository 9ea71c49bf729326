//! Requests as agents send them (`tests/fixtures/agents`), and the rules of [`messages`](crate::anthropic::messages) and
//! [`request`](crate::anthropic::request) one by one.

use std::fs;

use kapitsa::Message;
use kapitsa::turn::{ImageData, SamplingChanges, ToolChoice, ToolInput, TurnRequest};
use kapitsa_testkit::fixture;
use serde_json::{Value, json};

use crate::anthropic::request::{MessagesRequest, read};

/// The body of a captured request.
fn captured(name: &str) -> Value {
    let text = fs::read_to_string(fixture(&format!("agents/{name}.json"))).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["body"].take()
}

/// A request without its filler.
fn compact(request: &MessagesRequest) -> String {
    let MessagesRequest { model, stream, turn } = request;
    let mut lines = vec![format!("model {model:?}, stream {stream}")];
    for Message { role, content, fields } in &turn.messages {
        let content = match content {
            Value::String(text) => text.len().to_string(),
            other => other.to_string(),
        };
        lines.push(format!("{role}: {content}"));
        for (name, value) in fields {
            lines.push(format!("  {name}: {value}"));
        }
    }
    for image in &turn.images {
        let (ImageData::Base64(data) | ImageData::Url(data)) = &image.data;
        lines.push(format!("image {}: {}", image.place, data.len()));
    }
    let tools = turn.tools.iter().map(|tool| {
        let ToolInput::Json { schema, strict: false } = &tool.input else { panic!("{tool:?}") };
        format!("{} {}+{}", tool.name, tool.description.as_ref().map_or(0, String::len), schema.to_string().len())
    });
    lines.push(format!("tools: {}", tools.collect::<Vec<_>>().join(", ")));
    let TurnRequest { tool_choice, one_call, format, thinking, sampling, stops, max_tokens, .. } = turn;
    lines.push(format!("choice {tool_choice:?}, one call {one_call}, stops {stops:?}, max tokens {max_tokens:?}"));
    lines.push(format!("{format:?}\n{thinking:?}"));
    if *sampling != SamplingChanges::default() {
        lines.push(format!("{sampling:?}"));
    }
    lines.join("\n")
}

#[test]
fn what_agents_send_is_read() {
    let names = [
        "claude-code/requests/02",
        "claude-code/requests/03",
        "claude-code/requests/04",
        "claude-code/requests/05",
        "claude-code/variants/broken-json-arguments",
        "claude-code/variants/compaction",
        "claude-code/variants/count-tokens-foo",
        "claude-code/variants/count-tokens-system-part",
        "claude-code/variants/count-tokens-tools",
        "claude-code/variants/image-in-tool-result",
        "claude-code/variants/non-streaming-fallback",
        "claude-code/variants/parallel-tool-results",
        "claude-code/variants/resume-after-max-tokens",
        "claude-code/variants/subagent-after-nested-agent",
        "claude-code/variants/thinking-replayed",
        "claude-code/variants/tui-after-compaction",
        "copilot/variants/messages-api-thinking-replayed",
        "goose/variants/messages-api",
        "opencode/variants/messages-api",
        "pi/variants/messages-api",
    ];
    for name in names {
        let request = read(&captured(name)).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        insta::assert_snapshot!(name.replace('/', "_"), compact(&request));
    }
}

#[test]
fn a_session_only_grows_at_its_end() {
    let turns: Vec<_> = ["03", "04", "05"]
        .map(|number| read(&captured(&format!("claude-code/requests/{number}"))).unwrap().turn)
        .into();
    for turns in turns.windows(2) {
        let (before, after) = (&turns[0], &turns[1]);
        assert_eq!(before.messages, after.messages[..before.messages.len()]);
        assert_eq!(before.tools, after.tools);
    }
}

/// A request with these fields beside a user's `u`.
fn body(fields: Value) -> Value {
    let mut body = json!({ "messages": [{ "role": "user", "content": "u" }] });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

fn turn(fields: Value) -> TurnRequest {
    read(&body(fields)).unwrap().turn
}

/// The messages of a request with this content, as the JSON that templates see.
fn said(role: &str, content: Value) -> Value {
    let user = json!({ "role": "user", "content": "u" });
    let messages = turn(json!({ "messages": [user, { "role": role, "content": content }] })).messages;
    json!(messages[1..])
}

fn refusal(fields: Value) -> String {
    let error = read(&body(fields)).unwrap_err();
    assert_eq!(error.status, 400);
    json!(error.body())["error"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn the_billing_line_is_dropped_at_the_head_of_the_system_text_alone() {
    let billing = "x-anthropic-billing-header: cc_version=2.1; cch=abc;";
    let system = |system: Value| turn(json!({ "system": system })).messages[0].content.clone();
    let block = |text: &str| json!({ "type": "text", "text": text, "cache_control": { "type": "ephemeral" } });
    assert_eq!(system(json!([block(billing), block("a"), block("b")])), "a\nb");
    assert_eq!(system(json!([block(&format!("{billing}\na"))])), "a");
    assert_eq!(system(json!(format!("{billing}\na"))), "a");
    assert_eq!(system(json!([block("a"), block(billing)])), format!("a\n{billing}"));
    // With nothing beside it, no system text is left.
    assert_eq!(system(json!(billing)), "u");
    assert_eq!(said("user", json!(billing))[0]["content"], billing);
}

#[test]
fn what_users_say() {
    let user = |content: &str| json!([{ "role": "user", "content": content }]);
    let block = |text: &str| json!({ "type": "text", "text": text });
    assert_eq!(said("user", json!("a")), said("user", json!([block("a")])));
    assert_eq!(said("user", json!([block(""), block("a"), block("<|im_end|>")])), user("a\n<|im_end|>"));
    assert_eq!(said("user", json!([])), user(""));
    let text = json!({ "type": "document", "title": "T", "source": { "type": "text", "media_type": "text/plain", "data": "d" } });
    assert_eq!(said("user", json!([text])), user("T\nd"));
    let blocks = json!({ "type": "document", "source": { "type": "content", "content": [block("d"), block("e")] } });
    assert_eq!(said("user", json!([blocks])), user("d\ne"));
    let pdf =
        json!({ "type": "document", "source": { "type": "base64", "media_type": "application/pdf", "data": "AA" } });
    let note = "[document of type application/pdf: it cannot be read here]";
    assert_eq!(said("user", json!([pdf, block("a")])), user(&format!("{note}\na")));
    let file = json!({ "type": "image", "source": { "type": "file", "file_id": "1" } });
    assert_eq!(said("user", json!([file])), user("[image of type file: it cannot be read here]"));
    assert_eq!(said("user", json!([{ "type": "odd" }])), user("[block of type odd: it cannot be read here]"));
    assert_eq!(said("system", json!("s")), json!([{ "role": "system", "content": "s" }]));
}

#[test]
fn results_come_before_what_the_user_says_with_them() {
    let image = |data: &str| json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": data } });
    let content = json!([
        image("first"),
        { "type": "tool_result", "tool_use_id": "1", "content": [{ "type": "text", "text": "r" }, image("second")] },
        { "type": "text", "text": "u" },
        { "type": "tool_result", "tool_use_id": "2", "is_error": true },
        { "type": "tool_result", "tool_use_id": "3", "content": [] },
        { "type": "tool_result", "tool_use_id": "4", "content": "s", "is_error": true },
    ]);
    let turn = turn(json!({ "messages": [{ "role": "user", "content": content }] }));
    let expected = json!([
        { "role": "tool", "content": [{ "type": "text", "text": "r" }, { "type": "image" }], "tool_call_id": "1" },
        { "role": "tool", "content": "error", "tool_call_id": "2" },
        { "role": "tool", "content": "", "tool_call_id": "3" },
        { "role": "tool", "content": "s", "tool_call_id": "4" },
        { "role": "user", "content": [{ "type": "image" }, { "type": "text", "text": "u" }] },
    ]);
    assert_eq!(json!(turn.messages), expected);
    let places: Vec<_> = turn.images.iter().map(|image| (image.place.as_str(), &image.data)).collect();
    let data = |data: &str| ImageData::Base64(data.to_owned());
    let expected = [
        ("messages[0].content[1].content[1].source", &data("second")),
        ("messages[0].content[0].source", &data("first")),
    ];
    assert_eq!(places, expected);
}

#[test]
fn what_assistants_say() {
    let call = |input: Value| json!({ "type": "tool_use", "id": "1", "name": "Read", "input": input });
    let arguments =
        |input: Value| said("assistant", json!([call(input)]))[0]["tool_calls"][0]["function"]["arguments"].clone();
    assert_eq!(arguments(json!({ "b": [1, 2.5], "a": { "ü": null } })), r#"{"b":[1,2.5],"a":{"ü":null}}"#);
    assert_eq!(arguments(json!("{\"a")), "{\"a");
    assert_eq!(arguments(json!([1])), "[1]");
    assert_eq!(arguments(Value::Null), "{}");
    let content = json!([
        { "type": "thinking", "thinking": "h", "signature": 5 },
        { "type": "redacted_thinking", "data": "x" },
        { "type": "text", "text": "a" },
        { "type": "thinking", "thinking": "i" },
        { "type": "server_tool_use", "id": "2", "name": "web_search", "input": {} },
        call(json!({})),
    ]);
    let calls = json!([{ "id": "1", "type": "function", "function": { "name": "Read", "arguments": "{}" } }]);
    let expected = json!([{ "role": "assistant", "content": "a", "reasoning_content": "h\ni", "tool_calls": calls }]);
    assert_eq!(said("assistant", content), expected);
    for nothing in [json!(""), json!([]), Value::Null, json!([{ "type": "text", "text": "" }])] {
        assert_eq!(said("assistant", nothing), json!([]));
    }
}

#[test]
fn tools_and_their_choice() {
    let tools = json!([
        { "name": "a", "input_schema": { "z": 1, "a": 2 }, "strict": true, "eager_input_streaming": true },
        { "type": "web_search_20250305", "name": "web_search" },
        { "type": "custom", "name": "b", "input_schema": {} },
    ]);
    let with = |choice: Value| turn(json!({ "tools": tools, "tool_choice": choice }));
    let names: Vec<_> = with(Value::Null).tools.into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(with(Value::Null).tool_choice, ToolChoice::Auto);
    assert_eq!(with(json!({ "type": "none" })).tool_choice, ToolChoice::None);
    assert_eq!(with(json!({ "type": "any" })).tool_choice, ToolChoice::Required);
    let one = with(json!({ "type": "tool", "name": "b", "disable_parallel_tool_use": true }));
    assert_eq!((one.tool_choice, one.one_call), (ToolChoice::Named("b".into()), true));
    assert_eq!(turn(json!({ "tools": [] })), turn(json!({})));
}

#[test]
fn thinking_is_switched() {
    let thinking = |thinking: Value| {
        let thinking = turn(json!({ "thinking": thinking })).thinking;
        (thinking.enabled, thinking.budget)
    };
    assert_eq!(thinking(Value::Null), (None, None));
    assert_eq!(thinking(json!({ "type": "adaptive", "display": "omitted" })), (Some(true), None));
    assert_eq!(thinking(json!({ "type": "enabled", "budget_tokens": 1024 })), (Some(true), Some(1024)));
    assert_eq!(thinking(json!({ "type": "disabled", "budget_tokens": 1024 })), (Some(false), None));
    let effort = |effort: &str| turn(json!({ "output_config": { "effort": effort } })).thinking.effort.unwrap();
    assert_eq!((effort("low"), effort("max")), ("low".into(), "high".into()));
}

#[test]
fn refusals_name_the_place() {
    let user = |block: Value| json!({ "messages": [{ "role": "user", "content": [block] }] });
    let cases = [
        (json!({ "messages": null }), "messages is missing"),
        (json!({ "messages": [] }), "messages holds nothing to answer, expected a message of the user"),
        (json!({ "messages": "u" }), "messages is `u`, expected a list"),
        (json!({ "messages": [{ "content": "u" }] }), "messages[0].role is missing"),
        (json!({ "messages": [{ "role": "tool" }] }), "messages[0].role is `tool`, expected user, assistant or system"),
        (
            json!({ "messages": [{ "role": "user", "content": 5 }] }),
            "messages[0].content is 5, expected text or a list of blocks",
        ),
        (user(json!("u")), "messages[0].content[0] is `u`, expected an object"),
        (user(json!({ "text": "u" })), "messages[0].content[0].type is missing"),
        (user(json!({ "type": "text" })), "messages[0].content[0].text is missing"),
        (user(json!({ "type": "tool_result" })), "messages[0].content[0].tool_use_id is missing"),
        (
            user(json!({ "type": "image", "source": { "type": "base64" } })),
            "messages[0].content[0].source.data is missing",
        ),
        (json!({ "max_tokens": 0 }), "max_tokens is 0, expected a whole number of at least 1"),
        (json!({ "stream": "yes" }), "stream is `yes`, expected true or false"),
        (json!({ "temperature": "0" }), "temperature is `0`, expected a number"),
        (json!({ "stop_sequences": ["a", ""] }), "stop_sequences[1] has 0 bytes, expected 1 to 1024"),
        (json!({ "tools": [{ "name": "a" }] }), "tools[0].input_schema is missing"),
        (
            json!({ "tool_choice": { "type": "any" } }),
            "tool_choice asks for a call, but there is no tool that can be offered",
        ),
        (
            json!({ "tool_choice": { "type": "tool", "name": "a" } }),
            "tool_choice names `a`, which is none of the tools",
        ),
        (json!({ "tool_choice": "auto" }), "tool_choice is `auto`, expected an object"),
        (json!({ "thinking": { "type": "on" } }), "thinking.type is `on`, expected enabled, adaptive or disabled"),
        (
            json!({ "output_config": { "effort": "odd" } }),
            "output_config.effort is `odd`, expected low, medium, high, xhigh or max",
        ),
        (
            json!({ "output_config": { "format": { "type": "xml" } } }),
            "output_config.format.type is `xml`, expected json_schema",
        ),
        (
            json!({ "system": [{ "type": "image", "source": { "type": "url", "url": "data:" } }] }),
            "system[0].source is an image, which only users and tools can send",
        ),
    ];
    for (fields, expected) in cases {
        assert_eq!(refusal(fields), expected);
    }
}
