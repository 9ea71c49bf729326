//! Reading and writing speed of a model on this machine, beside what its memory allows and, if asked, beside llama.cpp.
//!
//! `cargo bench -p kapitsa-engine --bench throughput -- MODEL [THREADS [LLAMA_BENCH]]`. Everything is measured in turn, five
//! times over: read bandwidth and integer peak, prompts of 512 and of 2048 tokens, 64 tokens written after a prompt of 16; then
//! `LLAMA_BENCH` (the path of a `llama-bench`) the same way on the same file.
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use kapitsa_cpu::{Cpu, CpuOptions, integer_peak, read_bandwidth};
use kapitsa_engine::sample::SamplingOptions;
use kapitsa_engine::{Engine, Event, Limits, Request, Runner};
use kapitsa_models::Model;
use kapitsa_ops::kv::KvLayout;
use kapitsa_ops::{Capacity, Op, Recorder};
use kapitsa_tensor::DType;
use kapitsa_weights::Checkpoint;

const RUNS: usize = 5;
const PROMPTS: [usize; 2] = [512, 2048];
const SHORT_PROMPT: usize = 16;
const WRITTEN: usize = 64;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let Some(model) = args.first() else {
        println!("usage: cargo bench -p kapitsa-engine --bench throughput -- MODEL [THREADS [LLAMA_BENCH]]");
        return;
    };
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = args.get(1).map_or(cores, |n| n.parse().expect("a number of threads"));
    let (engine, weights, kv) = load(Path::new(model), threads);
    // On average a written token sees the prompt and half of what is written.
    let bytes = weights.bytes + kv * (SHORT_PROMPT + WRITTEN / 2);
    println!(
        "{model}, {threads} threads: {:.1} MB read for a token, {:.0} M products for a token of a prompt",
        bytes as f64 / 1e6,
        weights.products as f64 / 1e6
    );

    let mut rows = vec![];
    for _ in 0..RUNS {
        let bandwidth = read_bandwidth(threads).expect("memory for the measurement");
        let peak = integer_peak(threads).expect("threads");
        let read = PROMPTS.map(|prompt| prompt as f64 / reply(&engine, prompt, 1).0);
        let write = (WRITTEN - 1) as f64 / reply(&engine, SHORT_PROMPT, WRITTEN).1;
        let row = Row {
            bandwidth,
            peak,
            read,
            write,
            write_share: write * bytes as f64 / bandwidth,
            read_share: read[0] * weights.products as f64 / peak,
            theirs: args.get(2).map_or([0.0; 3], |program| llama_bench(program, model, threads)),
        };
        println!("{}", row.line());
        rows.push(row);
    }
    let median = |of: fn(&Row) -> f64| median(rows.iter().map(of).collect());
    let row = Row {
        bandwidth: median(|row| row.bandwidth),
        peak: median(|row| row.peak),
        read: [median(|row| row.read[0]), median(|row| row.read[1])],
        write: median(|row| row.write),
        write_share: median(|row| row.write_share),
        read_share: median(|row| row.read_share),
        theirs: [median(|row| row.theirs[0]), median(|row| row.theirs[1]), median(|row| row.theirs[2])],
    };
    println!("medians: {}", row.line());
    if args.len() > 2 {
        let ratios = [row.read[0] / row.theirs[0], row.read[1] / row.theirs[1], row.write / row.theirs[2]];
        println!("ratios of medians: read {:.2} and {:.2}, write {:.2}", ratios[0], ratios[1], ratios[2]);
    }
}

/// One round, or the medians of all.
struct Row {
    /// Bytes a second.
    bandwidth: f64,
    /// Products of eight-bit integers a second.
    peak: f64,
    /// Tokens a second of the prompts.
    read: [f64; 2],
    /// Tokens a second.
    write: f64,
    /// Shares of bandwidth and peak; that of the shorter prompt.
    write_share: f64,
    read_share: f64,
    /// What llama.cpp reads and writes, if it was asked.
    theirs: [f64; 3],
}

