//! How much of a prompt was in an earlier one, and why no more: what a prefix cache can count on, for the log.
//!
//! The target `kapitsa::prefix` at the level `debug` has a line for each turn. Only while that is on are prompts remembered. The
//! line has names of tools, of roles and of variables, and nothing that was said. Images are compared by their places alone.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use kapitsa_text::{Message, Tokenizer, call_arguments};
use serde_json::Value;

use super::TemplateInput;

/// Prompts that are remembered, and their bytes.
const KEPT: usize = 16;
const KEPT_BYTES: usize = 64 << 20;

/// The prompt of a turn, and what the model's template was given for it.
#[derive(Clone, Debug)]
pub struct TurnPrompt {
    pub(crate) input: TemplateInput,
    pub(crate) tokens: Vec<u32>,
}

impl TurnPrompt {
    /// Its tokens. An image is as the template has it, one place.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }
}

/// Where a prompt parts from an earlier one. It is shown in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Tokens that both begin with.
    pub shared: usize,
    /// Tokens of the earlier one.
    pub before: usize,
    /// Tokens of the later one.
    pub now: usize,
    /// Why it parts there; none if one is the beginning of the other.
    pub causes: Vec<Cause>,
}

/// Something that is not as before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A new tool.
    ToolAdded(String),
    /// A tool that is gone.
    ToolRemoved(String),
    /// A tool with another description or input.
    ToolChanged(String),
    /// The same tools in another order.
    ToolOrder,
    /// A variable of the template, such as a switch of thinking.
    Variable(String),
    /// A message.
    Message {
        /// Which one, from 0.
        index: usize,
        /// Whose it is now.
        role: String,
        /// What of it.
        part: Part,
    },
    /// The last messages are gone.
    Removed {
        /// How many are left.
        left: usize,
    },
    /// Nothing that the template was given before, but it writes this message otherwise now, since others follow.
    Template {
        /// Which one, from 0.
        index: usize,
        /// Whose it is.
        role: String,
        /// Whether thinking is a part of it, which templates leave out of earlier turns.
        thinks: bool,
    },
    /// The template opens an answer otherwise than it writes one of the history.
    Opening,
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Who said it; the role before.
    Role(String),
    /// What was said.
    Content,
    /// What was thought.
    Thinking,
    /// The call of this tool.
    Call(String),
    /// The ids of calls, or another field beside these.
    Field(String),
}

/// Compares a prompt with an earlier one of the same model.
pub fn difference(old: &TurnPrompt, new: &TurnPrompt, tokenizer: &Tokenizer) -> Difference {
    let shared = shared(&old.tokens, &new.tokens);
    let (before, now) = (old.tokens.len(), new.tokens.len());
    let mut causes = vec![];
    if shared < before.min(now) {
        tools(&old.input.tools, &new.input.tools, &mut causes);
        variables(&old.input, &new.input, &mut causes);
        causes.extend(messages(&old.input.messages, &new.input.messages, &|id| {
            text(&old.tokens, tokenizer).contains(id)
        }));
        if causes.is_empty() {
            causes.push(template(&old.input.messages, &text(&old.tokens[..shared], tokenizer)));
        }
    }
    Difference { shared, before, now, causes }
}

fn text(tokens: &[u32], tokenizer: &Tokenizer) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|&id| tokenizer.token_bytes(id)).copied().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn shared(old: &[u32], new: &[u32]) -> usize {
    old.iter().zip(new).take_while(|(old, new)| old == new).count()
}

fn tools(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let list = |tools: &Value| tools.as_array().cloned().unwrap_or_default();
    let name = |tool: &Value| tool["function"]["name"].as_str().unwrap_or_default().to_owned();
    // As text, since the order of keys counts.
    let written = |tool: &Value| tool.to_string();
    let (old, new) = (list(old), list(new));
    let unchanged = causes.len();
    for tool in &new {
        match old.iter().find(|other| name(other) == name(tool)) {
            None => causes.push(Cause::ToolAdded(name(tool))),
            Some(other) if written(other) != written(tool) => causes.push(Cause::ToolChanged(name(tool))),
            Some(_) => {}
        }
    }
    let gone = old.iter().filter(|tool| new.iter().all(|other| name(other) != name(tool)));
    causes.extend(gone.map(|tool| Cause::ToolRemoved(name(tool))));
    if causes.len() == unchanged && old != new {
        causes.push(Cause::ToolOrder);
    }
}

