//! Each fast kernel agrees with its op's scalar reference on random shapes, formats, trees and page orders.
//!
//! Inputs come out of embeddings, which are exact on both sides, so a difference is the op's own. Where a kernel may take
//! activations in eight bits, inputs are such that nothing is lost by that.

mod common;

use std::sync::Arc;

use common::shuffled_pages;
use kapitsa_cpu::{Activations, Cpu, CpuOptions, Isa, Tiles};
use kapitsa_ops::kv::{KvLayout, KvShape};
use kapitsa_ops::reference::Reference;
use kapitsa_ops::state::StateId;
use kapitsa_ops::{
    Backend, Batch, Capacity, DeltaShape, ExpertGroups, Frequencies, GeluKind, KeyHeads, MambaShape, Op, Outputs,
    PairLayout, Recorder, Score, SequenceContext, Tensor, Vector,
};
use kapitsa_tensor::{DType, Format, Weight};
use kapitsa_testkit::random::Rng;
use proptest::prelude::*;

const TOKENS: usize = 64;

/// A random input `[rows, width]`.
fn input(rng: &mut Rng, rec: &mut Recorder, width: usize) -> Tensor {
    rec.embed(&rng.weight(0, TOKENS, width))
}

/// A random input `[rows, width]` whose blocks of 32 are integers up to 127 times a power of two.
fn eight_bit_input(rng: &mut Rng, rec: &mut Recorder, width: usize) -> Tensor {
    let mut values: Vec<f32> = (0..TOKENS * width).map(|_| rng.below(255) as f32 - 127.0).collect();
    for block in values.chunks_mut(32) {
        block[rng.below(32)] = [127.0, -127.0][rng.below(2)];
        let scale = 2f32.powi(rng.below(4) as i32 - 12);
        block.iter_mut().for_each(|v| *v *= scale);
    }
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    rec.embed(&Weight::new("input", Format::F32, TOKENS, width, vec![bytes.into()]).unwrap())
}

/// Records `op` for the rows of `batch` and compares the backends within `tolerance` of each value's size, at least 1.
fn check(batch: &Batch, layout: KvLayout, pages: usize, tolerance: f32, op: impl FnOnce(&mut Recorder) -> Tensor) {
    let mut batch = batch.clone();
    (0..batch.len()).for_each(|row| batch.want(row));
    let mut rec = Recorder::new(Capacity { rows: batch.len() + 3, wanted: batch.len() }, &[]);
    let out = op(&mut rec);
    let out = rec.gather_rows(out);
    let program = rec.finish(out);

    let run = |mut backend: Box<dyn Backend>| {
        backend.load(&program, &mut |_| {}).unwrap();
        backend.reserve(0, pages).unwrap();
        let mut outputs = Outputs::default();
        backend.run(&program, &batch, &mut outputs).unwrap();
        outputs.logits
    };
    let expected = run(Box::new(Reference::new(layout.clone())));
    for activations in [Activations::F32, Activations::Int8] {
        let on = |isa, form| {
            let options = CpuOptions { threads: 2, isa: Some(isa), activations, tiles: Tiles::Form(form) };
            run(Box::new(Cpu::new(layout.clone(), &options).unwrap()))
        };
        let found = on(Isa::Portable, 0);
        assert_eq!(found.len(), batch.len() * out.width());
        for (i, (f, e)) in found.iter().zip(&expected).enumerate() {
            assert!((f - e).abs() <= tolerance * e.abs().max(1.0), "{activations:?} element {i}: {f}, expected {e}");
        }
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        // As many forms as any set has of products.
        let products = program.ops().iter().any(|op| matches!(op, Op::Linear(_) | Op::ExpertLinear(_)));
        let forms = if products { 6 } else { 1 };
        for (isa, form) in Isa::present().into_iter().flat_map(|isa| (0..forms).map(move |form| (isa, form))) {
            assert!(bits(&on(isa, form)) == bits(&found), "{isa:?} in form {form} has other bits");
        }
    }
}

/// Rows without a context, and a KV layout that is not used.
fn rows(rng: &mut Rng, count: usize) -> (Batch, KvLayout) {
    let mut batch = Batch::new();
    let sequence =
        batch.add_sequence(SequenceContext { cached: rng.below(5000), pages: vec![vec![]], ..Default::default() });
    for _ in 0..count {
        batch.add_row(sequence, rng.below(TOKENS) as u32, None);
    }
    (batch, KvLayout::new(DType::F32, &[KvShape { kv_heads: 1, head_dim: 1, window: None }]))
}

fn any_width() -> impl Strategy<Value = usize> {
    prop_oneof![Just(1), Just(31), Just(32), Just(33), Just(64), Just(256), Just(512), 1usize..600]
}

