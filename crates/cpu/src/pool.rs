//! A pool of worker threads for short parallel regions.
//!
//! Between regions a worker spins for about as long as an op's serial parts take, then parks: a busy model finds its
//! workers awake, an idle one keeps no core busy. While it spins it asks for the memory that it will need next
//! ([`Pool::announce`]), so that memory has no pauses between regions.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use kapitsa_ops::DeviceError;

use crate::shared::SharedOut;
use crate::simd;

/// Looks at the region counter before a worker parks: 0.1 to 0.3 ms, more than sampling takes.
const SPINS: u32 = 4000;

/// Worker threads; the thread that calls [`Pool::run`] is one more worker.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    ahead: Ahead,
}

struct Shared {
    /// Counts regions; a change starts one.
    region: AtomicU32,
    /// The region's code. Written by the caller of `run` while no worker is in a region.
    code: Mutex<Option<Code>>,
    /// Workers that have not finished the region.
    running: AtomicUsize,
    /// For each worker, whether it is (about to be) parked.
    parked: Vec<AtomicBool>,
    /// What the first tasks of a later region will read: a part of so many bytes for each worker, from here on.
    announced: (AtomicPtr<u8>, AtomicUsize),
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    panicked: AtomicBool,
    ended: AtomicBool,
}

/// Code of a region, called with the worker's index. Its lifetime is erased: `run` returns after the last call.
#[derive(Clone, Copy)]
struct Code(*const (dyn Fn(usize) + Sync));

// SAFETY: the code is `Sync`, and `Pool::run` keeps it alive until every worker has returned from it.
unsafe impl Send for Code {}

