//! Who gets a slot, pages and rows of the next step. Pure: no clock, thread, channel or I/O; tokens are only counted.
//!
//! A request waits in a queue until a slot and the pages of all its tokens are free, first come first served. In a slot
//! it has `known` tokens (prompt and reply so far), of which `cached` are in the KV cache. Whoever lacks just one is
//! decoding and gets a row in every step; of those who lack more, one after the other gets a chunk.
//!
//! When the pages run out, the youngest request in a slot gives its pages up and goes back to the front of the queue, to
//! be read again from its first token. So slots are always older than the queue, and the oldest request always advances.

use std::collections::VecDeque;

use kapitsa_ops::kv::PageId;

use crate::pages::{PagePool, pages_for};

/// Prompt rows of a step that nobody else waits for: enough to pay for reading each weight once, few enough to stop in
/// between.
pub(crate) const CHUNK_ROWS: usize = 128;

/// Prompt rows of a step that also decodes: each such row delays the replies by about what it costs, and from some dozens
/// of rows on a row costs the same in a small chunk as in a large one.
pub(crate) const SHARED_CHUNK_ROWS: usize = 64;

/// A request, by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RequestId(u64);

/// What a request does in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) id: RequestId,
    /// The slot it is in, from 0.
    pub(crate) slot: usize,
    /// Tokens that are in the cache already: the first row is of the token with this index.
    pub(crate) cached: usize,
    /// Number of rows.
    pub(crate) rows: usize,
    /// Whether the last row is that of the last token known, so that its logits give the next.
    pub(crate) is_last: bool,
    /// Where the sequence lies; reaches over the rows, too.
    pub(crate) pages: Vec<PageId>,
}

/// The queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    pub(crate) running: usize,
    pub(crate) queued: usize,
}

#[derive(Debug)]
pub(crate) struct Scheduler {
    queue: VecDeque<Waiting>,
    slots: Vec<Option<Slot>>,
    queue_limit: usize,
    pool: PagePool,
    next_id: u64,
    /// The slot that is asked first for the next chunk.
    next_chunk: usize,
}

#[derive(Debug)]
struct Waiting {
    id: RequestId,
    known: usize,
}

#[derive(Debug)]
struct Slot {
    id: RequestId,
    known: usize,
    cached: usize,
    pages: Vec<PageId>,
    /// Whether its reader has room for what the next step says.
    is_ready: bool,
}

impl Slot {
    fn missing(&self) -> usize {
        self.known - self.cached
    }

    fn needs_page(&self) -> bool {
        self.is_ready && self.missing() == 1 && self.pages.len() < pages_for(self.known)
    }

    /// A part of it, which is slot `slot`.
    fn part(&self, slot: usize, rows: usize) -> Part {
        let &Slot { id, known, cached, ref pages, .. } = self;
        Part { id, slot, cached, rows, is_last: cached + rows == known, pages: pages.clone() }
    }
}

impl Scheduler {
    /// `pages` must hold the longest sequence that is ever extended to.
    pub(crate) fn new(slots: usize, queue_limit: usize, pages: usize) -> Self {
        Scheduler {
            queue: VecDeque::new(),
            slots: (0..slots).map(|_| None).collect(),
            queue_limit,
            pool: PagePool::new(pages),
            next_id: 0,
            next_chunk: 0,
        }
    }

    /// Queues a request of `known` tokens, at least one.
    pub(crate) fn submit(&mut self, known: usize) -> Result<RequestId, Full> {
        self.check_room()?;
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.queue.push_back(Waiting { id, known });
        Ok(id)
    }

    /// Fails if a request could not be queued.
    pub(crate) fn check_room(&self) -> Result<(), Full> {
        // Slots are filled when the next step is planned: until then their share of the queue is beyond its limit.
        let total = self.queue.len() + self.live().count();
        match total < self.slots.len() + self.queue_limit {
            true => Ok(()),
            false => Err(Full { running: self.slots.len(), queued: total - self.slots.len() }),
        }
    }

    /// Whether the request waits or runs.
    pub(crate) fn contains(&self, id: RequestId) -> bool {
        self.live().any(|slot| slot.id == id) || self.queue.iter().any(|waiting| waiting.id == id)
    }

    /// Number of slots.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Requests in slots.
    pub(crate) fn running(&self) -> usize {
        self.live().count()
    }

    /// Requests that wait for a slot.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Forgets a request wherever it is; its slot and pages are free at once. Whether it was there.
    pub(crate) fn remove(&mut self, id: RequestId) -> bool {
        let before = self.queue.len();
        self.queue.retain(|waiting| waiting.id != id);
        let Some(place) = self.slots.iter_mut().find(|place| place.as_ref().is_some_and(|slot| slot.id == id)) else {
            return self.queue.len() < before;
        };
        let slot = place.take().expect("a slot with this id");
        self.pool.give_back(slot.pages);
        true
    }

