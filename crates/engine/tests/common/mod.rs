//! Engines of a tiny model on backends that a test can hold and count.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use std::sync::mpsc::{Receiver, Sender, channel};

use kapitsa_cpu::{Cpu, CpuOptions, Isa};
use kapitsa_engine::sample::SamplingOptions;
use kapitsa_engine::{Engine, EngineError, Event, Finish, Generation, Limits, Request, Runner};
use kapitsa_ops::kv::{KvLayout, PageId};
use kapitsa_ops::state::{StateId, StateLayout};
use kapitsa_ops::{Backend, Batch, DeviceError, Outputs, Program};
use kapitsa_tensor::{DType, Weight};
use kapitsa_testkit::fixture;
use kapitsa_weights::Checkpoint;

/// Makes a backend for a KV layout.
pub type MakeBackend = Box<dyn Fn(KvLayout) -> Box<dyn Backend>>;

/// Every kind of backend that must give the same bits, with a name for messages.
pub fn backends() -> Vec<(String, MakeBackend)> {
    let cpu = |threads, isa| -> (String, MakeBackend) {
        let options = CpuOptions { isa: Some(isa), ..CpuOptions::new(threads) };
        let make = move |layout| -> Box<dyn Backend> { Box::new(Cpu::new(layout, &options).unwrap()) };
        (format!("cpu, {threads} threads, {isa:?}"), Box::new(make))
    };
    Isa::present().into_iter().flat_map(|isa| [1, 2, 3].map(|threads| cpu(threads, isa))).collect()
}

pub fn limits() -> Limits {
    Limits { context: 1024, slots: 3, queue: 8, kv_tokens: 4096 }
}

/// What a test does with the step that waits.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    Run,
    /// The device has no memory.
    Fail,
    /// All logits of a wanted row are NaN.
    Nan(usize),
    Panic,
    /// A panic that cannot be caught: what it says panics when it is dropped.
    Crash,
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("ordered by the test");
    }
}

/// Holds every step until it is ordered to go on.
pub struct Gate {
    begun: Receiver<usize>,
    orders: Sender<Order>,
}

impl Gate {
    /// Waits until a step has begun; the number of its rows.
    pub fn begun(&self) -> usize {
        self.begun.recv().unwrap()
    }

    pub fn order(&self, order: Order) {
        self.orders.send(order).unwrap();
    }

    /// Lets a step begin and end.
    pub fn step(&self) -> usize {
        let rows = self.begun();
        self.order(Order::Run);
        rows
    }

    /// Lets all steps run from now on. They can still be counted: the receiver ends with the engine.
    pub fn open(self) -> Receiver<usize> {
        self.begun
    }
}

struct Gated {
    inner: Box<dyn Backend>,
    begun: Sender<usize>,
    orders: Receiver<Order>,
}

impl Backend for Gated {
    fn load(&mut self, program: &Program, copied: &mut dyn FnMut(&Weight)) -> Result<(), DeviceError> {
        self.inner.load(program, copied)
    }

    fn reserve(&mut self, group: usize, pages: usize) -> Result<(), DeviceError> {
        self.inner.reserve(group, pages)
    }

    fn reserve_states(&mut self, layout: &StateLayout, count: usize) -> Result<(), DeviceError> {
        self.inner.reserve_states(layout, count)
    }

    fn save_state(&self, id: StateId) -> Vec<f32> {
        self.inner.save_state(id)
    }

    fn load_state(&mut self, id: StateId, values: &[f32]) {
        self.inner.load_state(id, values);
    }

    fn copy_page(&mut self, group: usize, from: PageId, to: PageId) {
        self.inner.copy_page(group, from, to);
    }

    fn commit(&mut self, program: &Program, batch: &Batch, sequence: usize, path: &[usize]) {
        self.inner.commit(program, batch, sequence, path);
    }

