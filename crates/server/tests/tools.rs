//! Tool calls and thinking in Chat Completions, of a model whose words the test writes.

mod common;

use common::{Running, serve_script, serve_script_with};
use kapitsa::Specials;
use kapitsa_testkit::script::Script;
use serde_json::{Value, json};

const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}\
    <tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% endfor %}{{ tools }}>";

const SAID: &str = "<think>Two files.</think>Reading:<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"naïve 日本\"}}\n\
    </tool_call>\n<tool_call>{\"name\": \"list\", \"arguments\": {}}</tool_call>";

fn say(server: &Running, script: &Script, text: &str) {
    script.say(server.llm.tokenizer().encode(text, Specials::AsText).unwrap());
}

fn body() -> Value {
    let function =
        |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    json!({"messages": [{"role": "user", "content": "go"}], "tools": [function("read"), function("list")]})
}

#[test]
fn whole_calls() {
    let (server, script) = serve_script(TEMPLATE);
    say(&server, &script, SAID);
    let answer = server.chat(body());
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    let message = &choice["message"];
    assert_eq!((&message["content"], &message["reasoning_content"]), (&json!("Reading:"), &json!("Two files.")));
    let calls = message["tool_calls"].as_array().unwrap();
    let said: Vec<_> = calls.iter().map(|call| (&call["type"], &call["function"])).collect();
    let read = json!({"name": "read", "arguments": "{\"path\": \"naïve 日本\"}"});
    assert_eq!(said, [(&json!("function"), &read), (&json!("function"), &json!({"name": "list", "arguments": "{}"}))]);
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    assert!(answer["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap() > 5);
    // Nothing but a call: no content.
    say(&server, &script, "<tool_call>{\"name\": \"list\", \"arguments\": {}}</tool_call>");
    assert_eq!(server.chat(body())["choices"][0]["message"]["content"], Value::Null);
}

#[test]
fn streamed_calls() {
    let (server, script) = serve_script(TEMPLATE);
    say(&server, &script, SAID);
    let events = server.stream("/v1/chat/completions", body());
    let (done, chunks) = events.split_last().unwrap();
    assert_eq!(done, "[DONE]");
    let mut joined = [String::new(), String::new()];
    let mut begun = vec![];
    let (mut content, mut thinking, mut finish) = (String::new(), String::new(), Value::Null);
    for chunk in chunks {
        let chunk: Value = serde_json::from_str(chunk).unwrap();
        let choice = &chunk["choices"][0];
        let delta = &choice["delta"];
        content += delta["content"].as_str().unwrap_or_default();
        thinking += delta["reasoning_content"].as_str().unwrap_or_default();
        assert!(content.is_empty() || delta["reasoning_content"].is_null(), "thinking comes before content");
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap() as usize;
            if call["id"].is_string() {
                assert_eq!((index, &call["type"]), (begun.len(), &json!("function")));
                begun.push(call["function"]["name"].clone());
            } else {
                assert!(call["function"]["name"].is_null(), "the name comes once");
            }
            joined[index] += call["function"]["arguments"].as_str().unwrap();
        }
        finish = choice["finish_reason"].clone();
    }
    assert_eq!((content.as_str(), thinking.as_str(), finish), ("Reading:", "Two files.", json!("tool_calls")));
    assert_eq!(
        (begun, joined),
        (vec![json!("read"), json!("list")], ["{\"path\": \"naïve 日本\"}".into(), "{}".into()])
    );
}

#[test]
fn a_call_that_the_limit_cuts_is_no_call() {
    let (server, script) = serve_script(TEMPLATE);
    say(&server, &script, SAID);
    let mut body = body();
    body["max_tokens"] = 80.into();
    assert_eq!(server.chat(body.clone())["choices"][0]["finish_reason"], "length");
    // And the history of it is taken.
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{"}});
    body["messages"] = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "</think> is text"},
    ]);
    say(&server, &script, "done");
    assert_eq!(server.chat(body)["choices"][0]["finish_reason"], "stop");
}

/// All deltas of a stream, joined: content, thinking, arguments; and how it ended.
fn joined(events: &[String]) -> (String, String, String, Value) {
    let (mut content, mut thinking, mut arguments, mut finish) =
        (String::new(), String::new(), String::new(), Value::Null);
    for event in events.iter().filter(|event| *event != "[DONE]") {
        let chunk: Value = serde_json::from_str(event).unwrap();
        let choice = &chunk["choices"][0];
        content += choice["delta"]["content"].as_str().unwrap_or_default();
        thinking += choice["delta"]["reasoning_content"].as_str().unwrap_or_default();
        for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            arguments += call["function"]["arguments"].as_str().unwrap();
        }
        finish = choice["finish_reason"].clone();
    }
    (content, thinking, arguments, finish)
}

#[test]
fn ids_of_calls_are_new_in_every_turn() {
    let (server, script) = serve_script(TEMPLATE);
    let mut ids = std::collections::HashSet::new();
    for _ in 0..3 {
        say(&server, &script, SAID);
        let calls = server.chat(body())["choices"][0]["message"]["tool_calls"].take();
        ids.extend(calls.as_array().unwrap().iter().map(|call| call["id"].as_str().unwrap().to_owned()));
    }
    assert_eq!(ids.len(), 6);
}

