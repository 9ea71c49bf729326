//! What the handles share with the engine's thread.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};

use kapitsa_ops::{Outputs, Tap};

use crate::images::Images;
use crate::reply::Reply;
use crate::request::EngineError;
use crate::scheduler::{RequestId, Scheduler};
use crate::stats::Stats;

pub(crate) struct Shared {
    state: Mutex<State>,
    /// Something changed that the thread may wait for.
    changed: Condvar,
}

/// Locked for moments only, never while the device works.
pub(crate) struct State {
    pub(crate) scheduler: Scheduler,
    /// Queued requests that the thread has not seen.
    pub(crate) arrived: Vec<(RequestId, Reply)>,
    pub(crate) jobs: VecDeque<LogitsJob>,
    pub(crate) is_stopped: bool,
    /// Counts only; how busy the scheduler is it knows itself.
    pub(crate) stats: Stats,
}

/// Logits of all rows of a new sequence.
pub(crate) struct LogitsJob {
    pub(crate) tokens: Vec<u32>,
    pub(crate) images: Images,
    pub(crate) taps: Vec<Tap>,
    pub(crate) answer: mpsc::Sender<Result<Outputs, EngineError>>,
}

impl Shared {
    pub(crate) fn new(scheduler: Scheduler) -> Self {
        let state =
            State { scheduler, arrived: vec![], jobs: VecDeque::new(), is_stopped: false, stats: Stats::default() };
        Shared { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever panicked was the thread, which then marks the state as stopped.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the thread look again.
    pub(crate) fn wake(&self) {
        // With the lock held the thread is either waiting or yet to look.
        let _state = self.lock();
        self.changed.notify_one();
    }

    pub(crate) fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}
