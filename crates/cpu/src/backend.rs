//! The backend: options, packed weights, memory between steps.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kapitsa_ops::kv::{HostKv, KvLayout, PageId};
use kapitsa_ops::state::{HostStates, StateId, StateLayout};
use kapitsa_ops::{Backend, Batch, DeviceError, Op, Outputs, Program};
use kapitsa_tensor::{Format, Weight};

use crate::isa::Isa;
use crate::memory::Large;
use crate::packed::{Layout, Packed, Plan, Tiling};
use crate::pool::Pool;
use crate::step::{Memory, Scratch, Step};
use crate::tune::{self, Tiles};

/// How the CPU computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuOptions {
    /// Worker threads, the engine's own included.
    pub threads: usize,
    /// Instruction set of the kernels; the best present if `None`.
    pub isa: Option<Isa>,
    /// What quantised weights multiply.
    pub activations: Activations,
    /// How weights are walked through. It changes no bit.
    pub tiles: Tiles,
}

/// What quantised weights multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activations {
    /// Eight-bit codes with a scale for each 32 values, where the weight's format has fast kernels.
    Int8,
    /// The values as they are.
    F32,
}

impl CpuOptions {
    /// The fast way on `threads` threads.
    pub fn new(threads: usize) -> Self {
        CpuOptions { threads, isa: None, activations: Activations::Int8, tiles: Tiles::Measured }
    }
}

/// The CPU of this machine.
pub struct Cpu {
    isa: Isa,
    activations: Activations,
    tiles: Tiles,
    pool: Pool,
    arena: Large<f32>,
    kv: HostKv,
    states: HostStates,
    packed: PackedWeights,
    /// What has been measured to be best for each layout.
    tilings: HashMap<Layout, Tiling>,
    scratch: Scratch,
}

/// The panels of each weight that has been loaded, if it has some. The stored weight is kept so that no address is used
/// again.
#[derive(Default)]
pub(crate) struct PackedWeights(HashMap<Place, (Weight, Option<Packed>)>);

/// What tells weights apart: the address of their bytes, and how these are read.
type Place = (usize, Format, usize, usize);

impl PackedWeights {
    /// The panels of a weight, if it has some.
    pub(crate) fn get(&self, weight: &Weight) -> Option<&Packed> {
        let (_, packed) = self.0.get(&place(weight)).expect("the weights of a program are loaded before it runs");
        packed.as_ref()
    }
}

impl Cpu {
    /// A backend with an empty KV cache.
    ///
    /// # Errors
    /// If the threads cannot be started.
    ///
    /// # Panics
    /// If the machine does not have the instruction set that is asked for.
    pub fn new(layout: KvLayout, options: &CpuOptions) -> Result<Self, DeviceError> {
        assert!(options.isa.is_none_or(|isa| Isa::present().contains(&isa)), "{options:?} on a machine without it");
        Ok(Cpu {
            isa: options.isa.unwrap_or_else(Isa::best),
            activations: options.activations,
            tiles: options.tiles,
            pool: Pool::new(options.threads)?,
            arena: Large::default(),
            kv: HostKv::new(layout),
            states: HostStates::default(),
            packed: PackedWeights::default(),
            tilings: HashMap::new(),
            scratch: Scratch::default(),
        })
    }

    /// Everything that a step on `batch` uses.
    fn step<'a>(&'a mut self, program: &'a Program, batch: &'a Batch) -> Step<'a> {
        let Cpu { isa, pool, arena, kv, states, packed, scratch, .. } = self;
        let memory = Memory { program, batch, arena: arena.as_mut_slice() };
        Step { isa: *isa, pool, memory, kv, states, packed, scratch }
    }

    /// The layout that a weight is packed in; `None` if it is read as it is stored.
    fn layout_of(&self, weight: &Weight) -> Option<Layout> {
        Layout::of(weight.format()).filter(|layout| self.activations == Activations::Int8 || !layout.is_quantised())
    }
}