#[test]
fn the_limit_in_thinking_and_an_end_in_it() {
    let (server, script) = serve_script(TEMPLATE);
    say(&server, &script, "<think>one two three four");
    let answer = server.chat(json!({"messages": [{"role": "user", "content": "go"}], "max_tokens": 14}));
    let (choice, usage) = (&answer["choices"][0], &answer["usage"]);
    assert_eq!((&choice["finish_reason"], &choice["message"]["content"]), (&json!("length"), &json!("")));
    assert_eq!(choice["message"]["reasoning_content"], "one two ");
    assert_eq!(usage["completion_tokens"], 14);
    assert!((7..=14).contains(&usage["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap()), "{usage}");
    // Thinking that the model never closes is not thrown away.
    say(&server, &script, "<think>one two three four");
    let answer = server.chat(json!({"messages": [{"role": "user", "content": "go"}]}));
    let choice = &answer["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["reasoning_content"]),
        (&json!("stop"), &json!("one two three four"))
    );
}

#[test]
fn characters_stay_whole_in_text_thinking_and_arguments() {
    let (server, script) = serve_script(TEMPLATE);
    let emoji = "🦀日é".repeat(3);
    let said = format!(
        "<think>{emoji}</think>{emoji}<tool_call>{{\"name\": \"read\", \"arguments\": {{\"path\": \"{emoji}\"}}}}</tool_call>"
    );
    for max_tokens in (1..13).map(|step| step * 10 + step % 4).chain([1000]) {
        let mut body = body();
        body["max_tokens"] = max_tokens.into();
        say(&server, &script, &said);
        let message = server.chat(body.clone())["choices"][0]["message"].take();
        say(&server, &script, &said);
        let (content, thinking, arguments, _) = joined(&server.stream("/v1/chat/completions", body));
        assert!(
            [&content, &thinking, &arguments]
                .iter()
                .all(|text| !text.trim_end_matches('\u{fffd}').contains('\u{fffd}'))
        );
        assert_eq!(message["content"].as_str().unwrap_or_default(), content, "{max_tokens}");
        assert_eq!(message["reasoning_content"].as_str().unwrap_or_default(), thinking, "{max_tokens}");
        assert_eq!(
            message["tool_calls"][0]["function"]["arguments"].as_str().unwrap_or_default(),
            arguments,
            "{max_tokens}"
        );
    }
}

#[test]
fn a_forced_call_is_made_whatever_the_model_would_say() {
    let (server, script) = serve_script(TEMPLATE);
    let function = json!({"name": "mode", "parameters": {
        "type": "object", "required": ["m"], "additionalProperties": false, "properties": {"m": {"enum": ["a", "b"]}},
    }});
    let mut body =
        json!({"messages": [{"role": "user", "content": "go"}], "tools": [{"type": "function", "function": function}]});
    for choice in [json!("required"), json!({"type": "function", "function": {"name": "mode"}})] {
        body["tool_choice"] = choice;
        say(&server, &script, "I would rather talk about something else entirely.");
        let choice = server.chat(body.clone())["choices"][0].take();
        let call = &choice["message"]["tool_calls"][0]["function"];
        assert_eq!((&choice["finish_reason"], &call["name"]), (&json!("tool_calls"), &json!("mode")), "{choice}");
        say(&server, &script, "No.");
        let (content, _, arguments, finish) = joined(&server.stream("/v1/chat/completions", body.clone()));
        let arguments: Value = serde_json::from_str(&arguments).unwrap();
        assert!(arguments == json!({"m": "a"}) || arguments == json!({"m": "b"}), "{arguments}");
        assert_eq!((content.as_str(), finish), ("", json!("tool_calls")));
    }
    // Several replies to one request, each in its own place of the grammar.
    body["n"] = 3.into();
    (0..3).for_each(|_| say(&server, &script, "No."));
    let answer = server.chat(body);
    for choice in answer["choices"].as_array().unwrap() {
        assert_eq!(choice["message"]["tool_calls"][0]["function"]["name"], "mode", "{choice}");
    }
}

#[test]
fn thinking_has_a_budget_of_the_request_or_of_the_server() {
    let (server, script) = serve_script_with(TEMPLATE, |options| options.thinking_budget = Some(6));
    let thought = |body: Value| {
        say(&server, &script, "<think>abcdefghijklmnopqrstuvw</think>Done.");
        let answer = server.chat(body);
        let message = &answer["choices"][0]["message"];
        assert!(message["content"].as_str().unwrap().ends_with("Done."), "{answer}");
        message["reasoning_content"].as_str().unwrap().len()
    };
    let body = json!({"messages": [{"role": "user", "content": "go"}]});
    assert_eq!(thought(body.clone()), 6);
    let mut own = body.clone();
    own["thinking_budget"] = 10.into();
    assert_eq!(thought(own), 10);
    say(&server, &script, "<think>abcdefghijklmnopqrstuvw</think>Done.");
    let thinking = json!({"type": "enabled", "budget_tokens": 3});
    let message = json!({"max_tokens": 100, "thinking": thinking, "messages": [{"role": "user", "content": "go"}]});
    let answer = server.post("/v1/messages", &message).json();
    assert_eq!(answer["content"][0]["thinking"], "abc", "{answer}");
}

#[test]
fn an_image_that_a_tool_has_read_is_a_note_for_a_model_that_sees_none() {
    let (server, script) = serve_script(TEMPLATE);
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}});
    let mut messages = vec![
        json!({"role": "user", "content": "go"}),
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": "call_1", "content": [image]}),
        json!({"role": "user", "content": [image]}),
    ];
    say(&server, &script, "I cannot see it.");
    server.chat(json!({"messages": messages}));
    messages[0]["content"] = json!([image]);
    let error = server.post("/v1/chat/completions", &json!({"messages": messages})).error();
    assert_eq!(error["param"], "messages[0].content[0].image_url", "{error}");
}