fn variables(old: &TemplateInput, new: &TemplateInput, causes: &mut Vec<Cause>) {
    let (old, new) = (&old.variables, &new.variables);
    let changed = new.iter().filter(|(name, value)| old.get(*name) != Some(*value)).map(|(name, _)| name);
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    causes.extend(changed.chain(gone).map(|name| Cause::Variable(name.clone())));
}

/// `is_written`: whether the template writes this value of a field, as few do.
fn messages(old: &[Message], new: &[Message], is_written: &dyn Fn(&str) -> bool) -> Option<Cause> {
    let changed = old.iter().zip(new).enumerate().find_map(|(index, (old, new))| {
        let role = new.role.clone();
        Some(Cause::Message { index, role, part: part(old, new, is_written)? })
    });
    changed.or_else(|| (new.len() < old.len()).then_some(Cause::Removed { left: new.len() }))
}

/// The first part of a message that is another.
fn part(old: &Message, new: &Message, is_written: &dyn Fn(&str) -> bool) -> Option<Part> {
    let is_same_content = match (old.text(), new.text()) {
        (None, None) => old.content == new.content,
        (old, new) => old == new,
    };
    let is_other = |old: Option<&Value>, new: Option<&Value>| {
        old != new && [old, new].into_iter().flatten().filter_map(Value::as_str).any(is_written)
    };
    let field = || {
        let ids = calls_of(old).iter().zip(calls_of(new)).any(|(old, new)| is_other(old.get("id"), new.get("id")));
        let mut names = ["tool_call_id", "name"].into_iter();
        let name = names.find(|name| is_other(old.fields.get(*name), new.fields.get(*name)));
        name.or(ids.then_some("id"))
    };
    match () {
        () if old.role != new.role => Some(Part::Role(old.role.clone())),
        () if !is_same_content => Some(Part::Content),
        () if old.thinking() != new.thinking() => Some(Part::Thinking),
        () => calls(old, new).or_else(|| field().map(|name| Part::Field(name.to_owned()))),
    }
}

fn calls(old: &Message, new: &Message) -> Option<Part> {
    let (old, new) = (calls_of(old), calls_of(new));
    let name = |call: &Value| function(call)["name"].as_str().unwrap_or_default().to_owned();
    // As text, since the order of keys counts.
    let written = |call: &Value| (name(call), call_arguments(&function(call)["arguments"]).to_string());
    let changed = old.iter().zip(new).find(|(old, new)| written(old) != written(new)).map(|(_, new)| new);
    let longer = if old.len() > new.len() { old } else { new };
    changed.or_else(|| longer.get(old.len().min(new.len()))).map(|call| Part::Call(name(call)))
}

fn calls_of(message: &Message) -> &[Value] {
    message.fields.get("tool_calls").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn function(call: &Value) -> &Value {
    call.get("function").unwrap_or(call)
}

/// What the template writes otherwise than before, given how the text begins that it writes now as before.
fn template(messages: &[Message], text: &str) -> Cause {
    let mut rest = text;
    let mut has = |mark: &str| {
        let after = rest.find(mark.trim()).map(|at| &rest[at + mark.trim().len()..]);
        rest = after.unwrap_or(rest);
        after.is_some()
    };
    for (index, message) in messages.iter().enumerate() {
        let texts: Vec<String> = match (message.text(), &message.content) {
            (Some(text), _) => vec![text],
            (None, Value::Array(parts)) => {
                parts.iter().filter_map(|part| part["text"].as_str().map(str::to_owned)).collect()
            }
            _ => vec![],
        };
        let mut calls = calls_of(message).iter().filter_map(|call| function(call)["name"].as_str());
        if !(texts.iter().all(|text| has(text)) && calls.all(&mut has)) {
            return Cause::Template { index, role: message.role.clone(), thinks: message.thinking().is_some() };
        }
    }
    Cause::Opening
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { shared, before, now, causes } = self;
        if shared == before {
            return write!(out, "goes on after all {before} tokens");
        }
        if shared == now {
            return write!(out, "is the first {now} of {before} tokens");
        }
        write!(out, "parts after {shared} of {before} tokens")?;
        for (index, cause) in causes.iter().take(SHOWN).enumerate() {
            write!(out, "{}{cause}", if index == 0 { ": " } else { ", " })?;
        }
        if causes.len() > SHOWN {
            write!(out, " and {} more", causes.len() - SHOWN)?;
        }
        Ok(())
    }
}

