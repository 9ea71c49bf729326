//! JSON as models write it, to JSON.
//!
//! A [`Json`] reads one value as it comes. What is valid passes as it is, all else is repaired: single quotes, quotes and
//! control characters that are not escaped, words that are not JSON, commas and closers that are missing or too many.
//! Whatever comes, what was put out is a valid JSON value once [`Json::close`] has been called.

use crate::look::{Cursor, Look, Miss, is, is_space};

/// Readers of JSON refuse what is nested deeper than 128; arguments may be wrapped once more by a client.
const MAX_DEPTH: usize = 100;
/// White space kept after a comma that has not been put out yet.
const MAX_PENDING: usize = 256;

/// What ends a call wherever it stands outside a string.
const CLOSERS: &[&str] = &["</tool_call>", "<tool_call>", "</function>", "</TOOLCALL>"];

pub(crate) fn closer(mut at: Cursor<'_>) -> Look<()> {
    at.any(CLOSERS)
}

/// Reads one JSON value.
#[derive(Clone, Debug)]
pub(crate) struct Json {
    /// The closers of what is open.
    open: Vec<char>,
    state: State,
    /// A comma that is put out once something follows it, and the white space after it.
    comma: Option<String>,
    word: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Key,
    Colon,
    Value,
    After,
    String { quote: char, is_key: bool },
    Word { is_key: bool },
    Done,
}

