//! Each hot op over shapes of real models, beside what the machine can do.
//!
//! `cargo bench -p kapitsa-cpu --bench kernels -- [THREADS [WORD]]`: only cases whose line has WORD. Reading ops are compared with the
//! read bandwidth, products of many rows with the integer or the floating-point peak. Weights are so many that they come
//! from memory, as in a model. Medians of several calls; the ops that feed an input in are part of the time.
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::time::Instant;

use kapitsa_cpu::{Cpu, CpuOptions, float_peak, integer_peak, read_bandwidth};
use kapitsa_ops::kv::{KvLayout, KvShape, PAGE_TOKENS, PageId};
use kapitsa_ops::state::StateId;
use kapitsa_ops::{
    Backend, Batch, Capacity, DeltaShape, KeyHeads, MambaShape, Outputs, Program, Recorder, SequenceContext, Tensor,
    Vector,
};
use kapitsa_tensor::{DType, Format, GgufType, Weight};
use kapitsa_testkit::random::Rng;

/// Weights of a case, all together, so that no cache holds them.
const BYTES: usize = 192 << 20;
/// Seconds for a case.
const SECONDS: f64 = 0.5;
const TOKENS: usize = 256;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = args.first().map_or(cores, |n| n.parse().expect("a number of threads"));
    let bench = Bench { threads, word: args.get(1).cloned().unwrap_or_default(), peaks: Peaks::measure(threads) };
    println!(
        "{threads} threads: {:.1} GB/s, {:.0} G integer and {:.0} G f32 products/s",
        bench.peaks.bandwidth / 1e9,
        bench.peaks.integer / 1e9,
        bench.peaks.float / 1e9
    );
    for (name, format, outputs, inputs) in linears() {
        for rows in [1, 8, 512] {
            bench.linear(name, format, (outputs, inputs), rows);
        }
    }
    for (name, heads, kv_heads, dim) in [("SmolLM2", 9, 3, 64), ("0.5B", 14, 2, 64), ("1.5B", 12, 2, 128)] {
        for context in [512, 2048, 16384, 32768] {
            for rows in [1, 8, 512] {
                bench.attention(name, (heads, kv_heads, dim), context, rows);
            }
        }
    }
    for rows in [1, 8, 512] {
        bench.scan("35B-A3B gated delta", rows, DELTA.state_len(), |rec, rng| {
            let vector = |value: f32| Vector::new("vector", vec![value; DELTA.value_heads]);
            let inputs = [DELTA.qkv_width(), DELTA.value_heads, DELTA.value_heads];
            let inputs = inputs.map(|width| rec.embed(&rng.weight_in(Format::F32, TOKENS, width)));
            rec.gated_delta(inputs, &vector(-0.1), &vector(0.0), DELTA, 0)
        });
        bench.scan("30B-A3B Mamba-2", rows, MAMBA.state_len(), |rec, rng| {
            let vector = |value: f32| Vector::new("vector", vec![value; MAMBA.heads]);
            let inputs = [MAMBA.xbc_width(), MAMBA.heads];
            let inputs = inputs.map(|width| rec.embed(&rng.weight_in(Format::F32, TOKENS, width)));
            rec.mamba2(inputs, [&vector(-0.1), &vector(0.0), &vector(1.0)], MAMBA, 0)
        });
        let channels = DELTA.qkv_width();
        bench.scan("35B-A3B convolution", rows, 3 * channels, |rec, rng| {
            let x = rec.embed(&rng.weight_in(Format::F32, TOKENS, channels));
            rec.short_conv(x, &Vector::new("taps", rng.values(4 * channels, 1.0)), None, 0)
        });
    }
    for rows in [256, 1024, 4096] {
        bench.vision(rows);
    }
}

/// Recurrent layers of Qwen3.5-35B-A3B and Nemotron 3 Nano 30B-A3B.
const DELTA: DeltaShape =
    DeltaShape { key_heads: 16, value_heads: 32, key_dim: 128, value_dim: 128, order: KeyHeads::Grouped };
const MAMBA: MambaShape =
    MambaShape { heads: 64, head_dim: 64, groups: 8, state_dim: 128, step_limits: (0.0, f32::INFINITY) };

