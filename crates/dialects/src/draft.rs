//! Calls that count only if nothing follows them.

use crate::answer::Answer;
use crate::event::Events;
use crate::{End, Event};

/// Text that was put out already, read as an answer of its own. If it turns out that all of the answer ends with it, the
/// calls that it ends in are meant.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    answer: Answer,
    /// Of the calls that nothing but white space has followed.
    events: Vec<Event>,
}

impl Draft {
    pub(crate) fn new(answer: Answer) -> Self {
        Self { answer, events: vec![] }
    }

    #[cfg(test)]
    pub(crate) fn work(&self) -> usize {
        self.answer.work()
    }

    pub(crate) fn push(&mut self, text: &str) {
        let before = self.events.len();
        self.answer.push(text, &mut Events::new(&mut self.events));
        self.drop_followed(before);
    }

    /// Drops calls that are followed by text, which is among the events from there on.
    fn drop_followed(&mut self, from: usize) {
        if let Some(text) = self.events[from..].iter().rposition(|event| matches!(event, Event::Content(_))) {
            self.events.drain(..=from + text);
        }
    }

    /// Puts out the calls, counted from `next`, if the last is whole.
    pub(crate) fn deliver(mut self, next: usize, events: &mut Events<'_>) {
        let before = self.events.len();
        self.answer.finish(End::Length, &mut Events::new(&mut self.events));
        self.drop_followed(before);
        let (Some(Event::CallBegins { index: first, .. }), Some(Event::CallEnds { .. })) =
            (self.events.first().cloned(), self.events.last())
        else {
            return;
        };
        for mut event in self.events {
            if let Event::CallBegins { index, .. } | Event::CallArguments { index, .. } | Event::CallEnds { index } =
                &mut event
            {
                *index = *index - first + next;
            }
            events.push(event);
        }
    }
}
