//! What the rules and terminals of a grammar in Lark's syntax say, as far as it can be written in a JSON string.

use std::collections::BTreeMap;

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Look};
use serde_json::Value;

use crate::error::{GrammarError, shown};
use crate::lark_text::{Kind, Word, error, words};

/// Groups within groups; `llguidance` has the same limit.
const MAX_DEPTH: usize = 28;

/// The definition of a rule or a terminal, or a part of one.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    Name {
        name: String,
        line: usize,
    },
    Text(String),
    Regex(Hir),
    Sequence(Vec<Tree>),
    Choice(Vec<Tree>),
    /// What all of them are.
    Both {
        parts: Vec<Tree>,
        line: usize,
    },
    Repeat {
        of: Box<Tree>,
        min: usize,
        max: Option<usize>,
        line: usize,
    },
}

/// A grammar that is nothing but rules, terminals, and what may stand between terminals.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    /// By name.
    pub(crate) rules: BTreeMap<String, Tree>,
    pub(crate) terminals: BTreeMap<String, Tree>,
    pub(crate) ignored: Vec<Tree>,
}

pub(crate) fn read(text: &str) -> Result<Definitions, GrammarError> {
    let mut reader = Reader { words: words(text)?, at: 0 };
    let mut all = Definitions::default();
    while let Some(word) = reader.next() {
        match word.kind {
            Kind::Newline => continue,
            Kind::Rule | Kind::Terminal => {
                if let Some(next) = reader.peek().filter(|next| next.text != ":") {
                    let what = match next.text {
                        "[" => "attributes of a rule",
                        "::" => "a rule with a parameter",
                        "{" => "a template",
                        "." => "a priority",
                        _ => return Err(reader.unexpected("`:`")),
                    };
                    return Err(error(next.line, format!("{what} cannot be written in a JSON string")));
                }
                reader.expect(":")?;
                let tree = reader.choice(0)?;
                let is_rule = word.kind == Kind::Rule;
                let name = if is_rule { word.text.trim_start_matches(['!', '?']) } else { word.text };
                all.define(is_rule, name, tree, word.line)?;
            }
            Kind::Keyword if word.text == "%ignore" => all.ignored.push(reader.choice(0)?),
            Kind::Keyword if word.text == "%import" => reader.import(&mut all)?,
            // Without any option.
            Kind::Keyword if word.text.strip_prefix("%llguidance").is_some_and(|options| options.trim() == "{}") => {}
            Kind::Keyword => return Err(not_supported(&word)),
            _ => return Err(error(word.line, format!("unexpected `{}`", shown(word.text, 20)))),
        }
        if !reader.peek().is_none_or(|word| word.kind == Kind::Newline) {
            return Err(reader.unexpected("the end of the line"));
        }
    }
    Ok(all)
}

fn not_supported(word: &Word<'_>) -> GrammarError {
    let name = word.text.split(|c: char| c.is_whitespace() || c == '{').next().unwrap_or_default();
    error(word.line, format!("`{}` cannot be written in a JSON string", shown(name, 20)))
}

impl Definitions {
    fn define(&mut self, is_rule: bool, name: &str, tree: Tree, line: usize) -> Result<(), GrammarError> {
        let all = if is_rule { &mut self.rules } else { &mut self.terminals };
        match all.insert(name.to_owned(), tree) {
            Some(_) => Err(error(line, format!("`{}` is defined twice", shown(name, 40)))),
            None => Ok(()),
        }
    }
}

