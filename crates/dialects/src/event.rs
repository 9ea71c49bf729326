//! What comes out of a reader.

/// A piece of an answer. Pieces of one kind that follow one another belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Text that the model thought.
    Reasoning(String),
    /// Text of the answer.
    Content(String),
    /// A tool call begins.
    CallBegins {
        /// Counts the calls of an answer, from 0.
        index: usize,
        /// The tool, which may be one that was not declared.
        name: String,
    },
    /// More of a call's arguments. Joined they are one JSON object when the call ends.
    CallArguments {
        /// Of the call.
        index: usize,
        /// Some characters of the object.
        json: String,
    },
    /// A call is whole. Never sent for a call cut by the limit.
    CallEnds {
        /// Of the call.
        index: usize,
    },
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model ended its turn. A call that is not closed is repaired.
    Stop,
    /// The limit on tokens was reached. A call that is not closed stays so.
    Length,
}

/// Where events go. Text that follows text of the same push joins it.
pub(crate) struct Events<'e> {
    list: &'e mut Vec<Event>,
    from: usize,
}

impl<'e> Events<'e> {
    pub(crate) fn new(list: &'e mut Vec<Event>) -> Self {
        Self { from: list.len(), list }
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.list.push(event);
    }

    pub(crate) fn content(&mut self, text: &str) {
        match self.list[self.from..].last_mut() {
            _ if text.is_empty() => {}
            Some(Event::Content(before)) => before.push_str(text),
            _ => self.push(Event::Content(text.into())),
        }
    }

    pub(crate) fn reasoning(&mut self, text: &str) {
        match self.list[self.from..].last_mut() {
            _ if text.is_empty() => {}
            Some(Event::Reasoning(before)) => before.push_str(text),
            _ => self.push(Event::Reasoning(text.into())),
        }
    }
}
