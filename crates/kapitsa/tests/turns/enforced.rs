//! Forced calls, strict tools, forms of answers and thinking budgets: whatever the model would say, they hold.

use kapitsa::turn::{AnswerFormat, Thinking, Tool, ToolChoice, ToolInput, TurnEnd, TurnEvent, TurnRequest};
use kapitsa::{Error, Message};
use serde_json::{Value, json};

use crate::common::{HERMES, open, play, text};

const QWEN: &str = "{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}{{ tools }}<function=>";
const GLM: &str = "{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}{{ tools }}<arg_key>>";
const PLAIN: &str = "{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}{{ tools }}>";
const TEMPLATES: [&str; 4] = [HERMES, QWEN, GLM, PLAIN];

/// A tool whose calls are short, whatever is said.
fn tool(name: &str, strict: bool) -> Tool {
    let schema = json!({
        "type": "object", "required": ["mode"], "additionalProperties": false,
        "properties": {"mode": {"type": "string", "enum": ["a", "b"]}, "deep": {"type": "boolean"}},
    });
    let input = ToolInput::Json { schema, strict };
    Tool { name: name.into(), description: None, input, place: format!("tools.{name}") }
}

fn request(tools: Vec<Tool>, tool_choice: ToolChoice) -> TurnRequest {
    TurnRequest { messages: vec![Message::user("go")], tools, tool_choice, ..TurnRequest::default() }
}

/// Names and arguments of the calls.
fn calls(events: &[TurnEvent]) -> Vec<(String, Value)> {
    let mut calls: Vec<(String, String)> = vec![];
    for event in events {
        match event {
            TurnEvent::CallBegins { name, .. } => calls.push((name.clone(), String::new())),
            TurnEvent::CallInput { index, piece } => calls[*index].1 += piece,
            _ => {}
        }
    }
    calls.into_iter().map(|(name, json)| (name, serde_json::from_str(&json).unwrap())).collect()
}

fn all_text(events: &[TurnEvent]) -> String {
    let texts = events.iter().map(|event| match event {
        TurnEvent::Text { text, .. } => text.as_str(),
        _ => "",
    });
    texts.collect()
}

fn end(events: &[TurnEvent]) -> &TurnEnd {
    match events.last() {
        Some(TurnEvent::Finished { end, .. }) => end,
        other => panic!("{other:?}"),
    }
}

fn is_valid(arguments: &Value) -> bool {
    let object = arguments.as_object().unwrap();
    object.get("mode").is_some_and(|mode| mode == "a" || mode == "b")
        && object.get("deep").is_none_or(Value::is_boolean)
        && object.keys().all(|key| key == "mode" || key == "deep")
}

#[test]
fn a_tool_that_is_named_is_called_once() {
    for template in TEMPLATES {
        let (llm, script) = open(template);
        let request = request(vec![tool("one", false), tool("two", false)], ToolChoice::Named("two".into()));
        for said in ["I would rather not.", "", "<tool_call>\n{\"name\": \"one\", \"arguments\": {\"mode\": 5}}"] {
            let events = play(&llm, &script, &request, said);
            let calls = calls(&events);
            assert_eq!(calls.len(), 1, "{template}: {events:?}");
            assert!(calls[0].0 == "two" && is_valid(&calls[0].1), "{template}: {events:?}");
            assert_eq!((end(&events), all_text(&events).as_str()), (&TurnEnd::Calls, ""), "{template}");
        }
    }
}