struct Reader<'a> {
    words: Vec<Word<'a>>,
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<Word<'a>> {
        self.words.get(self.at).copied()
    }

    fn next(&mut self) -> Option<Word<'a>> {
        let word = self.peek()?;
        self.at += 1;
        Some(word)
    }

    fn take(&mut self, sign: &str) -> bool {
        let is_there = self.peek().is_some_and(|word| word.kind == Kind::Sign && word.text == sign);
        self.at += usize::from(is_there);
        is_there
    }

    fn expect(&mut self, sign: &str) -> Result<(), GrammarError> {
        if self.take(sign) { Ok(()) } else { Err(self.unexpected(&format!("`{sign}`"))) }
    }

    fn line(&self) -> usize {
        self.peek().or(self.words.last().copied()).map_or(1, |word| word.line)
    }

    fn unexpected(&self, expected: &str) -> GrammarError {
        let found = match self.peek() {
            None => "the end".to_owned(),
            Some(word) if word.kind == Kind::Newline => "the end of the line".to_owned(),
            Some(word) => format!("`{}`", shown(word.text, 20)),
        };
        error(self.line(), format!("found {found}, expected {expected}"))
    }

    fn choice(&mut self, depth: usize) -> Result<Tree, GrammarError> {
        if depth > MAX_DEPTH {
            return Err(error(self.line(), format!("more than {MAX_DEPTH} groups within groups")));
        }
        let mut options = vec![self.option(depth)?];
        loop {
            let start = self.at;
            while self.peek().is_some_and(|word| word.kind == Kind::Newline) {
                self.at += 1;
            }
            if !self.take("|") {
                self.at = start;
                break;
            }
            options.push(self.option(depth)?);
        }
        Ok(if options.len() == 1 { options.remove(0) } else { Tree::Choice(options) })
    }

    fn option(&mut self, depth: usize) -> Result<Tree, GrammarError> {
        let line = self.line();
        let mut parts = vec![self.sequence(depth)?];
        while self.take("&") {
            parts.push(self.sequence(depth)?);
        }
        // The name of an option says nothing about the text.
        if self.take("->") && self.next().is_none_or(|word| word.kind != Kind::Rule) {
            self.at -= 1;
            return Err(self.unexpected("a name"));
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Tree::Both { parts, line } })
    }

    fn sequence(&mut self, depth: usize) -> Result<Tree, GrammarError> {
        let mut parts = vec![];
        while let Some(word) = self.peek() {
            if word.kind == Kind::Newline || matches!(word.text, "|" | "->" | ")" | "]" | "}" | "&" | "%if") {
                break;
            }
            parts.push(self.repeated(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Tree::Sequence(parts) })
    }

    fn repeated(&mut self, depth: usize) -> Result<Tree, GrammarError> {
        let line = self.line();
        let of = self.atom(depth)?;
        let (min, max) = if self.take("?") {
            (0, Some(1))
        } else if self.take("*") {
            (0, None)
        } else if self.take("+") {
            (1, None)
        } else if self.take("~") {
            let min = self.number()?;
            (min, Some(if self.take("..") { self.number()? } else { min }))
        } else if self.take("{") {
            let min = if self.peek().is_some_and(|word| word.text == ",") { 0 } else { self.number()? };
            let max = match self.take(",") {
                false => Some(min),
                true if self.peek().is_some_and(|word| word.text == "}") => None,
                true => Some(self.number()?),
            };
            self.expect("}")?;
            (min, max)
        } else {
            return Ok(of);
        };
        if max.is_some_and(|max| max < min || max == 0) {
            return Err(error(line, "a repetition must be possible at least once"));
        }
        Ok(Tree::Repeat { of: Box::new(of), min, max, line })
    }

    fn number(&mut self) -> Result<usize, GrammarError> {
        let word = self.peek().filter(|word| word.kind == Kind::Number);
        let number = word.and_then(|word| word.text.parse::<u16>().ok());
        let number = number.ok_or_else(|| self.unexpected("a number below 65536"))?;
        self.at += 1;
        Ok(number.into())
    }

    fn atom(&mut self, depth: usize) -> Result<Tree, GrammarError> {
        let Some(word) = self.next() else { return Err(self.unexpected("a value")) };
        let line = word.line;
        match (word.kind, word.text) {
            (Kind::Text, text) if self.take("..") => {
                let end = self.next().filter(|word| word.kind == Kind::Text);
                let ends = end.map(|end| (string(text), string(end.text)));
                let (Some((start, false)), Some((end, false))) = ends.unwrap_or_default() else {
                    return Err(error(line, "a range goes from one string to another"));
                };
                let char_of = |text: &str| text.parse::<char>().ok();
                let ends = char_of(&start).zip(char_of(&end)).filter(|(start, end)| start <= end);
                let (start, end) = ends.ok_or_else(|| error(line, "a range goes from one character to a later one"))?;
                let range = ClassUnicode::new([ClassUnicodeRange::new(start, end)]);
                Ok(Tree::Regex(Hir::class(Class::Unicode(range))))
            }
            (Kind::Text, text) => {
                let (text, any_case) = string(text).ok_or_else(|| error(line, "no such string"))?;
                if any_case {
                    return Ok(Tree::Regex(regex(&regex_syntax::escape(&text), "i", line)?));
                }
                Ok(Tree::Text(text))
            }
            (Kind::Regex, text) => {
                let (expression, flags) = text[1..].rsplit_once('/').unwrap_or_default();
                Ok(Tree::Regex(regex(expression, flags, line)?))
            }
            (Kind::Rule | Kind::Terminal, name) => match self.peek().map_or("", |word| word.text) {
                "::" => Err(error(line, "a rule with a parameter cannot be written in a JSON string")),
                "{" if self
                    .words
                    .get(self.at + 1)
                    .is_some_and(|word| word.kind != Kind::Number && word.text != ",") =>
                {
                    Err(error(line, "a template cannot be written in a JSON string"))
                }
                _ => Ok(Tree::Name { name: name.to_owned(), line }),
            },
            (_, "(") => {
                let tree = self.choice(depth + 1)?;
                self.expect(")")?;
                Ok(tree)
            }
            (_, "[") => {
                let of = Box::new(self.choice(depth + 1)?);
                self.expect("]")?;
                Ok(Tree::Repeat { of, min: 0, max: Some(1), line })
            }
            (Kind::Keyword | Kind::Control | Kind::Grammar, _) | (_, "~") => Err(not_supported(&word)),
            _ => {
                self.at -= 1;
                Err(self.unexpected("a value"))
            }
        }
    }

    fn import(&mut self, all: &mut Definitions) -> Result<(), GrammarError> {
        let line = self.line();
        let mut name = || {
            let word = self.peek().filter(|word| matches!(word.kind, Kind::Rule | Kind::Terminal));
            self.at += usize::from(word.is_some());
            word.map(|word| word.text).ok_or_else(|| self.unexpected("a name"))
        };
        let library = name()?;
        let mut names = vec![];
        if self.take(".") {
            let name = |of: &mut Self| of.next().filter(|word| matches!(word.kind, Kind::Rule | Kind::Terminal));
            let from = name(self).ok_or_else(|| error(line, "there is no name to import"))?;
            let to = if self.take("->") { name(self) } else { Some(from) };
            names.push((from.text, to.ok_or_else(|| error(line, "there is no name after `->`"))?.text));
        } else {
            self.expect("(")?;
            while let Some(word) = self.next().filter(|word| word.text != ")") {
                names.push((word.text, word.text));
                if !self.take(",") {
                    self.expect(")")?;
                    break;
                }
            }
        }
        for (from, to) in names {
            let expression = common(from).filter(|_| library == "common").ok_or_else(|| {
                error(line, format!("there is no `{}` to import", shown(&format!("{library}.{from}"), 60)))
            })?;
            let is_terminal = to.trim_start_matches('_').starts_with(|c: char| c.is_ascii_uppercase());
            all.define(!is_terminal, to, Tree::Regex(regex(expression, "", line)?), line)?;
        }
        Ok(())
    }
}

