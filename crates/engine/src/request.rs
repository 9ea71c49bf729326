//! What goes into the engine and what comes out: token ids on both sides.

use std::sync::Arc;

use kapitsa_ops::DeviceError;

use crate::constraint::Constraint;
use crate::images::Image;
use crate::logprobs::{MAX_TOP_LOGPROBS, TokenLogprobs};
use crate::sample::{OptionsError, SampleError, SamplingOptions};

/// What to generate.
#[derive(Clone, Debug)]
pub struct Request {
    /// Tokens of the prompt; not empty.
    pub prompt: Vec<u32>,
    /// Images in the prompt, in order.
    pub images: Vec<Image>,
    /// How tokens are chosen.
    pub sampling: SamplingOptions,
    /// Tokens that end the reply; they are not part of it.
    pub stop_tokens: Vec<u32>,
    /// Longest reply; the context limit applies as well.
    pub max_tokens: Option<usize>,
    /// Asks for the log-probability of every token and of so many alternatives, at most [`MAX_TOP_LOGPROBS`].
    pub logprobs: Option<usize>,
    /// What the reply has to follow. Where nothing may come but the end, it ends as if by a stop token.
    pub constraint: Option<Box<dyn Constraint>>,
}

/// What happens while a reply is made. The last one is `Finished` or `Failed`.
#[derive(Clone, Debug)]
pub enum Event {
    /// More of the prompt is read.
    Prefill {
        /// Tokens read so far.
        read: usize,
    },
    /// The next token of the reply.
    Token {
        /// The token.
        id: u32,
        /// If they were asked for.
        logprobs: Option<TokenLogprobs>,
    },
    /// The reply is complete.
    Finished(Finish),
    /// The reply cannot go on.
    Failed(EngineError),
}

/// How a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finish {
    /// Why.
    pub reason: FinishReason,
    /// Tokens of the reply, without the stop token.
    pub reply_tokens: usize,
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model wrote a stop token, or the constraint allows nothing more.
    Stop,
    /// `max_tokens` or the context is used up.
    Length,
}

/// Why there is no reply, or no more of it.
#[derive(Clone, Debug, thiserror::Error)]
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
    /// The images do not fit the prompt or the model.
    #[error("images: {reason}")]
    Images {
        /// What does not fit.
        reason: String,
    },
    /// Too many alternatives.
    #[error("{found} alternatives for each token were asked for, expected at most {MAX_TOP_LOGPROBS}")]
    TooManyLogprobs {
        /// What was asked for.
        found: usize,
    },
    /// All slots and the whole queue are taken.
    #[error("too busy: {running} requests run and {queued} wait, which is the limit; try again later")]
    Busy {
        /// Requests in slots.
        running: usize,
        /// Requests that wait for one.
        queued: usize,
    },
    /// A sampling option is out of range.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The logits allow no token.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// The constraint of the request failed, or left no token.
    #[error("the reply cannot follow its constraint: {reason}")]
    Constraint {
        /// What it said.
        reason: String,
    },
    /// The device failed.
    #[error(transparent)]
    Device(Arc<DeviceError>),
    /// A fault of ours, met while a step of this request ran.
    #[error("the step crashed ({what}); this is a fault of Kapitsa, please report it")]
    Crashed {
        /// What the code said.
        what: String,
    },
    /// The engine was closed, or has crashed.
    #[error("the engine has stopped; open the model again")]
    Stopped,
}

impl From<DeviceError> for EngineError {
    fn from(error: DeviceError) -> Self {
        EngineError::Device(Arc::new(error))
    }
}
