//! Forms that no captured request has, and requests that are refused.

use kapitsa::Message;
use kapitsa::turn::{AnswerFormat, Thinking, Tool, ToolChoice, ToolInput, TurnRequest};
use serde_json::{Value, json};

use super::request;
use crate::responses::read;

/// The turn asked for by a body with this field and the text `x`.
fn with(field: &str, value: Value) -> TurnRequest {
    let mut body = json!({ "input": "x" });
    body[field] = value;
    request(&body).turn
}

fn messages(items: Value) -> Vec<Message> {
    with("input", items).messages
}

#[test]
fn items_of_the_assistant_in_a_row_are_one_message() {
    let call = |id: &str| json!({ "type": "function_call", "call_id": id, "name": "f", "arguments": "" });
    let say = |content: Value| json!({ "role": "assistant", "content": content });
    let think = |text: &str| json!({ "type": "reasoning", "summary": [{ "type": "summary_text", "text": text }] });
    let found = messages(json!([
        think("a"), say(json!("b")), call("1"), think("c"), say(json!([{ "type": "output_text", "text": "d" }, { "type": "refusal", "refusal": "e" }])), call("2"),
        { "role": "user", "content": [] },
        say(json!("")), call("3"), say(json!(null)),
        { "type": "reasoning", "summary": null, "content": null, "encrypted_content": "foreign" },
    ]));
    assert_eq!(found.iter().map(|message| &message.role[..]).collect::<Vec<_>>(), ["assistant", "user", "assistant"]);
    assert_eq!(found[0].text().unwrap(), "b\nd\ne");
    assert_eq!(found[0].fields["reasoning_content"], "a\n\nc");
    assert_eq!(found[0].fields["tool_calls"].as_array().unwrap().len(), 2);
    assert_eq!((&found[1].content, &found[2].content), (&json!(""), &json!(null)));
    assert_eq!(found[2].fields["tool_calls"][0]["function"]["arguments"], "");
}

#[test]
fn what_is_unknown_is_left_out() {
    let found = messages(json!([
        { "type": "web_search_call", "id": "ws_1", "status": "completed" },
        { "type": "compaction", "encrypted_content": 3 },
        { "type": "message", "role": "user", "content": [{ "type": "input_file", "filename": "a.pdf", "file_data": "" }], "phase": 1 },
    ]));
    assert_eq!(found, [Message::user("[file a.pdf: left out, only text and images can be read here]")]);
    let hosted = ["web_search", "tool_search", "local_shell", "image_generation", "mcp", "new"]
        .map(|kind| json!({ "type": kind, "name": 3 }));
    assert_eq!(with("tools", json!(hosted)).tools, []);
    let extras = json!({ "input": "x", "metadata": 3, "service_tier": "x", "truncation": "auto", "stop": 3, "include": null, "text": { "verbosity": "low" } });
    assert_eq!(request(&extras).turn, with("store", json!(true)));
}

#[test]
fn tools_have_their_namespaces_and_grammars() {
    let custom = |format: Value| json!({ "type": "custom", "name": "c", "format": format });
    let grammar = |format| match with("tools", json!([custom(format)])).tools.remove(0).input {
        ToolInput::Text { grammar } => grammar,
        other => panic!("{other:?}"),
    };
    assert_eq!(grammar(json!(null)), None);
    assert_eq!(grammar(json!({ "type": "text" })), None);
    assert_eq!(grammar(json!({ "type": "grammar", "syntax": "lark", "definition": "start: x" })).unwrap(), "start: x");
    let pattern = grammar(json!({ "type": "grammar", "syntax": "regex", "definition": r"a/\/\\/b" }));
    assert_eq!(pattern.unwrap(), r"start: /a\/\/\\\/b/");

    let function = |name: &str| json!({ "type": "function", "name": name, "strict": true });
    let group = |name: &str, tools: Value| json!({ "type": "namespace", "name": name, "tools": tools });
    let tools =
        json!([function("f"), group("n", json!([function("f"), function("g"), group("m", json!([function("h")]))]))]);
    let request = request(&json!({ "input": "x", "tools": tools }));
    let tool = |name: &str, place: &str| Tool {
        name: name.into(),
        description: None,
        input: ToolInput::Json { schema: json!({ "type": "object", "properties": {} }), strict: true },
        place: format!("{place}.parameters"),
    };
    assert_eq!(
        request.turn.tools,
        [tool("f", "tools[0]"), tool("n__f", "tools[1].tools[0]"), tool("g", "tools[1].tools[1]")]
    );
    // Calls have the API's names, in both directions.
    let called =
        |offered: &str| request.offers.called(offered).map(|offer| (offer.name.as_str(), offer.namespace.as_deref()));
    assert_eq!(
        [called("f"), called("n__f"), called("g")],
        [Some(("f", None)), Some(("f", Some("n"))), Some(("g", Some("n")))]
    );
    assert_eq!(called("h"), None);
    let offered = |namespace: Option<&'static str>| request.offers.offered(namespace, "f");
    assert_eq!([offered(None), offered(Some("n")), offered(Some("gone"))], ["f", "n__f", "f"]);
}

