//! Tool calls and thinking in Chat Completions, of a model whose words the test writes.

mod common;

use common::{Running, serve_script};
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
