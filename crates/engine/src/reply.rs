//! A reply under way: its tokens, and how logits become the next one.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use tokio::sync::mpsc::Sender;

use crate::constraint::{Constraint, MaskScratch, broken, masked};
use crate::images::Images;
use crate::logprobs::token_logprobs;
use crate::request::{EngineError, Event, Finish, FinishReason, Request};
use crate::sample::{self, History, OptionsError, Sampler};
use crate::scheduler::Part;

/// Most events of one step: the prompt is read, a token, the end.
const STEP_EVENTS: usize = 3;

/// Events that wait for a reader before its reply pauses.
pub(crate) const WAITING_EVENTS: usize = 32;

pub(crate) struct Reply {
    /// Prompt and reply.
    tokens: Vec<u32>,
    prompt_tokens: usize,
    pub(crate) images: Images,
    /// Tokens of prompt and reply at which the reply ends.
    limit: usize,
    sampler: Sampler,
    history: History,
    stop_tokens: Vec<u32>,
    logprobs: Option<usize>,
    /// Has accepted all tokens of the reply.
    constraint: Option<Box<dyn Constraint>>,
    /// Prompt tokens whose reading the listener has heard of: after a preemption they are read again in silence.
    told: usize,
    events: Sender<Event>,
    is_lagging: Arc<AtomicBool>,
}

/// Buffers that replies share, one after the other.
#[derive(Default)]
pub(crate) struct Scratch {
    sampling: sample::Scratch,
    mask: MaskScratch,
}

/// What a step did to a reply.
pub(crate) enum Progress {
    /// It is still reading.
    Reads,
    /// It has one more token.
    Grows,
    /// It has ended.
    Ends,
}

impl Reply {
    pub(crate) fn new(
        request: Request,
        images: Images,
        vocab: usize,
        context: usize,
        events: Sender<Event>,
        is_lagging: Arc<AtomicBool>,
    ) -> Result<Self, OptionsError> {
        let Request { prompt: tokens, sampling, stop_tokens, max_tokens, logprobs, constraint, images: _ } = request;
        let mut history = History::new();
        history.extend_prompt(&tokens);
        Ok(Reply {
            prompt_tokens: tokens.len(),
            images,
            limit: max_tokens.map_or(context, |max| tokens.len().saturating_add(max).min(context)),
            tokens,
            sampler: Sampler::new(sampling, vocab)?,
            history,
            stop_tokens,
            logprobs,
            constraint,
            told: 0,
            events,
            is_lagging,
        })
    }

    /// Some of its tokens.
    pub(crate) fn tokens(&self, range: Range<usize>) -> &[u32] {
        &self.tokens[range]
    }

    /// Whether the reader has room for what a step says. If not, it will wake the engine as soon as it has read more.
    pub(crate) fn has_room(&self) -> bool {
        if self.events.capacity() >= STEP_EVENTS {
            return true;
        }
        // The reader makes room first and looks at the flag then, so one of the two sees what the other did.
        self.is_lagging.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.events.capacity() >= STEP_EVENTS
    }

    /// Prompt tokens whose reading the reader has heard of.
    pub(crate) fn told(&self) -> usize {
        self.told
    }

    /// Takes in what a step computed; `logits` are those after the last token, once all are read. Also returns what the
    /// reader should hear.
    pub(crate) fn step(
        &mut self,
        part: &Part,
        logits: Option<&[f32]>,
        scratch: &mut Scratch,
    ) -> (Progress, Vec<Event>) {
        let mut events = vec![];
        let read = (part.cached + part.rows).min(self.prompt_tokens);
        if read > self.told {
            self.told = read;
            events.push(Event::Prefill { read });
        }
        let Some(logits) = logits else { return (Progress::Reads, events) };
        let last = match self.choose(logits, scratch, &mut events) {
            Ok(None) => return (Progress::Grows, events),
            Ok(Some(reason)) => {
                Event::Finished(Finish { reason, reply_tokens: self.tokens.len() - self.prompt_tokens })
            }
            Err(error) => Event::Failed(error),
        };
        events.push(last);
        (Progress::Ends, events)
    }

    /// Appends the next token, and says why the reply ends if it does.
    fn choose(
        &mut self,
        logits: &[f32],
        scratch: &mut Scratch,
        events: &mut Vec<Event>,
    ) -> Result<Option<FinishReason>, EngineError> {
        let Scratch { sampling, mask } = scratch;
        let logits = match &mut self.constraint {
            None => logits,
            Some(constraint) => match masked(&mut **constraint, logits, &self.stop_tokens, mask)? {
                Some(logits) => logits,
                None => return Ok(Some(FinishReason::Stop)),
            },
        };
        let index = self.tokens.len() as u64;
        let id = self.sampler.sample(logits, &self.history, index, sampling)?.token;
        if self.stop_tokens.contains(&id) {
            return Ok(Some(FinishReason::Stop));
        }
        let mut is_complete = false;
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(id).map_err(broken)?;
            is_complete = constraint.is_complete();
        }
        self.tokens.push(id);
        self.history.extend_reply(&[id]);
        events.push(Event::Token { id, logprobs: self.logprobs.map(|count| token_logprobs(logits, id, count)) });
        if is_complete {
            return Ok(Some(FinishReason::Stop));
        }
        Ok((self.tokens.len() == self.limit).then_some(FinishReason::Length))
    }

    /// Passes events on.
    pub(crate) fn send(&self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            // There is room, or the step would have been without this reply; a reader who has gone hears nothing.
            let _ = self.events.try_send(event);
        }
    }
}