fn place(weight: &Weight) -> Place {
    (weight.planes()[0].as_ptr() as usize, *weight.format(), weight.rows(), weight.cols())
}

/// Weights that `program` multiplies by.
fn multiplied(program: &Program) -> impl Iterator<Item = &Weight> {
    program.ops().iter().flat_map(|op| match op {
        Op::Linear(op) => std::slice::from_ref(&op.weight),
        Op::ExpertLinear(op) => &op.experts[..],
        _ => &[],
    })
}

impl Backend for Cpu {
    fn load(&mut self, program: &Program, copied: &mut dyn FnMut(&Weight)) -> Result<(), DeviceError> {
        let mut met = HashSet::new();
        let is_new = |weight: &&Weight| !self.packed.0.contains_key(&place(weight)) && met.insert(place(weight));
        let weights: Vec<&Weight> = multiplied(program).filter(is_new).collect();
        let planned = |&weight| Some((weight, Plan::new(self.layout_of(weight)?, weight)));
        let plans: Vec<(&Weight, Plan)> = weights.iter().filter_map(planned).collect();
        let lines = plans.iter().map(|(_, plan)| plan.lines());
        let mut memory = Large::zeros(lines.clone().sum(), "packed weights")?;
        let starts: Vec<usize> = lines.scan(0, |end, lines| Some(std::mem::replace(end, *end + lines))).collect();

        // The largest first: the most memory is in use when the last copy stands beside its original.
        let mut order: Vec<usize> = (0..plans.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(plans[i].0.bytes()));
        for i in order {
            let (weight, plan) = &plans[i];
            plan.pack(weight, &mut memory.as_mut_slice()[starts[i]..][..plan.lines()], &mut self.pool);
            copied(weight);
        }
        self.packed.0.extend(weights.into_iter().map(|weight| (place(weight), (weight.clone(), None))));
        let memory = Arc::new(memory);
        for i in (0..plans.len()).rev() {
            let (weight, plan) = &plans[i];
            let mut packed = plan.packed(memory.clone(), starts[i]);
            if packed.layout.is_quantised() {
                let Cpu { tilings, tiles, isa, pool, .. } = self;
                let tiling = || tune::tiling(*tiles, *isa, pool, &packed, weight.rows());
                packed.tiling = *tilings.entry(packed.layout).or_insert_with(tiling);
            }
            self.packed.0.insert(place(weight), ((*weight).clone(), Some(packed)));
        }
        Ok(())
    }

    fn reserve(&mut self, group: usize, pages: usize) -> Result<(), DeviceError> {
        self.kv.reserve(group, pages)
    }

    fn reserve_states(&mut self, layout: &StateLayout, count: usize) -> Result<(), DeviceError> {
        self.states.reserve(layout, count)
    }

    fn save_state(&self, id: StateId) -> Vec<f32> {
        self.states.save(id)
    }

    fn load_state(&mut self, id: StateId, values: &[f32]) {
        self.states.load(id, values);
    }

    fn copy_page(&mut self, group: usize, from: PageId, to: PageId) {
        self.kv.copy_page(group, from, to);
    }

    fn commit(&mut self, program: &Program, batch: &Batch, sequence: usize, path: &[usize]) {
        self.kv.commit(batch, sequence, path);
        let mut step = self.step(program, batch);
        program.ops().iter().for_each(|op| step.commit(op, sequence, path));
    }

    fn run(&mut self, program: &Program, batch: &Batch, outputs: &mut Outputs) -> Result<(), DeviceError> {
        if self.arena.len() < program.arena_len() {
            self.arena = Large::zeros(program.arena_len(), "activations")?;
        }
        self.scratch.begin();
        let mut step = self.step(program, batch);
        let mut ops = program.ops();
        while !ops.is_empty() {
            ops = &ops[step.run(ops)..];
        }
        let memory = step.memory;
        outputs.logits.extend_from_slice(memory.read(program.logits()));
        program.taps().iter().for_each(|(tap, x)| outputs.add(*tap, x.element(), memory.read(*x)));
        Ok(())
    }
}
