//! Reading and writing speed of a model on this machine, beside what its memory allows and, if asked, beside llama.cpp.
//!
//! `cargo bench -p kapitsa-engine --bench throughput -- MODEL [THREADS [LLAMA_BENCH]]`. Everything is measured in turn, five
//! times over: read bandwidth, a prompt of 512 tokens, 64 tokens written after a prompt of 16; then `LLAMA_BENCH` (the path
//! of a `llama-bench`) the same way on the same file.
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use kapitsa_cpu::{Cpu, CpuOptions, read_bandwidth};
use kapitsa_engine::sample::SamplingOptions;
use kapitsa_engine::{Engine, Event, Limits, Request, Runner};
use kapitsa_models::Model;
use kapitsa_ops::kv::KvLayout;
use kapitsa_ops::{Capacity, Op, Recorder};
use kapitsa_tensor::DType;
use kapitsa_weights::Checkpoint;

const RUNS: usize = 5;
const PROMPT: usize = 512;
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
    let bytes = weights + kv * (SHORT_PROMPT + WRITTEN / 2);
    println!("{model}, {threads} threads, {:.1} MB read for a token", bytes as f64 / 1e6);

    let mut rows = vec![];
    for _ in 0..RUNS {
        let bandwidth = read_bandwidth(threads).expect("memory for the measurement");
        let read = PROMPT as f64 / reply(&engine, PROMPT, 1).0;
        let write = (WRITTEN - 1) as f64 / reply(&engine, SHORT_PROMPT, WRITTEN).1;
        let mut row = vec![bandwidth / 1e9, read, write, write * bytes as f64 / bandwidth];
        if let Some(program) = args.get(2) {
            row.extend(llama_bench(program, model, threads));
        }
        println!("{}", line(&row));
        rows.push(row);
    }
    let medians: Vec<f64> = (0..rows[0].len()).map(|i| median(rows.iter().map(|row| row[i]).collect())).collect();
    println!("median: {}", line(&medians));
    if let [_, read, write, _, theirs_read, theirs_write] = medians[..] {
        println!("ratios of medians: read {:.2}, write {:.2}", read / theirs_read, write / theirs_write);
    }
}

fn line(row: &[f64]) -> String {
    let own = format!(
        "bandwidth {:.1} GB/s, read {:.1} tok/s, write {:.1} tok/s = {:.0}% of the bandwidth",
        row[0],
        row[1],
        row[2],
        100.0 * row[3]
    );
    match row[4..] {
        [read, write] => format!("{own}; llama.cpp read {read:.1}, write {write:.1}"),
        _ => own,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// An engine, the bytes of weights that a token reads, and the bytes that it keeps in the cache.
fn load(path: &Path, threads: usize) -> (Engine, usize, usize) {
    let checkpoint = Checkpoint::open(path).expect("a model");
    let model = kapitsa_models::load(&checkpoint).expect("a known architecture");
    let weights = weight_bytes(&*model);
    let layout = KvLayout::new(DType::F16, &model.info().kv);
    let cpu = Cpu::new(layout.clone(), &CpuOptions::new(threads)).expect("threads");
    let runner = Runner::load(model, Box::new(cpu), &layout, &mut |weight| checkpoint.release(weight));
    let limits = Limits { context: 2048, slots: 1, queue: 1, kv_tokens: 2048 };
    (Engine::start(runner.expect("memory"), limits).expect("a thread"), weights, layout.token_bytes())
}

fn weight_bytes(model: &dyn Model) -> usize {
    let mut recorder = Recorder::new(Capacity { rows: 1, wanted: 1 }, &[]);
    let logits = model.forward(&mut recorder);
    let program = recorder.finish(logits);
    let bytes = program.ops().iter().map(|op| match op {
        Op::Linear(op) => op.weight.bytes(),
        Op::ExpertLinear(op) => op.experts[0].bytes() * op.ids.width(),
        _ => 0,
    });
    bytes.sum()
}

/// Seconds until the first token, and from there to the last.
fn reply(engine: &Engine, prompt: usize, tokens: usize) -> (f64, f64) {
    let vocab = engine.model().vocab;
    let request = Request {
        prompt: (0..prompt).map(|i| (i * 7919 % vocab) as u32).collect(),
        sampling: SamplingOptions { temperature: 0.0, ..SamplingOptions::default() },
        stop_tokens: vec![],
        max_tokens: Some(tokens),
        logprobs: None,
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
fn llama_bench(program: &str, model: &str, threads: usize) -> [f64; 2] {
    let (threads, prompt, written) = (threads.to_string(), PROMPT.to_string(), WRITTEN.to_string());
    let output = Command::new(program)
        .args(["-m", model, "-t", &threads, "-p", &prompt, "-n", &written, "-r", "1", "-o", "json"])
        .output()
        .expect("llama-bench runs");
    let tests: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON from llama-bench");
    [0, 1].map(|i| tests[i]["avg_ts"].as_f64().expect("a speed"))
}