impl Row {
    fn line(&self) -> String {
        let Row { bandwidth, peak, read, write, write_share, read_share, theirs } = self;
        let own = format!(
            "{:.1} GB/s, {:.0} G products/s; read {:.1} ({:.0}% of the peak) and {:.1} tok/s, write {write:.1} tok/s ({:.0}% of the \
             bandwidth)",
            bandwidth / 1e9,
            peak / 1e9,
            read[0],
            100.0 * read_share,
            read[1],
            100.0 * write_share
        );
        match theirs[..] {
            [first, second, write] if first > 0.0 => {
                format!("{own}; llama.cpp read {first:.1} and {second:.1}, write {write:.1}")
            }
            _ => own,
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What a token has to do with the weights.
struct Weights {
    /// Bytes that a written token reads.
    bytes: usize,
    /// Products for a token of a prompt: all but those with the head.
    products: usize,
}

/// An engine, what its weights cost, and the bytes that a token keeps in the cache.
fn load(path: &Path, threads: usize) -> (Engine, Weights, usize) {
    let checkpoint = Checkpoint::open(path).expect("a model");
    let model = kapitsa_models::load(&checkpoint).expect("a known architecture");
    let weights = weights(&*model);
    let layout = KvLayout::new(DType::F16, &model.info().kv);
    let cpu = Cpu::new(layout.clone(), &CpuOptions::new(threads)).expect("threads");
    let runner = Runner::load(model, Box::new(cpu), &layout, &mut |weight| checkpoint.release(weight));
    let limits = Limits { context: 2304, slots: 1, queue: 1, kv_tokens: 2304 };
    (Engine::start(runner.expect("memory"), limits).expect("a thread"), weights, layout.token_bytes())
}

fn weights(model: &dyn Model) -> Weights {
    let mut recorder = Recorder::new(Capacity { rows: 1, wanted: 1 }, &[]);
    let logits = model.forward(&mut recorder);
    let program = recorder.finish(logits);
    let mut all = Weights { bytes: 0, products: 0 };
    for op in program.ops() {
        let (weight, times) = match op {
            Op::Linear(op) => (&op.weight, 1),
            Op::ExpertLinear(op) => (&op.experts[0], op.ids.width()),
            _ => continue,
        };
        all.bytes += weight.bytes() * times;
        if weight.rows() != model.info().vocab {
            all.products += weight.rows() * weight.cols() * times;
        }
    }
    all
}

/// Seconds until the first token, and from there to the last.
fn reply(engine: &Engine, prompt: usize, tokens: usize) -> (f64, f64) {
    let vocab = engine.model().vocab;
    let request = Request {
        prompt: (0..prompt).map(|i| (i * 7919 % vocab) as u32).collect(),
        images: vec![],
        sampling: SamplingOptions { temperature: 0.0, ..SamplingOptions::default() },
        stop_tokens: vec![],
        max_tokens: Some(tokens),
        logprobs: None,
        constraint: None,
    };
    let start = Instant::now();
    let mut generation = engine.submit(request).expect("room");
    let mut first = None;
    while let Some(event) = generation.recv() {
        match event {
            Event::Token { .. } => _ = first.get_or_insert_with(|| start.elapsed().as_secs_f64()),
            Event::Failed(error) => panic!("{error}"),
            _ => {}
        }
    }
    let first = first.expect("a token");
    (first, start.elapsed().as_secs_f64() - first)
}

/// Tokens a second that `llama-bench` reads and writes.
fn llama_bench(program: &str, model: &str, threads: usize) -> [f64; 3] {
    let (threads, prompts, written) =
        (threads.to_string(), PROMPTS.map(|n| n.to_string()).join(","), WRITTEN.to_string());
    let output = Command::new(program)
        .args(["-m", model, "-t", &threads, "-p", &prompts, "-n", &written, "-r", "1", "-o", "json"])
        .output()
        .expect("llama-bench runs");
    let tests: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON from llama-bench");
    [0, 1, 2].map(|i| tests[i]["avg_ts"].as_f64().expect("a speed"))
}
