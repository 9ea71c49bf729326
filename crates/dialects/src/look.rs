//! Looking ahead in text that is still coming.
//!
//! A look answers "yes", "no" or "the text so far leaves it open", and what it answers depends on the text alone, not on
//! how it was cut. That is why borders between pieces mean nothing. Every look has a bound, so little is held back.

/// What stands at the cursor, or why that cannot be said.
pub(crate) type Look<T> = Result<T, Miss>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    /// Something else stands here.
    Other,
    /// More text must come first.
    Open,
}

/// White space, and a name, that a look passes over. Longer ones are not markup.
pub(crate) const MAX_SPACE: usize = 64;
pub(crate) const MAX_NAME: usize = 128;

/// Text that has not been read yet. A copy looks ahead and leaves the original where it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    pub(crate) rest: &'a str,
    /// No more text comes after `rest`.
    pub(crate) last: bool,
}

pub(crate) fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\n' | '\r' | '\t')
}

impl<'a> Cursor<'a> {
    /// Passes over text known to stand here.
    pub(crate) fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    /// Passes over characters as long as they are such.
    pub(crate) fn take_while(&mut self, such: impl Fn(char) -> bool) -> &'a str {
        self.take(self.rest.find(|c| !such(c)).unwrap_or(self.rest.len()))
    }

    /// The next character; `None` after the last.
    pub(crate) fn peek(&self) -> Look<Option<char>> {
        match self.rest.chars().next() {
            None if !self.last => Err(Miss::Open),
            next => Ok(next),
        }
    }

    pub(crate) fn literal(&mut self, expected: &str) -> Look<()> {
        match self.rest.strip_prefix(expected) {
            Some(rest) => self.rest = rest,
            None if !self.last && expected.starts_with(self.rest) => return Err(Miss::Open),
            None => return Err(Miss::Other),
        }
        Ok(())
    }

    /// The first of some texts, none of which begins another.
    pub(crate) fn any(&mut self, expected: &[&str]) -> Look<()> {
        for text in expected {
            match self.literal(text) {
                Err(Miss::Other) => {}
                known => return known,
            }
        }
        Err(Miss::Other)
    }

    /// White space, maybe none.
    pub(crate) fn space(&mut self) -> Look<()> {
        let space = self.take_while(is_space).len();
        match () {
            () if space > MAX_SPACE => Err(Miss::Other),
            () if self.rest.is_empty() && !self.last => Err(Miss::Open),
            () => Ok(()),
        }
    }

    /// One or more characters up to one of `ends`, within a line.
    pub(crate) fn name(&mut self, ends: &[char]) -> Look<&'a str> {
        let mut chars = self.rest.char_indices();
        let end = chars.find(|(index, c)| *index > MAX_NAME || ends.contains(c) || *c == '\n');
        let name = self.take(end.map_or(self.rest.len(), |(index, _)| index));
        match self.rest.chars().next() {
            _ if name.len() > MAX_NAME => Err(Miss::Other),
            None if !self.last => Err(Miss::Open),
            _ if name.trim().is_empty() => Err(Miss::Other),
            _ => Ok(name.trim()),
        }
    }
}

/// The second look, if something else stands at the first.
pub(crate) fn or<T>(first: Look<T>, second: impl FnOnce() -> Look<T>) -> Look<T> {
    match first {
        Err(Miss::Other) => second(),
        known => known,
    }
}

/// Whether it stands there.
pub(crate) fn is<T>(look: Look<T>) -> Look<bool> {
    or(look.map(|_| true), || Ok(false))
}
