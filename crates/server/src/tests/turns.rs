//! Captured requests as turns.

use std::fs;
use std::path::{Path, PathBuf};

use kapitsa::Message;
use kapitsa::turn::{AnswerFormat, ImageData, ToolInput, TurnRequest};
use serde_json::Value;

/// Names and records of all captured requests with this path, in order.
pub(crate) fn captured(path: &str) -> Vec<(String, Value)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/agents");
    let record = |file: PathBuf| {
        let record: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        (record["path"] == path).then_some((name, record))
    };
    files(&root).into_iter().filter_map(record).collect()
}

fn files(root: &Path) -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![root.to_owned()], vec![]);
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

/// Turns in few lines: texts are their lengths, and a list of tools that came before is its number.
#[derive(Default)]
pub(crate) struct Shown {
    lists: Vec<String>,
}

impl Shown {
    /// `prefix` is put before the name of a tool.
    pub(crate) fn turn(&mut self, turn: &TurnRequest, prefix: impl Fn(&str) -> String) -> Vec<String> {
        let format = match &turn.format {
            AnswerFormat::JsonSchema { place, schema } => format!("{place} {schema}"),
            other => format!("{other:?}"),
        };
        let mut lines = vec![format!("choice {:?} one call {} format {format}", turn.tool_choice, turn.one_call)];
        let thinking = &turn.thinking;
        lines.push(format!(
            "thinking {:?} {:?} max tokens {:?} logprobs {:?} temperature {:?}",
            thinking.enabled, thinking.effort, turn.max_tokens, turn.logprobs, turn.sampling.temperature
        ));
        lines.extend(turn.messages.iter().map(message));
        for image in &turn.images {
            let (ImageData::Url(data) | ImageData::Base64(data)) = &image.data;
            lines.push(format!("image {} {}", image.place, data.len()));
        }
        let tools = turn.tools.iter().map(|tool| {
            let input = match &tool.input {
                ToolInput::Json { schema, strict } => format!("{} {strict}", schema.to_string().len()),
                ToolInput::Text { grammar } => format!("text {:?}", grammar.as_ref().map(String::len)),
            };
            format!("{}{}({input})", prefix(&tool.name), tool.name)
        });
        let tools = tools.collect::<Vec<_>>().join(" ");
        lines.push(format!("tools {}", self.once(tools)));
        lines
    }

    /// Agents send the whole list of tools with each request: it is shown once.
    fn once(&mut self, tools: String) -> String {
        match self.lists.iter().position(|before| *before == tools) {
            Some(index) => format!("as list {index}"),
            None => {
                self.lists.push(tools.clone());
                format!("list {}: {tools}", self.lists.len() - 1)
            }
        }
    }
}

fn message(message: &Message) -> String {
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
