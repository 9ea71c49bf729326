//! One step: the ops of a program, one after the other.

use kapitsa_ops::kv::{HostKv, Part};
use kapitsa_ops::state::HostStates;
use kapitsa_ops::{Batch, ExpertCombine, ExpertLinear, Op, Program, Rule, Tensor};

use crate::backend::PackedWeights;
use crate::isa::Isa;
use crate::kernel::FEW_ROWS;
use crate::linear::{self, Input, Job, Rows};
use crate::pool::Pool;
use crate::shared::SharedOut;
use crate::{attention, kv_write, recurrent, rows};

/// What a step uses.
pub(crate) struct Step<'a> {
    pub(crate) isa: Isa,
    pub(crate) pool: &'a mut Pool,
    pub(crate) memory: Memory<'a>,
    pub(crate) kv: &'a mut HostKv,
    pub(crate) states: &'a mut HostStates,
    pub(crate) packed: &'a PackedWeights,
    pub(crate) scratch: &'a mut Scratch,
}

/// Working memory, kept from step to step.
#[derive(Default)]
pub(crate) struct Scratch {
    linear: linear::Scratch,
    attention: attention::Scratch,
    full_attention: attention::FullScratch,
    recurrent: recurrent::Scratch,
    /// Empty; its memory is used for the jobs of each call.
    jobs: Vec<Job<'static>>,
    /// Experts and the choices that fell on them.
    chosen: Vec<(u32, usize)>,
}

impl Scratch {
    /// Forgets what belongs to the tensors of the last step.
    pub(crate) fn begin(&mut self) {
        self.linear.begin();
    }
}

/// The tensors of a program.
pub(crate) struct Memory<'a> {
    pub(crate) program: &'a Program,
    pub(crate) batch: &'a Batch,
    pub(crate) arena: &'a mut [f32],
}

impl Memory<'_> {
    /// Where the next weight begins that all rows of the batch are multiplied by, and the bytes of a task on it.
    fn next_weight(&self, ops: &[Op], packed: &PackedWeights, threads: usize) -> Option<(*const u8, usize)> {
        let at = ops.iter().position(|op| matches!(op, Op::Linear(_) | Op::ExpertLinear(_)))?;
        let Op::Linear(op) = &ops[at] else { return None };
        let group = &ops[at..][..self.same_input(&ops[at..])];
        let bytes = group.iter().map(|op| if let Op::Linear(op) = op { op.weight.bytes() } else { 0 }).sum();
        let packed = packed.get(&op.weight)?;
        Some((packed.panel(0), linear::panels(packed, bytes, threads) * packed.panel_bytes))
    }

    /// The rows of a tensor.
    pub(crate) fn read(&self, x: Tensor) -> &[f32] {
        &self.arena[self.place(x)]
    }

    fn place(&self, x: Tensor) -> std::ops::Range<usize> {
        self.program.place(x, self.batch.len(), self.batch.wanted().len())
    }

    /// How many products with the first op's input stand at the head of `ops`, as long as their outputs are apart; 1 if that
    /// is another op.
    fn same_input(&self, ops: &[Op]) -> usize {
        let linear = |op: &Op| match op {
            Op::Linear(op) => Some((op.x, self.place(op.out))),
            _ => None,
        };
        let joins = |i: usize| {
            let apart = |j: usize| {
                let ((x, a), (of, b)) = (linear(&ops[i])?, linear(&ops[j])?);
                Some(x == of && (a.end <= b.start || b.end <= a.start))
            };
            (0..i).all(|j| apart(j) == Some(true))
        };
        (1..ops.len()).find(|&i| !joins(i)).unwrap_or(ops.len())
    }

    /// The op's output and inputs. They are apart in the arena, since an output is placed while its op's inputs live.
    fn operands<const N: usize>(&mut self, op: &dyn Rule, inputs: [Tensor; N]) -> (&mut [f32], [&[f32]; N]) {
        let out = self.place(op.output().expect("an op with an output"));
        let inputs = inputs.map(|x| self.place(x));
        let (below, rest) = self.arena.split_at_mut(out.start);
        let (output, above) = rest.split_at_mut(out.len());
        let (below, above) = (&*below, &*above);
        let inputs =
            inputs.map(|x| if x.start < out.start { &below[x] } else { &above[x.start - out.end..x.end - out.end] });
        (output, inputs)
    }
}

