//! Chat Completions: what requests may say, and what whole and streamed replies look like.

mod common;

use common::{content, request, serve, serve_model};
use kapitsa_testkit::tiny;
use serde_json::{Value, json};

fn parsed(events: &[String]) -> Vec<Value> {
    assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
    events[..events.len() - 1].iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

fn streamed_text(chunks: &[Value]) -> String {
    chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect()
}

#[test]
fn a_whole_reply_has_every_field() {
    let server = serve();
    let reply = server.chat(request("hello", 20));
    assert!(reply["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!((&reply["object"], &reply["model"]), (&json!("chat.completion"), &json!("org/tiny")));
    assert!(reply["created"].as_u64().unwrap() > 1_700_000_000);
    let choice = &reply["choices"][0];
    assert_eq!(
        (&choice["index"], &choice["finish_reason"], &choice["logprobs"]),
        (&json!(0), &json!("length"), &Value::Null)
    );
    assert_eq!(choice["message"]["role"], "assistant");
    assert!(!content(&reply).is_empty());
    // `user:hello<|end|>>`
    let usage = json!({
        "prompt_tokens": 12, "completion_tokens": 20, "total_tokens": 32,
        "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0},
    });
    assert_eq!(reply["usage"], usage);
    assert_ne!(server.chat(request("hello", 1))["id"], reply["id"]);
}

#[test]
fn a_stream_says_the_same_in_the_order_of_the_protocol() {
    let server = serve();
    let whole = server.chat(request("hello", 40));
    let chunks = parsed(&server.stream("/v1/chat/completions", request("hello", 40)));
    for chunk in &chunks {
        for field in ["id", "created", "model", "object"] {
            assert_eq!(chunk[field], chunks[0][field]);
        }
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert!(chunk.get("usage").is_none());
    }
    let first =
        json!({"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": null, "finish_reason": null});
    assert_eq!(chunks[0]["choices"], json!([first]));
    let (last, pieces) = chunks[1..].split_last().unwrap();
    assert_eq!(last["choices"][0]["delta"], json!({}));
    assert_eq!(last["choices"][0]["finish_reason"], "length");
    for piece in pieces {
        assert_eq!(piece["choices"][0]["finish_reason"], Value::Null);
        assert!(piece["choices"][0]["delta"].get("role").is_none());
    }
    assert_eq!(streamed_text(&chunks), content(&whole));
}

#[test]
fn usage_comes_once_after_the_end_when_asked_for() {
    let server = serve();
    let mut body = request("hello", 5);
    body["stream_options"] = json!({"include_usage": true});
    let chunks = parsed(&server.stream("/v1/chat/completions", body));
    let with: Vec<usize> = (0..chunks.len()).filter(|&index| chunks[index].get("usage").is_some()).collect();
    assert_eq!(with, [chunks.len() - 1]);
    let last = chunks.last().unwrap();
    assert_eq!((&last["choices"], &last["usage"]["total_tokens"]), (&json!([]), &json!(17)));
}

#[test]
fn several_replies_differ_by_seed_and_are_counted_together() {
    let server = serve();
    let mut body = request("hello", 12);
    body["n"] = 3.into();
    let reply = server.chat(body.clone());
    let texts: Vec<&str> = (0..3).map(|i| reply["choices"][i]["message"]["content"].as_str().unwrap()).collect();
    assert!(texts[0] != texts[1] && texts[1] != texts[2]);
    assert_eq!(reply["usage"]["completion_tokens"], 36);
    assert_eq!(reply["usage"]["prompt_tokens"], 12);
    let mut second = request("hello", 12);
    second["seed"] = 6.into();
    assert_eq!(content(&server.chat(second)), texts[1]);
    let chunks = parsed(&server.stream("/v1/chat/completions", body));
    for (index, text) in texts.iter().enumerate() {
        let of = chunks.iter().filter(|chunk| chunk["choices"][0]["index"] == index);
        let of: Vec<Value> = of.cloned().collect();
        assert_eq!(&streamed_text(&of), text);
        assert_eq!(of.first().unwrap()["choices"][0]["delta"]["role"], "assistant");
        assert_eq!(of.last().unwrap()["choices"][0]["finish_reason"], "length");
    }
}

#[test]
fn seeds_and_temperature_do_what_they_say() {
    let server = serve();
    let text = |change: Value| {
        let mut body = request("hello", 30);
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        content(&server.chat(body)).to_owned()
    };
    let first = text(json!({}));
    assert_eq!(text(json!({})), first);
    assert_ne!(text(json!({"seed": 7})), first);
    assert_ne!(text(json!({"seed": null})), text(json!({"seed": null})));
    assert_eq!(text(json!({"temperature": 0, "seed": 1})), text(json!({"temperature": 0, "seed": 2})));
    assert_eq!(text(json!({"top_k": 1})), text(json!({"temperature": 0})));
    assert_eq!(text(json!({"top_k": -1})), first);
    assert_ne!(
        text(json!({"frequency_penalty": 2, "presence_penalty": 2, "temperature": 0})),
        text(json!({"temperature": 0}))
    );
    // `A` alone is possible.
    let forced = text(json!({"logit_bias": {"65": 100, "0": -100}, "temperature": 0}));
    assert!(forced.len() == 30 && forced.chars().all(|c| c == forced.chars().next().unwrap()), "{forced}");
}

#[test]
fn a_stop_text_over_token_borders_ends_the_reply_and_nothing_of_it_is_sent() {
    let server = serve();
    let whole = content(&server.chat(request("hello", 60))).to_owned();
    let letters: Vec<char> = whole.chars().collect();
    let stop: String = letters[20..23].iter().collect();
    let before = &whole[..whole.find(&stop).unwrap()];
    for stop in [json!(stop), json!(["never", stop])] {
        let mut body = request("hello", 60);
        body["stop"] = stop;
        let reply = server.chat(body.clone());
        assert_eq!((content(&reply), &reply["choices"][0]["finish_reason"]), (before, &json!("stop")));
        let chunks = parsed(&server.stream("/v1/chat/completions", body));
        assert_eq!(streamed_text(&chunks), before);
        assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "stop");
    }
    server.wait_until_idle();
}

#[test]
fn log_probabilities_join_to_the_text_streamed_or_not() {
    let server = serve();
    for (top, stops) in [(Value::Null, false), (json!(0), false), (json!(5), false), (json!(5), true)] {
        let mut body = request("hello", 30);
        body["logprobs"] = true.into();
        body["top_logprobs"] = top.clone();
        if stops {
            let whole = server.chat(body.clone());
            let letters: Vec<char> = content(&whole).chars().collect();
            body["stop"] = letters[10..13].iter().collect::<String>().into();
        }
        let whole = server.chat(body.clone());
        let tokens = whole["choices"][0]["logprobs"]["content"].as_array().unwrap();
        let bytes: Vec<u8> = tokens
            .iter()
            .flat_map(|token| token["bytes"].as_array().unwrap().iter().map(|byte| byte.as_u64().unwrap() as u8))
            .collect();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        // The token that a stop text begins in may begin before it.
        assert!(
            text == content(&whole) || stops && text.starts_with(content(&whole)),
            "{text:?} {:?}",
            content(&whole)
        );
        for token in tokens {
            assert!(token["logprob"].as_f64().unwrap() <= 0.0);
            assert_eq!(token["top_logprobs"].as_array().unwrap().len() as u64, top.as_u64().unwrap_or(0));
        }
        let chunks = parsed(&server.stream("/v1/chat/completions", body));
        let streamed: Vec<Value> = chunks
            .iter()
            .filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array())
            .flatten()
            .cloned()
            .collect();
        assert_eq!(&streamed, tokens);
    }
}

#[test]
fn every_form_of_message_is_taken() {
    let server = serve();
    let image_free = json!([
        {"role": "system", "content": "S"},
        {"role": "developer", "content": [{"type": "text", "text": "D"}]},
        {"role": "user", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": "{"}}]},
        {"role": "tool", "tool_call_id": "call_1", "name": "ls", "content": "", "_private": {"a": 1}},
        {"role": "assistant", "content": "d", "reasoning_content": "hm", "reasoning": "hm", "refusal": null},
        {"role": "assistant", "tool_calls": []},
        {"role": "system", "content": "late"},
        {"role": "user", "content": "e", "name": "me"},
    ]);
    let reply = server.chat(json!({"messages": image_free, "max_tokens": 1}));
    // system:S, developer as system, the parts of a message as lines, no word for what is absent.
    // The template knows no tools: calls and results are text.
    let prompt = "system:S<|end|>system:D<|end|>user:a<|end|>user:b\nc<|end|>assistant:<tool_call>\n\
                  {\"name\":\"ls\",\"arguments\":\"{\"}\n</tool_call><|end|>user:<tool_response>\n\n</tool_response><|end|>\
                  assistant:d<|end|>assistant:<|end|>system:late<|end|>user:e<|end|>>";
    let tokens = prompt.replace("<|end|>", ".").len() - prompt.matches("th").count();
    assert_eq!(reply["usage"]["prompt_tokens"], tokens);
}

#[test]
fn content_null_empty_and_absent_are_the_same_prompt() {
    let server = serve();
    let calls = json!([{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
    let tokens = |content: Option<Value>| {
        let mut message = json!({"role": "assistant", "tool_calls": calls});
        if let Some(content) = content {
            message["content"] = content;
        }
        let reply = server.chat(json!({"messages": [{"role": "user", "content": "a"}, message], "max_tokens": 1}));
        reply["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    let absent = tokens(None);
    for content in [Value::Null, json!(""), json!([])] {
        assert_eq!(tokens(Some(content)), absent);
    }
}

#[test]
fn a_strict_template_takes_late_system_text_and_what_it_refuses_is_one_honest_400() {
    let strict = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}\
                  {{ raise_exception('system must come first') }}{% endif %}{% if m.role == 'tool' %}\
                  {{ raise_exception('no tools here') }}{% endif %}[{{ m.role }}:{{ m.content }}]{% endfor %}";
    let server =
        serve_model(tiny::speaking_llama().set("tokenizer.chat_template", strict), common::open_options(), |_| {});
    let message = |role: &str, text: &str| json!({"role": role, "content": text});
    let mut messages = vec![
        message("system", "S"),
        message("user", "a"),
        message("assistant", "b"),
        message("system", "T"),
        message("user", "c"),
    ];
    let reply = server.chat(json!({"messages": messages, "max_tokens": 1}));
    assert_eq!(reply["usage"]["prompt_tokens"], "[system:S][user:a][assistant:b][user:T][user:c]".len());
    messages.push(message("tool", "x"));
    let answer = server.post("/v1/chat/completions", &json!({"messages": messages}));
    assert_eq!((answer.status, &answer.error()["param"]), (400, &json!("messages")));
    assert!(answer.error()["message"].as_str().unwrap().contains("no tools here"));
}

#[test]
fn text_of_a_user_is_no_control_token() {
    let server = serve();
    let tokens = |text: &str| server.chat(request(text, 1))["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(tokens("a<|end|>b"), tokens("a") + 8);
}

#[test]
fn a_length_beyond_the_context_is_what_the_context_leaves() {
    let open = kapitsa::OpenOptions { context: Some(40), ..common::open_options() };
    let server = serve_model(tiny::speaking_llama(), open, |_| {});
    for field in ["max_tokens", "max_completion_tokens"] {
        for tokens in [json!(65536), json!(i64::MAX)] {
            let mut body = request("hello", 1);
            body["max_tokens"] = Value::Null;
            body[field] = tokens;
            let reply = server.chat(body);
            assert_eq!(
                (&reply["usage"]["total_tokens"], &reply["choices"][0]["finish_reason"]),
                (&json!(40), &json!("length"))
            );
        }
    }
    let mut body = request("hello", 20);
    body["max_completion_tokens"] = 3.into();
    assert_eq!(server.chat(body)["usage"]["completion_tokens"], 3, "the newer name counts");
}

#[test]
fn a_prompt_beyond_the_context_is_refused_before_the_stream_in_words_that_clients_know() {
    let open = kapitsa::OpenOptions { context: Some(40), ..common::open_options() };
    let server = serve_model(tiny::speaking_llama(), open, |_| {});
    let text = format!("code is KIWI-42 {}", "filler ".repeat(1000));
    for stream in [false, true] {
        let mut body = request(&text, 5);
        body["stream"] = stream.into();
        let answer = server.post("/v1/chat/completions", &body);
        let error = answer.error();
        assert_eq!(
            (answer.status, &error["code"], &error["type"]),
            (400, &json!("context_length_exceeded"), &json!("invalid_request_error"))
        );
        let message = error["message"].as_str().unwrap();
        for words in
            ["maximum context length is 40 tokens", "your messages resulted in ", "reduce the length of the messages"]
        {
            assert!(message.contains(words), "{message}");
        }
    }
    let answer = server.post("/v1/chat/completions", &request(&"a".repeat(34), 5));
    assert!(answer.error()["message"].as_str().unwrap().contains("resulted in 41 tokens"), "{}", answer.text());
    let model = server.get("/v1/models").json()["data"][0].take();
    assert_eq!((&model["context_length"], &model["max_model_len"]), (&json!(40), &json!(40)));
}

#[test]
fn characters_of_several_tokens_are_never_cut() {
    let server = serve();
    // The bytes of two kanji, one after the other by force of a bias on all of them.
    for max_tokens in 1..12 {
        let mut body = request("日本 naïve 🦀", max_tokens);
        body["logit_bias"] = json!({"0": -100});
        let whole = content(&server.chat(body.clone())).to_owned();
        let chunks = parsed(&server.stream("/v1/chat/completions", body));
        assert_eq!(streamed_text(&chunks), whole);
    }
}
