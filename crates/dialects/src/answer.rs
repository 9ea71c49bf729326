//! The answer, after reasoning: content and calls.

use std::sync::Arc;

use crate::arguments::Arguments;
use crate::draft::Draft;
use crate::envelope::Envelope;
use crate::event::Events;
use crate::look::{Cursor, Look, Miss, is, is_space};
use crate::parameters::Parameters;
use crate::quotes::Quotes;
use crate::{Dialect, End, Event, Tool};

/// Reads an answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    dialect: Dialect,
    tools: Arc<[Tool]>,
    /// Text that has come and not been read.
    held: String,
    place: Place,
    /// A call was opened by what may be around it, whose closer has not come.
    is_wrapped: bool,
    call: Option<(Body, Progress)>,
    quotes: Quotes,
    calls: usize,
    /// Reads what stands in an open fence, for calls.
    draft: Option<Box<Draft>>,
    work: usize,
}

/// Where a call may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nothing but white space has come.
    Start,
    /// After a call, or its closer, with nothing but white space between.
    AfterCall,
    /// After a call, where the closer of what is around it has not come.
    InWrapper,
    Text,
}

/// A call that has been found.
#[derive(Debug)]
pub(crate) struct Opening {
    /// Known if the call begins at once.
    pub(crate) name: Option<String>,
    pub(crate) body: Body,
    pub(crate) is_wrapped: bool,
}

/// How the rest of a call is read.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Envelope(Envelope),
    Parameters(Parameters),
    Arguments(Arguments),
}

/// What a step in a call led to.
pub(crate) enum Flow {
    Going,
    Ended,
    /// It was none: its text is content.
    NoCall,
}

#[derive(Clone, Debug, Default)]
struct Progress {
    has_begun: bool,
    /// Arguments not sent yet, and whether any have been sent.
    json: String,
    has_sent: bool,
    /// The text of the call, until it has begun.
    raw: String,
}

/// A call that is being read.
pub(crate) struct Call<'a, 'e> {
    tools: &'a [Tool],
    index: usize,
    progress: &'a mut Progress,
    events: &'a mut Events<'e>,
}

impl Call<'_, '_> {
    pub(crate) fn begin(&mut self, name: &str) {
        self.progress.has_begun = true;
        self.events.push(Event::CallBegins { index: self.index, name: name.into() });
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.progress.has_begun
    }

    /// Where to put JSON of the arguments.
    pub(crate) fn arguments(&mut self) -> &mut String {
        &mut self.progress.json
    }

    pub(crate) fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    fn send(&mut self) {
        if !self.progress.json.is_empty() {
            self.progress.has_sent = true;
            let json = std::mem::take(&mut self.progress.json);
            self.events.push(Event::CallArguments { index: self.index, json });
        }
    }
}

impl Body {
    fn step(&mut self, at: &mut Cursor<'_>, call: &mut Call<'_, '_>) -> Look<Flow> {
        match self {
            Self::Envelope(envelope) => envelope.step(at, call),
            Self::Parameters(parameters) => parameters.step(at, call),
            Self::Arguments(arguments) if arguments.is_done() => {
                at.take_while(is_space);
                is(at.literal("</function>")).map(|_| Flow::Ended)
            }
            Self::Arguments(arguments) => arguments.step(at, call.arguments()).map(|()| Flow::Going),
        }
    }

    fn end(&mut self, call: &mut Call<'_, '_>) -> Flow {
        match self {
            Self::Envelope(envelope) => return envelope.end(call),
            Self::Parameters(parameters) => parameters.end(call),
            Self::Arguments(arguments) => arguments.close(call.arguments()),
        }
        Flow::Ended
    }
}

impl Answer {
    pub(crate) fn new(dialect: Dialect, tools: Arc<[Tool]>) -> Self {
        Self {
            dialect,
            tools,
            held: String::new(),
            place: Place::Start,
            is_wrapped: false,
            call: None,
            quotes: Quotes::new(),
            calls: 0,
            draft: None,
            work: 0,
        }
    }

