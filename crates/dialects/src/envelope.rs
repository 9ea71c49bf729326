//! A call that is one JSON object: `{"name": N, "arguments": {...}}`.

use crate::answer::{Body, Call, Flow, Opening};
use crate::arguments::Arguments;
use crate::json::{Json, character, closer};
use crate::look::{Cursor, Look, MAX_NAME, Miss, is, is_space};

/// Reads the object, from after its brace.
///
/// The call begins once the name is known; arguments that come before it wait. A member with another key is passed over.
/// Before the call has begun anything odd makes it no call, afterwards it is passed over.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    /// Nothing else says that this is a call: there must be arguments, or the name of a tool, and no foreign members.
    pub(crate) is_bare: bool,
    state: State,
    name: Option<String>,
    /// Arguments that have come before the name.
    early: String,
    has_arguments: bool,
}

#[derive(Clone, Debug)]
enum State {
    Key,
    Name,
    Arguments(Arguments),
    Other(Json),
}

impl Envelope {
    /// Reads the beginning of a call that is an object and that something may be around.
    pub(crate) fn open(at: &mut Cursor<'_>, is_bare: bool) -> Look<Opening> {
        at.literal("{")?;
        at.space()?;
        match at.peek()? {
            Some('"' | '\'') => Ok(Opening { name: None, body: Body::Envelope(Self::new(is_bare)), is_wrapped: true }),
            _ => Err(Miss::Other),
        }
    }

    fn new(is_bare: bool) -> Self {
        Self { is_bare, state: State::Key, name: None, early: String::new(), has_arguments: false }
    }

    pub(crate) fn step(&mut self, at: &mut Cursor<'_>, call: &mut Call<'_, '_>) -> Look<Flow> {
        match &mut self.state {
            State::Key => return self.key(at, call),
            State::Name => {
                at.take_while(is_space);
                match quoted(at) {
                    Err(Miss::Other) => return Ok(Flow::NoCall),
                    name => self.name = Some(name?),
                }
                self.state = State::Key;
                if !self.is_bare || self.has_arguments {
                    self.begin(call);
                }
            }
            State::Arguments(arguments) => {
                let waits = !call.has_begun();
                let out = if waits { &mut self.early } else { call.arguments() };
                let known = arguments.step(at, out);
                if arguments.is_done() {
                    self.state = State::Key;
                }
                known?;
            }
            State::Other(json) => {
                let known = json.step(at, &mut String::new());
                if json.is_done() {
                    self.state = State::Key;
                }
                known?;
            }
        }
        Ok(Flow::Going)
    }

    fn key(&mut self, at: &mut Cursor<'_>, call: &mut Call<'_, '_>) -> Look<Flow> {
        at.take_while(is_space);
        match at.peek()? {
            Some('}') => {
                at.take(1);
                return Ok(self.end(call));
            }
            Some(',') => {
                at.take(1);
                return Ok(Flow::Going);
            }
            Some('<') if is(closer(*at))? => return Ok(self.end(call)),
            _ => {}
        }
        let mut look = *at;
        let key = quoted(&mut look).and_then(|key| look.space().and_then(|()| look.literal(":")).map(|()| key));
        let key = match key {
            Err(Miss::Other) if call.has_begun() => {
                at.take(at.rest.chars().next().map_or(0, char::len_utf8));
                return Ok(Flow::Going);
            }
            Err(Miss::Other) => return Ok(Flow::NoCall),
            key => key?,
        };
        *at = look;
        self.state = match key.as_str() {
            "name" if self.name.is_none() => State::Name,
            "arguments" | "parameters" if !self.has_arguments => {
                self.has_arguments = true;
                if self.name.is_some() {
                    self.begin(call);
                }
                State::Arguments(Arguments::Start)
            }
            key if self.is_bare && !call.has_begun() && !matches!(key, "type" | "id") => return Ok(Flow::NoCall),
            _ => State::Other(Json::new()),
        };
        Ok(Flow::Going)
    }

    fn begin(&mut self, call: &mut Call<'_, '_>) {
        if let Some(name) = self.name.as_ref().filter(|_| !call.has_begun()) {
            call.begin(name);
            call.arguments().push_str(&std::mem::take(&mut self.early));
        }
    }

    /// The object has ended, or no more of it comes.
    pub(crate) fn end(&mut self, call: &mut Call<'_, '_>) -> Flow {
        let waits = !call.has_begun();
        if let State::Arguments(arguments) = &mut self.state {
            arguments.close(if waits { &mut self.early } else { call.arguments() });
        }
        match &self.name {
            Some(name) if !self.is_bare || self.has_arguments || call.tool(name).is_some() => self.begin(call),
            _ => return Flow::NoCall,
        }
        Flow::Ended
    }
}

/// A short string that is not empty.
fn quoted(at: &mut Cursor<'_>) -> Look<String> {
    let mut look = *at;
    let quote = match look.peek()? {
        Some(quote @ ('"' | '\'')) => quote,
        _ => return Err(Miss::Other),
    };
    look.take(1);
    let mut text = String::new();
    while look.peek()? != Some(quote) {
        if look.rest.is_empty() || text.len() > MAX_NAME {
            return Err(Miss::Other);
        }
        text.push(character(&mut look)?.c);
    }
    look.take(1);
    *at = look;
    if text.is_empty() { Err(Miss::Other) } else { Ok(text) }
}