    /// The next step; empty if there is nothing to do. `is_ready` says whether the reader of a request has room: if not,
    /// it keeps its slot and takes no part.
    pub(crate) fn plan(&mut self, mut is_ready: impl FnMut(RequestId) -> bool) -> Vec<Part> {
        for slot in self.slots.iter_mut().flatten() {
            slot.is_ready = is_ready(slot.id);
        }
        self.grow();
        self.admit(is_ready);
        let slots = self.slots.iter().enumerate().filter_map(|(index, slot)| Some((index, slot.as_ref()?)));
        let decoding = slots.filter(|(_, slot)| slot.is_ready && slot.missing() == 1);
        let mut parts: Vec<Part> = decoding.map(|(index, slot)| slot.part(index, 1)).collect();
        let rows = if parts.is_empty() { CHUNK_ROWS } else { SHARED_CHUNK_ROWS };
        let count = self.slots.len();
        let mut turns = (0..count).map(|turn| (self.next_chunk + turn) % count);
        let reads = |slot: &Slot| slot.is_ready && slot.missing() > 1;
        if let Some(index) = turns.find(|&index| self.slots[index].as_ref().is_some_and(reads)) {
            self.next_chunk = index + 1;
            parts.extend(self.slots[index].as_ref().map(|slot| slot.part(index, rows.min(slot.missing()))));
        }
        parts
    }

    /// `rows` more tokens of the request are in the cache.
    pub(crate) fn advance(&mut self, id: RequestId, rows: usize) {
        if let Some(slot) = self.slot(id) {
            slot.cached += rows;
        }
    }

    /// The request has one more token.
    pub(crate) fn extend(&mut self, id: RequestId) {
        if let Some(slot) = self.slot(id) {
            slot.known += 1;
        }
    }

    /// Pages for `tokens` outside of any request; the youngest requests give theirs up if need be.
    pub(crate) fn borrow(&mut self, tokens: usize) -> Vec<PageId> {
        loop {
            if let Some(pages) = self.pool.take_many(pages_for(tokens)) {
                return pages;
            }
            let youngest = self.youngest().expect("without requests all pages are free, enough for any sequence");
            self.preempt(youngest);
        }
    }

    /// Takes borrowed pages back.
    pub(crate) fn give_back(&mut self, pages: Vec<PageId>) {
        self.pool.give_back(pages);
    }

    /// Page ids in use are below this.
    pub(crate) fn pages_made(&self) -> usize {
        self.pool.made()
    }

    /// Gives every decoding slot the page that its next row needs, the oldest first.
    fn grow(&mut self) {
        let mut ids: Vec<RequestId> = self.live().filter(|slot| slot.needs_page()).map(|slot| slot.id).collect();
        ids.sort_unstable();
        for id in ids {
            // The request itself may be the youngest: then it waits for its turn with the pages of the others.
            while self.slot(id).is_some() {
                if let Some(page) = self.pool.take() {
                    self.slot(id).expect("still there").pages.push(page);
                    break;
                }
                let youngest = self.youngest().expect("the request itself is in a slot");
                self.preempt(youngest);
            }
        }
    }

    /// Fills free slots from the front of the queue.
    fn admit(&mut self, mut is_ready: impl FnMut(RequestId) -> bool) {
        while let (Some(place), Some(front)) = (self.slots.iter().position(Option::is_none), self.queue.front()) {
            // One page for each of the others: whoever was preempted would else be so again after a few tokens.
            let spare = self.live().count();
            if pages_for(front.known) + spare > self.pool.available() {
                return;
            }
            let Waiting { id, known } = self.queue.pop_front().expect("a front");
            let pages = self.pool.take_many(pages_for(known)).expect("so many are free");
            self.slots[place] = Some(Slot { id, known, cached: 0, pages, is_ready: is_ready(id) });
        }
    }

    fn preempt(&mut self, id: RequestId) {
        let known = self.slot(id).expect("in a slot").known;
        self.remove(id);
        self.queue.push_front(Waiting { id, known });
    }

    fn live(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().flatten()
    }

    fn youngest(&self) -> Option<RequestId> {
        self.live().map(|slot| slot.id).max()
    }

    fn slot(&mut self, id: RequestId) -> Option<&mut Slot> {
        self.slots.iter_mut().flatten().find(|slot| slot.id == id)
    }
}

#[cfg(test)]
mod tests;
