//! Which tokens a sequence has, counted as the penalties need them.

use std::collections::{HashMap, hash_map::Entry};

/// The tokens before the one that is sampled. Adding one costs a hash look-up; the order is not kept.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Distinct tokens in order of first occurrence: a draw walks them all, so they lie side by side.
    seen: Vec<Seen>,
    /// Where in `seen` a token is.
    places: HashMap<u32, usize>,
}

/// A token of the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) token: u32,
    /// Occurrences in the reply; 0 if only the prompt has it.
    pub(super) in_reply: u32,
}

impl History {
    /// An empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds tokens of the prompt: the repetition penalty sees them, the presence and frequency penalties do not.
    pub fn extend_prompt(&mut self, tokens: &[u32]) {
        for &token in tokens {
            self.place(token);
        }
    }

    /// Adds tokens of the reply.
    pub fn extend_reply(&mut self, tokens: &[u32]) {
        for &token in tokens {
            let place = self.place(token);
            self.seen[place].in_reply = self.seen[place].in_reply.saturating_add(1);
        }
    }

    /// All distinct tokens.
    pub(super) fn seen(&self) -> &[Seen] {
        &self.seen
    }

    fn place(&mut self, token: u32) -> usize {
        match self.places.entry(token) {
            Entry::Occupied(place) => *place.get(),
            Entry::Vacant(vacant) => {
                self.seen.push(Seen { token, in_reply: 0 });
                *vacant.insert(self.seen.len() - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_and_reply_are_counted_apart() {
        let mut history = History::new();
        history.extend_prompt(&[5, 3, 5]);
        history.extend_reply(&[3, 9, 9]);
        history.extend_prompt(&[9]);
        let seen = |token, in_reply| Seen { token, in_reply };
        assert_eq!(history.seen(), [seen(5, 0), seen(3, 1), seen(9, 2)]);
    }
}
