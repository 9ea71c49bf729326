//! One reply as its reader sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use tokio::sync::mpsc::Receiver;

use crate::request::{EngineError, Event};
use crate::scheduler::RequestId;
use crate::shared::Shared;
use crate::stats::Stats;

/// The events of a reply. Dropping it cancels the reply: its slot and memory are free before the next step.
///
/// Events wait here in a short line. If the reader does not keep up, the reply pauses and others go on.
pub struct Generation {
    /// `None` if it was over before it began.
    id: Option<RequestId>,
    events: Receiver<Event>,
    is_lagging: Arc<AtomicBool>,
    is_over: bool,
    is_complete: bool,
    shared: Arc<Shared>,
}

impl Generation {
    pub(crate) fn new(
        id: Option<RequestId>,
        events: Receiver<Event>,
        is_lagging: Arc<AtomicBool>,
        shared: Arc<Shared>,
    ) -> Self {
        Generation { id, events, is_lagging, is_over: false, is_complete: false, shared }
    }

    /// Waits for the next event; `None` after the last, which is [`Event::Finished`] or [`Event::Failed`].
    ///
    /// # Panics
    /// In an asynchronous task, which [`next`](Self::next) is for.
    pub fn recv(&mut self) -> Option<Event> {
        if self.is_over {
            return None;
        }
        let event = self.events.blocking_recv();
        Some(self.hear(event))
    }

    /// As [`recv`](Self::recv), for asynchronous tasks of any runtime. Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Event> {
        if self.is_over {
            return None;
        }
        let event = self.events.recv().await;
        Some(self.hear(event))
    }

    /// Ends the reply; the same as dropping it.
    pub fn cancel(self) {}

    /// Ends the reply as complete, such as at a stop text: it does not count as cancelled.
    pub fn finish(mut self) {
        self.is_complete = true;
    }

    fn hear(&mut self, event: Option<Event>) -> Event {
        // See `Reply::has_room`.
        fence(Ordering::SeqCst);
        if self.is_lagging.swap(false, Ordering::SeqCst) {
            self.shared.wake();
        }
        // An engine that stops, for whatever reason, lets go of its end.
        let event = event.unwrap_or(Event::Failed(EngineError::Stopped));
        self.is_over = matches!(event, Event::Finished(_) | Event::Failed(_));
        event
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if let (Some(id), false) = (self.id, self.is_over) {
            let mut state = self.shared.lock();
            // It may have ended without the reader having heard of it yet.
            if state.scheduler.remove(id) {
                let Stats { finished, cancelled, .. } = &mut state.stats;
                *(if self.is_complete { finished } else { cancelled }) += 1;
            }
            drop(state);
            self.shared.wake();
        }
    }
}