impl Step<'_> {
    /// Moves the states of `sequence`, a draft, on over `path`, from what the recurrent ops read when they last ran.
    pub(crate) fn commit(&mut self, op: &Op, sequence: usize, path: &[usize]) {
        let Step { isa, pool, memory, states, scratch, .. } = self;
        let (scratch, batch) = (&mut scratch.recurrent, memory.batch);
        let path = recurrent::Rows::Path { sequence, path };
        match op {
            Op::ShortConv(op) => recurrent::conv(*isa, pool, (op, batch, path, states), memory.read(op.x), &mut []),
            Op::GatedDelta(op) => {
                let x = [op.qkv, op.a, op.b].map(|x| memory.read(x));
                recurrent::delta(*isa, pool, scratch, (op, batch, path, states), x, &mut []);
            }
            Op::Mamba2(op) => {
                let x = [op.xbc, op.dt].map(|x| memory.read(x));
                recurrent::mamba(*isa, pool, scratch, (op, batch, path, states), x, &mut []);
            }
            _ => {}
        }
    }

    /// Runs the first of `ops`, and with it those after it that make one parallel region with it; tells how many.
    pub(crate) fn run(&mut self, ops: &[Op]) -> usize {
        let Step { isa, pool, memory, kv, states, packed, scratch } = self;
        let Scratch { linear, attention, full_attention, recurrent, jobs: spare, chosen } = &mut **scratch;
        let (isa, batch) = (*isa, memory.batch);
        let count = memory.same_input(ops);
        let next = match batch.len() {
            ..=FEW_ROWS => memory.next_weight(&ops[count..], packed, pool.threads()),
            _ => None,
        };
        let (start, bytes) = next.unwrap_or((std::ptr::null(), 0));
        pool.announce(start, bytes);
        match &ops[0] {
            Op::Embed(op) => {
                let (out, []) = memory.operands(op, []);
                rows::each(pool, out, op.out.width(), |r, out| op.embed(batch, r, out));
            }
            Op::Linear(op) => {
                let x = memory.place(op.x);
                let rows = x.len() / op.x.width();
                let mut jobs = recycle(std::mem::take(spare));
                jobs.extend(ops[..count].iter().map(|op| {
                    let Op::Linear(op) = op else { unreachable!("the ops are products") };
                    let (out_at, width) = (memory.place(op.out).start, op.out.width());
                    Job {
                        weight: &op.weight,
                        packed: packed.get(&op.weight),
                        bias: op.bias.as_ref().map(|b| b.values()),
                        rows: Rows::First { count: rows, out_at, width },
                    }
                }));
                let arena = SharedOut::new(memory.arena);
                // SAFETY: the outputs are apart from each other and from the input, which nobody writes.
                unsafe {
                    let x = arena.read(x.start, x.len());
                    linear::run(isa, pool, linear, &Input { of: op.x, x, cols: op.weight.cols() }, &jobs, &arena);
                }
                *spare = recycle(jobs);
            }
            Op::RmsNorm(op) => {
                let (out, [x]) = memory.operands(op, [op.x]);
                rows::each(pool, out, op.out.width(), |r, out| rows::rms_norm(isa, op, row(x, op.x, r), out));
            }
            Op::RotaryAngles(op) => {
                let (out, []) = memory.operands(op, []);
                rows::each(pool, out, op.out.width(), |r, out| op.at(batch.coordinates(r), out));
            }
            Op::Rotary(op) => {
                let (out, [x, angles]) = memory.operands(op, [op.x, op.angles]);
                rows::each(pool, out, op.out.width(), |r, out| {
                    let heads = row(x, op.x, r).chunks_exact(op.head_dim).zip(out.chunks_exact_mut(op.head_dim));
                    heads.for_each(|(x, out)| op.turn(x, row(angles, op.angles, r), out));
                });
            }
            Op::KvWrite(op) => {
                for (part, x) in [(Part::Key, op.keys), (Part::Value, op.values)] {
                    kv_write::run(kv, batch, op, part, memory.read(x));
                }
            }
            Op::Attention(op) => {
                let (out, [q]) = memory.operands(op, [op.q]);
                attention::run(isa, pool, attention, (op, batch, kv), q, out);
            }
            Op::SiluMul(op) => {
                let (out, [gate, up]) = memory.operands(op, [op.gate, op.up]);
                rows::each(pool, out, op.out.width(), |r, out| {
                    let kernel = rows::SiluMul { gate: row(gate, op.gate, r), up: row(up, op.up, r), out };
                    // SAFETY: it makes no demands.
                    unsafe { isa.run(kernel) }
                });
            }
            Op::Add(op) => {
                let (out, [a, b]) = memory.operands(op, [op.a, op.b]);
                rows::each(pool, out, op.out.width(), |r, out| rows::add(isa, row(a, op.a, r), row(b, op.b, r), out));
            }
            Op::GatherRows(op) => {
                let (out, [x]) = memory.operands(op, [op.x]);
                rows::each(pool, out, op.out.width(), |r, out| out.copy_from_slice(row(x, op.x, batch.wanted()[r])));
            }
            Op::FullAttention(op) => {
                let (out, qkv) = memory.operands(op, [op.q, op.k, op.v]);
                attention::full(isa, pool, full_attention, (op, batch), qkv, out);
            }
            Op::SigmoidMul(op) => {
                let (out, [x, gate]) = memory.operands(op, [op.x, op.gate]);
                rows::each(pool, out, op.out.width(), |r, out| {
                    let kernel = rows::SigmoidMul { x: row(x, op.x, r), gate: row(gate, op.gate, r), out };
                    // SAFETY: it makes no demands.
                    unsafe { isa.run(kernel) }
                });
            }
            Op::Relu2(op) => {
                let (out, [x]) = memory.operands(op, [op.x]);
                rows::each(pool, out, op.out.width(), |r, out| rows::relu2(isa, row(x, op.x, r), out));
            }
            Op::Gelu(op) => {
                let (out, [x]) = memory.operands(op, [op.x]);
                rows::each(pool, out, op.out.width(), |r, out| {
                    // SAFETY: it makes no demands.
                    unsafe { isa.run(rows::Gelu { x: row(x, op.x, r), kind: op.kind, out }) }
                });
            }
            Op::LayerNorm(op) => {
                let (out, [x]) = memory.operands(op, [op.x]);
                rows::each(pool, out, op.out.width(), |r, out| rows::layer_norm(isa, op, row(x, op.x, r), out));
            }
            Op::ShortConv(op) => {
                let (out, [x]) = memory.operands(op, [op.x]);
                recurrent::conv(isa, pool, (op, batch, recurrent::Rows::All, states), x, out);
            }
            Op::GatedDelta(op) => {
                let (out, x) = memory.operands(op, [op.qkv, op.a, op.b]);
                recurrent::delta(isa, pool, recurrent, (op, batch, recurrent::Rows::All, states), x, out);
            }
            Op::Mamba2(op) => {
                let (out, x) = memory.operands(op, [op.xbc, op.dt]);
                recurrent::mamba(isa, pool, recurrent, (op, batch, recurrent::Rows::All, states), x, out);
            }
            Op::Input(op) => {
                let (out, []) = memory.operands(op, []);
                rows::each(pool, out, op.out.width(), |r, out| op.read(batch, r, out));
            }
            Op::Columns(op) => {
                let (out, [x]) = memory.operands(op, [op.x]);
                rows::each(pool, out, op.out.width(), |r, out| op.take(row(x, op.x, r), out));
            }
            Op::Concat(op) => {
                let (out, [a, b]) = memory.operands(op, [op.a, op.b]);
                rows::each(pool, out, op.out.width(), |r, out| {
                    let (left, right) = out.split_at_mut(op.a.width());
                    left.copy_from_slice(row(a, op.a, r));
                    right.copy_from_slice(row(b, op.b, r));
                });
            }
            Op::MergeRows(op) => {
                let (out, [x]) = memory.operands(op, [op.x]);
                let width = op.out.width();
                rows::each(pool, out, width, |r, out| {
                    out.copy_from_slice(&x[batch.wanted()[r] * op.x.width()..][..width]);
                });
            }
            Op::RouterScores(op) => {
                let (out, [logits]) = memory.operands(op, [op.logits]);
                rows::each(pool, out, op.out.width(), |r, out| op.score(row(logits, op.logits, r), out));
            }
            Op::Route(op) => {
                let (out, [logits]) = memory.operands(op, [op.logits]);
                rows::each(pool, out, op.out.width(), |r, out| {
                    op.choose(row(logits, op.logits, r), bytemuck::cast_slice_mut(out));
                });
            }
            Op::ExpertWeights(op) => {
                let (out, [logits, ids]) = memory.operands(op, [op.logits, op.ids]);
                rows::each(pool, out, op.out.width(), |r, out| {
                    let ids = bytemuck::cast_slice(row(ids, op.ids, r));
                    op.weigh(row(logits, op.logits, r), ids, out);
                });
            }
            Op::ExpertLinear(op) => {
                let (out, [x, ids]) = memory.operands(op, [op.x, op.ids]);
                let mut jobs = recycle(std::mem::take(spare));
                expert_jobs(op, packed, bytemuck::cast_slice(ids), chosen, &mut jobs);
                let input = Input { of: op.x, x, cols: op.input_width() };
                // SAFETY: inputs and outputs of an op are apart.
                unsafe { linear::run(isa, pool, linear, &input, &jobs, &SharedOut::new(out)) };
                *spare = recycle(jobs);
            }
            Op::ExpertCombine(op) => {
                let (out, [x, weights]) = memory.operands(op, [op.x, op.weights]);
                rows::each(pool, out, op.out.width(), |r, out| {
                    ExpertCombine::combine(row(x, op.x, r), row(weights, op.weights, r), out);
                });
            }
        }
        count
    }
}