fn any_width_below(limit: usize) -> impl Strategy<Value = usize> {
    prop_oneof![Just(1), Just(15), Just(16), Just(64), Just(128), 1..limit]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn linear_and_embed(seed: u64, count in 1usize..40, inputs in any_width(), outputs in any_width(), bias: bool) {
        let mut rng = Rng(seed);
        let (batch, layout) = rows(&mut rng, count);
        let kind = rng.below(100);
        let weight = rng.weight(kind, outputs, inputs);
        let bias = bias.then(|| Vector::new("bias", rng.values(outputs, 1.0)));
        check(&batch, layout, 0, 1e-5, |rec| {
            let x = eight_bit_input(&mut rng, rec, inputs);
            rec.linear(x, &weight, bias.as_ref())
        });
    }

    #[test]
    fn rms_norm(seed: u64, count in 1usize..40, dim in any_width(), groups in 1usize..5, in_groups: bool) {
        let mut rng = Rng(seed);
        let (batch, layout) = rows(&mut rng, count);
        check(&batch, layout, 0, 1e-5, |rec| {
            let x = input(&mut rng, rec, dim * groups);
            let weight = Vector::new("norm", rng.values(dim * if in_groups { groups } else { 1 }, 2.0));
            rec.rms_norm_groups(x, &weight, dim, 1e-6)
        });
    }

    #[test]
    fn rotary(seed: u64, count in 1usize..40, heads in 1usize..5, half in 1usize..40, rest in 0usize..9, adjacent: bool) {
        let mut rng = Rng(seed);
        let (mut batch, layout) = rows(&mut rng, count);
        (0..count).for_each(|row| batch.set_coordinates(row, [0; 3].map(|_: usize| rng.below(5000))));
        let pairs = if adjacent { PairLayout::Adjacent } else { PairLayout::HalfSplit };
        check(&batch, layout, 0, 0.0, |rec| {
            let per_position = (0..half).map(|i| 0.8f32.powi(i as i32)).collect();
            let axes = (rng.below(2) == 0).then(|| (0..half).map(|_| rng.below(3) as u8).collect());
            let angles = rec.rotary_angles(&Frequencies { per_position, magnitude: 1.25, axes });
            let x = input(&mut rng, rec, heads * (2 * half + rest));
            rec.rotary(x, angles, 2 * half + rest, pairs)
        });
    }

    #[test]
    fn elementwise(seed: u64, count in 1usize..40, width in any_width()) {
        let mut rng = Rng(seed);
        let (batch, layout) = rows(&mut rng, count);
        check(&batch, layout, 0, 1e-6, |rec| {
            let (a, b) = (input(&mut rng, rec, width), input(&mut rng, rec, width));
            let h = rec.silu_mul(a, b);
            rec.add(h, a)
        });
    }

    #[test]
    fn activations_and_layer_norm(seed: u64, count in 1usize..40, width in any_width(), whole: bool) {
        let mut rng = Rng(seed);
        let (batch, layout) = rows(&mut rng, count);
        check(&batch, layout, 0, 1e-5, |rec| {
            let x = input(&mut rng, rec, width);
            let gate = input(&mut rng, rec, if whole { 1 } else { width });
            let h = rec.sigmoid_mul(x, gate);
            let h = rec.relu2(h);
            let (weight, bias) = (rng.values(width, 1.0), rng.values(width, 1.0));
            let h = rec.add(h, x);
            let h = rec.layer_norm(h, &Vector::new("weight", weight), &Vector::new("bias", bias), 0.1);
            let (a, b) = (rec.gelu(h, GeluKind::Tanh), rec.gelu(h, GeluKind::Exact));
            rec.concat(a, b)
        });
    }

    #[test]
    fn columns_and_inputs(seed: u64, count in 1usize..40, periods in 1usize..5, period in any_width()) {
        let mut rng = Rng(seed);
        let (mut batch, layout) = rows(&mut rng, count);
        (0..count).for_each(|row| batch.set_input(row, &rng.values(3 + periods * period, 1.0)));
        let start = rng.below(period);
        let width = 1 + rng.below(period - start);
        check(&batch, layout, 0, 0.0, |rec| {
            let x = rec.input(3, periods * period);
            rec.columns(x, period, start, width)
        });
    }

    #[test]
    fn own_embeddings(seed: u64, count in 1usize..40, width in any_width()) {
        let mut rng = Rng(seed);
        let (mut batch, layout) = rows(&mut rng, count);
        (0..count).step_by(2).for_each(|row| batch.set_embedding(row, &rng.values(width, 1.0)));
        check(&batch, layout, 0, 0.0, |rec| input(&mut rng, rec, width));
    }

    #[test]
    fn attention_within_sequences(
        seed: u64,
        heads in 1usize..4,
        dim in prop_oneof![Just(1usize), Just(64), 1usize..40],
        counts in prop::collection::vec(prop_oneof![1usize..12, Just(300)], 1..4),
    ) {
        let mut rng = Rng(seed);
        let (mut batch, layout) = rows(&mut rng, counts[0]);
        for &count in &counts[1..] {
            let sequence = batch.add_sequence(SequenceContext::default());
            for _ in 0..count {
                batch.add_row(sequence, rng.below(TOKENS) as u32, None);
            }
        }
        check(&batch, layout, 0, 1e-5, |rec| {
            let qkv = [0; 3].map(|_| input(&mut rng, rec, heads * dim));
            rec.full_attention(qkv, heads, 1.7)
        });
    }

    #[test]
    fn scores_and_groups_of_experts(seed: u64, count in 1usize..40, size in 1usize..9, groups in 1usize..9, normalize: bool) {
        let mut rng = Rng(seed);
        let (batch, layout) = rows(&mut rng, count);
        let kept = 1 + rng.below(groups);
        let k = 1 + rng.below(kept * size);
        check(&batch, layout, 0, 1e-5, |rec| {
            let logits = input(&mut rng, rec, groups * size);
            let scores = rec.router_scores(logits, &Vector::new("bias", rng.values(groups * size, 0.5)));
            let ids = rec.route(scores, k, Some(ExpertGroups { count: groups, kept }));
            rec.expert_weights(logits, ids, Score::Sigmoid { scale: 2.5 }, normalize)
        });
    }

    #[test]
    fn recurrent_layers(
        seed: u64,
        taps in 1usize..6,
        (key_heads, group) in (1usize..4, 1usize..4),
        (key_dim, value_dim) in (any_width_below(130), any_width_below(130)),
        counts in prop::collection::vec(1usize..24, 1..4),
        is_mamba: bool,
    ) {
        let mut rng = Rng(seed);
        let mut batch = Batch::new();
        let mut paths = vec![];
        for (state, &count) in (0..).zip(&counts) {
            let (is_draft, cached) = (rng.below(2) == 0, rng.below(2) * 100);
            let context = SequenceContext { cached, pages: vec![vec![]], state: StateId(state), is_draft };
            let sequence = batch.add_sequence(context);
            let mut rows: Vec<(usize, Vec<usize>)> = vec![];
            for i in 0..count {
                let parent = if is_draft { rng.below(i + 1).checked_sub(1) } else { i.checked_sub(1) };
                let row = batch.add_row(sequence, rng.below(TOKENS) as u32, parent.map(|p| rows[p].0));
                let path = parent.map_or(vec![], |p| rows[p].1.clone()).into_iter().chain([row]).collect();
                rows.push((row, path));
            }
            if is_draft {
                paths.push((sequence, rows[rng.below(count)].1.clone()));
            }
        }
        let mut rec = Recorder::new(Capacity { rows: batch.len() + 3, wanted: batch.len() }, &[]).taking_drafts();
        let mut vector = |len| Vector::new("vector", rng.values(len, 0.6));
        let heads = key_heads * group;
        let negative = Vector::new("decay", vector(heads).values().iter().map(|v| -v.abs()).collect::<Vec<_>>());
        let (bias, skip) = (vector(heads), vector(heads));
        let out = if is_mamba {
            let (groups, head_dim, state_dim) = (key_heads, value_dim, key_dim);
            let shape = MambaShape { heads, head_dim, groups, state_dim, step_limits: (0.001, 2.0) };
            let (conv, conv_bias) = (vector(taps * shape.xbc_width()), vector(shape.xbc_width()));
            let x = input(&mut rng, &mut rec, shape.xbc_width());
            let dt = input(&mut rng, &mut rec, heads);
            let x = rec.short_conv(x, &conv, Some(&conv_bias), 0);
            rec.mamba2([x, dt], [&negative, &bias, &skip], shape, 1)
        } else {
            let order = if group % 2 == 0 { KeyHeads::Tiled } else { KeyHeads::Grouped };
            let shape = DeltaShape { key_heads, value_heads: heads, key_dim, value_dim, order };
            let conv = vector(taps * shape.qkv_width());
            let x = input(&mut rng, &mut rec, shape.qkv_width());
            let (a, b) = (input(&mut rng, &mut rec, heads), input(&mut rng, &mut rec, heads));
            let x = rec.short_conv(x, &conv, None, 0);
            rec.gated_delta([x, a, b], &negative, &bias, shape, 1)
        };
        let out = rec.gather_rows(out);
        let program = rec.finish(out);
        (0..batch.len()).for_each(|row| batch.want(row));
        let (layout, states) = (program.states(), counts.len() as u32);
        let before: Vec<Vec<f32>> = counts.iter().map(|_| rng.values(layout.len(), 1.0)).collect();

        // Results, and states after the run and after commits.
        let run = |mut backend: Box<dyn Backend>| {
            backend.load(&program, &mut |_| {}).unwrap();
            backend.reserve_states(&layout, before.len()).unwrap();
            (0..states).for_each(|id| backend.load_state(StateId(id), &before[id as usize]));
            let mut outputs = Outputs::default();
            backend.run(&program, &batch, &mut outputs).unwrap();
            let mut all = outputs.logits;
            let kept = |context: &&SequenceContext| context.cached > 0 || !context.is_draft;
            batch.sequences().iter().filter(kept).for_each(|context| all.extend(backend.save_state(context.state)));
            paths.iter().for_each(|(sequence, path)| backend.commit(&program, &batch, *sequence, path));
            (0..states).for_each(|id| all.extend(backend.save_state(StateId(id))));
            all
        };
        let kv = KvLayout::new(DType::F32, &[]);
        let expected = run(Box::new(Reference::new(kv.clone())));
        let on = |isa, threads| {
            let options = CpuOptions { isa: Some(isa), ..CpuOptions::new(threads) };
            run(Box::new(Cpu::new(kv.clone(), &options).unwrap()))
        };
        let found = on(Isa::Portable, 1);
        let largest = expected.iter().fold(1.0f32, |max, v| max.max(v.abs()));
        for (i, (f, e)) in found.iter().zip(&expected).enumerate() {
            prop_assert!((f - e).abs() <= 1e-5 * largest, "element {i}: {f}, expected {e}");
        }
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        for isa in Isa::present() {
            prop_assert!(bits(&on(isa, 3)) == bits(&found), "{isa:?} has other bits");
        }
    }

    #[test]
    fn experts(seed: u64, count in 1usize..40, experts in 1usize..9, blocks in 1usize..4, outputs in any_width(), normalize: bool) {
        let mut rng = Rng(seed);
        let (batch, layout) = rows(&mut rng, count);
        let k = 1 + rng.below(experts);
        let weights: Arc<[Weight]> = (0..experts).map(|kind| rng.weight(kind, outputs, 32 * blocks)).collect();
        for per_choice in [false, true] {
            check(&batch, layout.clone(), 0, 1e-5, |rec| {
                let logits = input(&mut rng, rec, experts);
                let x = eight_bit_input(&mut rng, rec, 32 * blocks * if per_choice { k } else { 1 });
                let ids = rec.route(logits, k, None);
                let chosen = rec.expert_weights(logits, ids, Score::Softmax, normalize);
                let h = rec.expert_linear(x, &weights, ids);
                rec.expert_combine(h, chosen)
            });
        }
    }

    #[test]
    fn attention(
        seed: u64,
        kv_heads in 1usize..4,
        group in 1usize..4,
        dim in prop_oneof![Just(1usize), Just(64), 1usize..40],
        window in prop_oneof![Just(None), (1usize..90).prop_map(Some)],
        counts in prop::collection::vec(prop_oneof![1usize..12, Just(300)], 1..4),
        trees: bool,
    ) {
        let mut rng = Rng(seed);
        let (total, pages) = shuffled_pages(&mut rng, &counts);
        let mut batch = Batch::new();
        for (pages, &count) in pages.iter().zip(&counts) {
            let sequence = batch.add_sequence(SequenceContext { pages: vec![pages.clone()], ..Default::default() });
            let mut rows: Vec<usize> = vec![];
            for i in 0..count {
                let parent = if trees && i > 0 { Some(rows[rng.below(i)]) } else { rows.last().copied() };
                rows.push(batch.add_row(sequence, rng.below(TOKENS) as u32, parent));
            }
        }
        let dtype = [DType::F32, DType::F16, DType::Bf16][rng.below(3)];
        let layout = KvLayout::new(dtype, &[KvShape { kv_heads, head_dim: dim, window }; 2]);
        check(&batch, layout, total, 1e-5, |rec| {
            let mut x = input(&mut rng, rec, kv_heads * group * dim);
            for layer in 0..2 {
                let (k, v) = (input(&mut rng, rec, kv_heads * dim), input(&mut rng, rec, kv_heads * dim));
                rec.kv_write(k, v, layer, dim);
                x = rec.attention(x, layer, (kv_heads * group, kv_heads), 1.7, window);
            }
            x
        });
    }
}