/// Most causes in a line.
const SHOWN: usize = 8;

impl fmt::Display for Cause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::ToolAdded(name) => write!(out, "tool {} added", Name(name)),
            Cause::ToolRemoved(name) => write!(out, "tool {} removed", Name(name)),
            Cause::ToolChanged(name) => write!(out, "tool {} changed", Name(name)),
            Cause::ToolOrder => out.write_str("tools in another order"),
            Cause::Variable(name) => write!(out, "variable {} changed", Name(name)),
            Cause::Message { index, role, part } => {
                write!(out, "message {index} ({}) has another ", clip(role))?;
                match part {
                    Part::Role(before) => write!(out, "role, before {}", Name(before)),
                    Part::Content => out.write_str("content"),
                    Part::Thinking => out.write_str("thinking"),
                    Part::Call(name) => write!(out, "call of {}", Name(name)),
                    Part::Field(name) => out.write_str(name),
                }
            }
            Cause::Removed { left } => write!(out, "messages after the first {left} are gone"),
            Cause::Template { index, role, thinks } => {
                write!(out, "the template writes message {index} ({}) otherwise now", clip(role))?;
                out.write_str(if *thinks { ", which has thinking" } else { "" })
            }
            Cause::Opening => out.write_str("the template opens an answer otherwise than it writes one"),
        }
    }
}

