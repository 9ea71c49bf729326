//! Real models against next-token distributions of the reference implementation on the same dequantised weights.

use kapitsa::{OpenOptions, open_engine};
use kapitsa_testkit::{Tensors, fixture, real_model};

const PROMPTS: usize = 10;

/// `ln softmax(logits)[id]`.
fn logprob(logits: &[f32], id: u32) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max) as f64;
    let sum: f64 = logits.iter().map(|&v| (v as f64 - max).exp()).sum();
    logits[id as usize] as f64 - max - sum.ln()
}

fn argmax(logits: &[f32]) -> u32 {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]).then(b.cmp(&a))).unwrap() as u32
}

/// Runs all prompts; the mean of |Δ logprob| of the reference's top token must stay under `mean`.
fn check(name: &str, options: OpenOptions, limit: f64) {
    let Some(path) = real_model(name) else { return };
    let expected = Tensors::open(fixture(&format!("oracle/real/{name}.safetensors")));
    let engine = open_engine(&path, &options).unwrap();
    let vocab = engine.model().vocab;
    let mut deltas = vec![];
    for prompt in 0..PROMPTS {
        let tokens: Vec<u32> = expected.i32(&format!("tokens.{prompt}")).into_iter().map(|id| id as u32).collect();
        let top_ids = expected.i32(&format!("top_ids.{prompt}"));
        let top_logprobs = expected.f32(&format!("top_logprobs.{prompt}"));
        let logits = engine.logits(&tokens, &[]).unwrap().logits;
        for (position, logits) in logits.chunks_exact(vocab).enumerate() {
            let (ids, logprobs) = (&top_ids[position * 8..][..8], &top_logprobs[position * 8..][..8]);
            if logprobs[0] - logprobs[1] > 0.5 {
                assert_eq!(argmax(logits), ids[0] as u32, "{name}, prompt {prompt}, position {position}");
            }
            deltas.push((logprob(logits, ids[0] as u32) - logprobs[0] as f64).abs());
        }
    }
    deltas.sort_by(f64::total_cmp);
    let mean = deltas.iter().sum::<f64>() / deltas.len() as f64;
    let p99 = deltas[deltas.len() * 99 / 100];
    #[expect(clippy::print_stdout, reason = "the figures are for people: --no-capture shows them")]
    {
        println!("{name}, KV {}: mean |delta logprob| {mean:.6}, p99 {p99:.6}, {} positions", options.kv, deltas.len());
    }
    assert!(mean < limit, "{name}: mean |delta logprob| {mean}, expected less than {limit}");
}

fn as_served(name: &str) {
    check(name, OpenOptions::default(), 0.05);
}

fn exact(name: &str) {
    check(name, OpenOptions::default().exact(), 0.002);
}

#[test]
fn smollm2_as_served() {
    as_served("smollm2-135m");
}

#[test]
fn smollm2_exact() {
    exact("smollm2-135m");
}

#[test]
fn qwen_half_a_billion_as_served() {
    as_served("qwen2.5-coder-0.5b");
}

#[test]
fn qwen_half_a_billion_exact() {
    exact("qwen2.5-coder-0.5b");
}

#[test]
#[ignore = "1.1 GB of weights, minutes: see CONTRIBUTING.md"]
fn qwen_one_and_a_half_billion_as_served() {
    as_served("qwen2.5-coder-1.5b");
}

#[test]
#[ignore = "1.1 GB of weights, minutes: see CONTRIBUTING.md"]
fn qwen_one_and_a_half_billion_exact() {
    exact("qwen2.5-coder-1.5b");
}
