//! What is refused: 400 with the field's name; and what is ignored.

mod common;

use common::{request, serve, serve_with};
use serde_json::{Value, json};

#[test]
fn a_field_of_the_wrong_type_or_out_of_range_is_named() {
    let server = serve();
    for (field, value) in [
        ("model", json!(7)),
        ("messages", json!("hello")),
        ("messages", json!([])),
        ("stream", json!("yes")),
        ("stream_options", json!(true)),
        ("n", json!(0)),
        ("n", json!(-1)),
        ("n", json!(33)),
        ("n", json!("two")),
        ("stop", json!(7)),
        ("stop", json!("")),
        ("stop", json!(["a", ""])),
        ("stop", json!(vec!["a"; 17])),
        ("stop", json!("a".repeat(1025))),
        ("seed", json!("x")),
        ("seed", json!(0.5)),
        ("temperature", json!("hot")),
        ("temperature", json!(-1)),
        ("top_p", json!(1.5)),
        ("top_p", json!([])),
        ("top_k", json!(-2)),
        ("min_p", json!(2)),
        ("frequency_penalty", json!(3)),
        ("presence_penalty", json!(-3)),
        ("repetition_penalty", json!(0)),
        ("logit_bias", json!({"a": 1})),
        ("logit_bias", json!({"256": 1})),
        ("logit_bias", json!({"1": 101})),
        ("logit_bias", json!([1])),
        ("max_tokens", json!(0)),
        ("max_tokens", json!(-5)),
        ("max_tokens", json!("many")),
        ("max_completion_tokens", json!(0)),
        ("logprobs", json!(5)),
        ("top_logprobs", json!(-1)),
        ("top_logprobs", json!(21)),
        ("top_logprobs", json!(5)),
    ] {
        let mut body = request("hello", 2);
        body[field] = value.clone();
        let answer = server.post("/v1/chat/completions", &body);
        let param = answer.error()["param"].as_str().unwrap_or_default().to_owned();
        assert_eq!(answer.status, 400, "{field} {value}");
        assert!(param == field || param.starts_with(&format!("{field}.")), "{field} {value}: {}", answer.text());
    }
    let mut nested = request("hello", 2);
    nested["stream_options"] = json!({"include_usage": 3});
    let error = server.post("/v1/chat/completions", &nested).error();
    assert_eq!(error["param"], "stream_options.include_usage");
    // The engine is none the worse for it.
    assert_eq!(server.get("/health").json()["slots_busy"], 0);
}

#[test]
fn what_changes_the_reply_and_is_not_there_yet_is_named() {
    let server = serve();
    for (field, value) in [
        ("functions", json!([{"name": "ls"}])),
        ("function_call", json!({"name": "ls"})),
        ("modalities", json!(["text", "audio"])),
        ("audio", json!({"voice": "a"})),
        ("web_search_options", json!({})),
    ] {
        let mut body = request("hello", 2);
        body[field] = value;
        let answer = server.post("/v1/chat/completions", &body);
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!(field)), "{}", answer.text());
    }
    // A call of what is not there, and unknown words.
    for (field, value, place) in [
        ("tool_choice", json!("required"), "tool_choice"),
        ("tool_choice", json!({"type": "function", "function": {"name": "ls"}}), "tool_choice"),
        ("tool_choice", json!({"type": "function"}), "tool_choice.function.name"),
        ("tool_choice", json!("maybe"), "tool_choice"),
        ("response_format", json!({"type": "xml"}), "response_format.type"),
        ("response_format", json!({"type": "json_schema"}), "response_format.json_schema.schema"),
    ] {
        let mut body = request("hello", 2);
        body[field] = value;
        let answer = server.post("/v1/chat/completions", &body);
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!(place)), "{}", answer.text());
    }
    let mut neutral = request("hello", 2);
    for (field, value) in [
        ("tools", json!([])),
        ("tool_choice", json!("auto")),
        ("functions", Value::Null),
        ("response_format", json!({"type": "text"})),
        ("modalities", json!(["text"])),
        ("top_logprobs", json!(0)),
        ("parallel_tool_calls", json!(true)),
        ("store", json!(false)),
        ("reasoning_effort", json!("low")),
        ("metadata", json!({"a": "b"})),
        ("unheard_of", json!({"x": [1, 2]})),
    ] {
        neutral[field] = value;
    }
    server.chat(neutral);
}

#[test]
fn tools_that_cannot_be_are_named() {
    let server = serve();
    for (tool, param) in [
        (json!({"type": "function"}), "tools[0].function.name"),
        (json!({"type": "function", "function": {"name": ""}}), "tools[0].function.name"),
        (json!({"type": "function", "function": {"name": "a", "parameters": []}}), "tools[0].function.parameters"),
    ] {
        let mut body = request("hello", 2);
        body["tools"] = json!([tool]);
        let answer = server.post("/v1/chat/completions", &body);
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!(param)), "{}", answer.text());
    }
    // Types that are not known are left out.
    let mut body = request("hello", 2);
    body["tools"] = json!([{"type": "web_search"}, {"type": "function", "function": {"name": "a"}}]);
    server.chat(body);
}