/// A name that a client chose, on one line.
struct Name<'a>(&'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{}`", clip(self.0))
    }
}

fn clip(text: &str) -> String {
    text.chars().take(60).flat_map(char::escape_debug).collect()
}

/// The last prompts of a model.
#[derive(Default)]
pub(crate) struct Prompts {
    kept: Mutex<Kept>,
}

/// Prompts, the oldest first, with the bytes of each.
#[derive(Default)]
struct Kept(VecDeque<(TurnPrompt, usize)>);

impl Prompts {
    /// Says in the log how a prompt that begins a turn goes on from an earlier one; its tokens come back.
    pub(crate) fn note(&self, prompt: TurnPrompt, tokenizer: &Tokenizer) -> Vec<u32> {
        if !tracing::enabled!(target: "kapitsa::prefix", tracing::Level::DEBUG) {
            return prompt.tokens;
        }
        let tokens = prompt.tokens.clone();
        // What it holds is whole between two calls, whoever panicked.
        let difference = self.kept.lock().unwrap_or_else(PoisonError::into_inner).add(prompt, tokenizer);
        match difference {
            Some(difference) => tracing::debug!(
                target: "kapitsa::prefix",
                shared = difference.shared,
                tokens = tokens.len(),
                "the prompt {difference}"
            ),
            None => tracing::debug!(target: "kapitsa::prefix", shared = 0, tokens = tokens.len(), "the first prompt"),
        }
        tokens
    }
}

impl Kept {
    /// How the prompt differs from the one with which it shares most, of several the newest.
    fn add(&mut self, prompt: TurnPrompt, tokenizer: &Tokenizer) -> Option<Difference> {
        let nearest = self.0.iter().enumerate().max_by_key(|(_, (kept, _))| shared(&kept.tokens, &prompt.tokens));
        let nearest = nearest.map(|(index, (kept, _))| (index, difference(kept, &prompt, tokenizer)));
        // One that is all in this one is needed no more.
        if let Some((index, found)) = &nearest
            && found.shared == found.before
        {
            self.0.remove(*index);
        }
        let bytes = bytes(&prompt);
        self.0.push_back((prompt, bytes));
        let mut all: usize = self.0.iter().map(|(_, bytes)| bytes).sum();
        while self.0.len() > KEPT || all > KEPT_BYTES {
            all -= self.0.pop_front().map_or(all, |(_, bytes)| bytes);
        }
        nearest.map(|(_, difference)| difference)
    }
}

/// What a prompt takes in memory, about.
fn bytes(prompt: &TurnPrompt) -> usize {
    fn value(json: &Value) -> usize {
        size_of::<Value>()
            + match json {
                Value::String(text) => text.len(),
                Value::Array(items) => items.iter().map(value).sum(),
                Value::Object(fields) => {
                    fields.iter().map(|(name, json)| size_of::<String>() + name.len() + value(json)).sum()
                }
                _ => 0,
            }
    }
    let TemplateInput { messages, tools, variables } = &prompt.input;
    let message = |message: &Message| {
        let fields: usize = message.fields.iter().map(|(name, json)| name.len() + value(json)).sum();
        size_of::<Message>() + value(&message.content) + fields
    };
    let variables: usize = variables.values().map(value).sum();
    size_of_val(&prompt.tokens[..]) + messages.iter().map(message).sum::<usize>() + value(tools) + variables
}

#[cfg(test)]
mod tests {
    use kapitsa_text::{ChatTemplate, GgufVocabulary, RenderOptions, Specials};
    use serde_json::{Map, json};

    use super::*;

    /// As templates of models that think: not in turns before the last question.
    const TEMPLATE: &str = "{{ tools }}{{ effort }};{% set ns = namespace(last=-1) %}\
        {% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}\
        {% for m in messages %}[{{ m.role }}:{% if m.thinking and loop.index0 > ns.last %}({{ m.thinking }}){% endif %}{{ m.content }}\
        {% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}]{% endfor %}[assistant:";

    fn tokenizer() -> Tokenizer {
        let mut tokens: Vec<String> = ('!'..='~').map(String::from).collect();
        tokens.extend(["Ġ", "Ċ", "th"].map(String::from));
        let merges = Some(vec!["t h".to_owned()]);
        let (model, pre) = ("gpt2".to_owned(), Some("gpt-2".to_owned()));
        Tokenizer::from_gguf(GgufVocabulary { model, pre, tokens, merges, ..GgufVocabulary::default() }).unwrap()
    }

    fn prompt(messages: Value, tools: &[&str], variables: Value) -> TurnPrompt {
        let messages: Vec<Message> = serde_json::from_value(messages).unwrap();
        let tools: Vec<Value> =
            tools.iter().map(|name| json!({"type": "function", "function": {"name": name}})).collect();
        let tools = if tools.is_empty() { Value::Null } else { tools.into() };
        let variables: Map<String, Value> = variables.as_object().unwrap().clone();
        let options = RenderOptions {
            tools: Some(tools.clone()).filter(|tools| !tools.is_null()),
            variables: variables.clone(),
            ..RenderOptions::default()
        };
        let text = ChatTemplate::new(TEMPLATE).unwrap().render(&messages, &options).unwrap().text;
        let tokens = tokenizer().encode(&text, Specials::AsText).unwrap();
        TurnPrompt { input: TemplateInput { messages, tools, variables }, tokens }
    }

    fn said(old: &TurnPrompt, new: &TurnPrompt) -> String {
        difference(old, new, &tokenizer()).to_string()
    }

    fn history(path: &str) -> Value {
        let call = json!({"id": "1", "function": {"name": "read", "arguments": {"path": path}}});
        json!([
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "a secret"},
        ])
    }

    fn with(history: &Value, more: Value) -> Value {
        history.as_array().unwrap().iter().chain(more.as_array().unwrap()).cloned().collect()
    }

    #[test]
    fn the_line_says_why_a_prompt_parts() {
        let old = prompt(history("x"), &["read", "edit"], json!({}));
        let with_old = |messages: Value| said(&old, &prompt(messages, &["read", "edit"], json!({})));
        let after = format!("goes on after all {} tokens", old.tokens.len());
        assert_eq!(with_old(history("x")), after);
        assert_eq!(with_old(with(&history("x"), json!([{"role": "assistant", "content": "Done."}]))), after);
        let shorter = with_old(json!([{"role": "user", "content": "Look."}]));
        assert!(shorter.starts_with("is the first "), "{shorter}");

        let ends = |line: String, end: &str| assert!(line.starts_with("parts after ") && line.ends_with(end), "{line}");
        let tools = |tools: &[&str]| said(&old, &prompt(history("x"), tools, json!({})));
        ends(tools(&["edit", "read"]), ": tools in another order");
        ends(tools(&["read", "a\nb"]), ": tool `a\\nb` added, tool `edit` removed");
        ends(
            said(&old, &prompt(history("x"), &["read", "edit"], json!({"effort": "low"}))),
            ": variable `effort` changed",
        );
        ends(with_old(history("y")), ": message 1 (assistant) has another call of `read`");
        let mut other = history("x");
        other[2]["content"] = "another secret".into();
        ends(with_old(other.clone()), ": message 2 (tool) has another content");
        other[0]["role"] = "system".into();
        ends(with_old(other.clone()), ": message 0 (system) has another role, before `user`");
        other = history("x");
        other[1]["reasoning_content"] = "Well.".into();
        ends(with_old(other.clone()), ": message 1 (assistant) has another thinking");
        // The same under another name, and ids that the template does not write.
        other[1]["reasoning"] = "Hm.".into();
        other[1].as_object_mut().unwrap().remove("reasoning_content");
        other[1]["tool_calls"][0]["id"] = "2".into();
        assert_eq!(with_old(other), after);
        let asked =
            with(&history("x"), json!([{"role": "assistant", "content": "D"}, {"role": "user", "content": "q"}]));
        ends(with_old(asked), ": the template writes message 1 (assistant) otherwise now, which has thinking");
    }

    #[test]
    fn many_causes_are_counted() {
        let names: Vec<String> = (0..30).map(|index| format!("t{index}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let line = said(&prompt(history("x"), &names, json!({})), &prompt(history("x"), &[], json!({})));
        assert!(line.ends_with("tool `t7` removed and 22 more"), "{line}");
    }

    #[test]
    fn the_nearest_prompt_counts_and_the_oldest_leave() {
        let (mut kept, tokenizer) = (Kept::default(), tokenizer());
        let question = |text: &str| json!([{"role": "user", "content": text}]);
        let mut add =
            |messages: Value| kept.add(prompt(messages, &[], json!({})), &tokenizer).map(|found| found.to_string());
        assert_eq!(add(question("main")), None);
        assert!(add(question("side")).unwrap().ends_with("message 0 (user) has another content"));
        let on = add(with(&question("main"), json!([{"role": "assistant", "content": "a"}]))).unwrap();
        assert!(on.starts_with("goes on"), "{on}");
        for index in 0..40 {
            add(question(&index.to_string()));
        }
        assert_eq!(kept.0.len(), KEPT);
        // Only while the log is on.
        let prompts = Prompts::default();
        let first = prompt(question("main"), &[], json!({}));
        assert_eq!(prompts.note(first.clone(), &tokenizer), first.tokens);
        assert!(prompts.kept.lock().unwrap().0.is_empty());
    }

    #[test]
    fn the_memory_is_bounded() {
        let (mut kept, tokenizer) = (Kept::default(), tokenizer());
        for index in 0..4 {
            let messages = vec![Message::user("x".repeat(KEPT_BYTES / 3)), Message::user(index.to_string())];
            let input = TemplateInput { messages, tools: Value::Null, variables: Map::new() };
            kept.add(TurnPrompt { input, tokens: vec![index, 1] }, &tokenizer);
        }
        assert_eq!(kept.0.len(), 2);
        assert!(kept.0.iter().map(|(_, bytes)| bytes).sum::<usize>() <= KEPT_BYTES);
    }
}