#[test]
fn a_choice_is_among_the_tools() {
    let choose = |choice: Value| {
        let tools = ["f", "g"].map(|name| json!({ "type": "function", "name": name }));
        let turn = request(&json!({ "input": "x", "tools": tools, "tool_choice": choice })).turn;
        (turn.tool_choice, turn.tools.len())
    };
    let allowed = |mode: &str, names: &[&str]| {
        let tools: Vec<Value> = names.iter().map(|name| json!({ "type": "function", "name": name })).collect();
        choose(json!({ "type": "allowed_tools", "mode": mode, "tools": tools }))
    };
    let named = || ToolChoice::Named("g".into());
    assert_eq!(choose(json!(null)), (ToolChoice::Auto, 2));
    assert_eq!(choose(json!("none")), (ToolChoice::None, 2));
    assert_eq!(choose(json!("required")), (ToolChoice::Required, 2));
    assert_eq!(choose(json!({ "type": "function", "name": "g" })), (named(), 2));
    assert_eq!(choose(json!({ "type": "custom", "name": "g" })), (named(), 2));
    assert_eq!(allowed("auto", &["g"]), (ToolChoice::Auto, 1));
    assert_eq!(allowed("required", &["g"]), (named(), 2));
    assert_eq!(allowed("required", &["f", "g", "h"]), (ToolChoice::Required, 2));
}

#[test]
fn settings_are_honoured() {
    assert_eq!(with("text", json!({ "format": { "type": "json_object" } })).format, AnswerFormat::JsonObject);
    let thinking = |effort: Value| with("reasoning", json!({ "effort": effort, "summary": null })).thinking;
    let expected =
        |enabled, effort: Option<&str>| Thinking { enabled, effort: effort.map(str::to_owned), ..Thinking::default() };
    assert_eq!(thinking(json!(null)), expected(None, None));
    assert_eq!(thinking(json!("none")), expected(Some(false), None));
    assert_eq!(thinking(json!("minimal")), expected(Some(true), Some("low")));
    assert_eq!(thinking(json!("xhigh")), expected(Some(true), Some("xhigh")));
    assert_eq!(with("include", json!(["message.output_text.logprobs"])).logprobs, Some(0));
    assert_eq!(with("top_logprobs", json!(5)).logprobs, Some(5));
    assert_eq!(with("top_logprobs", json!(0)).logprobs, None);
    assert!(with("parallel_tool_calls", json!(false)).one_call);
    assert_eq!(with("max_output_tokens", json!(i64::MAX)).max_tokens, Some(i64::MAX as usize));
    assert_eq!(with("temperature", json!(0)).sampling.temperature, Some(0.0));
}

#[test]
fn refusals_name_the_place() {
    let item = |item: Value| json!({ "input": [item] });
    let part = |role: &str, part: Value| item(json!({ "role": role, "content": [part] }));
    let with = |field: &str, value: Value| {
        let mut body = json!({ "input": "x" });
        body[field] = value;
        body
    };
    let tool = |tool: Value| with("tools", json!([tool]));
    let refused = [
        json!({}),
        json!({ "input": [] }),
        json!({ "input": 3 }),
        with("model", json!(3)),
        with("stream", json!("yes")),
        with("reasoning", json!({ "effort": 3 })),
        with("background", json!(true)),
        with("conversation", json!("conv_1")),
        with("prompt", json!({ "id": "pmpt_1" })),
        with("max_output_tokens", json!(0)),
        with("top_logprobs", json!(21)),
        with("text", json!({ "format": { "type": "json_schema", "name": "a" } })),
        with("text", json!({ "format": { "type": "xml" } })),
        item(json!(3)),
        item(json!({})),
        item(json!({ "type": 3 })),
        item(json!({ "role": "tool", "content": "x" })),
        item(json!({ "role": "user", "content": 3 })),
        item(json!({ "type": "function_call", "name": "f", "arguments": "{}" })),
        item(json!({ "type": "function_call", "call_id": "1", "name": "f", "arguments": 3 })),
        item(json!({ "type": "custom_tool_call", "call_id": "1", "name": "f", "input": 3 })),
        item(json!({ "type": "function_call_output", "call_id": "1", "output": [{ "type": "input_audio" }] })),
        item(json!({ "type": "reasoning", "summary": [3] })),
        item(json!({ "type": "item_reference", "id": "msg_1" })),
        part("user", json!({ "type": "input_text" })),
        part("user", json!({ "type": "input_image", "file_id": "file_1" })),
        part("user", json!({ "type": "input_image", "image_url": { "url": "data:" } })),
        part("developer", json!({ "type": "input_image", "image_url": "data:" })),
        part("user", json!("x")),
        with("tools", json!({})),
        tool(json!({ "name": "f" })),
        tool(json!({ "type": "function" })),
        tool(json!({ "type": "function", "name": "f", "parameters": "x" })),
        tool(
            json!({ "type": "custom", "name": "f", "format": { "type": "grammar", "syntax": "bnf", "definition": "" } }),
        ),
        tool(json!({ "type": "custom", "name": "f", "format": { "type": "grammar", "syntax": "lark" } })),
        tool(json!({ "type": "namespace", "name": "n", "tools": [{ "type": "function", "name": 3 }] })),
        with("tool_choice", json!("any")),
        with("tool_choice", json!("required")),
        with("tool_choice", json!({ "type": "function", "name": "f" })),
        with("tool_choice", json!({ "type": "web_search" })),
        with("tool_choice", json!({ "type": "allowed_tools", "mode": "required", "tools": [] })),
    ];
    let shown = refused.iter().map(|body| {
        let error = read(body).expect_err(&body.to_string());
        assert_eq!(error.status, 400);
        let error = &serde_json::to_value(error.body()).unwrap()["error"];
        let code = error["code"].as_str().map(|code| format!(" ({code})")).unwrap_or_default();
        format!("{body}\n  {}: {}{code}\n", error["param"].as_str().unwrap_or("-"), error["message"].as_str().unwrap())
    });
    insta::assert_snapshot!(shown.collect::<String>());
    let tools: Vec<Value> = (0..1025).map(|name| json!({ "type": "function", "name": name.to_string() })).collect();
    assert!(read(&with("tools", tools[1..].into())).is_ok() && read(&with("tools", tools.into())).is_err());
}
