//! Grammars and how they are put together.

use std::fmt::Write;
use std::sync::Arc;

use llguidance::api::GrammarWithLexer;
use llguidance::regex_to_lark;
use serde_json::Value;

use crate::error::{GrammarError, first_line, shown};
use crate::object::{self, MAX_PROPERTIES, Members};
use crate::schema::Schema;
use crate::tagged::{self, Tags};
use crate::{lark_json, lark_text};

/// Which texts a reply may be. Knows no model yet: [`Vocabulary::compile`](crate::Vocabulary::compile) makes it ready.
#[derive(Clone, Debug)]
pub struct Grammar(Node);

#[derive(Clone, Debug)]
enum Node {
    Literal(String),
    Schema(Arc<Schema>),
    Regex(String),
    Lark(String),
    TextWithout(Vec<String>),
    TextUntil(String),
    /// One lexeme that ends as soon as it can, by an expression of Lark for terminals.
    Lazy(String),
    /// Members that come at most once, and whether they are required.
    OnceEach(Vec<(Grammar, bool)>),
    Concat(Vec<Grammar>),
    Choice(Vec<Grammar>),
    Repeat {
        of: Box<Grammar>,
        min: usize,
        max: Option<usize>,
    },
}

impl Grammar {
    /// A JSON value that a schema accepts, with at most 64 blanks, tabs and line breaks in a row between its parts.
    ///
    /// Required properties come in the schema's order. In the outermost object the others may stand anywhere among them, so
    /// that none is lost when the model names a later one first, if it has at most 60 properties and no keywords but
    /// `type`, `properties`, `required` and `additionalProperties`. In inner objects, and with other keywords, all
    /// properties come in the schema's order. Those that are not declared come after the required ones. Names are written
    /// as they are, and so are characters beyond ASCII: as themselves, not as escapes.
    ///
    /// # Errors
    /// If the schema has a keyword that is not in [`supported_keywords`](crate::supported_keywords), is not a valid schema,
    /// or is larger than the limits. Keywords that only describe, and unknown ones, are ignored.
    pub fn json_schema(schema: &Value) -> Result<Self, GrammarError> {
        Ok(Grammar(Node::Schema(Arc::new(Schema::new(schema)?))))
    }

    /// The properties of a JSON object, each written between tags: `before_name`, the name as it is, `after_name`, the value,
    /// `after_value`. One follows the other, with nothing before, between or after them but what the tags hold.
    ///
    /// A value that may be a string is one without quotes and escapes, up to the first occurrence of `after_value`; it is
    /// held to `enum`, `const`, `pattern`, `format` and its lengths. Any other value is JSON that its schema accepts. A string
    /// that is held to nothing may be any text, so whoever reads a value of which other types are allowed too has to tell
    /// whether it is one of them.
    ///
    /// Required properties come in the schema's order, the others anywhere among them and at most once; with more than 60,
    /// all come in the schema's order. Properties that are not declared are not written, unless none are: then there may be
    /// any number, with names of letters, digits, `_`, `.` and `-`, unless `additionalProperties` is `false`.
    ///
    /// # Errors
    /// As [`json_schema`](Self::json_schema) has; if the outermost schema has other keywords than `type`, `properties`,
    /// `required` and `additionalProperties`, or is not one of an object; if a name or a constant holds the tag that comes
    /// after it; and if a `pattern` for a text has `^` or `$` elsewhere than at its ends, or other look-around.
    pub fn tagged_object(schema: &Value, tags: &Tags) -> Result<Self, GrammarError> {
        tagged::object(schema, *tags)
    }

    /// Any JSON object.
    pub fn any_json_object() -> Self {
        Grammar(Node::Schema(Arc::new(Schema::any_object())))
    }

    /// A text that matches a regular expression as a whole. The syntax is that of the crate `regex`: no look-around and no
    /// back-references.
    ///
    /// # Errors
    /// If it does not parse.
    pub fn regex(expression: &str) -> Result<Self, GrammarError> {
        check_regex(expression).map_err(|reason| GrammarError::Regex { expression: shown(expression, 100), reason })?;
        Ok(match expression {
            "" => Grammar::literal(""),
            _ => Grammar(Node::Regex(expression.to_owned())),
        })
    }

    /// A text of a context-free grammar in Lark's syntax, with `start` as its first rule. What `llguidance` has no support
    /// for is an error when the grammar is compiled.
    ///
    /// # Errors
    /// If its words do not follow that syntax, it has more than 64 KiB, or it allows what is no text: if it names a control
    /// token or another grammar, or has a complement (`~`) that is not held to something else by `&` before it.
    pub fn lark(grammar: &str) -> Result<Self, GrammarError> {
        lark_text::check(grammar)?;
        Ok(Grammar(Node::Lark(grammar.to_owned())))
    }

