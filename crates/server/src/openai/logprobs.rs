//! Log-probabilities in the form of Chat Completions and in the older one of Completions.

use std::collections::BTreeMap;

use kapitsa::{ReplyToken, Tokenizer};
use serde::Serialize;
use utoipa::ToSchema;

/// What stands for less than any probability: JSON has no infinity.
const LEAST: f64 = -9999.0;

/// Of the tokens of a message, or of a piece of it.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct ChatLogprobs {
    content: Vec<TokenLogprob>,
    /// Always null: this server has no refusals.
    #[schema(value_type = Option<Vec<TokenLogprob>>)]
    refusal: Option<()>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TokenLogprob {
    #[serde(flatten)]
    token: Candidate,
    /// The likeliest tokens at this place, best first.
    top_logprobs: Vec<Candidate>,
}

#[derive(Debug, Serialize, ToSchema)]
struct Candidate {
    /// The token's text; `bytes:\xE2\x80` where it is no text of its own.
    token: String,
    logprob: f64,
    /// The token's bytes: those of all tokens, joined, are the text.
    bytes: Vec<u8>,
}

impl ChatLogprobs {
    pub(super) fn new(tokenizer: &Tokenizer, tokens: &[ReplyToken]) -> Self {
        let mut logprobs = ChatLogprobs::default();
        logprobs.add(tokenizer, tokens);
        logprobs
    }

    pub(super) fn add(&mut self, tokenizer: &Tokenizer, tokens: &[ReplyToken]) {
        self.content.extend(tokens.iter().filter_map(|token| {
            let of = token.logprobs.as_ref()?;
            let top_logprobs = of.top.iter().map(|top| Candidate::new(tokenizer, top.id, top.logprob)).collect();
            Some(TokenLogprob { token: Candidate::new(tokenizer, token.id, of.logprob), top_logprobs })
        }));
    }
}

/// The entries of tokens, as other APIs have them, too.
pub(crate) fn chat_logprobs(tokenizer: &Tokenizer, tokens: &[ReplyToken]) -> Vec<serde_json::Value> {
    let entries = ChatLogprobs::new(tokenizer, tokens).content.into_iter();
    entries.filter_map(|entry| serde_json::to_value(entry).ok()).collect()
}

impl Candidate {
    fn new(tokenizer: &Tokenizer, id: u32, logprob: f32) -> Self {
        Candidate { token: spelled(tokenizer, id), logprob: number(logprob), bytes: tokenizer.token_bytes(id).to_vec() }
    }
}

/// Of the tokens of a completion, or of a piece of it.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct TextLogprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<f64>,
    /// For each token the likeliest ones at its place.
    top_logprobs: Vec<BTreeMap<String, f64>>,
    /// For each token the characters of the completion's text before it.
    text_offset: Vec<usize>,
}

impl TextLogprobs {
    /// `text` is the piece that the tokens begin in, `bytes` and `characters` the text's lengths before it.
    pub(super) fn add(
        &mut self,
        tokenizer: &Tokenizer,
        tokens: &[ReplyToken],
        text: &str,
        bytes: usize,
        characters: usize,
    ) {
        for token in tokens {
            let Some(of) = &token.logprobs else { continue };
            self.tokens.push(spelled(tokenizer, token.id));
            self.token_logprobs.push(number(of.logprob));
            let top = of.top.iter().map(|top| (spelled(tokenizer, top.id), number(top.logprob)));
            self.top_logprobs.push(top.collect());
            let inside = text.get(..token.begins.saturating_sub(bytes)).unwrap_or(text);
            self.text_offset.push(characters + inside.chars().count());
        }
    }
}

fn spelled(tokenizer: &Tokenizer, id: u32) -> String {
    let bytes = tokenizer.token_bytes(id);
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold("bytes:".to_owned(), |text, byte| text + &format!("\\x{byte:02X}")),
    }
}

fn number(logprob: f32) -> f64 {
    f64::from(logprob).max(LEAST)
}