    /// Steps taken so far, and bytes held back after each piece, which are looked at again.
    #[cfg(test)]
    pub(crate) fn work(&self) -> usize {
        self.work + self.draft.as_ref().map_or(0, |draft| draft.work())
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn push(&mut self, text: &str, events: &mut Events<'_>) {
        if self.tools.is_empty() {
            return events.content(text);
        }
        self.held.push_str(text);
        self.run(false, events);
    }

    pub(crate) fn finish(&mut self, end: End, events: &mut Events<'_>) {
        match &self.call {
            None if self.is_wrapped && self.dialect.closer().starts_with(&self.held) => self.held.clear(), // a part of it
            Some((_, progress)) if end == End::Length => {
                if progress.has_begun {
                    return;
                }
                events.content(&progress.raw);
            }
            _ => {}
        }
        match end {
            End::Length => events.content(&std::mem::take(&mut self.held)),
            End::Stop => {
                self.run(true, events);
                self.in_call(events, |body, call| Ok(body.end(call))).ok();
                if let Some(draft) = self.draft.take() {
                    draft.deliver(self.calls, events);
                }
            }
        }
    }

    fn run(&mut self, last: bool, events: &mut Events<'_>) {
        let held = std::mem::take(&mut self.held);
        let mut at = Cursor { rest: &held, last };
        while !at.rest.is_empty() && self.step(&mut at, events).is_ok() {
            self.work += 1;
        }
        self.work += at.rest.len();
        self.held = at.rest.into();
        self.in_call(events, |_, call| {
            call.send();
            Ok(Flow::Going)
        })
        .ok();
    }

    fn step(&mut self, at: &mut Cursor<'_>, events: &mut Events<'_>) -> Look<()> {
        if self.call.is_none() {
            return self.text(at, events);
        }
        let before = at.rest;
        self.in_call(events, |body, call| {
            let known = body.step(at, call);
            if !call.progress.has_begun {
                call.progress.raw.push_str(&before[..before.len() - at.rest.len()]);
            }
            known
        })
    }

    fn text(&mut self, at: &mut Cursor<'_>, events: &mut Events<'_>) -> Look<()> {
        let place = self.place;
        let mut look = *at;
        match place {
            Place::Start => match look.space() {
                Err(Miss::Other) => look = *at,
                known => known?,
            },
            Place::AfterCall | Place::InWrapper => {
                at.take_while(is_space);
                if at.peek()?.is_none() {
                    return Ok(());
                }
                look = *at;
            }
            Place::Text => {
                let was_in_fence = self.quotes.in_fence();
                let prose = at.take(self.quotes.pass(at.rest));
                if was_in_fence {
                    let new = || Box::new(Draft::new(Self::new(self.dialect, self.tools.clone())));
                    self.draft.get_or_insert_with(new).push(prose);
                }
                if !self.quotes.in_fence() {
                    self.draft = None;
                }
                if !prose.is_empty() {
                    events.content(prose);
                    return Ok(());
                }
            }
        }
        // The closer of what is around a call is no text, even if text has come between.
        if self.is_wrapped {
            if is(at.literal(self.dialect.closer()))? {
                (self.place, self.is_wrapped) = (Place::AfterCall, false);
                return Ok(());
            }
            if place == Place::InWrapper && is(at.any(self.dialect.strays()))? {
                return Ok(());
            }
        }
        match self.dialect.open(&mut look, place) {
            Ok(Opening { name, body, is_wrapped }) => {
                self.is_wrapped = is_wrapped || place == Place::InWrapper;
                let raw = at.rest[..at.rest.len() - look.rest.len()].to_string();
                *at = look;
                self.call = Some((body, Progress { raw, ..Progress::default() }));
                self.in_call(events, |_, call| {
                    if let Some(name) = name {
                        call.begin(&name);
                    }
                    Ok(Flow::Going)
                })
            }
            Err(Miss::Open) => Err(Miss::Open),
            Err(Miss::Other) => {
                if place == Place::Text {
                    self.quotes.read('<');
                    events.content(at.take(1));
                }
                self.place = Place::Text;
                Ok(())
            }
        }
    }

    /// Does something with the call that is being read, and leaves it if it has ended.
    fn in_call(
        &mut self,
        events: &mut Events<'_>,
        step: impl FnOnce(&mut Body, &mut Call<'_, '_>) -> Look<Flow>,
    ) -> Look<()> {
        let Some((body, progress)) = &mut self.call else { return Ok(()) };
        let mut call = Call { tools: &self.tools, index: self.calls, progress, events };
        match step(body, &mut call)? {
            Flow::Going => return Ok(()),
            Flow::Ended => {
                if !call.progress.has_sent && call.progress.json.is_empty() {
                    call.arguments().push_str("{}");
                }
                call.send();
                events.push(Event::CallEnds { index: self.calls });
                self.calls += 1;
                self.place = if self.is_wrapped { Place::InWrapper } else { Place::AfterCall };
            }
            Flow::NoCall => {
                progress.raw.chars().for_each(|c| self.quotes.read(c));
                events.content(&progress.raw);
                (self.place, self.is_wrapped) = (Place::Text, false);
            }
        }
        self.call = None;
        Ok(())
    }
}