/// Row `r` of the data of `x`.
fn row(data: &[f32], x: Tensor, r: usize) -> &[f32] {
    &data[r * x.width()..][..x.width()]
}

/// One job for each expert that some row chose, in ascending order.
fn expert_jobs<'a>(
    op: &'a ExpertLinear,
    packed: &'a PackedWeights,
    ids: &[u32],
    chosen: &'a mut Vec<(u32, usize)>,
    jobs: &mut Vec<Job<'a>>,
) {
    let k = op.ids.width();
    // A row of `x` is one input for all its experts, or one for each.
    let choices = if op.x.width() == op.input_width() { k } else { 1 };
    let width = op.out.width() / k;
    chosen.clear();
    chosen.extend(ids.iter().enumerate().map(|(at, &id)| (id, at)));
    chosen.sort_unstable();
    jobs.extend(chosen.chunk_by(|a, b| a.0 == b.0).map(|by| {
        let weight = &op.experts[by[0].0 as usize];
        Job { weight, packed: packed.get(weight), bias: None, rows: Rows::Chosen { by, choices, width } }
    }));
}

/// The memory of `jobs` for jobs that live longer or shorter (the standard library collects in place).
fn recycle<'b>(mut jobs: Vec<Job<'_>>) -> Vec<Job<'b>> {
    jobs.clear();
    jobs.into_iter().map(|_| unreachable!("there are no jobs")).collect()
}
