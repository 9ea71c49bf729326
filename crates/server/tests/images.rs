//! Images in Chat Completions.

mod common;

use common::{Running, content, open_options, request, serve, serve_path};
use kapitsa::OpenOptions;
use kapitsa_server::ServerOptions;
use kapitsa_testkit::tiny::{self, bmp, data_url};
use serde_json::{Value, json};

fn serve_seeing_with(open: OpenOptions, change: impl FnOnce(&mut ServerOptions)) -> Running {
    let folder = tempfile::tempdir().unwrap();
    tiny::write_seeing_qwen(folder.path());
    serve_path(folder.path(), open, change)
}

fn serve_seeing() -> Running {
    serve_seeing_with(open_options(), |_| {})
}

fn image_url(url: &str) -> Value {
    json!({"type": "image_url", "image_url": {"url": url, "detail": "low"}})
}

/// An image of `width` times 16 pixels.
fn image(width: u32) -> Value {
    image_url(&data_url(&bmp(width, 16, [0, 0, 255])))
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text, "cache_control": {"type": "ephemeral"}})
}

/// A request of one message, for a reply that does not end early.
fn asking(parts: &[Value]) -> Value {
    let mut body = request("", 8);
    body["messages"][0]["content"] = parts.into();
    body["temperature"] = 0.into();
    body
}

/// Status, place and message of a refusal.
fn refused(server: &Running, body: &Value) -> (u16, String, String) {
    let answer = server.post("/v1/chat/completions", body);
    let mut error = answer.error();
    let mut string = |name: &str| error[name].take().as_str().unwrap_or_default().to_owned();
    (answer.status, string("param"), string("message"))
}

#[test]
fn an_image_counts_as_its_tokens_and_gets_the_same_reply_each_time() {
    let server = serve_seeing();
    let with = asking(&[image(24), text("what is it")]);
    let reply = server.chat(with.clone());
    assert_eq!(content(&reply), content(&server.chat(with)));
    // `user:`, start, 3 times 2 tokens of the image, end, `what is it<|end|>>`
    assert_eq!(reply["usage"]["prompt_tokens"], 25);
    assert_eq!(reply["usage"]["completion_tokens"], 8);
    let count = |parts: &[Value]| server.chat(asking(parts))["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(count(&[text("what is it")]), 17);
    assert_eq!(count(&[image(24), text("what is it"), image(8)]), 29);
    assert_eq!(count(&[text("a<|image_pad|>b")]), 7 + "a<|image_pad|>b".len() as u64);
    assert_eq!(server.stream("/v1/chat/completions", asking(&[image(24)])).last().unwrap(), "[DONE]");
    // Agents get screenshots from tools.
    let mut tool = asking(&[text("look")]);
    tool["messages"].as_array_mut().unwrap().extend([
        json!({"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}),
        json!({"role": "tool", "tool_call_id": "1", "content": [image(8), text("done")]}),
    ]);
    // The template knows no tools: calls and results are text.
    let tokens = "user:look|assistant:<tool_call>\n{\"name\":\"f\",\"arguments\":{}}\n</tool_call>|\
                  user:<tool_response>\n|2 +done\n</tool_response>|>";
    let tokens = tokens.len() - tokens.matches("th").count();
    assert_eq!(server.chat(tool)["usage"]["prompt_tokens"], tokens);
    server.wait_until_idle();
}

#[test]
fn images_that_cannot_be_used_are_refused_with_their_place() {
    let server = serve_seeing();
    let place = "messages[1].content[1].image_url";
    let png = "data:image/png;base64,";
    let damaged = bmp(40, 40, [0; 3])[..100].to_vec();
    for (part, reason) in [
        (image_url("https://example.com/a.png"), "Kapitsa never fetches images; send it as data:image/png;base64,..."),
        (image_url("file:///etc/passwd"), "never fetches"),
        (image_url(""), "never fetches"),
        (image_url(&format!("{png}%%%")), "is not valid base64"),
        (image_url(png), "format is not known"),
        (image_url(&data_url(b"not an image")), "format is not known"),
        (image_url(&data_url(&damaged)), "BMP image cannot be decoded"),
        (image_url(&data_url(&bmp(8 * 201, 8, [0; 3]))), "crop it"),
        (json!({"type": "image_url"}), "has no url"),
        (json!({"type": "image_url", "image_url": {"url": 7}}), "has no url"),
    ] {
        let body = json!({"messages": [
            {"role": "user", "content": [image(8)]}, {"role": "user", "content": [text("a"), part]},
        ]});
        let (status, param, message) = refused(&server, &body);
        assert_eq!((status, param.as_str()), (400, place), "{message}");
        assert!(message.starts_with(place) && message.contains(reason), "{message}");
    }
    for role in ["system", "assistant"] {
        let (status, param, message) = refused(&server, &json!({"messages": [{"role": role, "content": [image(8)]}]}));
        assert_eq!((status, param.as_str()), (400, "messages[0].content[0]"));
        assert!(message.ends_with("is an image, which only messages of user and tool can have"), "{message}");
    }
    let all = vec![image(8); 33];
    let (status, param, message) = refused(&server, &asking(&all));
    assert_eq!((status, param.as_str()), (400, "messages[0].content[32].image_url"));
    assert!(message.ends_with("is one image more than the 32 that a request may have"), "{message}");
    server.chat(asking(&all[..32]));
}

#[test]
fn a_model_that_sees_nothing_says_so() {
    let (status, param, message) = refused(&serve(), &asking(&[text("a"), image(8)]));
    assert_eq!((status, param.as_str()), (400, "messages[0].content[1].image_url"));
    assert!(message.ends_with("is an image, but the model `org/tiny` sees no images; send text only"), "{message}");
}

#[test]
fn images_are_held_against_context_and_memory_before_they_are_decoded() {
    let small = serve_seeing_with(OpenOptions { context: Some(100), ..open_options() }, |_| {});
    // 60 times 2 tokens, by the header alone: there are no pixels.
    let header = bmp(480, 16, [0; 3])[..54].to_vec();
    let answer = small.post("/v1/chat/completions", &asking(&[image_url(&data_url(&header))]));
    assert_eq!((answer.status, answer.error()["code"].as_str()), (400, Some("context_length_exceeded")));
    // Which fits, but not with the text.
    let (_, _, message) = refused(&small, &asking(&[image(368)]));
    assert!(message.contains("resulted in 101 tokens;"), "{message}");

    // A token is 4 patches of 96 values.
    let server = serve_seeing_with(open_options(), |options| options.limits.all_images_bytes = 8 * 4 * 96 * 4);
    let (status, param, message) = refused(&server, &asking(&[image(40)]));
    assert_eq!((status, param.as_str()), (400, "messages"));
    assert_eq!(message, "the images take 15360 bytes, at most 12288 are there; send fewer or smaller ones");
    let mut long = asking(&[image(32)]);
    (long["stream"], long["max_tokens"]) = (true.into(), 20_000.into());
    let mut connection = server.connect();
    connection.send("POST", "/v1/chat/completions", &[], long.to_string().as_bytes());
    assert_eq!(connection.head().status, 200);
    assert_eq!(refused(&server, &asking(&[image(32)])).0, 429);
    drop(connection);
    server.wait_until_idle();
    server.chat(asking(&[image(32)]));
}