    /// The inside of a JSON string, without its quotes, that stands for a text which [`lark`](Self::lark) accepts.
    ///
    /// Each character is written in one way: as itself, but quotes, backslashes and line breaks as a backslash and a letter.
    /// Control characters that have no such letter are not written. Text that fits a terminal and what is ignored may be either;
    /// [`lark`](Self::lark) skips it. What is ignored is not written after the last terminal.
    ///
    /// # Errors
    /// As [`lark`](Self::lark) has; if the grammar has anything beside rules, terminals, `%import common` and `%ignore`, as
    /// attributes, parameters, complements and `%json` are; if an expression does not parse or looks around; if a string
    /// has a control character that is not written; or if the outcome is larger than the limits.
    pub fn lark_in_json_string(grammar: &str) -> Result<Self, GrammarError> {
        Ok(Grammar(Node::Lark(lark_json::in_json_string(grammar)?)))
    }

    /// Exactly this text.
    pub fn literal(text: &str) -> Self {
        Grammar(Node::Literal(text.to_owned()))
    }

    /// Any text, the empty one included, in which none of `stops` occurs.
    pub fn text_without(stops: &[&str]) -> Self {
        let stops = stops.iter().filter(|stop| !stop.is_empty());
        Grammar(Node::TextWithout(stops.map(|&stop| stop.to_owned()).collect()))
    }

    /// Any text up to the first occurrence of `stop`, and this.
    pub fn text_until(stop: &str) -> Self {
        if stop.is_empty() { Grammar::literal("") } else { Grammar(Node::TextUntil(stop.to_owned())) }
    }

    /// One after the other.
    pub fn concat(parts: impl IntoIterator<Item = Grammar>) -> Self {
        Grammar(Node::Concat(parts.into_iter().collect()))
    }

    /// One of several; of none, no text at all, which does not compile.
    pub fn choice(options: impl IntoIterator<Item = Grammar>) -> Self {
        Grammar(Node::Choice(options.into_iter().collect()))
    }

    /// `min` to `max` times in a row, or without a limit.
    pub fn repeat(self, min: usize, max: Option<usize>) -> Self {
        Grammar(Node::Repeat { of: Box::new(self), min, max })
    }

    /// This or nothing.
    pub fn optional(self) -> Self {
        self.repeat(0, Some(1))
    }

    /// Free text with any number of calls in it: each trigger begins a call, and its body follows. The text before a trigger
    /// has none of the triggers in it, so the one that ends first counts; of two bodies with the same trigger, either may
    /// follow. After the last call may come text again. An empty trigger begins nothing.
    pub fn text_with_calls(calls: impl IntoIterator<Item = (String, Grammar)>) -> Self {
        let calls: Vec<(String, Grammar)> = calls.into_iter().filter(|(trigger, _)| !trigger.is_empty()).collect();
        let triggers: Vec<&str> = calls.iter().map(|(trigger, _)| trigger.as_str()).collect();
        let text = Grammar::text_without(&triggers);
        if calls.is_empty() {
            return text;
        }
        // All `text_until` are followed at once and the first to be complete ends the others, so none passes a trigger.
        let call = |(trigger, body): (String, Grammar)| Grammar::concat([Grammar::text_until(&trigger), body]);
        Grammar::concat([Grammar::choice(calls.into_iter().map(call)).repeat(0, None), text])
    }

    pub(crate) fn of_schema(schema: Schema) -> Self {
        Grammar(Node::Schema(Arc::new(schema)))
    }

    /// A text of an expression of Lark for terminals that ends as soon as it can.
    pub(crate) fn lazy(expression: String) -> Self {
        Grammar(Node::Lazy(expression))
    }

    /// Each at most once: those that are required in their order, others anywhere among them if there are not too many.
    pub(crate) fn once_each(members: Vec<(Grammar, bool)>) -> Self {
        Grammar(Node::OnceEach(members))
    }

    /// As grammars of `llguidance`, the first of which is the whole.
    pub(crate) fn render(&self) -> Result<Vec<GrammarWithLexer>, GrammarError> {
        let mut lark = Lark { rules: String::new(), parts: vec![] };
        let start = lark.expression(self)?;
        let mut all = vec![GrammarWithLexer::from_lark(format!("start: {start}\n{}", lark.rules))];
        all.append(&mut lark.parts);
        Ok(all)
    }
}

/// Fails, with the reason, if an expression does not parse.
pub(crate) fn check_regex(expression: &str) -> Result<(), String> {
    let parse = || llguidance::derivre::RegexBuilder::new().mk_regex(expression).map(drop);
    // The reason is on the last line, below a picture of the place.
    llguidance::panic_utils::catch_unwind(parse).map_err(|error| {
        let text = error.to_string();
        let last = text.lines().rfind(|line| line.starts_with("error: ")).map(|line| &line["error: ".len()..]);
        last.map_or_else(|| first_line(&text), str::to_owned)
    })
}

