//! The value of `arguments`, to one JSON object.

use crate::json::{Json, character, closes, escape};
use crate::look::{Cursor, Look, Miss, is_space};

/// Reads the value that a model wrote as arguments.
///
/// An object passes as [`Json`] repairs it. A string that holds an object is read in its place. `null` and an empty string
/// are no arguments. Anything else becomes the member `arguments` of an object: nothing is lost, and whoever checks the
/// arguments can say what is wrong.
#[derive(Clone, Debug)]
pub(crate) enum Arguments {
    Start,
    Object(Json),
    Wrapped(Json),
    /// In a string. `inner` is text of it that has not been read; `json` reads it once its first character is known.
    Encoded {
        quote: char,
        inner: String,
        json: Option<Json>,
    },
    /// In a string that holds no object.
    Text {
        quote: char,
    },
    Done,
}

impl Arguments {
    pub(crate) fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// Reads a little.
    pub(crate) fn step(&mut self, at: &mut Cursor<'_>, out: &mut String) -> Look<()> {
        match self {
            Self::Start => self.start(at, out)?,
            Self::Object(json) | Self::Wrapped(json) => {
                json.step(at, out)?;
                if json.is_done() {
                    self.close(out);
                }
            }
            Self::Encoded { quote, .. } | Self::Text { quote } => {
                if at.peek()? == Some(*quote) && closes(*at, false, &[])? {
                    at.take(1);
                    self.close(out);
                    return Ok(());
                }
                let c = character(at)?.c;
                match self {
                    Self::Encoded { inner, .. } => {
                        inner.push(c);
                        self.read_inner(false, out);
                    }
                    _ => escape(c.encode_utf8(&mut [0; 4]), out),
                }
            }
            Self::Done => {}
        }
        Ok(())
    }

    fn start(&mut self, at: &mut Cursor<'_>, out: &mut String) -> Look<()> {
        at.take_while(is_space);
        *self = match at.peek()? {
            Some('{') => Self::Object(Json::new()),
            Some(quote @ ('"' | '\'')) => {
                at.take(1);
                Self::Encoded { quote, inner: String::new(), json: None }
            }
            _ => match at.any(&["null", "None"]) {
                Err(Miss::Open) => return Err(Miss::Open),
                Ok(()) => Self::Done,
                Err(Miss::Other) => {
                    out.push_str("{\"arguments\":");
                    Self::Wrapped(Json::new())
                }
            },
        };
        Ok(())
    }

    /// Reads what has come of the text in the string.
    fn read_inner(&mut self, last: bool, out: &mut String) {
        let Self::Encoded { quote, inner, json } = self else { return };
        if json.is_none() {
            match inner.trim_start_matches(is_space).chars().next() {
                None => return inner.clear(),
                Some('{') => {}
                Some(_) => {
                    out.push_str("{\"arguments\":\"");
                    escape(inner, out);
                    *self = Self::Text { quote: *quote };
                    return;
                }
            }
        }
        let json = json.get_or_insert_with(Json::new);
        let mut at = Cursor { rest: inner, last };
        while !at.rest.is_empty() && !json.is_done() && json.step(&mut at, out).is_ok() {}
        let read = if json.is_done() { inner.len() } else { inner.len() - at.rest.len() };
        inner.drain(..read);
    }

    /// Ends the object, as no more of it comes.
    pub(crate) fn close(&mut self, out: &mut String) {
        self.read_inner(true, out);
        match self {
            Self::Object(json) | Self::Encoded { json: Some(json), .. } => json.close(out),
            Self::Wrapped(json) => {
                json.close(out);
                out.push('}');
            }
            Self::Text { .. } => out.push_str("\"}"),
            _ => {}
        }
        *self = Self::Done;
    }
}
