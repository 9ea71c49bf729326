//! The words of a grammar in Lark's syntax, as `llguidance` tells them apart.

use serde_json::Value;

use crate::error::{GrammarError, shown};

/// Bytes that a grammar may have.
pub(crate) const MAX_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The name of a rule, with the marks before it.
    Rule,
    /// The name of a terminal.
    Terminal,
    /// A string with its quotes and flag.
    Text,
    /// A regular expression with its slashes and flags.
    Regex,
    Number,
    /// `<…>`: a control token.
    Control,
    /// `@…`: another grammar.
    Grammar,
    /// `%…`, with the JSON that follows some.
    Keyword,
    Newline,
    /// Everything else.
    Sign,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Word<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    /// From 1.
    pub(crate) line: usize,
}

const KEYWORDS: [&str; 9] =
    ["%declare", "%ignore", "%if", "%import", "%json", "%lark", "%llguidance", "%override", "%regex"];

const SIGNS: [&str; 18] = ["->", "::", "..", ":", ",", ".", "(", ")", "{", "}", "[", "]", "~", "|", "&", "=", "_", "+"];

pub(crate) fn error(line: usize, reason: impl std::fmt::Display) -> GrammarError {
    GrammarError::Grammar { reason: format!("line {line}: {reason}") }
}

/// Fails if a grammar allows anything but text: control tokens, other grammars, or bytes that are no UTF-8, with which
/// control tokens begin for `llguidance`.
pub(crate) fn check(text: &str) -> Result<(), GrammarError> {
    let words = words(text)?;
    // Whether what follows is held to something else that is text: by group, the innermost last.
    let mut held = vec![false];
    for (at, Word { kind, text, line }) in words.iter().enumerate() {
        let here = held.last().copied().unwrap_or_default();
        let outside = held.len().checked_sub(2).is_some_and(|outer| held[outer]);
        match (kind, *text) {
            (Kind::Control, _) => {
                return Err(error(*line, format!("`{}` is a control token, no text", shown(text, 40))));
            }
            (Kind::Grammar, _) => return Err(error(*line, format!("there is no other grammar `{}`", shown(text, 40)))),
            (Kind::Keyword, text) if allows_other_bytes(text) => {
                return Err(error(*line, "text that is no UTF-8 is not supported"));
            }
            (Kind::Sign, "~") if words.get(at + 1).is_some_and(|next| next.kind == Kind::Number) => {}
            (Kind::Sign, "~") if !here => {
                return Err(error(*line, "`~` is supported only after `&`: what is not a text need not be a text"));
            }
            (Kind::Sign, "(" | "[") => held.push(here),
            (Kind::Sign, ")" | "]") if held.len() > 1 => held.truncate(held.len() - 1),
            (Kind::Sign, "&") => set_last(&mut held, true),
            (Kind::Sign, "|") => set_last(&mut held, outside),
            (Kind::Newline, _) => held = vec![false],
            _ => {}
        }
    }
    Ok(())
}

fn allows_other_bytes(keyword: &str) -> bool {
    let options = keyword.strip_prefix("%llguidance").and_then(|json| serde_json::from_str::<Value>(json).ok());
    options.is_some_and(|options| options.get("allow_invalid_utf8").is_some_and(|value| *value != Value::Bool(false)))
}

fn set_last(list: &mut [bool], value: bool) {
    if let Some(last) = list.last_mut() {
        *last = value;
    }
}

/// All words but white space and comments.
pub(crate) fn words(text: &str) -> Result<Vec<Word<'_>>, GrammarError> {
    if text.len() > MAX_BYTES {
        return Err(GrammarError::Grammar { reason: format!("it has {} bytes, the limit is {MAX_BYTES}", text.len()) });
    }
    let mut words = vec![];
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let found = match first {
            ' ' | '\t' => (None, 1),
            '#' => (None, line_length(rest)),
            '/' if rest.starts_with("//") => (None, line_length(rest)),
            _ => {
                let (kind, length) = word(rest).map_err(|reason| error(line, reason))?;
                (Some(kind), length)
            }
        };
        let (text, after) = rest.split_at(found.1);
        if let (Some(kind), _) = found {
            words.push(Word { kind, text, line });
        }
        line += text.matches('\n').count();
        rest = after;
    }
    Ok(words)
}