/// A grammar in Lark's syntax as it grows.
struct Lark {
    /// All rules but the first.
    rules: String,
    /// Grammars that the rules refer to.
    parts: Vec<GrammarWithLexer>,
}

impl Lark {
    /// An expression for a rule.
    fn expression(&mut self, grammar: &Grammar) -> Result<String, GrammarError> {
        Ok(match &grammar.0 {
            Node::Literal(text) => quoted(text),
            Node::Schema(schema) => self.schema(schema),
            Node::Regex(expression) => self.part(Part::Lark(format!("start: /{}/", regex_to_lark(expression, "")))),
            Node::Lark(text) => self.part(Part::Lark(text.clone())),
            Node::TextWithout(stops) if stops.is_empty() => "/(?s:.*)/".to_owned(),
            Node::TextWithout(stops) => {
                let name = self.name("TEXT");
                let stops: Vec<String> = stops.iter().map(|stop| quoted(stop)).collect();
                self.rule(&name, &format!("/(?s:.*)/ & ~( /(?s:.*)/ ( {} ) /(?s:.*)/ )", stops.join(" | ")));
                name
            }
            Node::TextUntil(stop) => {
                let name = self.name("until");
                self.rule(&format!("{name}[suffix={}]", quoted(stop)), "/(?s:.*)/");
                name
            }
            Node::Lazy(expression) => {
                let name = self.name("lazy");
                self.rule(&format!("{name}[lazy]"), expression);
                name
            }
            Node::OnceEach(members) => self.once_each(members)?,
            Node::Concat(parts) => format!("( {} )", self.expressions(parts)?.join(" ")),
            Node::Choice(options) if options.is_empty() => {
                return Err(GrammarError::Grammar { reason: "a choice between no options".into() });
            }
            Node::Choice(options) => format!("( {} )", self.expressions(options)?.join(" | ")),
            Node::Repeat { of, min, max } => {
                let of = self.expression(of)?;
                match max {
                    None if *min == 0 => format!("( {of} )*"),
                    Some(max) => format!("( {of} ){{{min},{max}}}"),
                    None => format!("( {of} ){{{min},}}"),
                }
            }
        })
    }

    fn expressions(&mut self, parts: &[Grammar]) -> Result<Vec<String>, GrammarError> {
        if parts.is_empty() {
            return Ok(vec![quoted("")]);
        }
        parts.iter().map(|part| self.expression(part)).collect()
    }

    fn once_each(&mut self, members: &[(Grammar, bool)]) -> Result<String, GrammarError> {
        let pairs = members.iter().map(|(member, is_required)| Ok((self.expression(member)?, *is_required)));
        let pairs: Vec<(String, bool)> = pairs.collect::<Result<_, GrammarError>>()?;
        if pairs.len() > MAX_PROPERTIES || pairs.iter().all(|pair| pair.1) {
            let parts =
                pairs.iter().map(|(pair, is_required)| format!("( {pair} ){}", if *is_required { "" } else { "?" }));
            return Ok(format!("( \"\" {} )", parts.collect::<Vec<_>>().join(" ")));
        }
        let name = self.name("members");
        let after = format!("{name}_rest");
        let Members { mut first, mut rest, complete } = object::members(&pairs, "", "", &after);
        if complete.is_empty() {
            first.push(quoted(""));
        }
        rest.push(format!("\"\"{complete}"));
        self.rule(&name, &first.join("\n  | "));
        self.rule(&format!("{after}::_"), &rest.join("\n  | "));
        Ok(name)
    }

    fn schema(&mut self, schema: &Schema) -> String {
        match object::any_order(schema, &mut |value| self.part(Part::Schema(value))) {
            Some(lark) => self.part(Part::Lark(lark)),
            None => self.part(Part::Schema(schema.root())),
        }
    }

    /// Adds a grammar of its own, and returns how rules refer to it.
    fn part(&mut self, part: Part) -> String {
        let mut part = match part {
            Part::Lark(text) => GrammarWithLexer::from_lark(text),
            Part::Schema(value) => GrammarWithLexer::from_json_schema(value),
        };
        let name = format!("part{}", self.parts.len());
        part.name = Some(name.clone());
        self.parts.push(part);
        format!("@{name}")
    }

    fn name(&self, kind: &str) -> String {
        format!("{kind}_{}", self.rules.len())
    }

    fn rule(&mut self, name: &str, body: &str) {
        writeln!(self.rules, "{name}: {body}").expect("a string grows");
    }
}

enum Part {
    Lark(String),
    Schema(Value),
}

/// A text as a string of Lark, which is one of JSON. What follows must not be a letter: that would be a flag.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}