impl Json {
    pub(crate) fn new() -> Self {
        Self { open: vec![], state: State::Value, comma: None, word: String::new() }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Reads a little, at least one byte unless the state changes.
    pub(crate) fn step(&mut self, at: &mut Cursor<'_>, out: &mut String) -> Look<()> {
        match self.state {
            State::String { quote, is_key } => return self.string(at, quote, is_key, out),
            State::Word { is_key } => {
                self.word.push_str(at.take_while(|c| !is_space(c) && !"{}[],:\"<".contains(c)));
                if at.peek()?.is_some() {
                    self.end_word(is_key, out);
                }
                return Ok(());
            }
            _ => {}
        }
        let Some(c) = at.peek()? else { return Ok(()) };
        if c == '<' && is(closer(*at))? {
            self.close(out);
            return Ok(());
        }
        let mut consumed = true;
        match (self.state, c) {
            (_, c) if is_space(c) => match &mut self.comma {
                Some(space) if space.len() < MAX_PENDING => space.push(c),
                Some(_) => {}
                None => out.push(c),
            },
            (State::Colon, ':') => {
                out.push(':');
                self.state = State::Value;
            }
            (State::Colon, _) => {
                out.push(':');
                self.state = State::Value;
                consumed = false;
            }
            (State::Value, '}' | ']' | ',') if self.open.last() == Some(&'}') => {
                out.push_str("null");
                self.state = State::After;
                consumed = false;
            }
            (_, '}' | ']') => self.end_of(c, out),
            (State::After, ',') => {
                self.comma = Some(String::new());
                self.state = self.next();
            }
            (_, ',' | ':' | '<') | (State::Key, '{' | '[') => {}
            (State::After, _) => {
                self.comma = Some(String::new());
                self.state = self.next();
                consumed = false;
            }
            (State::Value, '{' | '[') => {
                self.begin(out);
                if self.open.len() == MAX_DEPTH {
                    out.push_str("null");
                    self.state = State::After;
                    self.close(out);
                } else {
                    out.push(c);
                    self.open.push(if c == '{' { '}' } else { ']' });
                    self.state = self.next();
                }
            }
            (state, '"' | '\'') => {
                self.begin(out);
                out.push('"');
                self.state = State::String { quote: c, is_key: state == State::Key };
            }
            (state, _) => {
                self.begin(out);
                self.state = State::Word { is_key: state == State::Key };
                consumed = false;
            }
        }
        if consumed {
            at.take(c.len_utf8());
        }
        Ok(())
    }

    fn string(&mut self, at: &mut Cursor<'_>, quote: char, is_key: bool, out: &mut String) -> Look<()> {
        out.push_str(at.take_while(is_plain));
        let Some(c) = at.peek()? else { return Ok(()) };
        if c == quote && closes(*at, is_key, &self.open)? {
            at.take(1);
            out.push('"');
            self.ended(is_key);
            return Ok(());
        }
        let before = at.rest;
        match character(at)? {
            Unit { clean: true, .. } => out.push_str(&before[..before.len() - at.rest.len()]),
            Unit { c, .. } => escape(c.encode_utf8(&mut [0; 4]), out),
        }
        Ok(())
    }

    /// What state follows when a key or value has ended.
    fn ended(&mut self, is_key: bool) {
        self.state = match () {
            () if is_key => State::Colon,
            () if self.open.is_empty() => State::Done,
            () => State::After,
        };
    }

    fn next(&self) -> State {
        if self.open.last() == Some(&'}') { State::Key } else { State::Value }
    }

    /// Something begins, so a comma before it counts.
    fn begin(&mut self, out: &mut String) {
        if let Some(space) = self.comma.take() {
            out.push(',');
            out.push_str(&space);
        }
    }

    fn end_word(&mut self, is_key: bool, out: &mut String) {
        let word = std::mem::take(&mut self.word);
        match word.as_str() {
            "True" if !is_key => out.push_str("true"),
            "False" if !is_key => out.push_str("false"),
            "None" | "undefined" if !is_key => out.push_str("null"),
            word if !is_key && serde_json::from_str::<serde_json::Value>(word).is_ok() => out.push_str(word),
            word => {
                out.push('"');
                escape(word, out);
                out.push('"');
            }
        }
        self.ended(is_key);
    }

    /// A closer ends all that it is around. One that is around nothing is dropped.
    fn end_of(&mut self, c: char, out: &mut String) {
        let Some(depth) = self.open.iter().rposition(|open| *open == c) else { return };
        out.push_str(&self.comma.take().unwrap_or_default());
        out.extend(self.open.drain(depth..).rev());
        self.ended(false);
    }

    /// Ends the value, as no more of it comes.
    pub(crate) fn close(&mut self, out: &mut String) {
        match self.state {
            State::String { is_key, .. } => {
                out.push('"');
                self.ended(is_key);
            }
            State::Word { is_key } => self.end_word(is_key, out),
            _ => {}
        }
        let in_object = self.open.last() == Some(&'}');
        match self.state {
            State::Colon => out.push_str(":null"),
            State::Value if in_object || self.open.is_empty() => out.push_str("null"),
            _ => {}
        }
        out.extend(self.open.drain(..).rev());
        self.state = State::Done;
    }
}

fn is_plain(c: char) -> bool {
    !matches!(c, '"' | '\'' | '\\' | '\0'..='\x1f')
}

/// Whether the quote at the cursor ends the string, which is a key, or a value in what `open` closes. A value ends if
/// something follows that may follow it there; other quotes are text that should have been escaped. What is too long to
/// look at is taken for JSON.
pub(crate) fn closes(mut at: Cursor<'_>, is_key: bool, mut open: &[char]) -> Look<bool> {
    let quote = at.take(1);
    if is_key {
        return Ok(quote == "\"" || at.peek()?.is_none_or(|c| !c.is_alphanumeric()));
    }
    loop {
        let space = at.rest;
        if !is(at.space())? {
            return Ok(true);
        }
        let crosses_line = space[..space.len() - at.rest.len()].contains('\n');
        return Ok(match at.peek()? {
            None => true,
            Some('}') if open.is_empty() => true, // of the envelope
            Some(c @ ('}' | ']')) => match open.iter().rposition(|open| *open == c) {
                // A bracket is more often text than one that is missing.
                Some(depth) if c == '}' || depth + 1 == open.len() => {
                    at.take(1);
                    open = &open[..depth];
                    continue;
                }
                _ => false,
            },
            Some(',') if open.last() == Some(&']') => true,
            Some(',') => {
                at.take(1);
                may_be_key(at)?
            }
            Some('"' | '\'') => crosses_line, // a comma is missing
            Some('<') => is(closer(at))?,
            Some(_) => false,
        });
    }
}

/// Whether a member of an object may stand after a comma, or what closes it.
fn may_be_key(mut at: Cursor<'_>) -> Look<bool> {
    if !is(at.space())? {
        return Ok(true);
    }
    let ends = match at.peek()? {
        None | Some('}' | ']' | '<') => return Ok(true),
        Some(quote @ ('"' | '\'')) => {
            at.take(1);
            [quote, '\\']
        }
        Some(_) => [':', ' '],
    };
    if !is(at.name(&ends))? || at.peek()? == Some('\\') {
        return Ok(true);
    }
    at.take(usize::from(at.rest.starts_with(['"', '\''])));
    is(at.space().and_then(|()| at.literal(":")))
}

/// A character of a string.
pub(crate) struct Unit {
    pub(crate) c: char,
    /// It was written as JSON wants it.
    clean: bool,
}

/// Reads a character of a string, which may be an escape. One that is none stands for its own text.
pub(crate) fn character(at: &mut Cursor<'_>) -> Look<Unit> {
    let Some(c) = at.peek()? else { return Err(Miss::Open) };
    if c != '\\' {
        at.take(c.len_utf8());
        return Ok(Unit { c, clean: is_plain(c) || c == '\'' });
    }
    let mut look = *at;
    look.take(1);
    let c = match look.peek()? {
        Some(c @ ('"' | '\\' | '/')) => c,
        Some('b') => '\x08',
        Some('f') => '\x0c',
        Some('n') => '\n',
        Some('r') => '\r',
        Some('t') => '\t',
        Some('\'') => {
            at.take(2);
            return Ok(Unit { c: '\'', clean: false });
        }
        Some('u') => return unicode(at),
        _ => {
            at.take(1);
            return Ok(Unit { c: '\\', clean: false });
        }
    };
    at.take(2);
    Ok(Unit { c, clean: true })
}

/// Reads an escape `\u` with four digits, or two that are halves of a character. Half a character becomes a replacement character.
fn unicode(at: &mut Cursor<'_>) -> Look<Unit> {
    let mut look = *at;
    let first = match code(&mut look) {
        Err(Miss::Other) => {
            at.take(1);
            return Ok(Unit { c: '\\', clean: false });
        }
        known => known?,
    };
    let mut pair = look;
    let second = match code(&mut pair) {
        Err(Miss::Open) if (0xd800..0xdc00).contains(&first) => return Err(Miss::Open),
        second => second.unwrap_or_default(),
    };
    let c = char::decode_utf16([first, second]).next().and_then(Result::ok);
    *at = if c.is_some_and(|c| c.len_utf16() == 2) { pair } else { look };
    Ok(Unit { c: c.unwrap_or(char::REPLACEMENT_CHARACTER), clean: c.is_some() })
}

fn code(at: &mut Cursor<'_>) -> Look<u16> {
    at.literal("\\u")?;
    let digits = at.rest.bytes().take(4).take_while(u8::is_ascii_hexdigit).count();
    match digits {
        4 => u16::from_str_radix(at.take(4), 16).map_err(|_| Miss::Other),
        _ if digits == at.rest.len() && !at.last => Err(Miss::Open),
        _ => Err(Miss::Other),
    }
}

/// Puts text out as part of a JSON string.
pub(crate) fn escape(text: &str, out: &mut String) {
    let mut rest = text;
    while let Some(found) = rest.find(|c| matches!(c, '"' | '\\' | '\0'..='\x1f')) {
        out.push_str(&rest[..found]);
        match rest.as_bytes()[found] {
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            c @ (b'"' | b'\\') => out.extend(['\\', c.into()]),
            c => out.push_str(&format!("\\u{c:04x}")),
        }
        rest = &rest[found + 1..];
    }
    out.push_str(rest);
}
