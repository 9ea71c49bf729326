//! The scheduler on its own: what holds whatever comes, and what each rule does.

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;

use super::*;

const SLOTS: usize = 3;
const QUEUE: usize = 4;
/// Tokens of the longest sequence, and pages for one and a half of them.
const CONTEXT: usize = 6 * 64;
const PAGES: usize = 9;

#[derive(Clone, Debug)]
enum Action {
    Submit {
        prompt: usize,
        reply: usize,
    },
    /// Of the request that is so many places from the oldest.
    Cancel(usize),
    Lag(usize),
    Borrow(usize),
    Steps(usize),
}

fn action() -> impl Strategy<Value = Action> {
    let prompt = prop_oneof![1usize..=3, 60usize..=70, 1..CONTEXT];
    prop_oneof![
        4 => (prompt, 1usize..200).prop_map(|(prompt, reply)| Action::Submit { prompt, reply }),
        1 => (0usize..8).prop_map(Action::Cancel),
        1 => (0usize..8).prop_map(Action::Lag),
        1 => (1..=CONTEXT).prop_map(Action::Borrow),
        4 => (1usize..60).prop_map(Action::Steps),
    ]
}

/// A scheduler and what must become of its requests.
struct World {
    scheduler: Scheduler,
    /// Tokens known, and at which the request ends.
    requests: BTreeMap<RequestId, (usize, usize)>,
    lagging: HashSet<RequestId>,
}

impl World {
    fn new() -> Self {
        World { scheduler: Scheduler::new(SLOTS, QUEUE, PAGES), requests: BTreeMap::new(), lagging: HashSet::new() }
    }

    fn nth(&self, n: usize) -> Option<RequestId> {
        self.requests.keys().nth(n).copied()
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Submit { prompt, reply } => match self.scheduler.submit(prompt) {
                Ok(id) => drop(self.requests.insert(id, (prompt, (prompt + reply).min(CONTEXT)))),
                Err(Full { running, queued }) => {
                    assert_eq!((running, queued, self.requests.len()), (SLOTS, QUEUE, SLOTS + QUEUE));
                }
            },
            Action::Cancel(n) => {
                if let Some(id) = self.nth(n) {
                    self.scheduler.remove(id);
                    self.requests.remove(&id);
                }
            }
            Action::Lag(n) => {
                if let Some(id) = self.nth(n)
                    && !self.lagging.remove(&id)
                {
                    self.lagging.insert(id);
                }
            }
            Action::Borrow(tokens) => {
                let pages = self.scheduler.borrow(tokens);
                assert_eq!(pages.len(), pages_for(tokens));
                self.check(&pages);
                self.scheduler.give_back(pages);
            }
            Action::Steps(steps) => (0..steps).for_each(|_| _ = self.step()),
        }
        self.check(&[]);
    }

    /// Plans a step, checks it and carries it out. Returns the number of its rows.
    fn step(&mut self) -> usize {
        let oldest = self.nth(0);
        let before = oldest.and_then(|id| self.scheduler.slot(id).map(|slot| slot.cached));
        let parts = self.scheduler.plan(|id| !self.lagging.contains(&id));
        self.check(&[]);
        if let (Some(id), Some(before)) = (oldest, before) {
            assert_eq!(self.scheduler.slot(id).map(|slot| slot.cached), Some(before), "the oldest never gives way");
        }
        let ids: HashSet<RequestId> = parts.iter().map(|part| part.id).collect();
        assert_eq!(ids.len(), parts.len(), "a request takes part once");
        assert!(ids.is_disjoint(&self.lagging), "a slow reader does not");
        let chunks: Vec<&Part> = parts.iter().filter(|part| part.rows > 1).collect();
        assert!(chunks.len() <= 1, "at most one prompt");
        let limit = if parts.len() > 1 { SHARED_CHUNK_ROWS } else { CHUNK_ROWS };
        assert!(chunks.iter().all(|part| part.rows <= limit) && parts.len() <= SLOTS);
        let decoding = self.scheduler.live().filter(|slot| slot.missing() == 1 && !self.lagging.contains(&slot.id));
        assert!(decoding.map(|slot| slot.id).all(|id| ids.contains(&id)), "every reply under way gets its row");
        for part in &parts {
            let slot = self.scheduler.slot(part.id).expect("a part has a slot");
            assert_eq!((part.cached, &part.pages), (slot.cached, &slot.pages));
            assert!(part.rows >= 1 && part.pages.len() * 64 >= part.cached + part.rows);
            let (known, end) = self.requests.get_mut(&part.id).expect("of a request that is not over");
            assert_eq!(part.is_last, part.cached + part.rows == *known);
            self.scheduler.advance(part.id, part.rows);
            if part.is_last && *known + 1 < *end {
                *known += 1;
                self.scheduler.extend(part.id);
            } else if part.is_last {
                self.scheduler.remove(part.id);
                self.requests.remove(&part.id);
            }
        }
        parts.iter().map(|part| part.rows).sum()
    }

    /// Pages are accounted for, and requests are served in order of age.
    fn check(&self, borrowed: &[PageId]) {
        let scheduler = &self.scheduler;
        let used: Vec<PageId> = scheduler.live().flat_map(|slot| &slot.pages).chain(borrowed).copied().collect();
        assert_eq!(used.iter().collect::<HashSet<_>>().len(), used.len(), "no page in two sequences");
        assert_eq!(used.len() + scheduler.pool.available(), PAGES, "no page lost");
        assert!(used.iter().all(|page| (page.0 as usize) < scheduler.pages_made()));
        let mut slots: Vec<RequestId> = scheduler.live().map(|slot| slot.id).collect();
        slots.sort_unstable();
        let ids: Vec<RequestId> = slots.into_iter().chain(scheduler.queue.iter().map(|waiting| waiting.id)).collect();
        assert_eq!(ids, self.requests.keys().copied().collect::<Vec<_>>(), "first come, first served; none lost");
        assert!(ids.iter().all(|&id| scheduler.contains(id)) && ids.len() <= SLOTS + QUEUE);
    }

    /// Lets everything end, and checks that no request takes longer than the work of all before it.
    fn drain(mut self) {
        self.lagging.clear();
        // The oldest gets a chunk at least every third step and a row in every step once it decodes.
        let steps_of = |&(known, end): &(usize, usize)| SLOTS * (known / SHARED_CHUNK_ROWS + 1) + (end - known);
        let limit: usize = self.requests.values().map(steps_of).sum();
        for _ in 0..limit {
            let busy = !self.requests.is_empty();
            assert_eq!(self.step() > 0, busy, "there is work exactly if there are requests");
        }
        assert!(self.requests.is_empty(), "{:?} left", self.requests);
        assert_eq!(self.scheduler.pool.available(), PAGES);
    }
}

