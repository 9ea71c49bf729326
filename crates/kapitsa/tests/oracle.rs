//! The tiny checkpoints of every family against the numbers of the reference implementation.

use std::path::Path;

use kapitsa::{Engine, OpenOptions, SamplingOptions, open_engine};
use kapitsa_engine::{Event, Request};
use kapitsa_ops::{ExpertWeights, Route, Tap};
use kapitsa_testkit::{Tensors, convert, fixture};

/// Every value within `atol`, which grows with the largest magnitude beyond 10 as the oracle's notes say.
fn close(what: &str, found: &[f32], expected: &[f32], atol: f32) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let atol = atol * (largest / 10.0).max(1.0);
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!((f - e).abs() <= atol, "{what}, element {i}: {f}, expected {e}");
    }
}

/// The checkpoint of `case` as it is, and (but for MLX packs) as the GGUF file that a converter would make of it.
fn check(case: &str) {
    let folder = fixture(&format!("oracle/{case}"));
    let expected = Tensors::open(folder.join("expected.safetensors"));
    check_engine(case, &open(&folder), &expected);
    if case.starts_with("models/") {
        let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
        convert::hugging_face_to_gguf(&folder).write(file.path());
        check_engine(&format!("{case} as GGUF"), &open(file.path()), &expected);
    }
}

fn open(path: &Path) -> Engine {
    open_engine(path, &OpenOptions { threads: Some(2), ..OpenOptions::default() }.exact()).unwrap()
}

fn ids(expected: &Tensors, key: &str) -> Vec<u32> {
    expected.i64(key).into_iter().map(|id| id as u32).collect()
}

fn check_engine(case: &str, engine: &Engine, expected: &Tensors) {
    let layers = engine.model().layers;
    let each = |tap: fn(usize) -> Tap| (0..layers).map(tap);
    let taps: Vec<Tap> = [Tap::Embedding, Tap::FinalNorm]
        .into_iter()
        .chain(each(Tap::Layer))
        .chain(each(Tap::Mixer))
        .chain(each(Tap::Mlp))
        .chain(each(Tap::Router))
        .collect();
    for sequence in ["seq0", "seq1"] {
        let prompt = ids(expected, &format!("{sequence}.input_ids"));
        let outputs = engine.logits(&prompt, &taps).unwrap();
        close(
            &format!("{case} {sequence}.logits"),
            &outputs.logits,
            &expected.f32(&format!("{sequence}.logits")),
            1e-4,
        );
        let mut compared = 0;
        for (tap, found) in &outputs.taps {
            let key = match tap {
                Tap::Embedding => "hidden.embed".to_string(),
                Tap::FinalNorm => "hidden.final".to_string(),
                Tap::Layer(n) => format!("hidden.{n:02}"),
                Tap::Mixer(n) => format!("mixer.{n:02}"),
                Tap::Mlp(n) => format!("mlp.{n:02}"),
                Tap::Router(n) => format!("router.{n:02}.0.logits"),
            };
            let key = format!("{sequence}.{key}");
            if !expected.has(&key) {
                continue; // only the first sequence has the parts of its layers
            }
            close(&format!("{case} {key}"), found, &expected.f32(&key), 1e-4);
            compared += 1;
            if let Tap::Router(_) = tap {
                check_routes(&key, found, expected);
            }
        }
        assert!(compared >= layers + 2, "{case} {sequence}: only {compared} tensors compared");
        check_greedy(case, sequence, engine, &prompt, expected);
    }
}

/// The chosen experts are the reference's, as sets, with the same weights.
fn check_routes(key: &str, logits: &[f32], expected: &Tensors) {
    let ids = ids(expected, &key.replace("logits", "indices"));
    let weights = expected.f32(&key.replace("logits", "weights"));
    let (experts, k) = (8, 2);
    for (row, logits) in logits.chunks_exact(experts).enumerate() {
        let mut order: Vec<(u32, f32)> = (0..k).map(|i| (ids[row * k + i], weights[row * k + i])).collect();
        order.sort_by_key(|choice| choice.0);
        let mut found = vec![0; k];
        Route::choose(logits, &mut found);
        assert_eq!(found, order.iter().map(|c| c.0).collect::<Vec<_>>(), "{key} row {row}");
        let mut found_weights = vec![0.0; k];
        ExpertWeights::softmax(logits, &found, true, &mut found_weights);
        close(key, &found_weights, &order.iter().map(|c| c.1).collect::<Vec<_>>(), 1e-5);
    }
}

fn check_greedy(case: &str, sequence: &str, engine: &Engine, prompt: &[u32], expected: &Tensors) {
    let greedy = ids(expected, &format!("{sequence}.greedy_ids"));
    let request = Request {
        prompt: prompt.to_vec(),
        sampling: SamplingOptions { temperature: 0.0, ..Default::default() },
        stop_tokens: vec![],
        max_tokens: Some(greedy.len()),
        logprobs: None,
    };
    let mut generation = engine.submit(request).unwrap();
    let mut reply = vec![];
    while let Some(event) = generation.recv() {
        if let Event::Token { id, .. } = event {
            reply.push(id);
        }
    }
    assert_eq!(reply, greedy, "{case} {sequence}");
    // The logits behind each greedy token: the last prompt row, then a row for each token but the last.
    let all: Vec<u32> = prompt.iter().chain(&greedy[..greedy.len() - 1]).copied().collect();
    let logits = engine.logits(&all, &[]).unwrap().logits;
    let vocab = engine.model().vocab;
    let behind = &logits[(prompt.len() - 1) * vocab..];
    close(
        &format!("{case} {sequence}.greedy_logits"),
        behind,
        &expected.f32(&format!("{sequence}.greedy_logits")),
        1e-4,
    );
}

#[test]
fn llama() {
    check("models/llama");
}

#[test]
fn llama_with_tied_head_and_llama3_scaling() {
    check("models/llama-tied");
}

#[test]
fn qwen2() {
    check("models/qwen2");
}

#[test]
fn qwen3() {
    check("models/qwen3");
}

#[test]
fn qwen3_with_yarn() {
    check("models/qwen3-yarn");
}

#[test]
fn qwen3_moe() {
    check("models/qwen3_moe");
}

#[test]
fn qwen3_moe_as_mlx_pack() {
    check("mlx-packs/qwen3_moe");
}
