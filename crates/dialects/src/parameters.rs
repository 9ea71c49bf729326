//! A call whose parameters stand between tags.

use crate::answer::{Call, Flow, Opening};
use crate::json::escape;
use crate::look::{Cursor, Look, Miss, is, is_space, or};
use crate::schema::Types;

/// How a dialect writes parameters.
#[derive(Debug)]
pub(crate) struct Tags {
    /// Reads the beginning of a call.
    pub(crate) call: fn(&mut Cursor<'_>) -> Look<Opening>,
    /// Reads what stands before a value; gives the key.
    pub(crate) key: for<'a> fn(&mut Cursor<'a>) -> Look<&'a str>,
    /// After the value.
    pub(crate) closer: &'static str,
    /// After the last parameter.
    pub(crate) end: &'static str,
    /// Templates write a newline on each side of a value.
    pub(crate) has_newlines: bool,
}

/// Reads the parameters, from before the first.
///
/// A value may hold the format's own tags. Which of them counts is decided by what follows it, see [`Tags::closes`].
#[derive(Clone, Debug)]
pub(crate) struct Parameters {
    tags: &'static Tags,
    tool: String,
    value: Option<Value>,
    /// Keys so far.
    given: Vec<String>,
}

#[derive(Clone, Debug)]
struct Value {
    types: Types,
    kind: Kind,
    /// Nothing of it has been read.
    is_new: bool,
    /// Parameters that were opened in the value and not closed.
    depth: usize,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Text, put out as it comes.
    Text,
    /// Text or JSON, which only the whole tells, if not the first character that is no white space.
    Raw { text: String, is_blank: bool },
}

impl Tags {
    /// The end of the parameters, of all that may be around them, and of the answer unless another call follows.
    fn ends_all(&self, mut at: Cursor<'_>) -> Look<()> {
        at.any(&[self.end, "</tool_call>"])?;
        at.space()?;
        if is(at.literal("</tool_call>"))? {
            at.space()?;
        }
        match at.peek()? {
            None => Ok(()),
            Some(_) => (self.call)(&mut at).map(|_| ()),
        }
    }

    /// Whether the closer here ends a value, with `depth` parameters opened in it. It does if the next parameter or the
    /// end of the call follows. If the value has parameters open in it, the closer is theirs, unless the next parameter
    /// is one that is expected, or all that is open is closed here and nothing but a call follows.
    fn closes(&self, mut at: Cursor<'_>, depth: usize, is_expected: impl Fn(&str) -> bool) -> Look<()> {
        at.literal(self.closer)?;
        at.space()?;
        if at.peek()?.is_none() {
            return Ok(());
        }
        match (self.key)(&mut at.clone()) {
            Err(Miss::Open) => Err(Miss::Open),
            Ok(key) if depth == 0 || is_expected(key) => Ok(()),
            _ if depth == 0 => at.any(&[self.end, "</tool_call>"]),
            _ => self.ends_all(at),
        }
    }
}

impl Parameters {
    pub(crate) fn new(tags: &'static Tags, tool: &str) -> Self {
        Self { tags, tool: tool.into(), value: None, given: vec![] }
    }

    pub(crate) fn step(&mut self, at: &mut Cursor<'_>, call: &mut Call<'_, '_>) -> Look<Flow> {
        let Some(value) = &mut self.value else { return self.between(at, call) };
        if std::mem::take(&mut value.is_new) && self.tags.has_newlines && at.rest.starts_with('\n') {
            at.take(1);
            return Ok(Flow::Going);
        }
        let text = at.take_while(|c| c != '<' && !(c == '\n' && self.tags.has_newlines));
        if !text.is_empty() {
            value.push(text, call.arguments());
            return Ok(Flow::Going);
        }
        let mut look = *at;
        if self.tags.has_newlines && look.rest.starts_with('\n') {
            look.take(1);
        }
        if look.peek()? == Some('<') {
            let tool = call.tool(&self.tool);
            let is_declared = |key: &str| tool.is_some_and(|tool| Types::of_parameter(tool, key).is_some());
            let is_expected = |key: &str| is_declared(key) && !self.given.iter().any(|given| given == key);
            let closes = self.tags.closes(look, value.depth, is_expected);
            // The value's own closer is missing where all that is open ends.
            let ends = or(closes.map(|()| self.tags.closer.len()), || self.tags.ends_all(look).map(|()| 0));
            match ends {
                Err(Miss::Open) => return Err(Miss::Open),
                Err(Miss::Other) => {}
                Ok(closer) => {
                    look.take(closer);
                    *at = look;
                    value.end(call.arguments());
                    self.value = None;
                    return Ok(Flow::Going);
                }
            }
        }
        if at.rest.starts_with('<') {
            let mut tag = *at;
            if is(tag.literal(self.tags.closer))? {
                value.depth = value.depth.saturating_sub(1);
            } else {
                value.depth += usize::from(is((self.tags.key)(&mut tag))?);
            }
        }
        value.push(at.take(1), call.arguments());
        Ok(Flow::Going)
    }

    fn between(&mut self, at: &mut Cursor<'_>, call: &mut Call<'_, '_>) -> Look<Flow> {
        at.take_while(is_space);
        if at.peek()?.is_none() {
            return Ok(Flow::Going);
        }
        let mut look = *at;
        match (self.tags.key)(&mut look) {
            Ok(key) => {
                let types = call.tool(&self.tool).and_then(|tool| Types::of_parameter(tool, key));
                let types = types.unwrap_or(Types::STRING);
                let out = call.arguments();
                out.push_str(if self.given.is_empty() { "{\"" } else { ",\"" });
                escape(key, out);
                out.push_str("\":");
                let kind =
                    if types == Types::STRING { Kind::Text } else { Kind::Raw { text: String::new(), is_blank: true } };
                if matches!(kind, Kind::Text) {
                    out.push('"');
                }
                self.value = Some(Value { types, kind, is_new: true, depth: 0 });
                self.given.push(key.into());
                *at = look;
                Ok(Flow::Going)
            }
            Err(Miss::Open) => Err(Miss::Open),
            Err(Miss::Other) => {
                is(at.literal(self.tags.end))?;
                self.end(call);
                Ok(Flow::Ended)
            }
        }
    }

    /// The call has ended, or no more of it comes.
    pub(crate) fn end(&mut self, call: &mut Call<'_, '_>) {
        let out = call.arguments();
        if let Some(mut value) = self.value.take() {
            value.end(out);
        }
        out.push_str(if self.given.is_empty() { "{}" } else { "}" });
    }
}

impl Value {
    fn push(&mut self, text: &str, out: &mut String) {
        let Kind::Raw { text: raw, is_blank } = &mut self.kind else { return escape(text, out) };
        raw.push_str(text);
        if *is_blank && let Some(first) = text.trim_start_matches(is_space).chars().next() {
            *is_blank = false;
            if self.types.is_text(first) {
                out.push('"');
                escape(raw, out);
                self.kind = Kind::Text;
            }
        }
    }

    fn end(&mut self, out: &mut String) {
        match &self.kind {
            Kind::Text => out.push('"'),
            Kind::Raw { text: raw, .. } => match self.types.json(raw) {
                Some(json) => out.push_str(json),
                None => {
                    out.push('"');
                    escape(raw, out);
                    out.push('"');
                }
            },
        }
    }
}
