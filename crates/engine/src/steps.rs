//! The engine's thread: plan, batch, forward, sample, events; again and again, asleep while there is nothing to do.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use kapitsa_ops::kv::PageId;
use kapitsa_ops::state::StateId;
use kapitsa_ops::{Batch, DeviceError, Outputs, SequenceContext};

use crate::reply::{Progress, Reply, Scratch};
use crate::request::{EngineError, Event};
use crate::runner::Runner;
use crate::scheduler::{CHUNK_ROWS, Part, RequestId};
use crate::shared::{LogitsJob, Shared, State};

/// Rows of one forward pass when the logits of all are wanted: a vocabulary of 150K makes 40 MB of them.
const WANTED_ROWS: usize = 64;

/// Kept from step to step.
#[derive(Default)]
struct Memory {
    outputs: Outputs,
    scratch: Scratch,
}

/// Runs steps until the engine is dropped.
pub(crate) fn serve(shared: &Shared, mut runner: Runner) {
    let mut replies = HashMap::new();
    let mut memory = Memory::default();
    let _end = End(shared); // before the replies go: whoever hears that they ended finds the engine stopped
    while let Some(Work { parts, pages, job }) = wait(shared, &mut replies) {
        step(shared, &mut runner, &mut replies, &parts, pages, &mut memory);
        if let Some(mut job) = job {
            let result = caught(|| Ok(logits(shared, &mut runner, &mut job)?));
            // Whoever asked may have gone.
            let _ = job.answer.send(result);
        }
    }
}

/// Also when the thread panics: nobody waits for it any more.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_stopped = true;
        state.arrived.clear();
        state.jobs.clear();
    }
}

/// What to do next.
struct Work {
    parts: Vec<Part>,
    /// Page ids in `parts` are below this.
    pages: usize,
    job: Option<LogitsJob>,
}

/// Waits for work; `None` when the engine stops. Forgets the replies that were cancelled.
fn wait(shared: &Shared, replies: &mut HashMap<RequestId, Reply>) -> Option<Work> {
    let mut state = shared.lock();
    while !state.is_stopped {
        let State { scheduler, arrived, jobs, .. } = &mut *state;
        replies.extend(arrived.drain(..));
        replies.retain(|&id, _| scheduler.contains(id));
        let parts = scheduler.plan(|id| replies[&id].has_room());
        let job = jobs.pop_front();
        if !parts.is_empty() || job.is_some() {
            return Some(Work { parts, pages: scheduler.pages_made(), job });
        }
        state = shared.wait(state);
    }
    None
}

/// A step of these parts. If it fails, each takes it alone, so that only those end that cannot go on.
fn step(
    shared: &Shared,
    runner: &mut Runner,
    replies: &mut HashMap<RequestId, Reply>,
    parts: &[Part],
    pages: usize,
    memory: &mut Memory,
) {
    if parts.is_empty() {
        return;
    }
    let started = Instant::now();
    memory.outputs.clear();
    match caught(|| Ok(forward(runner, replies, parts, pages, &mut memory.outputs)?)) {
        Ok(()) => take_in(shared, replies, parts, memory, started),
        Err(error) if parts.len() == 1 => fail(shared, replies, parts, &error),
        Err(_) => {
            for part in parts {
                match caught(|| Ok(read_again(runner, replies, part, pages)?)) {
                    Ok(()) => step(shared, runner, replies, std::slice::from_ref(part), pages, memory),
                    Err(error) => fail(shared, replies, std::slice::from_ref(part), &error),
                }
            }
        }
    }
}

/// Reads again what a part has in the cache: recurrent layers of a step that failed may have moved on, and they cannot go
/// back.
fn read_again(
    runner: &mut Runner,
    replies: &mut HashMap<RequestId, Reply>,
    part: &Part,
    pages: usize,
) -> Result<(), DeviceError> {
    if !runner.is_recurrent() {
        return Ok(());
    }
    (0..part.cached).step_by(CHUNK_ROWS).try_for_each(|cached| {
        let rows = CHUNK_ROWS.min(part.cached - cached);
        let part = Part { cached, rows, is_last: false, ..part.clone() };
        forward(runner, replies, &[part], pages, &mut Outputs::default())
    })
}

/// What `work` gives; a panic becomes an error of the requests that it was for. What a panic may leave half written is of
/// these requests alone: a backend writes whatever else it keeps anew in each step.
fn caught<T>(work: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(EngineError::Crashed { what: what.unwrap_or("no message").to_owned() })
    })
}

