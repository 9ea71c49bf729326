//! Models with recurrent layers: what they keep of a sequence is the reference's, and no chunk, snapshot, fork or draft moves
//! a bit.

mod common;

use common::{close, ids, run, runner, sequence};
use kapitsa_cpu::Activations;
use kapitsa_engine::Runner;
use kapitsa_ops::{Batch, Outputs, SequenceContext};
use kapitsa_testkit::random::Rng;
use kapitsa_testkit::{Tensors, fixture};
use proptest::prelude::*;

/// Checkpoints, and what differs from the reference at most.
const CASES: [(&str, f32); 8] = [
    ("models/qwen3_5", 1e-3),
    ("models/qwen3_5-text", 4e-4),
    ("models/qwen3_5_moe", 1e-3),
    ("models/qwen3_5_moe-fused", 1e-3),
    ("mlx-packs/qwen3_5", 1e-3),
    ("models/nemotron_h", 1e-4),
    ("models/nemotron_h-latent", 1e-4),
    ("models/nemotron_h_omni", 1e-4),
];

fn open(case: &str, threads: usize) -> Runner {
    runner(&fixture(&format!("oracle/{case}")), Activations::F32, threads)
}

fn tokens(rng: &mut Rng, count: usize) -> Vec<u32> {
    (0..count).map(|_| rng.below(250) as u32).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn states_after_a_prompt_are_the_references() {
    for (case, atol) in CASES {
        let folder = fixture(&format!("oracle/{case}"));
        let expected = Tensors::open(folder.join("expected.safetensors"));
        let mut runner = runner(&folder, Activations::F32, 2);
        let mut context = sequence(0);
        run(&mut runner, &mut context, &ids(&expected, "seq0.input_ids"), &[]);
        let state = runner.snapshot(&context).state;
        let mut rest = &state[..];
        let mut layers = 0;
        for layer in 0..runner.model().layers {
            let key = format!("seq0.state.{layer:02}");
            if !expected.has(&format!("{key}.conv0")) {
                continue;
            }
            layers += 1;
            // The reference keeps one input more, channel by channel.
            let (shape, conv) = (expected.shape(&format!("{key}.conv0")), expected.f32(&format!("{key}.conv0")));
            let (channels, kept) = (shape[0], shape[1]);
            let window: Vec<f32> = (1..kept).flat_map(|tap| conv.iter().skip(tap).step_by(kept)).copied().collect();
            let found;
            (found, rest) = rest.split_at((kept - 1) * channels);
            close(&format!("{case} {key}.conv0"), found, &window, atol);

            let key = format!("{key}.recurrent0");
            let (shape, mut matrix) = (expected.shape(&key), expected.f32(&key));
            if case.contains("nemotron") {
                // Heads by width by state; here the state comes first.
                let (width, state) = (shape[1], shape[2]);
                let transposed = |head: &[f32]| {
                    (0..state).flat_map(|s| (0..width).map(move |w| (s, w))).map(|(s, w)| head[w * state + s]).collect()
                };
                matrix = matrix.chunks(width * state).flat_map(|head| -> Vec<f32> { transposed(head) }).collect();
            }
            let found;
            (found, rest) = rest.split_at(matrix.len());
            close(&format!("{case} {key}"), found, &matrix, atol);
        }
        assert!(rest.is_empty() && layers > 0, "{case}: {} values more than the reference", rest.len());
    }
}

#[test]
fn chunks_snapshots_and_forks_move_no_bit() {
    for (case, _) in CASES {
        let mut rng = Rng(7);
        let tokens = tokens(&mut rng, 150);
        let mut whole = open(case, 1);
        let expected = run(&mut whole, &mut sequence(0), &tokens, &[]).logits;
        let vocab = whole.model().vocab;
        for chunk in [1, 7, 64] {
            let mut runner = open(case, 3);
            let mut context = sequence(1);
            let mut found = vec![];
            for chunk in tokens.chunks(chunk) {
                found.extend(run(&mut runner, &mut context, chunk, &[]).logits);
            }
            assert!(bits(&found) == bits(&expected), "{case} in chunks of {chunk}");
        }
        // On to token 100 and back to token 70; from there to the end, in the same place, in a fork, and in another process.
        let mut runner = open(case, 2);
        let mut context = sequence(2);
        run(&mut runner, &mut context, &tokens[..70], &[]);
        let snapshot = runner.snapshot(&context);
        run(&mut runner, &mut context, &tokens[..30], &[]);
        runner.restore(&mut context, &snapshot);
        let mut fork = sequence(3);
        fork.pages[0][0] = context.pages[0][0];
        runner.fork(&context, &mut fork);
        for (what, mut context) in [("after coming back", context), ("in a fork", fork)] {
            let found = run(&mut runner, &mut context, &tokens[70..], &[]).logits;
            assert!(bits(&found) == bits(&expected[70 * vocab..]), "{case} {what}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..Default::default() })]

    #[test]
    fn trees_equal_plain_runs_and_any_path_can_be_committed(seed: u64, context in 0usize..100, nodes in 1usize..17) {
        for (index, (case, _)) in CASES.into_iter().enumerate() {
            let activations = [Activations::F32, Activations::Int8][(index + seed as usize) % 2];
            let mut rng = Rng(seed);
            let before = tokens(&mut rng, context);
            let mut runner = runner(&fixture(&format!("oracle/{case}")), activations, 2);
            let vocab = runner.model().vocab;
            let mut with_tree = sequence(0);
            if context > 0 {
                run(&mut runner, &mut with_tree, &before, &[]);
            }

            let mut batch = Batch::new();
            let sequence_in_batch = batch.add_sequence(SequenceContext { is_draft: true, ..with_tree.clone() });
            let mut paths: Vec<Vec<usize>> = vec![];
            for node in 0..nodes {
                let parent = if node == 0 { None } else { Some(rng.below(node)) };
                batch.add_row(sequence_in_batch, rng.below(250) as u32, parent);
                paths.push(parent.map_or(vec![], |p: usize| paths[p].clone()).into_iter().chain([node]).collect());
                batch.want(node);
            }
            let mut tree = Outputs::default();
            runner.run(&batch, &[], &mut tree).unwrap();
            let path = &paths[rng.below(nodes)];
            runner.commit(&batch, &[], sequence_in_batch, path);
            with_tree.cached += path.len();
            let rest = tokens(&mut rng, 6);
            let after = run(&mut runner, &mut with_tree, &rest, &[]).logits;

            for (node, path) in paths.iter().enumerate() {
                let tokens: Vec<u32> = before.iter().copied().chain(path.iter().map(|&row| batch.token(row))).collect();
                let plain = run(&mut runner, &mut sequence(1), &tokens, &[]).logits;
                let (found, expected) = (&tree.logits[node * vocab..][..vocab], &plain[plain.len() - vocab..]);
                prop_assert!(bits(found) == bits(expected), "{} node {}", case, node);
            }
            let all: Vec<u32> =
                before.into_iter().chain(path.iter().map(|&row| batch.token(row))).chain(rest).collect();
            let plain = run(&mut runner, &mut sequence(2), &all, &[]).logits;
            prop_assert!(bits(&after) == bits(&plain[plain.len() - after.len()..]), "{} after a commit", case);
        }
    }
}
