//! Runs programs op by op.

use kapitsa_ops::kv::{HostKv, KvLayout, PAGE_TOKENS, Part};
use kapitsa_ops::{
    Backend, Batch, DeviceError, ExpertCombine, ExpertLinear, ExpertWeights, KvWrite, Op, Outputs, Program, Route,
    Rule, Tensor,
};
use kapitsa_tensor::Weight;

use crate::lanes::Isa;
use crate::product::{self, Job};
use crate::{attention, rows};

/// The CPU of this machine.
pub struct Cpu {
    isa: Isa,
    pool: rayon::ThreadPool,
    arena: Vec<f32>,
    kv: HostKv,
}

impl Cpu {
    /// A backend with an empty KV cache and `threads` worker threads.
    ///
    /// # Errors
    /// If the threads cannot be started.
    pub fn new(layout: KvLayout, threads: usize) -> Result<Self, DeviceError> {
        let isa = *Isa::present().last().expect("the portable set is always there");
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("kapitsa-cpu-{i}"))
            .build()
            .map_err(|error| DeviceError::Threads { threads, reason: error.to_string() })?;
        Ok(Cpu { isa, pool, arena: vec![], kv: HostKv::new(layout) })
    }
}

impl Backend for Cpu {
    fn load(&mut self, _: &Program, _: &mut dyn FnMut(&Weight)) -> Result<(), DeviceError> {
        Ok(())
    }

    fn reserve(&mut self, group: usize, pages: usize) -> Result<(), DeviceError> {
        self.kv.reserve(group, pages)
    }

    fn run(&mut self, program: &Program, batch: &Batch) -> Result<Outputs, DeviceError> {
        let missing = program.arena_len().saturating_sub(self.arena.len());
        if self.arena.try_reserve_exact(missing).is_err() {
            return Err(DeviceError::OutOfMemory { what: "activations", bytes: missing * 4 });
        }
        self.arena.resize(self.arena.len() + missing, 0.0);
        let Cpu { isa, pool, arena, kv } = self;
        let mut step = Step { isa: *isa, program, batch, arena, kv };
        pool.install(|| program.ops().iter().for_each(|op| step.run(op)));
        Ok(Outputs {
            logits: step.read(program.logits()).to_vec(),
            taps: program.taps().iter().map(|(tap, x)| (*tap, step.read(*x).to_vec())).collect(),
        })
    }
}

struct Step<'a> {
    isa: Isa,
    program: &'a Program,
    batch: &'a Batch,
    arena: &'a mut [f32],
    kv: &'a mut HostKv,
}

