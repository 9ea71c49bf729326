//! Completions: forms of prompts, and the older form of log-probabilities.

mod common;

use common::serve;
use serde_json::{Value, json};

fn body(prompt: Value) -> Value {
    json!({"prompt": prompt, "max_tokens": 8, "seed": 5, "temperature": 1, "logit_bias": {"0": -100}})
}

fn complete(server: &common::Running, body: &Value) -> Value {
    let answer = server.post("/v1/completions", body);
    assert_eq!(answer.status, 200, "{body}: {}", answer.text());
    answer.json()
}

#[test]
fn a_prompt_is_text_or_tokens_or_a_list_of_either() {
    let server = serve();
    let one = complete(&server, &body(json!("abc")));
    assert_eq!((&one["object"], &one["choices"][0]["finish_reason"]), (&json!("text_completion"), &json!("length")));
    assert!(one["id"].as_str().unwrap().starts_with("cmpl-"));
    let text = &one["choices"][0]["text"];
    for prompt in [json!([97, 98, 99]), json!(["abc"]), json!([[97, 98, 99]])] {
        assert_eq!(&complete(&server, &body(prompt))["choices"][0]["text"], text);
    }
    let mut two = body(json!(["abc", "d"]));
    two["n"] = 2.into();
    let reply = complete(&server, &two);
    let texts: Vec<&Value> = (0..4).map(|index| &reply["choices"][index]["text"]).collect();
    assert_eq!((texts[0], &reply["choices"][3]["index"]), (text, &json!(3)));
    assert_ne!(texts[1], text);
    assert_eq!(&complete(&server, &body(json!("d")))["choices"][0]["text"], texts[2]);
    assert_eq!((&reply["usage"]["prompt_tokens"], &reply["usage"]["completion_tokens"]), (&json!(4), &json!(32)));
    let mut default = body(json!("abc"));
    default["max_tokens"] = Value::Null;
    assert_eq!(complete(&server, &default)["usage"]["completion_tokens"], 16);
}

#[test]
fn a_stream_joins_to_the_whole() {
    let server = serve();
    let mut body = body(json!("abc"));
    body["logprobs"] = 2.into();
    body["max_tokens"] = 30.into();
    let whole = complete(&server, &body);
    body["stream_options"] = json!({"include_usage": true});
    let events = server.stream("/v1/completions", body);
    let (done, chunks) = events.split_last().unwrap();
    assert_eq!(done, "[DONE]");
    let chunks: Vec<Value> = chunks.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let text: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["text"].as_str()).collect();
    assert_eq!(text, whole["choices"][0]["text"]);
    for field in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        let joined: Vec<&Value> =
            chunks.iter().filter_map(|chunk| chunk["choices"][0]["logprobs"][field].as_array()).flatten().collect();
        assert_eq!(json!(joined), whole["choices"][0]["logprobs"][field], "{field}");
    }
    assert_eq!(chunks.last().unwrap()["usage"], whole["usage"]);
}

#[test]
fn offsets_are_those_of_characters_in_the_text() {
    let server = serve();
    let mut body = body(json!("abc"));
    body["logprobs"] = 1.into();
    body["max_tokens"] = 40.into();
    let choice = complete(&server, &body)["choices"][0].take();
    let letters: Vec<char> = choice["text"].as_str().unwrap().chars().collect();
    let logprobs = &choice["logprobs"];
    let tokens = logprobs["tokens"].as_array().unwrap();
    assert_eq!(tokens.len(), 40);
    for (index, token) in tokens.iter().enumerate() {
        let token = token.as_str().unwrap();
        let offset = logprobs["text_offset"][index].as_u64().unwrap() as usize;
        if !token.starts_with("bytes:") {
            let found: String = letters[offset..].iter().take(token.chars().count()).collect();
            assert_eq!(found, token);
        }
        assert_eq!(logprobs["top_logprobs"][index].as_object().unwrap().len(), 1);
    }
}

#[test]
fn what_is_neutral_is_taken_and_the_rest_refused_by_name() {
    let server = serve();
    let mut neutral = body(json!("abc"));
    for (field, value) in [("echo", json!(false)), ("suffix", json!("")), ("best_of", json!(1)), ("user", json!("me"))]
    {
        neutral[field] = value;
    }
    complete(&server, &neutral);
    for (field, value) in [
        ("echo", json!(true)),
        ("suffix", json!("x")),
        ("best_of", json!(2)),
        ("logprobs", json!(21)),
        ("logprobs", json!(true)),
        ("prompt", json!(7)),
        ("prompt", json!([])),
        ("prompt", json!([[]])),
        ("prompt", json!("")),
        ("prompt", json!(["a", 1])),
        ("prompt", json!([1, -1])),
        ("prompt", json!([1, 4_000_000_000u32])),
        ("prompt", json!([1, 256])),
        ("prompt", json!(vec!["a"; 33])),
        ("prompt", json!({})),
    ] {
        let mut body = body(json!("abc"));
        body[field] = value.clone();
        let answer = server.post("/v1/completions", &body);
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!(field)), "{value}: {}", answer.text());
    }
    let answer = server.post("/v1/completions", &json!({"max_tokens": 1}));
    assert_eq!(answer.status, 400);
    assert!(answer.error()["message"].as_str().unwrap().contains("prompt"));
}
