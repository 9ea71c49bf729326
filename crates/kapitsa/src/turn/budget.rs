//! A limit to thinking.

use std::sync::Arc;

use kapitsa_text::{Specials, TextError, Tokenizer};

use super::grammar::Start;

const OPENS: &[u8] = b"<think>";
const CLOSES: &[u8] = b"</think>";

/// What ends thinking that has used up its budget, as models end it themselves.
const CLOSING: &str = "\n</think>\n\n";

/// Counts the tokens of thinking, and ends it when there are too many.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    tokenizer: Arc<Tokenizer>,
    /// Tokens that may still be thought.
    left: usize,
    closing: Arc<[u32]>,
    state: State,
    /// The end of the text so far, in which a mark may have begun.
    tail: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but white space has come.
    Before,
    Thinking,
    /// So many tokens of the closing have come.
    Closing(usize),
    After,
}

impl Budget {
    pub(crate) fn new(tokenizer: &Arc<Tokenizer>, tokens: usize, start: Start) -> Result<Self, TextError> {
        // Any answer may begin with thinking, whatever the template says of it.
        let state = if start == Start::Thinks { State::Thinking } else { State::Before };
        let closing = tokenizer.encode(CLOSING, Specials::Parse)?.into();
        Ok(Budget { tokenizer: tokenizer.clone(), left: tokens, closing, state, tail: vec![] })
    }

    /// The only token that may come next, if thinking has to end.
    pub(crate) fn forced(&self) -> Option<u32> {
        match self.state {
            // Not within a character.
            State::Thinking if self.left == 0 && std::str::from_utf8(&self.tail).is_ok() => {
                self.closing.first().copied()
            }
            State::Closing(count) => self.closing.get(count).copied(),
            _ => None,
        }
    }

    pub(crate) fn accept(&mut self, token: u32) {
        if self.forced().is_some() {
            let count = if let State::Closing(count) = self.state { count + 1 } else { 1 };
            self.state = if count == self.closing.len() { State::After } else { State::Closing(count) };
            return;
        }
        if self.state == State::After {
            return;
        }
        self.tail.extend_from_slice(self.tokenizer.token_bytes(token));
        if self.state == State::Before {
            let text = self.tail.trim_ascii_start();
            if text.starts_with(OPENS) {
                self.state = State::Thinking;
                self.tail.clear();
            } else if !OPENS.starts_with(text) {
                self.state = State::After;
            }
        } else {
            self.left = self.left.saturating_sub(1);
            if self.tail.windows(CLOSES.len()).any(|text| text == CLOSES) {
                self.state = State::After;
            }
            // From where a mark or a character may have begun; there may be no longer one.
            let keep = self.tail.len().saturating_sub(CLOSES.len() - 1);
            let start = (keep..self.tail.len()).find(|&at| self.tail[at] & 0xc0 != 0x80);
            self.tail.drain(..start.unwrap_or(self.tail.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use kapitsa_text::GgufVocabulary;

    use super::*;

    /// Tokens of these spellings, of which none is joined to another.
    fn tokenizer(tokens: &[&str]) -> Arc<Tokenizer> {
        let tokens: Vec<String> = tokens.iter().map(|token| token.to_string()).collect();
        let types = vec![1; tokens.len()];
        let vocabulary = GgufVocabulary {
            model: "gpt2".into(),
            pre: Some("gpt-2".into()),
            tokens,
            token_types: Some(types),
            merges: Some(vec![]),
            ..GgufVocabulary::default()
        };
        Arc::new(Tokenizer::from_gguf(vocabulary).unwrap())
    }

    const BYTES: [&str; 12] = ["Ċ", "<", "/", "t", "h", "i", "n", "k", ">", "a", "æ", "Ĺ"];

    fn thought(tokenizer: &Arc<Tokenizer>, start: Start, tokens: usize, said: &str) -> String {
        let mut budget = Budget::new(tokenizer, tokens, start).unwrap();
        let mut said = said.chars().map(|c| tokenizer.id_of(&c.to_string()).unwrap());
        let mut ids = vec![];
        while let Some(token) = budget.forced().or_else(|| said.next()) {
            budget.accept(token);
            ids.push(token);
        }
        ids.into_iter().map(|id| tokenizer.token_text(id)).collect()
    }

    #[test]
    fn thinking_ends_when_its_budget_is_used_up() {
        let tokenizer = tokenizer(&BYTES);
        let closed = "Ċ</think>ĊĊ";
        assert_eq!(thought(&tokenizer, Start::Thinks, 3, "aaaaa"), format!("aaa{closed}aa"));
        assert_eq!(thought(&tokenizer, Start::Thinks, 0, "a"), format!("{closed}a"));
        assert_eq!(thought(&tokenizer, Start::MayThink, 2, "Ċ<think>aaaa"), format!("Ċ<think>aa{closed}aa"));
        assert_eq!(thought(&tokenizer, Start::MayThink, 0, "<think>a"), format!("<think>{closed}a"));
    }

    #[test]
    fn what_is_no_thinking_is_left_alone() {
        let tokenizer = tokenizer(&BYTES);
        assert_eq!(thought(&tokenizer, Start::Answer, 0, "a<think>a"), "a<think>a");
        assert_eq!(thought(&tokenizer, Start::MayThink, 0, "a<think>a"), "a<think>a");
        assert_eq!(thought(&tokenizer, Start::MayThink, 0, "<thinka"), "<thinka");
        let ended = "aa</think><think>aaaaaaaaaaaaaaa";
        assert_eq!(thought(&tokenizer, Start::Thinks, 12, ended), ended);
    }

    #[test]
    fn a_character_is_not_cut() {
        // The first two bytes of three.
        let tokenizer = tokenizer(&BYTES);
        assert_eq!(thought(&tokenizer, Start::Thinks, 2, "aæĹĹa"), "aæĹĹĊ</think>ĊĊa");
        // A byte that begins no character does not hold it up for long.
        assert!(thought(&tokenizer, Start::Thinks, 2, "aæaaaaaaaaaaaaaaa").contains("</think>"));
    }
}
