//! What a draw from a row of logits costs, at the vocabulary of Qwen.

use criterion::{Criterion, criterion_group, criterion_main};
use kapitsa_engine::sample::{History, Sampler, SamplingOptions, Scratch, noise};

const VOCAB: usize = 151_936;

/// Normal with deviation 2.5 and a few peaks, as the logits of a model.
fn logits() -> Vec<f32> {
    let uniform = |token, index| (f64::from(noise(1, index, token)) + 0.5) / 4_294_967_296.0;
    let normal = |t| (-2.0 * uniform(t, 0).ln()).sqrt() * (std::f64::consts::TAU * uniform(t, 1)).cos();
    let mut logits: Vec<f32> = (0..VOCAB as u32).map(|t| (2.5 * normal(t)) as f32).collect();
    for i in 0..40 {
        logits[noise(2, 0, i) as usize % VOCAB] += 4.0 + 0.25 * i as f32;
    }
    logits
}

fn sample(c: &mut Criterion) {
    let none = || SamplingOptions { seed: 7, ..Default::default() };
    let mut long = History::new();
    long.extend_prompt(&(0..32_768).map(|i| noise(3, 0, i) % VOCAB as u32).collect::<Vec<_>>());
    long.extend_reply(&[5, 6, 7]);
    let row = logits();
    let flat = vec![0.5; VOCAB];
    let cases = [
        ("greedy", SamplingOptions { temperature: 0.0, ..none() }, &row),
        ("temperature", SamplingOptions { temperature: 1.0, ..none() }, &row),
        ("temperature_flat", SamplingOptions { temperature: 1.0, ..none() }, &flat),
        ("top_k_top_p", SamplingOptions { temperature: 0.6, top_k: 20, top_p: 0.95, ..none() }, &row),
        ("top_k_flat", SamplingOptions { temperature: 0.6, top_k: 20, ..none() }, &flat),
        ("top_p", SamplingOptions { temperature: 1.0, top_p: 0.95, ..none() }, &row),
        ("top_p_flat", SamplingOptions { temperature: 1.0, top_p: 0.95, ..none() }, &flat),
        ("min_p", SamplingOptions { temperature: 1.0, min_p: 0.05, ..none() }, &row),
        ("penalty_32k", SamplingOptions { temperature: 0.6, top_k: 20, repetition_penalty: 1.1, ..none() }, &row),
    ];
    let mut group = c.benchmark_group("sample");
    for (name, options, row) in cases {
        let sampler = Sampler::new(options, VOCAB).expect("valid options");
        let mut scratch = Scratch::default();
        let mut index = 0;
        group.bench_function(name, |b| {
            b.iter(|| {
                index += 1;
                sampler.sample(row, &long, index, &mut scratch)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, sample);
criterion_main!(benches);
