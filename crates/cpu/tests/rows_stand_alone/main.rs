//! A row's result is the same bits whatever shares its batch, whichever threads and
//! instructions compute it, wherever its pages lie.

#[path = "../common/mod.rs"]
mod common;
mod tiny;

use common::shuffled_pages;
use kapitsa_cpu::{Activations, Cpu, CpuOptions, Isa, Tiles};
use kapitsa_ops::kv::PageId;
use kapitsa_ops::state::StateId;
use kapitsa_ops::{Backend, Batch, Outputs, SequenceContext};
use kapitsa_tensor::DType;
use kapitsa_testkit::random::Rng;
use proptest::prelude::*;
use tiny::{POISON, Tiny};

/// Logits of all rows of one run, as bits; a NaN is a NaN whatever its sign and payload.
fn run(model: &Tiny, backend: &mut Cpu, mut batch: Batch) -> Vec<Vec<u32>> {
    (0..batch.len()).for_each(|row| batch.want(row));
    let program = model.record(batch.len().next_power_of_two(), batch.len().next_power_of_two());
    backend.load(&program, &mut |_| {}).unwrap();
    let mut outputs = Outputs::default();
    backend.run(&program, &batch, &mut outputs).unwrap();
    outputs
        .logits
        .chunks_exact(tiny::VOCAB)
        .map(|row| row.iter().map(|v| if v.is_nan() { f32::NAN } else { *v }.to_bits()).collect())
        .collect()
}

fn chain(cached: usize, pages: &[PageId], tokens: &[u32]) -> Batch {
    let mut batch = Batch::new();
    let sequence = batch.add_sequence(SequenceContext { cached, pages: vec![pages.to_vec()], ..Default::default() });
    tokens.iter().fold(None, |parent, &token| Some(batch.add_row(sequence, token, parent)));
    batch
}

/// Any instruction set of this machine and any form of tiles.
fn options(rng: &mut Rng, threads: usize) -> CpuOptions {
    let sets = Isa::present();
    let (isa, tiles) = (Some(sets[rng.below(sets.len())]), Tiles::Form(rng.below(6)));
    CpuOptions { threads, isa, activations: Activations::Int8, tiles }
}