/// Products of the models that the benchmarks are about, and one of each other kind.
fn linears() -> Vec<(&'static str, Format, usize, usize)> {
    vec![
        ("SmolLM2 up, Q4_1", GgufType::Q4_1.into(), 1536, 576),
        ("SmolLM2 down, Q4_1", GgufType::Q4_1.into(), 576, 1536),
        ("SmolLM2 head, Q8_0", GgufType::Q8_0.into(), 49152, 576),
        ("0.5B up, Q5_0", GgufType::Q5_0.into(), 4864, 896),
        ("0.5B down, Q6_K", GgufType::Q6K.into(), 896, 4864),
        ("1.5B q, Q4_K", GgufType::Q4K.into(), 1536, 1536),
        ("1.5B up, Q4_K", GgufType::Q4K.into(), 8960, 1536),
        ("1.5B down, Q4_K", GgufType::Q4K.into(), 1536, 8960),
        ("1.5B down, Q6_K", GgufType::Q6K.into(), 1536, 8960),
        ("1.5B head, Q6_K", GgufType::Q6K.into(), 151936, 1536),
        ("1.5B up, Q4_0", GgufType::Q4_0.into(), 8960, 1536),
        ("1.5B up, BF16", Format::Bf16, 8960, 1536),
    ]
}

/// What the machine can do a second.
struct Peaks {
    bandwidth: f64,
    integer: f64,
    float: f64,
}

impl Peaks {
    fn measure(threads: usize) -> Peaks {
        Peaks {
            bandwidth: read_bandwidth(threads).expect("memory"),
            integer: integer_peak(threads).expect("threads"),
            float: float_peak(threads).expect("threads"),
        }
    }
}

struct Bench {
    threads: usize,
    word: String,
    peaks: Peaks,
}

impl Bench {
    fn linear(&self, name: &str, format: Format, (outputs, inputs): (usize, usize), rows: usize) {
        let name = format!("{name} {outputs} x {inputs}, {rows} rows");
        if !name.contains(&self.word) {
            return;
        }
        let mut rng = Rng(1);
        let table = rng.weight_in(Format::F32, TOKENS, inputs);
        let weight = rng.weight_in(format, outputs, inputs);
        let copies = if rows < 16 { BYTES / weight.bytes() + 1 } else { 1 };
        // Copies have bytes of their own.
        let weights: Vec<Weight> = (0..copies).map(|_| copy(&weight)).collect();
        let programs: Vec<Program> = weights
            .iter()
            .map(|weight| {
                record(rows, |rec| {
                    let x = rec.embed(&table);
                    rec.linear(x, weight, None)
                })
            })
            .collect();
        let layout = KvLayout::new(DType::F16, &[KvShape { kv_heads: 1, head_dim: 1, window: None }]);
        let mut cpu = self.cpu(layout, &programs);
        let batch = batch(0, rows, vec![]);
        let mut results = Outputs::default();
        let seconds = median(|i| {
            results.clear();
            cpu.run(&programs[i % copies], &batch, &mut results).expect("memory");
        });
        let integers = !matches!(format, Format::Bf16 | Format::F16 | Format::F32);
        if rows < 16 {
            self.read(&name, seconds, weight.bytes());
        } else {
            self.products(&name, seconds, rows * outputs * inputs, integers);
        }
    }

    fn attention(&self, model: &str, (heads, kv_heads, dim): (usize, usize, usize), context: usize, rows: usize) {
        let name = format!("{model} attention, {rows} rows after {}", context - rows);
        if !name.contains(&self.word) {
            return;
        }
        let mut rng = Rng(1);
        let table = rng.weight_in(Format::F32, TOKENS, heads * dim);
        let layers = if rows < 16 { 8 } else { 1 };
        let shape = KvShape { kv_heads, head_dim: dim, window: None };
        let layout = KvLayout::new(DType::F16, &vec![shape; layers]);
        let programs: Vec<Program> = (0..layers)
            .map(|layer| {
                record(rows, |rec| {
                    let x = rec.embed(&table);
                    rec.attention(x, layer, (heads, kv_heads), 0.1, None)
                })
            })
            .collect();
        let mut cpu = self.cpu(layout.clone(), &programs);
        let pages: Vec<PageId> = (0..context.div_ceil(PAGE_TOKENS) as u32).map(PageId).collect();
        cpu.reserve(0, pages.len()).expect("memory");
        let batch = batch(context - rows, rows, pages);
        let mut results = Outputs::default();
        let seconds = median(|i| {
            results.clear();
            cpu.run(&programs[i % layers], &batch, &mut results).expect("memory");
        });
        if rows < 16 {
            self.read(&name, seconds, layout.token_bytes() / layers * context);
        } else {
            let seen = rows * (context - rows) + rows * (rows + 1) / 2;
            self.products(&name, seconds, 2 * heads * dim * seen, false);
        }
    }

