//! The text in the object that a model writes for a tool that takes text, as it comes.

use serde_json::Value;

use super::TEXT_INPUT;

/// Takes pieces of a JSON object whose member `input` is the text, and gives the text in pieces. What has another form is given as
/// it is, at its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextInput {
    state: State,
    /// JSON that is not read: before the text what may not be the expected beginning, in it an escape that is not whole.
    held: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The object has no other beginning so far than that of the expected form.
    #[default]
    Before,
    Text,
    After,
    /// Another form.
    Other,
}

impl TextInput {
    /// Adds a piece, and gives what it makes certain of the text.
    pub(crate) fn push(&mut self, json: &str) -> String {
        self.held.push_str(json);
        if self.state == State::Before {
            match text_begins(&self.held) {
                None => return String::new(),
                Some(Ok(at)) => {
                    self.held.drain(..at);
                    self.state = State::Text;
                }
                Some(Err(())) => self.state = State::Other,
            }
        }
        if self.state == State::Text { self.text() } else { String::new() }
    }

    /// No more comes: what is left.
    pub(crate) fn finish(self) -> String {
        match self.state {
            State::Text | State::After => String::new(),
            State::Before | State::Other => match serde_json::from_str::<Value>(&self.held) {
                Ok(mut value) => match value.get_mut(TEXT_INPUT).map(Value::take) {
                    Some(Value::String(text)) => text,
                    _ => self.held,
                },
                Err(_) => self.held,
            },
        }
    }

    /// As much of the text as is certain.
    fn text(&mut self) -> String {
        let (mut text, mut read) = (String::new(), 0);
        while let Some(next) = self.held[read..].chars().next() {
            match next {
                '"' => {
                    self.state = State::After;
                    break;
                }
                '\\' => match escape(&self.held[read..]) {
                    Some((c, len)) => {
                        text.push(c);
                        read += len;
                    }
                    None => break,
                },
                c => {
                    text.push(c);
                    read += c.len_utf8();
                }
            }
        }
        self.held.drain(..read);
        text
    }
}

/// Where the text begins in `{"input": "...`; `None` if more has to come to tell.
fn text_begins(json: &str) -> Option<Result<usize, ()>> {
    let mut rest = json;
    for part in ["{", "\"", TEXT_INPUT, "\"", ":", "\""] {
        if part != TEXT_INPUT {
            rest = rest.trim_start();
        }
        match rest.strip_prefix(part) {
            Some(after) => rest = after,
            None if part.starts_with(rest) => return None,
            None => return Some(Err(())),
        }
    }
    Some(Ok(json.len() - rest.len()))
}

/// The character that an escape stands for, and the length of the escape; `None` if more has to come to tell.
fn escape(json: &str) -> Option<(char, usize)> {
    let simple = match json.as_bytes().get(1)? {
        b'n' => '\n',
        b't' => '\t',
        b'r' => '\r',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'u' => return unicode(json),
        &other => char::from(other),
    };
    Some((simple, 2))
}

fn unicode(json: &str) -> Option<(char, usize)> {
    let unit = |at: usize| u32::from_str_radix(json.get(at..at + 4)?, 16).ok();
    let first = unit(2)?;
    if let Some(c) = char::from_u32(first) {
        return Some((c, 6));
    }
    if !(0xd800..0xdc00).contains(&first) {
        return Some((char::REPLACEMENT_CHARACTER, 6));
    }
    match json.get(6..8) {
        Some("\\u") => match unit(8)? {
            second @ 0xdc00..0xe000 => {
                let c = char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00));
                Some((c.unwrap_or(char::REPLACEMENT_CHARACTER), 12))
            }
            _ => Some((char::REPLACEMENT_CHARACTER, 6)),
        },
        None if json.len() < 8 => None,
        _ => Some((char::REPLACEMENT_CHARACTER, 6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces and what is left.
    fn read<'a>(pieces: impl IntoIterator<Item = &'a str>) -> (Vec<String>, String) {
        let mut input = TextInput::default();
        let pieces = pieces.into_iter().map(|piece| input.push(piece)).filter(|text| !text.is_empty()).collect();
        (pieces, input.finish())
    }

    #[test]
    fn text_comes_as_it_is_written() {
        let (pieces, rest) =
            read(["{ \"inp", "ut\" : \"*** Be", "gin\\", "nPatch \\ud83d", "\\ude00\\u00e4 日", "\"}"]);
        assert_eq!(pieces, ["*** Be", "gin", "\nPatch ", "😀ä 日"]);
        assert_eq!(rest, "");
    }

    #[test]
    fn any_cut_gives_the_same_text() {
        let text = "a \"quoted\" \\ line\n\ttab \u{1} \u{1f600} end";
        let json = serde_json::json!({ "input": text }).to_string();
        let escaped = json.replace('\u{1f600}', "\\ud83d\\ude00");
        for json in [&json, &escaped] {
            for cut in (0..=json.len()).filter(|&cut| json.is_char_boundary(cut)) {
                let (pieces, rest) = read([&json[..cut], &json[cut..]]);
                assert_eq!(pieces.concat() + &rest, text, "cut at {cut}");
            }
        }
    }

    #[test]
    fn other_forms_come_whole() {
        for (json, expected) in [
            ("{\"text\": \"a\"}", "{\"text\": \"a\"}"),
            ("{\"input\": 5}", "{\"input\": 5}"),
            ("{\"more\": 1, \"input\": \"a\"}", "a"),
            ("{}", "{}"),
            ("", ""),
        ] {
            let (pieces, rest) = read(json.split_inclusive(' '));
            assert_eq!(pieces.concat() + &rest, expected, "{json}");
        }
    }

    #[test]
    fn odd_escapes_hold_nothing_up() {
        let (pieces, rest) = read(["{\"input\": \"a\\ud83dx\\ude00\\q\"}"]);
        assert_eq!((pieces.concat().as_str(), rest.as_str()), ("a\u{fffd}x\u{fffd}q", ""));
    }
}