/// Logits of a sequence that is alone, fed one token at a time, on one thread, with the portable instruction set.
fn alone(model: &Tiny, dtype: DType, tokens: &[u32]) -> Vec<Vec<u32>> {
    let mut cpu =
        Cpu::new(model.layout(dtype), &CpuOptions { isa: Some(Isa::Portable), ..CpuOptions::new(1) }).unwrap();
    let pages: Vec<PageId> = (0..tokens.len().div_ceil(64) as u32).map(PageId).collect();
    cpu.reserve(0, pages.len()).unwrap();
    cpu.reserve_states(&model.record(1, 1).states(), 1).unwrap();
    (0..tokens.len()).flat_map(|i| run(model, &mut cpu, chain(i, &pages, &tokens[i..=i]))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..Default::default() })]

    #[test]
    fn one_to_forty_rows_with_poisoned_neighbours(
        seed: u64,
        rows in prop::collection::vec(1usize..14, 1..4),
        window in prop_oneof![Just(None), (1usize..20).prop_map(Some)],
        threads in 1usize..4,
    ) {
        let mut rng = Rng(seed);
        let model = Tiny::new(seed, window);
        let dtype = [DType::F32, DType::F16, DType::Bf16][rng.below(3)];
        // Sequence 0 is sane, the others hold NaN, infinities and huge values.
        let sequences: Vec<Vec<u32>> = rows.iter().enumerate().map(|(s, &count)| {
            (0..count).map(|_| if s > 0 && rng.below(2) == 0 { POISON[rng.below(3)] } else { rng.below(47) as u32 }).collect()
        }).collect();
        let (total, pages) = shuffled_pages(&mut rng, &rows);
        let mut cpu = Cpu::new(model.layout(dtype), &options(&mut rng, threads)).unwrap();
        cpu.reserve(0, total).unwrap();
        cpu.reserve_states(&model.record(1, 1).states(), pages.len()).unwrap();

        // Rows of all sequences interleaved at random in one batch.
        let mut batch = Batch::new();
        for (state, pages) in (0..).zip(&pages) {
            let state = StateId(state);
            batch.add_sequence(SequenceContext { pages: vec![pages.clone()], state, ..Default::default() });
        }
        let mut order: Vec<usize> = rows.iter().enumerate().flat_map(|(s, &count)| vec![s; count]).collect();
        order = rng.shuffled(order.len()).into_iter().map(|i| order[i]).collect();
        let mut last = vec![None; rows.len()];
        let mut next = vec![0; rows.len()];
        for &s in &order {
            last[s] = Some(batch.add_row(s, sequences[s][next[s]], last[s]));
            next[s] += 1;
        }
        let together = run(&model, &mut cpu, batch);

        let expected: Vec<_> = sequences.iter().map(|tokens| alone(&model, dtype, tokens)).collect();
        let mut next = vec![0; rows.len()];
        for (row, &s) in order.iter().enumerate() {
            prop_assert_eq!(&together[row], &expected[s][next[s]], "sequence {} row {}", s, next[s]);
            next[s] += 1;
        }
    }

    #[test]
    fn drafts_equal_plain_runs_and_leave_no_trace_but_what_is_committed(
        seed: u64,
        context in 0usize..300,
        nodes in 1usize..17,
        threads in 1usize..4,
    ) {
        let mut rng = Rng(seed);
        let model = Tiny::new(seed, if rng.below(2) == 0 { None } else { Some(1 + rng.below(40)) });
        let tokens: Vec<u32> = (0..context).map(|_| rng.below(47) as u32).collect();
        let (total, pages) = shuffled_pages(&mut rng, &[context + nodes + 5]);
        let options = options(&mut rng, threads);
        let mut cpu = Cpu::new(model.layout(DType::F16), &options).unwrap();
        cpu.reserve(0, total).unwrap();
        cpu.reserve_states(&model.record(1, 1).states(), 1).unwrap();
        if context > 0 { run(&model, &mut cpu, chain(0, &pages[0], &tokens)); }

        let mut batch = Batch::new();
        let draft =
            SequenceContext { cached: context, pages: vec![pages[0].clone()], is_draft: true, ..Default::default() };
        let sequence = batch.add_sequence(draft);
        let mut paths: Vec<Vec<usize>> = vec![];
        for node in 0..nodes {
            let parent = rng.below(node + 1).checked_sub(1);
            batch.add_row(sequence, rng.below(47) as u32, parent);
            let path = parent.map_or(vec![], |p| paths[p].clone());
            paths.push(path.into_iter().chain([node]).collect());
        }
        let tokens_of = |path: &[usize]| path.iter().map(|&row| batch.token(row)).collect::<Vec<u32>>();

        let before = cpu.save_state(StateId(0));
        let tree = run(&model, &mut cpu, batch.clone());
        prop_assert!(context == 0 || cpu.save_state(StateId(0)) == before || before.iter().any(|v| v.is_nan()));
        for (node, path) in paths.iter().enumerate() {
            let plain = run(&model, &mut cpu, chain(context, &pages[0], &tokens_of(path)));
            prop_assert_eq!(&tree[node], plain.last().unwrap(), "node {}", node);
            cpu.load_state(StateId(0), &before);
        }

        // The same tree again; then a path of it becomes part of the sequence, which goes on as if nothing else had been.
        prop_assert_eq!(&run(&model, &mut cpu, batch.clone()), &tree);
        let path = &paths[rng.below(nodes)];
        let mut wanted = batch.clone();
        (0..wanted.len()).for_each(|row| wanted.want(row));
        let rows = wanted.len().next_power_of_two();
        cpu.commit(&model.record(rows, rows), &wanted, sequence, path);
        let rest: Vec<u32> = (0..5).map(|_| rng.below(47) as u32).collect();
        let after = run(&model, &mut cpu, chain(context + path.len(), &pages[0], &rest));

        let mut plain = Cpu::new(model.layout(DType::F16), &options).unwrap();
        plain.reserve(0, total).unwrap();
        plain.reserve_states(&model.record(1, 1).states(), 1).unwrap();
        let all = [tokens, tokens_of(path), rest].concat();
        let expected = run(&model, &mut plain, chain(0, &pages[0], &all));
        prop_assert_eq!(&after[..], &expected[all.len() - 5..]);
    }
}

#[test]
fn a_thousand_tokens_in_shuffled_pages_and_any_chunks() {
    for (seed, window) in [(1, None), (2, Some(300))] {
        let mut rng = Rng(seed);
        let model = Tiny::new(seed, window);
        let tokens: Vec<u32> = (0..1000).map(|_| rng.below(47) as u32).collect();
        let expected = alone(&model, DType::F16, &tokens);
        for threads in [1, 2, 3] {
            let (total, pages) = shuffled_pages(&mut rng, &[1000, 400]);
            let mut cpu = Cpu::new(model.layout(DType::F16), &options(&mut rng, threads)).unwrap();
            cpu.reserve(0, total).unwrap();
            cpu.reserve_states(&model.record(1, 1).states(), 1).unwrap();
            let mut at = 0;
            while at < tokens.len() {
                let chunk = (1 + rng.below(200)).min(tokens.len() - at);
                let found = run(&model, &mut cpu, chain(at, &pages[0], &tokens[at..at + chunk]));
                assert!(found == expected[at..at + chunk], "rows {at}..{} with {threads} threads", at + chunk);
                at += chunk;
            }
        }
    }
}
