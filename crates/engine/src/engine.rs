//! Generates replies, one at a time.

use std::ops::ControlFlow;

use kapitsa_models::{Model, ModelInfo};
use kapitsa_ops::kv::KvLayout;
use kapitsa_ops::{Backend, Batch, DeviceError, Outputs, Tap};

use crate::pages::{PagePool, Sequence};
use crate::runner::Runner;
use crate::sample::{History, OptionsError, SampleError, Sampler, SamplingOptions, Scratch};

/// Prompt rows of one forward pass: enough to pay for dequantising each weight once, few enough to stop in between.
const CHUNK_ROWS: usize = 128;
/// Rows of one forward pass when the logits of all are wanted: a vocabulary of 150K makes 40 MB of them.
const WANTED_ROWS: usize = 64;

/// A model ready to reply.
pub struct Engine {
    runner: Runner,
    pool: PagePool,
    context: usize,
}

/// What to generate.
#[derive(Clone, Debug)]
pub struct Request {
    /// Tokens of the prompt; not empty.
    pub prompt: Vec<u32>,
    /// How tokens are chosen.
    pub sampling: SamplingOptions,
    /// Tokens that end the reply; they are not part of it.
    pub stop_tokens: Vec<u32>,
    /// Longest reply; the context limit applies as well.
    pub max_tokens: Option<usize>,
}

/// What happens while a reply is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// So many tokens of the prompt are read.
    Prefill(usize),
    /// The next token of the reply.
    Token(u32),
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model wrote a stop token.
    Stop,
    /// `max_tokens` or the context is used up.
    Length,
    /// The listener asked for no more.
    Cancelled,
}

/// How a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finish {
    /// Why.
    pub reason: FinishReason,
    /// Tokens of the reply, without the stop token.
    pub reply_tokens: usize,
}

/// Why no reply can be made.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Nothing to continue.
    #[error("the prompt is empty; at least one token is needed")]
    EmptyPrompt,
    /// A token that the model does not have.
    #[error("token {token} is outside the vocabulary of {vocab}")]
    UnknownToken {
        /// The token.
        token: u32,
        /// Number of token ids.
        vocab: usize,
    },
    /// The prompt leaves no room.
    #[error("the prompt has {tokens} tokens, the context {context}; shorten the prompt or raise --context")]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Tokens that the context holds.
        context: usize,
    },
    /// A sampling option is out of range.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The logits allow no token.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl Engine {
    /// An engine whose sequences hold at most `context` tokens. `layout` is the backend's.
    pub fn new(model: Box<dyn Model>, backend: Box<dyn Backend>, layout: &KvLayout, context: usize) -> Self {
        Engine { runner: Runner::new(model, backend), pool: PagePool::new(layout), context }
    }

    /// Sizes of the model.
    pub fn model(&self) -> &ModelInfo {
        self.runner.model().info()
    }

    /// Tokens that a sequence can hold.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Replies to a prompt. `listen` hears of every step and may end the reply.
    ///
    /// # Errors
    /// If the request cannot be served or the device fails; the sequence's memory is free afterwards in any case.
    pub fn generate(
        &mut self,
        request: &Request,
        listen: &mut dyn FnMut(Step) -> ControlFlow<()>,
    ) -> Result<Finish, EngineError> {
        self.check(&request.prompt)?;
        let (tokens, context) = (request.prompt.len(), self.context);
        if tokens >= context {
            return Err(EngineError::PromptTooLong { tokens, context });
        }
        let sampler = Sampler::new(request.sampling.clone(), self.model().vocab)?;
        let mut sequence = self.pool.sequence();
        let finish = self.reply(request, &sampler, &mut sequence, listen);
        self.pool.release(sequence);
        finish
    }

    /// Logits `[tokens, vocab]` of a new sequence, and the tensors at `taps` (`[tokens, width]`).
    ///
    /// # Errors
    /// If the tokens do not fit or the device fails.
    pub fn logits(&mut self, tokens: &[u32], taps: &[Tap]) -> Result<Outputs, EngineError> {
        self.check(tokens)?;
        if tokens.len() > self.context {
            return Err(EngineError::PromptTooLong { tokens: tokens.len(), context: self.context });
        }
        let mut sequence = self.pool.sequence();
        let mut all = Outputs::default();
        let result = tokens.chunks(WANTED_ROWS).try_for_each(|chunk| {
            all.extend(self.forward(&mut sequence, chunk, 0, taps)?);
            Ok(())
        });
        self.pool.release(sequence);
        result.map(|()| all)
    }

    fn check(&self, tokens: &[u32]) -> Result<(), EngineError> {
        let vocab = self.model().vocab;
        match tokens.iter().find(|&&token| token as usize >= vocab) {
            Some(&token) => Err(EngineError::UnknownToken { token, vocab }),
            None if tokens.is_empty() => Err(EngineError::EmptyPrompt),
            None => Ok(()),
        }
    }

    fn reply(
        &mut self,
        request: &Request,
        sampler: &Sampler,
        sequence: &mut Sequence,
        listen: &mut dyn FnMut(Step) -> ControlFlow<()>,
    ) -> Result<Finish, EngineError> {
        let prompt = &request.prompt;
        let limit = request.max_tokens.unwrap_or(usize::MAX).min(self.context - prompt.len());
        let mut history = History::new();
        history.extend_prompt(prompt);
        let mut scratch = Scratch::default();
        let mut reply_tokens = 0;
        let finish = |reason, reply_tokens| Ok(Finish { reason, reply_tokens });
        if limit == 0 {
            return finish(FinishReason::Length, 0);
        }

        let mut logits = vec![];
        for chunk in prompt.chunks(CHUNK_ROWS) {
            let is_last = sequence.cached() + chunk.len() == prompt.len();
            logits = self.forward(sequence, chunk, chunk.len() - is_last as usize, &[])?.logits;
            if listen(Step::Prefill(sequence.cached())).is_break() {
                return finish(FinishReason::Cancelled, 0);
            }
        }
        loop {
            let index = (prompt.len() + reply_tokens) as u64;
            let token = sampler.sample(&logits, &history, index, &mut scratch)?.token;
            if request.stop_tokens.contains(&token) {
                return finish(FinishReason::Stop, reply_tokens);
            }
            reply_tokens += 1;
            if listen(Step::Token(token)).is_break() {
                return finish(FinishReason::Cancelled, reply_tokens);
            }
            if reply_tokens == limit {
                return finish(FinishReason::Length, reply_tokens);
            }
            history.extend_reply(&[token]);
            logits = self.forward(sequence, &[token], 0, &[])?.logits;
        }
    }

    /// Feeds `tokens` to `sequence` and commits them; logits of the rows from `first_wanted` on.
    fn forward(
        &mut self,
        sequence: &mut Sequence,
        tokens: &[u32],
        first_wanted: usize,
        taps: &[Tap],
    ) -> Result<Outputs, DeviceError> {
        self.pool.grow(self.runner.backend(), sequence, tokens.len())?;
        let mut batch = Batch::new();
        let index = batch.add_sequence(sequence.context());
        tokens.iter().fold(None, |parent, &token| Some(batch.add_row(index, token, parent)));
        (first_wanted..tokens.len()).for_each(|row| batch.want(row));
        let outputs = self.runner.run(&batch, taps)?;
        sequence.commit(tokens.len());
        Ok(outputs)
    }
}