    fn run(&mut self, program: &Program, batch: &Batch, outputs: &mut Outputs) -> Result<(), DeviceError> {
        let _ = self.begun.send(batch.len());
        let order = self.orders.recv().unwrap_or(Order::Run);
        self.inner.run(program, batch, outputs)?;
        match order {
            Order::Run => {}
            Order::Fail => return Err(DeviceError::OutOfMemory { what: "a test", bytes: 1 }),
            Order::Nan(row) => {
                let vocab = outputs.logits.len() / batch.wanted().len();
                outputs.logits[row * vocab..][..vocab].fill(f32::NAN);
            }
            Order::Panic => panic!("ordered by the test"),
            Order::Crash => std::panic::panic_any(Bomb),
        }
        Ok(())
    }
}

/// An engine on `make`'s backend, and the gate before its steps.
pub fn gated(make: &MakeBackend, limits: Limits) -> (Engine, Gate) {
    gated_on("llama", make, limits)
}

/// As [`gated`], of another model.
pub fn gated_on(case: &str, make: &MakeBackend, limits: Limits) -> (Engine, Gate) {
    let checkpoint = Checkpoint::open(&fixture(&format!("oracle/models/{case}"))).unwrap();
    let model = kapitsa_models::load(&checkpoint).unwrap();
    let layout = KvLayout::new(DType::F16, &model.info().kv);
    let (begun, their_begun) = channel();
    let (their_orders, orders) = channel();
    let backend = Gated { inner: make(layout.clone()), begun, orders };
    let runner = Runner::load(model, Box::new(backend), &layout, &mut |_| {}).unwrap();
    (Engine::start(runner, limits).unwrap(), Gate { begun: their_begun, orders: their_orders })
}

/// As [`gated`], on one thread.
pub fn gated_one(limits: Limits) -> (Engine, Gate) {
    gated(&backends().remove(0).1, limits)
}

/// An engine on one thread that nothing holds up.
pub fn plain(limits: Limits) -> Engine {
    let (engine, gate) = gated_one(limits);
    drop(gate);
    engine
}

/// A request of `tokens` tokens for `max_tokens` more, unlike those of other seeds.
pub fn request(seed: u64, tokens: usize, max_tokens: usize) -> Request {
    Request {
        prompt: (0..tokens as u64).map(|i| ((i * i + 7 * seed + 3 * i) % 256) as u32).collect(),
        images: vec![],
        sampling: SamplingOptions {
            temperature: 0.8,
            top_p: 0.95,
            repetition_penalty: 1.1,
            seed,
            ..Default::default()
        },
        stop_tokens: vec![],
        max_tokens: Some(max_tokens),
        logprobs: Some(3),
        constraint: None,
    }
}

/// A token and the bits of its log-probability.
pub type Bits = (u32, u32);

/// All that a reply said.
#[derive(Debug, Default)]
pub struct Heard {
    pub reads: Vec<usize>,
    pub ids: Vec<u32>,
    /// Of each token: its own log-probability, then those of the best.
    pub logprobs: Vec<Vec<Bits>>,
    pub finish: Option<Finish>,
    pub error: Option<EngineError>,
}

impl Heard {
    pub fn hear(&mut self, event: Event) {
        match event {
            Event::Prefill { read } => self.reads.push(read),
            Event::Token { id, logprobs } => {
                self.ids.push(id);
                self.logprobs.extend(logprobs.map(|of| {
                    let top = of.top.iter().map(|top| (top.id, top.logprob.to_bits()));
                    [(id, of.logprob.to_bits())].into_iter().chain(top).collect()
                }));
            }
            Event::Finished(finish) => self.finish = Some(finish),
            Event::Failed(error) => self.error = Some(error),
        }
    }

    /// What must be the same however the reply was made.
    pub fn reply(&self) -> (&[u32], &[Vec<Bits>], Option<Finish>) {
        (&self.ids, &self.logprobs, self.finish)
    }
}

/// Reads a reply to its end.
pub fn hear(mut generation: Generation) -> Heard {
    let mut heard = Heard::default();
    while let Some(event) = generation.recv() {
        heard.hear(event);
    }
    assert!(heard.finish.is_some() != heard.error.is_some(), "{heard:?}");
    heard
}

/// What `request` gives when nothing else runs.
pub fn alone(request: &Request) -> Heard {
    hear(plain(limits()).submit(request.clone()).unwrap())
}