/// One forward pass over all parts.
fn forward(
    runner: &mut Runner,
    replies: &mut HashMap<RequestId, Reply>,
    parts: &[Part],
    pages: usize,
    outputs: &mut Outputs,
) -> Result<(), DeviceError> {
    let slots = parts.iter().map(|part| part.slot + 1).max().unwrap_or(0);
    runner.reserve(pages, slots)?;
    let mut batch = Batch::new();
    for part in parts {
        let Reply { images, .. } = replies.get_mut(&part.id).expect("a reply of this step");
        images.see(runner, &(part.cached..part.cached + part.rows))?;
        let reply = &replies[&part.id];
        let tokens = reply.tokens(part.cached..part.cached + part.rows);
        let last = add_rows(&mut batch, context(runner.groups(), part.cached, &part.pages, part.slot), tokens);
        (last + 1 - part.rows..=last).zip(part.cached..).for_each(|(row, at)| reply.images.place(&mut batch, row, at));
        if part.is_last {
            batch.want(last);
        }
    }
    runner.run(&batch, &[], outputs)
}

/// A sequence of `cached` tokens in a slot.
fn context(groups: usize, cached: usize, pages: &[PageId], slot: usize) -> SequenceContext {
    let state = StateId(u32::try_from(slot).expect("few slots"));
    SequenceContext { cached, pages: vec![pages.to_vec(); groups], state, is_draft: false }
}

/// Adds rows that continue a sequence; returns the index of the last.
fn add_rows(batch: &mut Batch, context: SequenceContext, tokens: &[u32]) -> usize {
    let sequence = batch.add_sequence(context);
    let last = tokens.iter().fold(None, |parent, &token| Some(batch.add_row(sequence, token, parent)));
    last.expect("a part has at least one row")
}

/// Samples, tells the scheduler, then the readers: who hears of the end finds the slot free.
fn take_in(
    shared: &Shared,
    replies: &mut HashMap<RequestId, Reply>,
    parts: &[Part],
    memory: &mut Memory,
    started: Instant,
) {
    let wanted = parts.iter().filter(|part| part.is_last).count();
    let Memory { outputs: Outputs { logits, .. }, scratch } = memory;
    let mut rows = logits.chunks_exact((logits.len() / wanted.max(1)).max(1));
    let mut steps: Vec<(Progress, Vec<Event>)> = Vec::with_capacity(parts.len());
    let mut read = 0;
    for part in parts {
        let row = if part.is_last { rows.next() } else { None };
        let reply = replies.get_mut(&part.id).expect("a reply of this step");
        let told = reply.told();
        let step = caught(|| Ok(reply.step(part, row, scratch)));
        read += reply.told() - told;
        steps.push(step.unwrap_or_else(|error| (Progress::Ends, vec![Event::Failed(error)])));
    }
    let mut state = shared.lock();
    let State { scheduler, stats, .. } = &mut *state;
    stats.step_times.add(started.elapsed());
    stats.tokens_read += read as u64;
    for (part, (progress, events)) in parts.iter().zip(&steps) {
        stats.tokens_written += events.iter().filter(|event| matches!(event, Event::Token { .. })).count() as u64;
        scheduler.advance(part.id, part.rows);
        match progress {
            Progress::Reads => {}
            Progress::Grows => scheduler.extend(part.id),
            // Unless its reader has left meanwhile.
            Progress::Ends if scheduler.remove(part.id) => match events.last() {
                Some(Event::Failed(_)) => stats.failed += 1,
                _ => stats.finished += 1,
            },
            Progress::Ends => {}
        }
    }
    drop(state);
    for (part, (_, events)) in parts.iter().zip(steps) {
        replies[&part.id].send(events);
    }
}

/// Ends the replies of a step that failed; what it was computing may be half written.
fn fail(shared: &Shared, replies: &HashMap<RequestId, Reply>, parts: &[Part], error: &EngineError) {
    let mut state = shared.lock();
    let ended = parts.iter().filter(|part| state.scheduler.remove(part.id)).count();
    state.stats.failed += ended as u64;
    drop(state);
    parts.iter().for_each(|part| replies[&part.id].send([Event::Failed(error.clone())]));
}

/// Computes a sequence of its own, with pages that the scheduler lends.
fn logits(shared: &Shared, runner: &mut Runner, job: &mut LogitsJob) -> Result<Outputs, DeviceError> {
    let mut state = shared.lock();
    let pages = state.scheduler.borrow(job.tokens.len());
    // The state after those of all slots.
    let (made, slot) = (state.scheduler.pages_made(), state.scheduler.slots());
    drop(state);
    let mut all = Outputs::default();
    let mut cached = 0;
    let result = runner.reserve(made, slot + 1).and_then(|()| {
        job.tokens.chunks(WANTED_ROWS).try_for_each(|chunk| {
            let mut batch = Batch::new();
            let last = add_rows(&mut batch, context(runner.groups(), cached, &pages, slot), chunk);
            job.images.see(runner, &(cached..cached + chunk.len()))?;
            for row in 0..=last {
                job.images.place(&mut batch, row, cached + row);
                batch.want(row);
            }
            runner.run(&batch, &job.taps, &mut all)?;
            cached += chunk.len();
            Ok(())
        })
    });
    shared.lock().scheduler.give_back(pages);
    result.map(|()| all)
}
