//! Requests of real agents, captured (`tests/fixtures/agents`).

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use kapitsa::Message;
use kapitsa::turn::{AnswerFormat, ImageData, ToolInput};
use serde_json::Value;

use super::{ResponsesRequest, request};

#[test]
fn captured_requests_are_read() {
    let (mut shown, mut lists) = (String::new(), vec![]);
    for path in captured() {
        let record: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        if record["path"] == "/v1/responses" {
            let name = path.strip_prefix(folder()).unwrap().display();
            writeln!(shown, "{name}\n{}", show(&request(&record["body"]), &mut lists)).unwrap();
        }
    }
    insta::assert_snapshot!(shown);
}

/// Codex sends its whole list of tools with each request: the snapshot has it once.
fn once(shown: &mut Vec<String>, tools: String) -> String {
    match shown.iter().position(|before| *before == tools) {
        Some(index) => format!("as list {index}"),
        None => {
            shown.push(tools.clone());
            format!("list {}: {tools}", shown.len() - 1)
        }
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/agents")
}

/// All files, in order.
fn captured() -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![folder()], vec![]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { &mut folders } else { &mut files }.push(path);
        }
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files
}

/// A request in few lines: texts are their lengths.
fn show(request: &ResponsesRequest, lists: &mut Vec<String>) -> String {
    let ResponsesRequest { model, stream, previous_response_id, store, instructed, turn, offers, echo: _ } = request;
    let mut shown = String::new();
    let mut line = |text: String| writeln!(shown, "  {text}").unwrap();
    line(format!("{model:?} stream {stream} store {store} instructed {instructed} previous {previous_response_id:?}"));
    let format = match &turn.format {
        AnswerFormat::JsonSchema { place, schema } => format!("{place} {schema}"),
        other => format!("{other:?}"),
    };
    line(format!("choice {:?} one call {} format {format}", turn.tool_choice, turn.one_call));
    let thinking = &turn.thinking;
    line(format!(
        "thinking {:?} {:?} max tokens {:?} logprobs {:?} temperature {:?}",
        thinking.enabled, thinking.effort, turn.max_tokens, turn.logprobs, turn.sampling.temperature
    ));
    turn.messages.iter().for_each(|message| line(show_message(message)));
    for image in &turn.images {
        let (ImageData::Url(data) | ImageData::Base64(data)) = &image.data;
        line(format!("image {} {}", image.place, data.len()));
    }
    let tools = turn.tools.iter().map(|tool| {
        let namespace = offers.called(&tool.name).and_then(|offer| offer.namespace.as_ref());
        let namespace = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        let input = match &tool.input {
            ToolInput::Json { schema, strict } => format!("{} {strict}", schema.to_string().len()),
            ToolInput::Text { grammar } => format!("text {:?}", grammar.as_ref().map(String::len)),
        };
        format!("{namespace}{}({input})", tool.name)
    });
    line(format!("tools {}", once(lists, tools.collect::<Vec<_>>().join(" "))));
    shown
}

fn show_message(message: &Message) -> String {
    let length = |text: &Value| text.as_str().map_or("image".to_owned(), |text| text.len().to_string());
    let content = match &message.content {
        Value::Array(parts) => parts.iter().map(|part| length(&part["text"])).collect::<Vec<_>>().join("+"),
        Value::Null => "none".into(),
        text => length(text),
    };
    let fields = message.fields.iter().map(|(name, value)| match name.as_str() {
        "tool_calls" => value
            .as_array()
            .unwrap()
            .iter()
            .map(|call| {
                let function = &call["function"];
                let arguments = function["arguments"].as_str().unwrap();
                format!(" {} {} {arguments}", call["id"].as_str().unwrap(), function["name"].as_str().unwrap())
            })
            .collect(),
        _ => format!(" {name} {value}"),
    });
    format!("{} {content}{}", message.role, fields.collect::<String>())
}
