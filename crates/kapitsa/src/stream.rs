//! A reply while it is made: text and tokens, for threads and for asynchronous tasks.

use std::collections::VecDeque;
use std::sync::Arc;

use kapitsa_engine::{EngineError, Event as Step, Generation, TokenLogprobs};
use kapitsa_text::{Detokenizer, StopMatcher, Tokenizer};

use crate::{Error, FinishReason, Reply};

/// A reply under way. Dropping it cancels the reply: its slot and memory are free before the next step.
///
/// Events wait in a short line. If the reader does not keep up, the reply pauses and others go on.
pub struct ReplyStream {
    /// `None` once the reply has ended.
    generation: Option<Generation>,
    tokenizer: Arc<Tokenizer>,
    detokenizer: Detokenizer<Arc<Tokenizer>>,
    stops: StopMatcher,
    prompt_tokens: usize,
    reply_tokens: usize,
    /// Bytes of text that the tokens so far have made.
    made: usize,
    /// Bytes of text that were passed on.
    passed: usize,
    /// Tokens that begin at or after the end of the text passed on.
    waiting: VecDeque<ReplyToken>,
    ready: VecDeque<ReplyEvent>,
}

/// What happens while a reply is made. The last one is `Finished`.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplyEvent {
    /// So many tokens of the prompt are read.
    Prefill(usize),
    /// More of the reply.
    Piece {
        /// Whole characters, nothing of a stop text. Empty only if the reply ends in tokens without text.
        text: String,
        /// The tokens that begin in it.
        tokens: Vec<ReplyToken>,
    },
    /// The reply is complete.
    Finished(Reply),
}

/// A token of a reply.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplyToken {
    /// The token.
    pub id: u32,
    /// Bytes of the reply's text before its own; of the tokens that make one character together the same.
    pub begins: usize,
    /// If they were asked for.
    pub logprobs: Option<TokenLogprobs>,
}

impl ReplyStream {
    pub(crate) fn new(
        generation: Generation,
        tokenizer: Arc<Tokenizer>,
        stops: StopMatcher,
        prompt_tokens: usize,
    ) -> Self {
        ReplyStream {
            generation: Some(generation),
            detokenizer: Detokenizer::new(tokenizer.clone()),
            tokenizer,
            stops,
            prompt_tokens,
            reply_tokens: 0,
            made: 0,
            passed: 0,
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
        }
    }

    /// Tokens of the prompt.
    pub fn prompt_tokens(&self) -> usize {
        self.prompt_tokens
    }

    /// Waits for the next event; `None` after [`ReplyEvent::Finished`] or an error.
    ///
    /// # Errors
    /// If the device fails or the engine stops.
    ///
    /// # Panics
    /// In an asynchronous task, which [`next`](Self::next) is for.
    pub fn recv(&mut self) -> Option<Result<ReplyEvent, Error>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            let step = self.generation.as_mut()?.recv();
            if let Err(error) = self.hear(step) {
                return Some(Err(error));
            }
        }
    }

    /// As [`recv`](Self::recv), for asynchronous tasks of any runtime. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub async fn next(&mut self) -> Option<Result<ReplyEvent, Error>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            let step = self.generation.as_mut()?.next().await;
            if let Err(error) = self.hear(step) {
                return Some(Err(error));
            }
        }
    }

    /// Ends the reply. What is left of its text, and its end, can still be received.
    pub(crate) fn cancel(&mut self) {
        if self.generation.take().is_some() {
            self.end(FinishReason::Cancelled);
        }
    }

    fn hear(&mut self, step: Option<Step>) -> Result<(), Error> {
        match step.unwrap_or(Step::Failed(EngineError::Stopped)) {
            Step::Prefill { read } => self.ready.push_back(ReplyEvent::Prefill(read)),
            Step::Token { id, logprobs } => self.token(id, logprobs),
            Step::Finished(finish) => {
                self.generation = None;
                self.end(match finish.reason {
                    kapitsa_engine::FinishReason::Stop => FinishReason::EndOfTurn,
                    kapitsa_engine::FinishReason::Length => FinishReason::Length,
                });
            }
            Step::Failed(error) => {
                self.generation = None;
                return Err(error.into());
            }
        }
        Ok(())
    }

    fn token(&mut self, id: u32, logprobs: Option<TokenLogprobs>) {
        self.reply_tokens += 1;
        let text = self.detokenizer.push(id);
        // What waited for this token to become a character comes before its own text, if that is characters.
        let own = self.tokenizer.token_bytes(id);
        let before =
            text.len().checked_sub(own.len()).filter(|&at| text.is_char_boundary(at) && text.as_bytes()[at..] == *own);
        let begins = self.made + before.unwrap_or(0);
        self.waiting.push_back(ReplyToken { id, begins, logprobs });
        self.made += text.len();
        let step = self.stops.push(&text);
        self.pass(step.text);
        if let Some(index) = step.stop {
            if let Some(generation) = self.generation.take() {
                generation.finish();
            }
            self.finished(FinishReason::StopText(index));
        }
    }

    /// No more tokens come.
    fn end(&mut self, reason: FinishReason) {
        let step = self.stops.push(&self.detokenizer.finish());
        if let Some(index) = step.stop {
            self.pass(step.text);
            return self.finished(FinishReason::StopText(index));
        }
        let text = step.text + &self.stops.finish();
        // Also those that have no text.
        let tokens: Vec<ReplyToken> = self.waiting.drain(..).collect();
        if !text.is_empty() || !tokens.is_empty() {
            self.ready.push_back(ReplyEvent::Piece { text, tokens });
        }
        self.finished(reason);
    }

    /// Passes text on, with the tokens that begin in it.
    fn pass(&mut self, text: String) {
        if text.is_empty() {
            return;
        }
        self.passed += text.len();
        let count = self.waiting.partition_point(|token| token.begins < self.passed);
        let tokens = self.waiting.drain(..count).collect();
        self.ready.push_back(ReplyEvent::Piece { text, tokens });
    }

    fn finished(&mut self, reason: FinishReason) {
        let (prompt_tokens, reply_tokens) = (self.prompt_tokens, self.reply_tokens);
        self.ready.push_back(ReplyEvent::Finished(Reply { reason, prompt_tokens, reply_tokens }));
    }
}