/// A string without its quotes, and whether the case of its letters does not count.
fn string(text: &str) -> Option<(String, bool)> {
    let quoted = text.strip_suffix('i').unwrap_or(text);
    let mut json = String::new();
    let mut chars = quoted.chars();
    while let Some(c) = chars.next() {
        json.push(c);
        if c == '\\' {
            match chars.next()? {
                'x' => json.push_str("u00"),
                other => json.push(other),
            }
        }
    }
    Some((serde_json::from_str::<Value>(&json).ok()?.as_str()?.to_owned(), quoted.len() < text.len()))
}

/// An expression that matches as a whole, so that `^` at its beginning and `$` at its end say nothing.
fn regex(expression: &str, flags: &str, line: usize) -> Result<Hir, GrammarError> {
    let reason = |reason: &str| error(line, format!("regular expression `{}`: {reason}", shown(expression, 60)));
    let text = if flags.is_empty() { expression.to_owned() } else { format!("(?{flags}){expression}") };
    let hir = regex_syntax::parse(&text).map_err(|error| {
        let text = error.to_string();
        let last =
            text.lines().rfind(|line| line.starts_with("error: ")).map_or("it does not parse", |line| &line[7..]);
        reason(last)
    })?;
    let mut parts = match hir.kind() {
        HirKind::Concat(parts) => parts.clone(),
        _ => vec![hir],
    };
    if parts.first().is_some_and(|part| *part.kind() == HirKind::Look(Look::Start)) {
        parts.remove(0);
    }
    if parts.last().is_some_and(|part| *part.kind() == HirKind::Look(Look::End)) {
        parts.pop();
    }
    let hir = Hir::concat(parts);
    if !hir.properties().look_set().is_empty() {
        return Err(reason("look-around is supported only as `^` at its beginning and `$` at its end"));
    }
    Ok(hir)
}

/// The terminals of Lark's own library that `llguidance` has.
fn common(name: &str) -> Option<&'static str> {
    Some(match name {
        "DIGIT" => "[0-9]",
        "HEXDIGIT" => "[0-9A-Fa-f]",
        "INT" => "[0-9]+",
        "SIGNED_INT" => "[+-]?[0-9]+",
        "DECIMAL" => r"[0-9]+\.[0-9]*|\.[0-9]+",
        "_EXP" => "[eE][+-]?[0-9]+",
        "FLOAT" => r"(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+",
        "SIGNED_FLOAT" => r"[+-]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)",
        "NUMBER" => r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
        "SIGNED_NUMBER" => r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
        "ESCAPED_STRING" => r#""(?:[^"\\]|\\.)*""#,
        "LCASE_LETTER" => "[a-z]",
        "UCASE_LETTER" => "[A-Z]",
        "LETTER" => "[A-Za-z]",
        "WORD" => "[A-Za-z]+",
        "CNAME" => "[A-Za-z_][A-Za-z_0-9]*",
        "WS_INLINE" => r"[ \t]+",
        "WS" => r"[ \t\f\r\n]+",
        "CR" => r"\r",
        "LF" => r"\n",
        "NEWLINE" => r"(?:\r?\n)+",
        "SH_COMMENT" => r"#[^\n]*",
        "CPP_COMMENT" => r"//[^\n]*",
        "C_COMMENT" => r"/\*[^*]*\*+(?:[^/*][^*]*\*+)*/",
        "SQL_COMMENT" => r"--[^\n]*",
        _ => return None,
    })
}