fn line_length(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// The first word and its length.
fn word(text: &str) -> Result<(Kind, usize), String> {
    let bytes = text.as_bytes();
    let at = |index: usize| bytes.get(index).copied().unwrap_or_default();
    let run = |from: usize, is: fn(u8) -> bool| from + bytes[from..].iter().take_while(|&&byte| is(byte)).count();
    let unknown = || format!("unexpected `{}`", shown(text.lines().next().unwrap_or_default(), 20));
    let first = at(0);
    Ok(match first {
        b'\n' | b'\r' => {
            let end = if first == b'\r' { 2 } else { 1 };
            (Kind::Newline, if at(end - 1) == b'\n' { end } else { return Err(unknown()) })
        }
        b'"' => (Kind::Text, string_length(text).ok_or_else(|| "a string has no end, or no such escape".to_owned())?),
        b'/' => (Kind::Regex, regex_length(text).ok_or_else(|| "a regular expression has no end".to_owned())?),
        b'<' => {
            let end = text.find('>').filter(|&end| end > 1 && !text[1..end].contains(['<', ' ', '\t', '\n', '\r']));
            (Kind::Control, end.ok_or_else(unknown)? + 1)
        }
        b'@' => match run(1, |byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)) {
            1 => return Err(unknown()),
            end => (Kind::Grammar, end),
        },
        b'%' => {
            let keyword = KEYWORDS.iter().rev().find(|keyword| text.starts_with(**keyword)).ok_or_else(unknown)?;
            let json = match *keyword {
                "%json" | "%llguidance" | "%regex" => {
                    json_length(&text[keyword.len()..]).ok_or_else(|| format!("there is no JSON after `{keyword}`"))?
                }
                _ => 0,
            };
            (Kind::Keyword, keyword.len() + json)
        }
        _ if first.is_ascii_digit() || (b"+-".contains(&first) && at(1).is_ascii_digit()) => {
            (Kind::Number, number_length(bytes))
        }
        b'?' | b'!' | b'_' | b'a'..=b'z' | b'A'..=b'Z' => {
            let mut start = usize::from(first == b'!');
            start += usize::from(b"_?".contains(&at(start)));
            if at(start).is_ascii_lowercase() {
                (
                    Kind::Rule,
                    run(start, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte)),
                )
            } else if at(start).is_ascii_uppercase() && (start == 0 || first == b'_') {
                let end =
                    run(start, |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || b"_-".contains(&byte));
                (Kind::Terminal, end)
            } else if first == b'!' {
                return Err(unknown());
            } else {
                (Kind::Sign, 1)
            }
        }
        b'*' => (Kind::Sign, 1),
        _ => (Kind::Sign, SIGNS.iter().find(|sign| text.starts_with(**sign)).ok_or_else(unknown)?.len()),
    })
}

/// Of a string in quotes, with its flag.
fn string_length(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    loop {
        match chars.next()? {
            (at, '"') => return Some(at + 1 + usize::from(text[at + 1..].starts_with('i'))),
            (_, '\\') => {
                let digits = match chars.next()?.1 {
                    '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' => 0,
                    'u' => 4,
                    'x' => 2,
                    _ => return None,
                };
                for _ in 0..digits {
                    chars.next().filter(|(_, digit)| digit.is_ascii_hexdigit())?;
                }
            }
            (_, '\0'..='\x1f' | '\x7f') => return None,
            _ => {}
        }
    }
}

/// Of an expression between slashes, with its flags.
fn regex_length(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    loop {
        match chars.next()? {
            (at, '/') => {
                let flags = text[at + 1..].bytes().take_while(|byte| b"imslux".contains(byte)).count();
                return Some(at + 1 + flags);
            }
            (_, '\\') => {
                chars.next().filter(|(_, escaped)| *escaped != '\n')?;
            }
            _ => {}
        }
    }
}

fn json_length(text: &str) -> Option<usize> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    values.next()?.ok()?;
    Some(values.byte_offset())
}

fn number_length(bytes: &[u8]) -> usize {
    let at = |index: usize| bytes.get(index).copied().unwrap_or_default();
    let digits = |from: usize| from + bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    if at(0) == b'0' && at(1).eq_ignore_ascii_case(&b'x') && at(2).is_ascii_hexdigit() {
        return 2 + bytes[2..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    }
    let mut end = digits(1);
    // The dots of a range are no part of its first number.
    if at(end) == b'.' && at(end + 1) != b'.' {
        end = digits(end + 1);
    }
    if at(end).eq_ignore_ascii_case(&b'e') {
        let sign = usize::from(b"+-".contains(&at(end + 1)));
        if at(end + 1 + sign).is_ascii_digit() {
            end = digits(end + 1 + sign);
        }
    }
    end
}