proptest! {
    #[test]
    fn whatever_comes_is_served_in_order_and_leaves_nothing_behind(
        actions in prop::collection::vec(action(), 1..60)
    ) {
        let mut world = World::new();
        actions.into_iter().for_each(|action| world.act(action));
        world.drain();
    }
}

/// What a step is made of: which request (by age) and how many rows.
fn rows(parts: &[Part]) -> Vec<(u64, usize)> {
    parts.iter().map(|part| (part.id.0, part.rows)).collect()
}

fn submit(scheduler: &mut Scheduler, requests: &[usize]) {
    requests.iter().for_each(|&tokens| assert!(scheduler.submit(tokens).is_ok()));
}

/// Plans and carries out a step in which everybody's reply goes on.
fn go_on(scheduler: &mut Scheduler) -> Vec<(u64, usize)> {
    let parts = scheduler.plan(|_| true);
    for part in &parts {
        scheduler.advance(part.id, part.rows);
        if part.is_last {
            scheduler.extend(part.id);
        }
    }
    rows(&parts)
}

#[test]
fn chunks_go_round_and_decoding_makes_them_smaller() {
    let mut scheduler = Scheduler::new(3, 9, 100);
    submit(&mut scheduler, &[400, 130, 20]);
    let steps: Vec<_> = (0..6).map(|_| go_on(&mut scheduler)).collect();
    let expected = [
        vec![(0, CHUNK_ROWS)],
        vec![(1, CHUNK_ROWS)],
        vec![(2, 20)],
        vec![(2, 1), (0, SHARED_CHUNK_ROWS)],
        vec![(2, 1), (1, 2)],
        vec![(1, 1), (2, 1), (0, SHARED_CHUNK_ROWS)],
    ];
    assert_eq!(steps, expected);
}

#[test]
fn the_youngest_gives_up_its_pages_and_is_the_next_to_come_back() {
    let mut scheduler = Scheduler::new(2, 9, 4);
    submit(&mut scheduler, &[64, 60, 10]);
    assert_eq!(go_on(&mut scheduler), [(0, 64)]);
    assert_eq!(go_on(&mut scheduler), [(0, 1), (1, 60)]);
    // Both grow to two pages; the third page of the first is one of the second's.
    while scheduler.slot(RequestId(1)).is_some() {
        assert!(scheduler.slot(RequestId(0)).is_some_and(|slot| slot.known <= 129));
        go_on(&mut scheduler);
    }
    let queue: Vec<u64> = scheduler.queue.iter().map(|waiting| waiting.id.0).collect();
    assert_eq!(queue, [1, 2], "it waits before those that are younger");
    scheduler.remove(RequestId(0));
    assert_eq!(go_on(&mut scheduler), [(1, 124)], "everything is read again");
}

#[test]
fn lent_pages_come_from_the_youngest() {
    let mut scheduler = Scheduler::new(2, 9, 4);
    submit(&mut scheduler, &[64, 64]);
    go_on(&mut scheduler);
    go_on(&mut scheduler);
    let pages = scheduler.borrow(100);
    assert_eq!((pages.len(), scheduler.slot(RequestId(0)).is_some()), (2, true));
    assert_eq!(scheduler.queue.front().map(|waiting| waiting.id), Some(RequestId(1)));
    scheduler.give_back(pages);
}
