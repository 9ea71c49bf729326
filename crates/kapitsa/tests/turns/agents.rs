//! A small real model calls every tool of every agent.

use kapitsa::turn::{SamplingChanges, Tool, ToolChoice, ToolInput, TurnEnd, TurnEvent, TurnRequest, TurnStream};
use kapitsa::{Llm, Message, OpenOptions};
use kapitsa_testkit::real_model;
use serde_json::Value;

/// Tools of the requests of Claude Code, Codex, Copilot, goose, Hermes, opencode and Pi; descriptions are filler.
const TOOLS: &str = include_str!("../../../grammar/tests/grammar/agents.json");

fn request(name: &str, schema: &Value) -> TurnRequest {
    let input = ToolInput::Json { schema: schema.clone(), strict: true };
    let tool = Tool { name: name.into(), description: None, input, place: "tools[0]".into() };
    TurnRequest {
        messages: vec![Message::user("Call the tool. Keep all values short.")],
        tools: vec![tool],
        tool_choice: ToolChoice::Named(name.into()),
        max_tokens: Some(1000),
        // So small a model repeats itself without end otherwise.
        sampling: SamplingChanges { frequency_penalty: Some(1.0), ..SamplingChanges::default() },
        ..TurnRequest::default()
    }
}

/// The name and arguments of the only call, and how the turn ended.
fn read(mut turn: TurnStream) -> (Vec<String>, String, TurnEnd) {
    let (mut names, mut arguments) = (vec![], String::new());
    loop {
        match turn.recv().unwrap().unwrap() {
            TurnEvent::CallBegins { name, .. } => names.push(name),
            TurnEvent::CallInput { piece, .. } => arguments += &piece,
            TurnEvent::Text { text, .. } => panic!("text: {text}"),
            TurnEvent::Finished { end, .. } => return (names, arguments, end),
            _ => {}
        }
    }
}

/// They are filler, and would make prompts ten times as long.
fn leave_descriptions_out(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.retain(|name, value| name != "description" || !value.is_string());
            fields.values_mut().for_each(leave_descriptions_out);
        }
        Value::Array(list) => list.iter_mut().for_each(leave_descriptions_out),
        _ => {}
    }
}

#[test]
fn smollm2_calls_every_tool() {
    let Some(path) = real_model("smollm2-135m") else { return };
    let mut tools: Vec<Value> = serde_json::from_str(TOOLS).unwrap();
    tools.iter_mut().for_each(|tool| leave_descriptions_out(&mut tool["schema"]));
    let options = OpenOptions { slots: 8, queue: tools.len(), context: Some(4096), ..OpenOptions::default() };
    let llm = Llm::open(&path, &options).unwrap();
    std::thread::scope(|scope| {
        for tool in &tools {
            let llm = &llm;
            scope.spawn(move || {
                let (name, schema) = (tool["name"].as_str().unwrap(), &tool["schema"]);
                let (names, arguments, end) = read(llm.start_turn(&request(name, schema), &[], None).unwrap());
                assert_eq!((names, end), (vec![name.to_owned()], TurnEnd::Calls), "{arguments}");
                let arguments: Value = serde_json::from_str(&arguments).unwrap();
                let validator = jsonschema::validator_for(schema).unwrap();
                assert!(validator.is_valid(&arguments), "{name}: {arguments}");
            });
        }
    });
}