#[test]
fn messages_that_cannot_be_are_named() {
    let server = serve();
    let image = json!([{"type": "text", "text": "what is it"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]);
    for (message, param) in [
        (json!({"content": "a"}), "messages[1].role"),
        (json!({"role": "robot", "content": "a"}), "messages[1].role"),
        (json!({"role": 5}), "messages[1].role"),
        (json!({"role": "user", "content": 5}), "messages[1].content"),
        (json!({"role": "user", "content": {}}), "messages[1].content"),
        (json!({"role": "user", "content": image}), "messages[1].content[1].image_url"),
        (json!({"role": "user", "content": [{"type": "image"}]}), "messages[1].content[0]"),
        (json!({"role": "user", "content": [{"type": "input_audio"}]}), "messages[1].content[0]"),
        (json!({"role": "user", "content": [{"text": "a"}]}), "messages[1].content[0]"),
        (json!({"role": "user", "content": [{"type": "text"}]}), "messages[1].content[0]"),
        (json!({"role": "user", "content": ["a"]}), "messages[1].content[0]"),
        (json!({"role": "assistant", "tool_calls": "ls"}), "messages[1].tool_calls"),
        (json!("hello"), "messages[1]"),
    ] {
        let answer =
            server.post("/v1/chat/completions", &json!({"messages": [{"role": "user", "content": "a"}, message]}));
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!(param)), "{}", answer.text());
    }
    let answer = server.post("/v1/chat/completions", &json!({"model": "m"}));
    assert!(
        answer.status == 400 && answer.error()["message"].as_str().unwrap().contains("messages"),
        "{}",
        answer.text()
    );
}

#[test]
fn bodies_that_are_no_json_object_are_refused() {
    let server = serve();
    let deep = "[".repeat(100_000);
    let depth = format!("{{\"messages\":{}", "[".repeat(100_000));
    for body in
        ["", "{", "null", "[]", "7", "\"a\"", "{\"messages\": [}", "{\"temperature\": 1e999}", "\u{0}", &deep, &depth]
    {
        let answer = server.request("POST", "/v1/chat/completions", &[], body.as_bytes());
        assert_eq!(
            (answer.status, answer.error()["type"].as_str()),
            (400, Some("invalid_request_error")),
            "{body:.20}"
        );
    }
    for bytes in [&b"{\"a\": \"\xff\xfe\"}"[..], b"{\"a\": \"\\ud800\"}", b"\x1f\x8b\x08"] {
        assert_eq!(server.request("POST", "/v1/completions", &[], bytes).status, 400);
    }
    server.chat(request("hello", 1));
}

#[test]
fn any_name_will_do_unless_names_are_taken_strictly() {
    let lenient = serve();
    assert_eq!(
        lenient
            .chat(json!({"model": "claude-opus-4-8", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1}))
            ["model"],
        "org/tiny"
    );
    let strict = serve_with(|options| options.strict_models = true);
    for name in ["org/tiny", "tiny", "/models/tiny.gguf"] {
        let mut body = request("a", 1);
        body["model"] = name.into();
        assert_eq!(strict.chat(body)["model"], "org/tiny");
    }
    for path in ["/v1/chat/completions", "/v1/completions"] {
        let answer = strict.post(path, &json!({"model": "gpt-4", "prompt": "a", "messages": []}));
        let error = answer.error();
        assert_eq!((answer.status, &error["code"], &error["param"]), (404, &json!("model_not_found"), &json!("model")));
        assert!(error["message"].as_str().unwrap().contains("`org/tiny`"));
    }
}

#[test]
fn a_schema_that_cannot_be_enforced_is_refused_by_keyword_and_place() {
    let server = serve();
    let schema = json!({"type": "object", "properties": {"x": {"type": "array", "contains": {"const": 1}}}});
    let function = json!({"name": "ls", "parameters": schema, "strict": true});
    let cases = [
        (
            "/v1/chat/completions",
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}),
            "response_format.json_schema.schema",
        ),
        (
            "/v1/chat/completions",
            json!({"tools": [{"type": "function", "function": function}]}),
            "tools[0].function.parameters",
        ),
        (
            "/v1/responses",
            json!({"text": {"format": {"type": "json_schema", "name": "a", "schema": schema}}}),
            "text.format.schema",
        ),
        (
            "/v1/responses",
            json!({"tools": [{"type": "function", "name": "ls", "parameters": schema, "strict": true}]}),
            "tools[0].parameters",
        ),
    ];
    for (path, mut body, place) in cases {
        body["messages"] = json!([{"role": "user", "content": "a"}]);
        body["input"] = "a".into();
        for stream in [false, true] {
            body["stream"] = stream.into();
            let answer = server.post(path, &body);
            let error = answer.error();
            assert_eq!((answer.status, &error["param"]), (400, &json!(place)), "{error}");
            assert!(error["message"].as_str().unwrap().contains("`contains` at `#/properties/x`"), "{error}");
        }
    }
    let format = json!({"format": {"type": "json_schema", "schema": schema}});
    let body = json!({"max_tokens": 5, "messages": [{"role": "user", "content": "a"}], "output_config": format});
    let answer = server.post("/v1/messages", &body);
    let message = answer.json()["error"]["message"].take();
    assert_eq!(answer.status, 400);
    assert!(
        message.as_str().unwrap().starts_with("output_config.format.schema: JSON schema: `contains` at"),
        "{message}"
    );
    // What is broken hurts nobody: `[a-` is no pattern.
    let pattern =
        json!({"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "string", "pattern": "[a-"}}});
    let body = json!({"messages": [{"role": "user", "content": "a"}], "response_format": pattern});
    assert_eq!(server.post("/v1/chat/completions", &body).status, 400);
    server.chat(request("hello", 2));
}