impl Pool {
    /// Starts `threads - 1` workers.
    ///
    /// # Errors
    /// If the system has no thread for us.
    pub(crate) fn new(threads: usize) -> Result<Self, DeviceError> {
        let threads = threads.max(1);
        let shared = Arc::new(Shared {
            region: AtomicU32::new(0),
            code: Mutex::new(None),
            running: AtomicUsize::new(0),
            parked: (1..threads).map(|_| AtomicBool::new(false)).collect(),
            announced: (AtomicPtr::new(std::ptr::null_mut()), AtomicUsize::new(0)),
            panic: Mutex::new(None),
            panicked: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let mut pool = Pool { shared, workers: vec![], ahead: Ahead::default() };
        for worker in 1..threads {
            let shared = pool.shared.clone();
            let thread = std::thread::Builder::new().name(format!("kapitsa-cpu-{worker}"));
            let thread = thread.spawn(move || shared.work(worker));
            pool.workers.push(thread.map_err(|error| DeviceError::Threads { threads, reason: error.to_string() })?);
        }
        Ok(pool)
    }

    /// Workers, the caller of [`run`](Self::run) included.
    pub(crate) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `code(worker)` once on each worker and returns when all have returned. `&mut`: regions do not nest.
    ///
    /// # Panics
    /// If `code` panics on any worker.
    pub(crate) fn run(&mut self, code: &(dyn Fn(usize) + Sync)) {
        if self.workers.is_empty() {
            return code(0);
        }
        let shared = &*self.shared;
        shared.running.store(self.workers.len(), Ordering::Relaxed);
        // SAFETY: only the lifetime changes; this function does not return before all workers are done with the code.
        let erased = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(code) };
        *lock(&shared.code) = Some(Code(erased));
        shared.region.fetch_add(1, Ordering::SeqCst);
        for (parked, worker) in shared.parked.iter().zip(&self.workers) {
            if parked.swap(false, Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
        shared.call(code, 0);
        let mut spins = 0;
        while shared.running.load(Ordering::Acquire) > 0 {
            if !self.ahead.fetch(shared, 0) {
                relax(&mut spins);
            }
        }
        if shared.panicked.swap(false, Ordering::Relaxed)
            && let Some(panic) = lock(&shared.panic).take()
        {
            resume_unwind(panic);
        }
    }

    /// Tells workers what they will need after the next region, if they find the time: `bytes` from `start` on for worker 0,
    /// as many after them for worker 1, and so on. Tasks of a region with numbers below that of workers begin with the
    /// worker of the number. Any address will do.
    pub(crate) fn announce(&mut self, start: *const u8, bytes: usize) {
        self.shared.announced.0.store(start.cast_mut(), Ordering::Relaxed);
        self.shared.announced.1.store(bytes, Ordering::Relaxed);
    }

    /// Calls `task(i)` for each `i < count`, each on some worker.
    pub(crate) fn each(&mut self, count: usize, task: impl Fn(usize) + Sync) {
        if count == 1 {
            return task(0);
        }
        let tasks = Tasks::new(count, self.threads());
        self.run(&|worker| tasks.take(worker, &task));
    }

    /// As [`each`](Self::each), with a state of each worker.
    pub(crate) fn each_with<S: Send>(&mut self, count: usize, states: &mut [S], task: impl Fn(&mut S, usize) + Sync) {
        assert_eq!(states.len(), self.threads());
        if count == 1 {
            return task(&mut states[0], 0);
        }
        let (tasks, states) = (Tasks::new(count, self.threads()), SharedOut::new(states));
        self.run(&|worker| {
            // SAFETY: each worker has one state.
            let state = &mut unsafe { states.part(worker, 1) }[0];
            tasks.take(worker, |i| task(state, i));
        });
    }

    /// First all of `first`, then all of `second` as [`each_with`](Self::each_with), in one region.
    pub(crate) fn phases<S: Send>(
        &mut self,
        first: (usize, impl Fn(usize) + Sync),
        second: (usize, impl Fn(&mut S, usize) + Sync),
        states: &mut [S],
    ) {
        assert_eq!(states.len(), self.threads());
        let tasks = |count| Tasks::new(count, self.threads());
        let (tasks, more_tasks, states) = (tasks(first.0), tasks(second.0), SharedOut::new(states));
        let (shared, barrier) = (self.shared.clone(), Barrier::new(self.threads()));
        self.run(&|worker| {
            tasks.take(worker, &first.1);
            barrier.wait(&shared.panicked);
            // SAFETY: each worker has one state.
            let state = &mut unsafe { states.part(worker, 1) }[0];
            more_tasks.take(worker, |i| second.1(state, i));
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.region.fetch_add(1, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches the panics of its regions, so it ends well.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn work(&self, worker: usize) {
        let (mut seen, mut ahead) = (0, Ahead::default());
        loop {
            seen = self.next_region(worker, seen, &mut ahead);
            if self.ended.load(Ordering::SeqCst) {
                return;
            }
            let code = *lock(&self.code);
            if let Some(Code(code)) = code {
                // SAFETY: `Pool::run` keeps the code alive until `running` is 0.
                self.call(unsafe { &*code }, worker);
            }
            self.running.fetch_sub(1, Ordering::Release);
        }
    }

    /// Waits for a region after `seen`.
    fn next_region(&self, worker: usize, seen: u32, ahead: &mut Ahead) -> u32 {
        let mut spins = 0;
        while spins < SPINS {
            let region = self.region.load(Ordering::SeqCst);
            if region != seen {
                return region;
            }
            if !ahead.fetch(self, worker) {
                spins += 1;
                std::hint::spin_loop();
            }
        }
        loop {
            // In this order a region that starts meanwhile is seen here, or its caller sees that we are parked.
            self.parked[worker - 1].store(true, Ordering::SeqCst);
            let region = self.region.load(Ordering::SeqCst);
            if region != seen {
                self.parked[worker - 1].store(false, Ordering::SeqCst);
                return region;
            }
            std::thread::park();
        }
    }

    fn call(&self, code: &(dyn Fn(usize) + Sync), worker: usize) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| code(worker))) {
            lock(&self.panic).get_or_insert(panic);
            self.panicked.store(true, Ordering::Release);
        }
    }
}

/// How far a worker has fetched what was announced.
#[derive(Default)]
struct Ahead {
    start: usize,
    fetched: usize,
}

impl Ahead {
    /// Asks for a few lines more; `false` if there are none.
    fn fetch(&mut self, shared: &Shared, worker: usize) -> bool {
        const LINES: usize = 8;
        let start = shared.announced.0.load(Ordering::Relaxed).cast_const();
        let bytes = shared.announced.1.load(Ordering::Relaxed);
        if start.addr() != self.start {
            *self = Ahead { start: start.addr(), fetched: 0 };
        }
        if self.fetched >= bytes {
            return false;
        }
        for line in 0..LINES {
            simd::prefetch_l2(start.wrapping_add(worker * bytes + self.fetched + line * 64));
        }
        self.fetched += LINES * 64;
        true
    }
}

/// Indices that workers take one after the other, after each has had the one of its number.
struct Tasks {
    next: AtomicUsize,
    count: usize,
}

impl Tasks {
    fn new(count: usize, workers: usize) -> Self {
        Tasks { next: AtomicUsize::new(workers), count }
    }

    fn take(&self, worker: usize, mut task: impl FnMut(usize)) {
        let mut i = worker;
        while i < self.count {
            task(i);
            i = self.next.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Where workers wait for each other inside a region.
struct Barrier {
    arrived: AtomicUsize,
    threads: usize,
}

impl Barrier {
    fn new(threads: usize) -> Self {
        Barrier { arrived: AtomicUsize::new(0), threads }
    }

    fn wait(&self, panicked: &AtomicBool) {
        self.arrived.fetch_add(1, Ordering::AcqRel);
        let mut spins = 0;
        while self.arrived.load(Ordering::Acquire) < self.threads {
            assert!(!panicked.load(Ordering::Acquire), "another worker panicked");
            relax(&mut spins);
        }
    }
}

/// Waits a little; after a while it lets others run, since there may be more workers than cores.
fn relax(spins: &mut u32) {
    *spins += 1;
    if spins.is_multiple_of(SPINS) { std::thread::yield_now() } else { std::hint::spin_loop() }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(pool: &mut Pool, count: usize) -> usize {
        let total = AtomicUsize::new(0);
        pool.each(count, |i| {
            total.fetch_add(i, Ordering::Relaxed);
        });
        total.into_inner()
    }

    #[test]
    fn every_task_runs_once_on_any_number_of_threads() {
        for threads in 1..6 {
            let mut pool = Pool::new(threads).unwrap();
            for count in (0..300).chain([1000]) {
                assert_eq!(sum(&mut pool, count), count * count.saturating_sub(1) / 2);
            }
        }
    }

    #[test]
    fn the_second_phase_sees_all_of_the_first() {
        for threads in 1..4 {
            let mut pool = Pool::new(threads).unwrap();
            for _ in 0..200 {
                let (done, short) = (AtomicUsize::new(0), AtomicUsize::new(0));
                let first = |_| {
                    done.fetch_add(1, Ordering::Relaxed);
                };
                let second = |(): &mut (), _| {
                    short.fetch_add((done.load(Ordering::Relaxed) < 7) as usize, Ordering::Relaxed);
                };
                pool.phases((7, first), (5, second), &mut vec![(); threads]);
                assert_eq!((done.into_inner(), short.into_inner()), (7, 0));
            }
        }
    }

    #[test]
    fn workers_park_and_wake() {
        let mut pool = Pool::new(3).unwrap();
        assert_eq!(sum(&mut pool, 10), 45);
        while !pool.shared.parked.iter().all(|parked| parked.load(Ordering::SeqCst)) {
            std::thread::yield_now();
        }
        assert_eq!(sum(&mut pool, 10), 45);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let mut pool = Pool::new(3).unwrap();
        for _ in 0..20 {
            let failing = |i: usize| assert!(i != 5, "task five");
            let panic =
                catch_unwind(AssertUnwindSafe(|| pool.phases((9, failing), (9, |(): &mut (), _| ()), &mut [(); 3])))
                    .unwrap_err();
            assert_eq!(panic.downcast_ref::<&str>(), Some(&"task five"));
            assert_eq!(sum(&mut pool, 100), 4950);
        }
    }
}