    /// A recurrent op that keeps `len` values: reads and writes them once for a few rows; many rows are compared with the
    /// products of a value's life, two to read it and two to write it.
    fn scan(&self, name: &str, rows: usize, len: usize, op: impl FnOnce(&mut Recorder, &mut Rng) -> Tensor) {
        let name = format!("{name}, {rows} rows");
        if !name.contains(&self.word) {
            return;
        }
        let program = record(rows, |rec| op(rec, &mut Rng(1)));
        let mut cpu = self.cpu(KvLayout::new(DType::F16, &[]), std::slice::from_ref(&program));
        let states = if rows < 16 { BYTES / (4 * len) + 1 } else { 1 };
        cpu.reserve_states(&program.states(), states).expect("memory");
        let batches: Vec<Batch> = (0..states as u32)
            .map(|state| {
                let context = SequenceContext { cached: 1, state: StateId(state), ..Default::default() };
                chain(context, rows)
            })
            .collect();
        let mut results = Outputs::default();
        let seconds = median(|i| {
            results.clear();
            cpu.run(&program, &batches[i % states], &mut results).expect("memory");
        });
        if rows < 16 {
            self.read(&name, seconds, 2 * 4 * len);
        } else {
            self.products(&name, seconds, 4 * rows * len, false);
        }
    }

    /// Attention within an image in Qwen3.5's tower.
    fn vision(&self, rows: usize) {
        const HEADS: usize = 16;
        const DIM: usize = 72;
        let name = format!("Qwen3.5 vision attention, {rows} rows");
        if !name.contains(&self.word) {
            return;
        }
        let table = Rng(1).weight_in(Format::F32, TOKENS, HEADS * DIM);
        let program = record(rows, |rec| {
            let x = rec.embed(&table);
            rec.full_attention([x; 3], HEADS, 0.1)
        });
        let mut cpu = self.cpu(KvLayout::new(DType::F16, &[]), std::slice::from_ref(&program));
        let batch = chain(SequenceContext::default(), rows);
        let mut results = Outputs::default();
        let seconds = median(|_| {
            results.clear();
            cpu.run(&program, &batch, &mut results).expect("memory");
        });
        self.products(&name, seconds, 2 * rows * rows * HEADS * DIM, false);
    }

    fn cpu(&self, layout: KvLayout, programs: &[Program]) -> Cpu {
        let mut cpu = Cpu::new(layout, &CpuOptions::new(self.threads)).expect("threads");
        programs.iter().for_each(|program| cpu.load(program, &mut |_| {}).expect("memory"));
        cpu
    }

    fn read(&self, name: &str, seconds: f64, bytes: usize) {
        let rate = bytes as f64 / seconds;
        let share = 100.0 * rate / self.peaks.bandwidth;
        println!("{name:55} {:10.1} us {:8.1} GB/s {share:5.0}% of the bandwidth", seconds * 1e6, rate / 1e9);
    }

    fn products(&self, name: &str, seconds: f64, products: usize, integers: bool) {
        let rate = products as f64 / seconds;
        let (peak, of) = if integers { (self.peaks.integer, "integer") } else { (self.peaks.float, "f32") };
        let share = 100.0 * rate / peak;
        println!("{name:55} {:10.1} us {:8.1} G/s  {share:5.0}% of the {of} peak", seconds * 1e6, rate / 1e9);
    }
}

fn copy(weight: &Weight) -> Weight {
    let planes = weight.planes().iter().map(|plane| plane.to_vec().into()).collect();
    Weight::new("copy", *weight.format(), weight.rows(), weight.cols(), planes).expect("a copy")
}

/// A program for `rows` rows that returns one of them.
fn record(rows: usize, op: impl FnOnce(&mut Recorder) -> Tensor) -> Program {
    let mut rec = Recorder::new(Capacity { rows, wanted: 1 }, &[]);
    let out = op(&mut rec);
    let out = rec.gather_rows(out);
    rec.finish(out)
}

/// A chain of `rows` rows after `cached` tokens.
fn batch(cached: usize, rows: usize, pages: Vec<PageId>) -> Batch {
    chain(SequenceContext { cached, pages: vec![pages], ..Default::default() }, rows)
}

/// A chain of `rows` rows that goes on a sequence.
fn chain(context: SequenceContext, rows: usize) -> Batch {
    let mut batch = Batch::new();
    let sequence = batch.add_sequence(context);
    let mut last = None;
    for row in 0..rows {
        last = Some(batch.add_row(sequence, (row * 7 % TOKENS) as u32, last));
    }
    batch.want(rows - 1);
    batch
}

/// Median seconds of a call, after two that warm up.
fn median(mut call: impl FnMut(usize)) -> f64 {
    call(0);
    call(1);
    let (start, mut times) = (Instant::now(), vec![]);
    while times.len() < 5 || (start.elapsed().as_secs_f64() < SECONDS && times.len() < 10_000) {
        let start = Instant::now();
        call(times.len());
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
