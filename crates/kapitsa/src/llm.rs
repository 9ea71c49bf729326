//! A model that speaks: messages in, text out.

use std::ops::ControlFlow;
use std::path::Path;

use kapitsa_engine::sample::SamplingOptions;
use kapitsa_engine::{Engine, Request, Step};
use kapitsa_models::ModelInfo;
use kapitsa_text::{Detokenizer, LocalTime, Message, StopMatcher, Tokenizer};
use kapitsa_weights::Checkpoint;

use crate::text::Text;
use crate::{Error, OpenOptions, open};

/// An open model with its tokenizer and chat template.
pub struct Llm {
    engine: Engine,
    text: Text,
}

/// What to reply to, and how.
#[derive(Clone, Debug)]
pub struct ReplyRequest {
    /// Tokens of the prompt, from [`Llm::chat_prompt`] or [`Llm::plain_prompt`].
    pub prompt: Vec<u32>,
    /// How tokens are chosen.
    pub sampling: SamplingOptions,
    /// Texts that end the reply; they are not part of it.
    pub stops: Vec<String>,
    /// Longest reply in tokens.
    pub max_tokens: Option<usize>,
}

/// What happens while a reply is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// So many tokens of the prompt are read.
    Prefill(usize),
    /// A token was chosen.
    Token(u32),
    /// More of the reply's text: whole characters, nothing of a stop text.
    Text(&'a str),
}

/// How a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Why.
    pub reason: FinishReason,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the reply.
    pub reply_tokens: usize,
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended its turn.
    EndOfTurn,
    /// The text ran into this stop text (its index in the request).
    StopText(usize),
    /// `max_tokens` or the context is used up.
    Length,
    /// The listener asked for no more.
    Cancelled,
}

impl FinishReason {
    /// The word that the APIs use.
    pub fn name(self) -> &'static str {
        match self {
            FinishReason::EndOfTurn | FinishReason::StopText(_) => "stop",
            FinishReason::Length => "length",
            FinishReason::Cancelled => "cancelled",
        }
    }
}

impl Llm {
    /// Opens a model file or folder.
    ///
    /// # Errors
    /// If the files are not a model that this build can run, or have no tokenizer.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self, Error> {
        let checkpoint = Checkpoint::open(path)?;
        Ok(Llm { text: Text::load(&checkpoint)?, engine: open::engine(&checkpoint, options)? })
    }

    /// Sizes of the model.
    pub fn model(&self) -> &ModelInfo {
        self.engine.model()
    }

    /// Tokens that a conversation can hold.
    pub fn context(&self) -> usize {
        self.engine.context()
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.text.tokenizer
    }

    /// Whether the model has a chat template; without one it can only continue text.
    pub fn has_chat_template(&self) -> bool {
        self.text.has_template()
    }

    /// The sampling that the model's makers recommend; greedy if they say nothing.
    pub fn default_sampling(&self) -> &SamplingOptions {
        &self.text.sampling
    }

    /// Tokens of a conversation, up to where the assistant's next message begins. `now` is for templates with a date.
    ///
    /// # Errors
    /// If the model has no template or its template refuses the messages.
    pub fn chat_prompt(&self, messages: &[Message], now: Option<LocalTime>) -> Result<Vec<u32>, Error> {
        self.text.chat_prompt(messages, now)
    }

    /// Tokens of a text to be continued; no spelling in it is a control token.
    ///
    /// # Errors
    /// If the vocabulary cannot express the text.
    pub fn plain_prompt(&self, text: &str) -> Result<Vec<u32>, Error> {
        let everything = std::iter::once(0..text.len()).collect();
        Ok(self.text.tokenizer.encode_prompt(&kapitsa_text::Prompt { text: text.into(), plain: everything })?)
    }

    /// Replies to a prompt. `listen` hears of every event and may end the reply.
    ///
    /// # Errors
    /// If the request cannot be served or the device fails.
    pub fn reply(
        &mut self,
        request: &ReplyRequest,
        listen: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Reply, Error> {
        let mut stops = StopMatcher::new(&request.stops)?;
        let mut detokenizer = Detokenizer::new(&self.text.tokenizer);
        let mut stop_text = None;
        let engine_request = Request {
            prompt: request.prompt.clone(),
            sampling: request.sampling.clone(),
            stop_tokens: self.text.tokenizer.eos_ids().to_vec(),
            max_tokens: request.max_tokens,
        };
        let finish = self.engine.generate(&engine_request, &mut |step| match step {
            Step::Prefill(read) => listen(Event::Prefill(read)),
            Step::Token(token) => {
                listen(Event::Token(token))?;
                let step = stops.push(&detokenizer.push(token));
                stop_text = step.stop;
                if !step.text.is_empty() {
                    listen(Event::Text(&step.text))?;
                }
                if stop_text.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
        })?;
        if stop_text.is_none() {
            let step = stops.push(&detokenizer.finish());
            stop_text = step.stop;
            let rest = if stop_text.is_none() { step.text + &stops.finish() } else { step.text };
            if !rest.is_empty() {
                // The reply is over: whether the listener wants more makes no difference.
                let _ = listen(Event::Text(&rest));
            }
        }
        let reason = match (stop_text, finish.reason) {
            (Some(index), _) => FinishReason::StopText(index),
            (None, kapitsa_engine::FinishReason::Stop) => FinishReason::EndOfTurn,
            (None, kapitsa_engine::FinishReason::Length) => FinishReason::Length,
            (None, kapitsa_engine::FinishReason::Cancelled) => FinishReason::Cancelled,
        };
        Ok(Reply { reason, prompt_tokens: request.prompt.len(), reply_tokens: finish.reply_tokens })
    }
}

/// Opens the tokenizer of a model without its weights.
///
/// # Errors
/// As [`Llm::open`].
pub fn open_tokenizer(path: &Path) -> Result<Tokenizer, Error> {
    Ok(Text::load(&Checkpoint::open(path)?)?.tokenizer)
}
