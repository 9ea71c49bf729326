//! The handle of the engine.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, MutexGuard, mpsc};
use std::thread::JoinHandle;

use kapitsa_models::{ModelInfo, VisionShape};
use kapitsa_ops::{DeviceError, Outputs, Tap};

use crate::generation::Generation;
use crate::images::{Image, Images};
use crate::logprobs::MAX_TOP_LOGPROBS;
use crate::pages::pages_for;
use crate::reply::{Reply, WAITING_EVENTS};
use crate::request::{EngineError, Event, Finish, FinishReason, Request};
use crate::runner::Runner;
use crate::scheduler::{Full, Scheduler};
use crate::shared::{LogitsJob, Shared, State};
use crate::stats::Stats;
use crate::steps;

/// How much an engine takes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tokens that a sequence can hold.
    pub context: usize,
    /// Replies under way at a time; at least one.
    pub slots: usize,
    /// Requests that wait for a slot beside these.
    pub queue: usize,
    /// Tokens in the KV cache, of all sequences together; one whole context is always allowed.
    pub kv_tokens: usize,
}

/// A model ready to reply to many at once. Dropping it ends all replies.
pub struct Engine {
    shared: Arc<Shared>,
    model: ModelInfo,
    vision: Option<VisionShape>,
    limits: Limits,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts the thread that owns `runner`.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(runner: Runner, limits: Limits) -> Result<Self, EngineError> {
        let limits = Limits { slots: limits.slots.max(1), ..limits };
        let pages = pages_for(limits.kv_tokens.max(limits.context)).min(u32::MAX as usize);
        let shared = Arc::new(Shared::new(Scheduler::new(limits.slots, limits.queue, pages)));
        let (model, vision) = (runner.model().clone(), runner.vision());
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("kapitsa-engine".into())
            .spawn(move || steps::serve(&theirs, runner))
            .map_err(|error| DeviceError::Threads { threads: 1, reason: error.to_string() })?;
        Ok(Engine { shared, model, vision, limits, thread: Some(thread) })
    }

    /// Sizes of the model.
    pub fn model(&self) -> &ModelInfo {
        &self.model
    }

    /// Sizes of the model's vision tower, if it has one.
    pub fn vision(&self) -> Option<VisionShape> {
        self.vision
    }

    /// Tokens that a sequence can hold.
    pub fn context(&self) -> usize {
        self.limits.context
    }

    /// How much it takes on.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Whether it still replies. It does not once it is stopped, nor after a crash of its thread.
    pub fn is_alive(&self) -> bool {
        !self.shared.lock().is_stopped
    }

    /// What it has done so far, and how busy it is.
    pub fn stats(&self) -> Stats {
        let state = self.shared.lock();
        let Limits { slots, queue: queue_limit, .. } = self.limits;
        // A request takes its slot when the next step is planned: until then it is on its way, not waiting.
        let (running, queued) = (state.scheduler.running(), state.scheduler.queued());
        let slots_busy = slots.min(running + queued);
        Stats { slots, slots_busy, queue_limit, queue: running + queued - slots_busy, ..state.stats.clone() }
    }

    /// Ends all replies with [`EngineError::Stopped`]; no more are taken on.
    pub fn stop(&self) {
        self.shared.lock().is_stopped = true;
        self.shared.wake();
    }

    /// Queues a request. Never waits for the device.
    ///
    /// # Errors
    /// If the request cannot be served as it is, if too many are waiting, or if the engine has stopped.
    pub fn submit(&self, mut request: Request) -> Result<Generation, EngineError> {
        let Limits { context, .. } = self.limits;
        self.check(&request.prompt)?;
        let tokens = request.prompt.len();
        if tokens >= context {
            return Err(EngineError::PromptTooLong { tokens, context });
        }
        if let Some(found) = request.logprobs.filter(|&count| count > MAX_TOP_LOGPROBS) {
            return Err(EngineError::TooManyLogprobs { found });
        }
        let images = self.images(&request.prompt, std::mem::take(&mut request.images))?;
        let is_over = request.max_tokens == Some(0);
        let (sender, events) = tokio::sync::mpsc::channel(WAITING_EVENTS);
        let is_lagging = Arc::new(AtomicBool::new(false));
        let reply = Reply::new(request, images, self.model.vocab, context, sender, is_lagging.clone())?;
        let mut id = None;
        if is_over {
            reply.send([Event::Finished(Finish { reason: FinishReason::Length, reply_tokens: 0 })]);
        } else {
            let mut state = self.running()?;
            let new = state.scheduler.submit(tokens).map_err(|full| refused(&mut state, full))?;
            state.arrived.push((new, reply));
            id = Some(new);
            drop(state);
            self.shared.wake();
        }
        Ok(Generation::new(id, events, is_lagging, self.shared.clone()))
    }

    /// Fails, as [`submit`](Self::submit) would now, if slots and queue are full: to know before a long prompt is made into
    /// tokens. It counts as a refused request.
    ///
    /// # Errors
    /// If too many are waiting, or if the engine has stopped.
    pub fn check_room(&self) -> Result<(), EngineError> {
        let mut state = self.running()?;
        state.scheduler.check_room().map_err(|full| refused(&mut state, full))
    }

    /// Logits `[tokens, vocab]` of a new sequence, and the tensors at `taps` (`[tokens, width]`). Computed at once, between
    /// two steps: for tests and tools.
    ///
    /// # Errors
    /// If the tokens do not fit, the device fails or the engine has stopped.
    pub fn logits(&self, tokens: &[u32], taps: &[Tap]) -> Result<Outputs, EngineError> {
        self.logits_with_images(tokens, vec![], taps)
    }

    /// As [`logits`](Self::logits), of a prompt with images.
    ///
    /// # Errors
    /// Also if the images do not fit the tokens or the model.
    pub fn logits_with_images(&self, tokens: &[u32], images: Vec<Image>, taps: &[Tap]) -> Result<Outputs, EngineError> {
        self.check(tokens)?;
        let images = self.images(tokens, images)?;
        let Limits { context, .. } = self.limits;
        if tokens.len() > context {
            return Err(EngineError::PromptTooLong { tokens: tokens.len(), context });
        }
        let (answer, outputs) = mpsc::channel();
        let job = LogitsJob { tokens: tokens.to_vec(), images, taps: taps.to_vec(), answer };
        self.running()?.jobs.push_back(job);
        self.shared.wake();
        // A thread that stops lets go of the jobs it has not done.
        outputs.recv().unwrap_or(Err(EngineError::Stopped))
    }

    fn images(&self, prompt: &[u32], images: Vec<Image>) -> Result<Images, EngineError> {
        Images::new(prompt, images, self.vision).map_err(|reason| EngineError::Images { reason })
    }

    fn running(&self) -> Result<MutexGuard<'_, State>, EngineError> {
        let state = self.shared.lock();
        if state.is_stopped { Err(EngineError::Stopped) } else { Ok(state) }
    }

    fn check(&self, tokens: &[u32]) -> Result<(), EngineError> {
        let vocab = self.model.vocab;
        match tokens.iter().find(|&&token| token as usize >= vocab) {
            Some(&token) => Err(EngineError::UnknownToken { token, vocab }),
            None if tokens.is_empty() => Err(EngineError::EmptyPrompt),
            None => Ok(()),
        }
    }
}

fn refused(state: &mut State, full: Full) -> EngineError {
    state.stats.refused += 1;
    EngineError::Busy { running: full.running, queued: full.queued }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported where it happened.
            let _ = thread.join();
        }
    }
}
