//! What tests of models share.
#![allow(dead_code, reason = "each test uses its part")]

use std::path::Path;

use kapitsa_cpu::{Activations, Cpu, CpuOptions};
use kapitsa_engine::sample::SamplingOptions;
use kapitsa_engine::{Engine, Event, Image, Request, Runner};
use kapitsa_ops::kv::{KvLayout, PageId};
use kapitsa_ops::state::StateId;
use kapitsa_ops::{Batch, Outputs, SequenceContext, Tap};
use kapitsa_tensor::DType;
use kapitsa_testkit::Tensors;
use kapitsa_weights::Checkpoint;

/// Pages of each sequence.
const PAGES: u32 = 8;

/// Every value within `atol`, which grows with the largest magnitude beyond 10 as the oracle's notes say.
pub(crate) fn close(what: &str, found: &[f32], expected: &[f32], atol: f32) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let atol = atol * (largest / 10.0).max(1.0);
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!((f - e).abs() <= atol, "{what}, element {i}: {f}, expected {e}");
    }
}

/// Token ids of the reference.
pub(crate) fn ids(expected: &Tensors, key: &str) -> Vec<u32> {
    expected.i64(key).into_iter().map(|id| id as u32).collect()
}

/// A model with room for a few sequences, its prediction head's keys and values included.
pub(crate) fn runner(folder: &Path, activations: Activations, threads: usize) -> Runner {
    let checkpoint = Checkpoint::open(folder).unwrap();
    let model = kapitsa_models::load(&checkpoint).unwrap();
    let heads = model.prediction_head().map(|head| head.kv());
    let kv: Vec<_> = model.info().kv.iter().copied().chain(heads).collect();
    let layout = KvLayout::new(DType::F32, &kv);
    let backend = Cpu::new(layout.clone(), &CpuOptions { activations, ..CpuOptions::new(threads) }).unwrap();
    let mut runner = Runner::load(model, Box::new(backend), &layout, &mut |_| {}).unwrap();
    runner.reserve(4 * PAGES as usize, 4).unwrap();
    runner
}

/// An empty sequence with pages and a state of its own.
pub(crate) fn sequence(index: u32) -> SequenceContext {
    let pages = (index * PAGES..(index + 1) * PAGES).map(PageId).collect();
    SequenceContext { pages: vec![pages], state: StateId(index), ..Default::default() }
}

/// Runs `tokens` after `context` and moves it on; what comes out of all rows.
pub(crate) fn run(runner: &mut Runner, context: &mut SequenceContext, tokens: &[u32], taps: &[Tap]) -> Outputs {
    let mut batch = Batch::new();
    let sequence = batch.add_sequence(context.clone());
    tokens.iter().fold(None, |parent, &token| Some(batch.add_row(sequence, token, parent)));
    (0..batch.len()).for_each(|row| batch.want(row));
    let mut outputs = Outputs::default();
    runner.run(&batch, taps, &mut outputs).unwrap();
    if !context.is_draft {
        context.cached += tokens.len();
    }
    outputs
}

/// A prompt, with its images, goes on as the reference's `key` does, with the same logits.
pub(crate) fn check_greedy(
    what: &str,
    engine: &Engine,
    (prompt, images): (&[u32], Vec<Image>),
    expected: &Tensors,
    key: &str,
    atol: f32,
) {
    let greedy = ids(expected, &format!("{key}.greedy_ids"));
    let request = Request {
        prompt: prompt.to_vec(),
        images: images.clone(),
        sampling: SamplingOptions { temperature: 0.0, ..Default::default() },
        stop_tokens: vec![],
        max_tokens: Some(greedy.len()),
        logprobs: None,
        constraint: None,
    };
    let mut generation = engine.submit(request).unwrap();
    let mut reply = vec![];
    while let Some(event) = generation.recv() {
        match event {
            Event::Token { id, .. } => reply.push(id),
            Event::Failed(error) => panic!("{what}: {error}"),
            _ => {}
        }
    }
    assert_eq!(reply, greedy, "{what} {key}");
    // The logits behind each greedy token: the last prompt row, then a row for each token but the last.
    let all: Vec<u32> = prompt.iter().chain(&greedy[..greedy.len() - 1]).copied().collect();
    let logits = engine.logits_with_images(&all, images, &[]).unwrap().logits;
    let behind = &logits[(prompt.len() - 1) * engine.model().vocab..];
    let key = format!("{key}.greedy_logits");
    close(&format!("{what} {key}"), behind, &expected.f32(&key), atol);
}
