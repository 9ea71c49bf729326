//! Turning ids into text one at a time, without ever showing half a character.

use std::borrow::Borrow;

use crate::tokenizer::Tokenizer;

/// Text of a growing list of ids.
///
/// The pieces, joined, are exactly [`Tokenizer::decode`] of all ids. A piece holds whole characters only: bytes that may
/// still become a character wait for the next id; bytes that cannot become one are shown as U+FFFD, as a lossy conversion
/// of all bytes at once would show them. Control tokens are not shown. `T` is a tokenizer by reference or by `Arc`.
#[derive(Clone, Debug)]
pub struct Detokenizer<T> {
    tokenizer: T,
    /// The start of a character; at most 3 bytes between calls.
    pending: Vec<u8>,
    /// The model was taught text with a space put in front, so the first one is not part of the text.
    strip_space: bool,
}

impl<T: Borrow<Tokenizer>> Detokenizer<T> {
    /// Starts with no ids.
    pub fn new(tokenizer: T) -> Self {
        let strip_space = tokenizer.borrow().strips_space();
        Self { tokenizer, pending: Vec::new(), strip_space }
    }

    /// Adds an id and returns the text that is certain now; often empty. Ids outside the vocabulary add nothing.
    pub fn push(&mut self, id: u32) -> String {
        let tokenizer = self.tokenizer.borrow();
        if tokenizer.is_special(id) {
            return String::new();
        }
        let mut bytes = tokenizer.token_bytes(id);
        if self.strip_space && !bytes.is_empty() {
            self.strip_space = false;
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        self.pending.extend_from_slice(bytes);
        let mut text = String::new();
        let mut rest = self.pending.as_slice();
        while !rest.is_empty() {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    rest = after;
                    // Without a length the bytes are the start of a character that more bytes could complete.
                    let Some(invalid) = error.error_len() else { break };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[invalid..];
                }
            }
        }
        let done = self.pending.len() - rest.len();
        self.pending.drain(..done);
        text
    }

    /// The text of what is still waiting, as no more ids come; the detokenizer then starts anew.
    pub fn finish(&mut self) -> String {
        self.strip_space = self.tokenizer.borrow().strips_space();
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}