impl Step<'_> {
    fn run(&mut self, op: &Op) {
        let (isa, batch) = (self.isa, self.batch);
        match op {
            Op::Embed(op) => {
                let (out, []) = self.operands(op, []);
                rows::each(out, op.out.width(), |r, out| op.weight.dequantize(batch.token(r) as usize, out));
            }
            Op::Linear(op) => {
                let (out, [x]) = self.operands(op, [op.x]);
                let xs: Vec<&[f32]> = x.chunks_exact(op.x.width()).collect();
                let out_at = (0..xs.len()).map(|r| r * op.out.width()).collect();
                let bias = op.bias.as_ref().map(|b| b.values());
                product::run(isa, &[Job { weight: &op.weight, bias, xs, out_at }], out);
            }
            Op::RmsNorm(op) => {
                let (out, [x]) = self.operands(op, [op.x]);
                rows::each(out, op.out.width(), |r, out| rows::rms_norm(isa, op, row(x, op.x, r), out));
            }
            Op::RotaryAngles(op) => {
                let (out, []) = self.operands(op, []);
                rows::each(out, op.out.width(), |r, out| op.at(batch.position(r), out));
            }
            Op::Rotary(op) => {
                let (out, [x, angles]) = self.operands(op, [op.x, op.angles]);
                rows::each(out, op.out.width(), |r, out| {
                    let heads = row(x, op.x, r).chunks_exact(op.head_dim).zip(out.chunks_exact_mut(op.head_dim));
                    heads.for_each(|(x, out)| op.turn(x, row(angles, op.angles, r), out));
                });
            }
            Op::KvWrite(op) => self.kv_write(op),
            Op::Attention(op) => {
                let (kv, (out, [q])) = (&*self.kv, operands(self.program, self.batch, self.arena, op, [op.q]));
                attention::run(isa, op, batch, kv, q, out);
            }
            Op::SiluMul(op) => {
                let (out, [gate, up]) = self.operands(op, [op.gate, op.up]);
                let width = op.out.width();
                rows::each(out, width, |r, out| rows::silu_mul(row(gate, op.gate, r), row(up, op.up, r), out));
            }
            Op::Add(op) => {
                let (out, [a, b]) = self.operands(op, [op.a, op.b]);
                rows::each(out, op.out.width(), |r, out| {
                    let terms = row(a, op.a, r).iter().zip(row(b, op.b, r));
                    out.iter_mut().zip(terms).for_each(|(out, (a, b))| *out = a + b);
                });
            }
            Op::GatherRows(op) => {
                let (out, [x]) = self.operands(op, [op.x]);
                rows::each(out, op.out.width(), |r, out| out.copy_from_slice(row(x, op.x, batch.wanted()[r])));
            }
            Op::Route(op) => {
                let (out, [logits]) = self.operands(op, [op.logits]);
                rows::each(out, op.out.width(), |r, out| {
                    Route::choose(row(logits, op.logits, r), bytemuck::cast_slice_mut(out));
                });
            }
            Op::ExpertWeights(op) => {
                let (out, [logits, ids]) = self.operands(op, [op.logits, op.ids]);
                rows::each(out, op.out.width(), |r, out| {
                    let ids = bytemuck::cast_slice(row(ids, op.ids, r));
                    ExpertWeights::softmax(row(logits, op.logits, r), ids, op.normalize, out);
                });
            }
            Op::ExpertLinear(op) => {
                let (out, [x, ids]) = self.operands(op, [op.x, op.ids]);
                product::run(isa, &expert_jobs(op, x, bytemuck::cast_slice(ids)), out);
            }
            Op::ExpertCombine(op) => {
                let (out, [x, weights]) = self.operands(op, [op.x, op.weights]);
                rows::each(out, op.out.width(), |r, out| {
                    ExpertCombine::combine(row(x, op.x, r), row(weights, op.weights, r), out);
                });
            }
        }
    }

    fn kv_write(&mut self, op: &KvWrite) {
        let (group, _) = self.kv.layout().layers[op.layer];
        for (part, x) in [(Part::Key, op.keys), (Part::Value, op.values)] {
            let place = self.program.place(x, self.batch.len(), self.batch.wanted().len());
            for (r, data) in self.arena[place].chunks_exact(x.width()).enumerate() {
                let (pages, slot) = (&self.batch.context(r).pages[group], self.batch.slot(r));
                debug_assert!(slot / PAGE_TOKENS < pages.len());
                for (head, values) in data.chunks_exact(op.head_dim).enumerate() {
                    self.kv.write(op.layer, pages, slot, part, head, values);
                }
            }
        }
    }

    fn read(&self, x: Tensor) -> &[f32] {
        &self.arena[self.program.place(x, self.batch.len(), self.batch.wanted().len())]
    }

    fn operands<const N: usize>(&mut self, op: &dyn Rule, inputs: [Tensor; N]) -> (&mut [f32], [&[f32]; N]) {
        operands(self.program, self.batch, self.arena, op, inputs)
    }
}

/// The op's output and inputs. They are apart in the arena, since an output is placed while its op's inputs live.
fn operands<'a, const N: usize>(
    program: &Program,
    batch: &Batch,
    arena: &'a mut [f32],
    op: &dyn Rule,
    inputs: [Tensor; N],
) -> (&'a mut [f32], [&'a [f32]; N]) {
    let place = |x| program.place(x, batch.len(), batch.wanted().len());
    let out = place(op.output().expect("an op with an output"));
    let (below, rest) = arena.split_at_mut(out.start);
    let (output, above) = rest.split_at_mut(out.len());
    let (below, above) = (&*below, &*above);
    let inputs = inputs.map(|x| {
        let x = place(x);
        if x.start < out.start { &below[x] } else { &above[x.start - out.end..x.end - out.end] }
    });
    (output, inputs)
}

/// Row `r` of the data of `x`.
fn row(data: &[f32], x: Tensor, r: usize) -> &[f32] {
    &data[r * x.width()..][..x.width()]
}

/// One job for each expert that some row chose, in ascending order.
fn expert_jobs<'a>(op: &'a ExpertLinear, x: &'a [f32], ids: &[u32]) -> Vec<Job<'a>> {
    let k = op.ids.width();
    let out_width = op.out.width() / k;
    let mut chosen: Vec<(u32, usize)> = ids.iter().enumerate().map(|(at, &id)| (id, at)).collect();
    chosen.sort_unstable();
    let jobs = chosen.chunk_by(|a, b| a.0 == b.0).map(|chosen| Job {
        weight: &op.experts[chosen[0].0 as usize],
        bias: None,
        xs: chosen.iter().map(|&(_, at)| op.input(row(x, op.x, at / k), at % k)).collect(),
        out_at: chosen.iter().map(|&(_, at)| at * out_width).collect(),
    });
    jobs.collect()
}
