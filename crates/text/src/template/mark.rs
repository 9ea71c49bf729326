//! Telling text of the template from text of messages in a rendered prompt.
//!
//! A template mixes the two, and what it does to the strings is its own affair. So every spelling of a control token in
//! a message is set between two marks before rendering; afterwards the marks are taken out and what stood between them
//! is known to be plain text. The marks are noncharacters, which Unicode reserves for such internal use and which are
//! removed from messages first.

use minijinja::Value;

use crate::{prompt::Prompt, tokenizer::Tokenizer};

const OPEN: char = '\u{fdd0}';
const CLOSE: char = '\u{fdd1}';

/// Deeper JSON than any parser would have let in: 128 levels of a call's arguments, in a message.
const MAX_DEPTH: usize = 160;

/// Converts JSON values for the template, marking strings.
pub(super) struct Marker<'a> {
    tokenizer: Option<&'a Tokenizer>,
    values: u64,
    bytes: u64,
}

impl<'a> Marker<'a> {
    pub(super) fn new(tokenizer: Option<&'a Tokenizer>) -> Self {
        Self { tokenizer, values: 0, bytes: 0 }
    }

    /// How many values were converted, those inside of others included. The template's limits follow from it and from
    /// [`bytes`](Self::bytes).
    pub(super) fn values(&self) -> u64 {
        self.values
    }

    /// How many bytes of text they had.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// `markers`: also mark tokens that are not control tokens but that only the template may write.
    pub(super) fn value(&mut self, value: &serde_json::Value, markers: bool) -> Result<Value, String> {
        self.nested(value, markers, 0)
    }

    fn nested(&mut self, value: &serde_json::Value, markers: bool, depth: usize) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err(format!("is nested more than {MAX_DEPTH} deep"));
        }
        self.values += 1;
        Ok(match value {
            serde_json::Value::Null => Value::from(()),
            serde_json::Value::Bool(flag) => Value::from(*flag),
            serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(integer), ..) => Value::from(integer),
                (_, Some(integer), _) => Value::from(integer),
                (.., float) => Value::from(float.unwrap_or(f64::NAN)),
            },
            serde_json::Value::String(text) => self.string(text, markers),
            serde_json::Value::Array(items) => {
                let items: Result<Vec<_>, _> = items.iter().map(|item| self.nested(item, markers, depth + 1)).collect();
                Value::from(items?)
            }
            serde_json::Value::Object(fields) => {
                let mut pairs = Vec::with_capacity(fields.len());
                for (name, value) in fields {
                    self.bytes += name.len() as u64;
                    pairs.push((clean(name).into_owned(), self.nested(value, markers, depth + 1)?));
                }
                Value::from_pairs(pairs)
            }
        })
    }

    fn string(&mut self, text: &str, markers: bool) -> Value {
        self.bytes += text.len() as u64;
        let text = clean(text);
        let ranges = self.tokenizer.map(|tokenizer| tokenizer.guarded_ranges(&text, markers)).unwrap_or_default();
        if ranges.is_empty() {
            return Value::from(text);
        }
        let mut out = String::with_capacity(text.len() + 6 * ranges.len());
        let mut done = 0;
        for range in ranges {
            out.push_str(&text[done..range.start]);
            out.push(OPEN);
            out.push_str(&text[range.clone()]);
            out.push(CLOSE);
            done = range.end;
        }
        out.push_str(&text[done..]);
        Value::from(out)
    }
}

fn clean(text: &str) -> std::borrow::Cow<'_, str> {
    // Both marks start with these two bytes; few texts have them at all.
    match text.contains([OPEN, CLOSE]) {
        true => text.replace([OPEN, CLOSE], "\u{fffd}").into(),
        false => text.into(),
    }
}

/// Whether a character is one of the marks; `tojson` must leave them alone.
pub(super) fn is_mark(c: char) -> bool {
    matches!(c, OPEN | CLOSE)
}

/// Takes the marks out of a rendered prompt. A mark without its partner, cut off by the template, protects nothing.
pub(super) fn unmark(marked: String) -> Prompt {
    if !marked.contains(is_mark) {
        return Prompt { text: marked, plain: Vec::new() };
    }
    let mut prompt = Prompt { text: String::with_capacity(marked.len()), plain: Vec::new() };
    let mut open = None;
    for part in marked.split_inclusive(is_mark) {
        let mark = part.chars().next_back().filter(|&c| is_mark(c));
        prompt.text.push_str(&part[..part.len() - mark.map_or(0, char::len_utf8)]);
        let here = prompt.text.len();
        match (mark, open) {
            (Some(OPEN), _) => open = Some(here),
            (Some(_), Some(start)) => {
                prompt.plain.push(start..here);
                open = None;
            }
            _ => {}
        }
    }
    prompt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_come_out_as_ranges() {
        let prompt = unmark(format!("a{OPEN}<x>{CLOSE}b{CLOSE}{OPEN}c{OPEN}<y>{CLOSE}"));
        assert_eq!((prompt.text.as_str(), prompt.plain), ("a<x>bc<y>", vec![1..4, 6..9]));
    }

    #[test]
    fn marks_in_messages_are_replaced() {
        let value = Marker::new(None).value(&format!("{CLOSE}a{OPEN}").into(), true).unwrap();
        assert_eq!(value.as_str(), Some("\u{fffd}a\u{fffd}"));
    }
}