#[test]
fn a_required_call_is_of_any_tool_and_more_may_follow() {
    let (llm, script) = open(HERMES);
    let request = request(vec![tool("one", false), tool("two", false)], ToolChoice::Required);
    let call =
        |name: &str| format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {{\"mode\": \"b\"}}}}\n</tool_call>");
    let both = [call("two"), call("one")].join("\n");
    let found = calls(&play(&llm, &script, &request, &both));
    assert_eq!(found, [("two".into(), json!({"mode": "b"})), ("one".into(), json!({"mode": "b"}))]);
    let one = TurnRequest { one_call: true, ..request.clone() };
    assert_eq!(calls(&play(&llm, &script, &one, &both)).len(), 1);
    let events = play(&llm, &script, &request, "no");
    assert!(!calls(&events).is_empty() && all_text(&events).is_empty(), "{events:?}");
}

#[test]
fn arguments_are_an_object_whatever_the_schema_leaves_open() {
    let (llm, script) = open(HERMES);
    let call =
        |arguments: &str| format!("<tool_call>\n{{\"name\": \"one\", \"arguments\": {arguments}}}\n</tool_call>");
    let found = |schema: Value, arguments: &str| {
        let tool = Tool { input: ToolInput::Json { schema, strict: false }, ..tool("one", false) };
        calls(&play(&llm, &script, &request(vec![tool], ToolChoice::Required), &call(arguments)))
    };
    let object = json!({"a": [1], "b": "c"});
    assert_eq!(found(json!({}), &object.to_string()), [("one".into(), object.clone())]);
    assert_eq!(found(json!({"type": "object"}), &object.to_string()), [("one".into(), object)]);
    // Only what is declared, unless the schema has a word on others.
    let schema = json!({"type": "object", "properties": {"x": {"type": "boolean"}}});
    let given = found(schema.clone(), "{\"y\": 1}").remove(0).1;
    assert!(given.get("y").is_none() && given.get("x").is_none_or(Value::is_boolean), "{given}");
    let mut open = schema;
    open["additionalProperties"] = true.into();
    assert_eq!(found(open, "{\"y\": 1}"), [("one".into(), json!({"y": 1}))]);
}

#[test]
fn thinking_stays_free() {
    let forced = || request(vec![tool("one", false)], ToolChoice::Required);
    // The prompt ends in thinking, or the model opens it.
    for (template, said) in [
        (format!("{HERMES}<think>\n"), "is <tool_call> right?\n</think>\n\nNo."),
        (format!("{HERMES}{{% if 0 %}}<think>{{% endif %}}"), "<think>is <tool_call> right?</think>\nNo."),
    ] {
        let (llm, script) = open(&template);
        let events = play(&llm, &script, &forced(), said);
        assert_eq!(events[0], TurnEvent::Thinking("is <tool_call> right?".into()), "{template}");
        assert_eq!(calls(&events).len(), 1, "{events:?}");
        assert_eq!(all_text(&events), "");
    }
}

#[test]
fn a_call_that_is_forbidden_is_not_written() {
    for template in [HERMES, QWEN, GLM] {
        let (llm, script) = open(template);
        let request = request(vec![tool("one", true)], ToolChoice::None);
        let events = play(&llm, &script, &request, "So: <tool_call>one</tool_call><function=one>");
        let text = all_text(&events);
        assert!(text.starts_with("So: <tool_cal") && !text.contains("<tool_call>"), "{template}: {text}");
        assert!(calls(&events).is_empty() && !(template == QWEN && text.contains("<function=")), "{template}: {text}");
    }
}

#[test]
fn calls_of_strict_tools_obey_and_text_is_free() {
    for (template, call) in [
        (HERMES, "<tool_call>\n{\"name\": \"one\", \"arguments\": {\"mode\": 7, \"x\": 1}}\n</tool_call>"),
        (QWEN, "<function=one>\n<parameter=mode>\nc\n</parameter>\n</function>"),
        (GLM, "<tool_call>one\n<arg_key>mode</arg_key>\n<arg_value>c</arg_value>\n</tool_call>"),
    ] {
        let (llm, script) = open(template);
        let request = request(vec![tool("one", true), tool("two", false)], ToolChoice::Auto);
        let events = play(&llm, &script, &request, &format!("Let me <look>.{call}"));
        let found = calls(&events);
        assert!(all_text(&events).starts_with("Let me <look>."), "{template}: {events:?}");
        assert!(!found.is_empty() && found.iter().all(|(_, arguments)| is_valid(arguments)), "{template}: {events:?}");
        let events = play(&llm, &script, &request, "Nothing to do.");
        assert_eq!((&events[0], end(&events)), (&text("Nothing to do."), &TurnEnd::Turn), "{template}");
    }
    let (llm, script) = open(PLAIN);
    let request = request(vec![tool("one", true)], ToolChoice::Auto);
    assert_eq!(play(&llm, &script, &request, "Nothing.")[0], text("Nothing."));
    let found = calls(&play(&llm, &script, &request, "{\"name\": \"one\", \"parameters\": {\"mode\": 7}}"));
    assert!(found.len() == 1 && is_valid(&found[0].1), "{found:?}");
}

#[test]
fn an_answer_has_its_form() {
    let schema = json!({"type": "object", "required": ["n"], "additionalProperties": false, "properties": {"n": {"enum": [1, 2]}}});
    let format = AnswerFormat::JsonSchema { place: "response_format".into(), schema };
    for template in TEMPLATES {
        let (llm, script) = open(template);
        let mut request = TurnRequest { format: format.clone(), ..request(vec![], ToolChoice::Auto) };
        for said in ["Sure: {\"n\": 1}", "```json\n{\"n\": 3}\n```", "{\"n\": 2} and so on"] {
            let events = play(&llm, &script, &request, said);
            let answer: Value = serde_json::from_str(&all_text(&events)).unwrap();
            assert!(answer == json!({"n": 1}) || answer == json!({"n": 2}), "{template}: {events:?}");
        }
        // With tools a call is possible; what is none obeys.
        request.tools = vec![tool("one", false)];
        let events = play(&llm, &script, &request, "No call.");
        assert!(!calls(&events).is_empty() || serde_json::from_str::<Value>(&all_text(&events)).is_ok(), "{events:?}");
        let events = play(&llm, &script, &request, "{\"n\": 2}");
        assert_eq!((all_text(&events).as_str(), calls(&events).len()), ("{\"n\": 2}", 0), "{template}");
    }
    let (llm, script) = open(HERMES);
    let request = TurnRequest { format, tools: vec![tool("one", false)], ..request(vec![], ToolChoice::Auto) };
    let call = "<tool_call>\n{\"name\": \"one\", \"arguments\": {\"mode\": \"a\"}}\n</tool_call>";
    assert_eq!(calls(&play(&llm, &script, &request, call)), [("one".into(), json!({"mode": "a"}))]);
}

#[test]
fn any_object_will_do() {
    let (llm, script) = open(HERMES);
    let request = TurnRequest { format: AnswerFormat::JsonObject, ..request(vec![], ToolChoice::Auto) };
    let events = play(&llm, &script, &request, "{\"a\": [1, {}]} more");
    assert_eq!(all_text(&events), "{\"a\": [1, {}]}");
}

#[test]
fn text_for_a_tool_follows_its_grammar() {
    let grammar = "start: \"begin\" LF line+ \"end\"\nline: \"+\" /[a-z\"]*/ LF\n%import common.LF";
    for (template, call) in [
        (
            HERMES,
            "<tool_call>\n{\"name\": \"patch\", \"arguments\": {\"input\": \"begin\\n+ab\\\"c\\nend\"}}\n</tool_call>",
        ),
        (
            QWEN,
            "<tool_call>\n<function=patch>\n<parameter=input>\nbegin\n+ab\"c\nend\n</parameter>\n</function>\n</tool_call>",
        ),
    ] {
        let (llm, script) = open(template);
        let input = ToolInput::Text { grammar: Some(grammar.into()) };
        let patch = Tool { name: "patch".into(), description: None, input, place: "tools[0]".into() };
        for choice in [ToolChoice::Auto, ToolChoice::Required] {
            let request = request(vec![patch.clone()], choice);
            let events = play(&llm, &script, &request, call);
            let input: String = events
                .iter()
                .map(|event| match event {
                    TurnEvent::CallInput { piece, .. } => piece.as_str(),
                    _ => "",
                })
                .collect();
            assert_eq!(input, "begin\n+ab\"c\nend", "{template}: {events:?}");
            let events = play(&llm, &script, &request, &call.replace("begin", "start"));
            assert!(
                !events
                    .iter()
                    .any(|event| matches!(event, TurnEvent::CallInput { piece, .. } if piece.contains("start"))),
                "{events:?}"
            );
        }
    }
}

#[test]
fn what_cannot_be_enforced_is_refused_by_place() {
    let (llm, _) = open(HERMES);
    let refused = |request: &TurnRequest| match llm.start_turn(request, &[], None) {
        Err(error @ Error::Grammar { .. }) => error.to_string(),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("not refused"),
    };
    let schema = json!({"type": "object", "properties": {"x": {"type": "array", "uniqueItems": true}}});
    let format =
        AnswerFormat::JsonSchema { place: "response_format.json_schema.schema".into(), schema: schema.clone() };
    let message = refused(&TurnRequest { format, ..request(vec![], ToolChoice::Auto) });
    assert!(
        message.starts_with("response_format.json_schema.schema: JSON schema: `uniqueItems` at `#/properties/x`"),
        "{message}"
    );
    let of = |strict: bool| Tool { input: ToolInput::Json { schema: schema.clone(), strict }, ..tool("one", strict) };
    let message = refused(&request(vec![tool("two", true), of(true)], ToolChoice::Auto));
    assert!(message.starts_with("tools.one: JSON schema: `uniqueItems`"), "{message}");
    let lark = Tool { input: ToolInput::Text { grammar: Some("start: /[a-/".into()) }, ..tool("three", false) };
    let message = refused(&request(vec![tool("two", true), lark], ToolChoice::Auto));
    assert!(message.starts_with("tools.three: "), "{message}");
    // Nobody was promised that a tool's schema holds if the tool is not strict.
    assert!(llm.start_turn(&request(vec![of(false)], ToolChoice::Required), &[], None).is_ok());
}

#[test]
fn the_documentation_lists_what_is_enforced() {
    let page = include_str!("../../../../docs/server.md");
    for name in kapitsa_grammar::supported_keywords().iter().chain(kapitsa_grammar::supported_formats()) {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn several_turns_obey_apart_from_each_other() {
    let (llm, script) = open(HERMES);
    let request = request(vec![tool("one", false)], ToolChoice::Required);
    script.say(vec![]);
    script.say(vec![]);
    let mut turns = llm.start_turns(&request, &[], None, 2).unwrap();
    for turn in &mut turns {
        let events: Vec<TurnEvent> = std::iter::from_fn(|| turn.recv()).map(Result::unwrap).collect();
        assert_eq!(calls(&events).len(), 1, "{events:?}");
    }
}

#[test]
fn thinking_ends_with_its_budget() {
    let long = "hm ".repeat(50);
    for (template, said) in [
        (format!("{HERMES}<think>\n"), format!("{long}</think>Yes.")),
        (format!("{HERMES}{{% if 0 %}}<think>{{% endif %}}"), format!("<think>{long}</think>Yes.")),
    ] {
        let (llm, script) = open(&template);
        let mut request = request(vec![tool("one", false)], ToolChoice::Auto);
        request.thinking = Thinking { budget: Some(12), ..Thinking::default() };
        let events = play(&llm, &script, &request, &said);
        assert_eq!(events[0], TurnEvent::Thinking("hm hm hm hm ".into()), "{events:?}");
        assert!(all_text(&events).ends_with("Yes."), "{events:?}");
        // Then a forced call.
        request.tool_choice = ToolChoice::Required;
        let events = play(&llm, &script, &request, &said);
        assert!(matches!(&events[0], TurnEvent::Thinking(text) if text == "hm hm hm hm "), "{events:?}");
        assert_eq!(calls(&events).len(), 1, "{events:?}");
        request.thinking.budget = Some(1000);
        let events = play(&llm, &script, &request, &said);
        assert!(matches!(&events[0], TurnEvent::Thinking(text) if text.len() > 140), "{events:?}");
    }
}

#[test]
fn a_template_without_the_switch_gets_an_empty_thought() {
    let off = Thinking { enabled: Some(false), ..Thinking::default() };
    let tokens = |template: &str, thinking: &Thinking| {
        let (llm, _) = open(template);
        llm.count_turn(&TurnRequest { thinking: thinking.clone(), ..request(vec![], ToolChoice::Auto) }, &[], None)
            .unwrap()
    };
    let added = |template: &str| tokens(template, &off) - tokens(template, &Thinking::default());
    assert_eq!(added(HERMES), 0);
    assert_eq!(added(&format!("{HERMES}<think>\n")), "\n</think>\n\n".len() - 1);
    assert_eq!(added(&format!("{HERMES}{{% if 0 %}}<think>{{% endif %}}")), "<think>\n\n</think>\n\n".len() - 2);
    assert_eq!(
        added(&format!("{HERMES}{{% if enable_thinking is false %}}<think></think>{{% endif %}}")),
        "<think></think>".len() - 2
    );
}
