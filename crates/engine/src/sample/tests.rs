//! The whole sampler against the oracle, against a naive reference, and against the softmax it claims to sample.

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn sampler(options: SamplingOptions, vocab: usize) -> Sampler {
    Sampler::new(options, vocab).expect("valid options")
}

fn draw(logits: &[f32], options: &SamplingOptions, history: &History, index: u64) -> Result<Sampled, SampleError> {
    sampler(options.clone(), logits.len()).sample(logits, history, index, &mut Scratch::default())
}

fn token(logits: &[f32], options: &SamplingOptions) -> Result<u32, SampleError> {
    draw(logits, options, &History::new(), 5).map(|sampled| sampled.token)
}

mod oracle {
    use super::*;

    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/oracle/drafters/tree/");

    fn expected() -> Value {
        serde_json::from_slice(&std::fs::read(format!("{FOLDER}expected.json")).unwrap()).unwrap()
    }

    fn target_rows() -> Vec<Vec<f32>> {
        let bytes = std::fs::read(format!("{FOLDER}expected.safetensors")).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let rows = tensors.tensor("target_rows").unwrap();
        let vocab = rows.shape()[1];
        let values: Vec<f32> = rows.data().as_chunks().0.iter().map(|&x| f32::from_le_bytes(x)).collect();
        values.chunks(vocab).map(<[f32]>::to_vec).collect()
    }

    fn list<T>(value: &Value, item: impl Fn(&Value) -> T) -> Vec<T> {
        value.as_array().unwrap().iter().map(item).collect()
    }

    fn id(value: &Value) -> u32 {
        value.as_u64().unwrap() as u32
    }

    #[test]
    fn noise_matches() {
        let expected = expected();
        let table = &expected["gumbel_seed7_pos_0_12_5e9_tokens_0to7"];
        for (row, index) in table.as_array().unwrap().iter().zip([0, 12, 5_000_000_000]) {
            for (token, value) in (0..).zip(list(row, |x| x.as_f64().unwrap())) {
                let found = gumbel(7, index, token);
                assert!((found - value).abs() < 1e-9, "index {index}, token {token}: {found}, expected {value}");
            }
        }
        let words = list(&expected["philox_key_1_2_ctr_3_4_5_6"], id);
        assert_eq!(philox4x32([1, 2], [3, 4, 5, 6]).to_vec(), words);
    }

    /// Exact acceptance: sample at the root, step to the child with that token while there is one.
    #[test]
    fn acceptance_walks_match() {
        let expected = expected();
        let rows = target_rows();
        let tree = expected["tree_used_for_acceptance"].as_str().unwrap();
        let children: BTreeMap<(i64, u32), i64> = (0..)
            .zip(expected["trees"][tree]["nodes"].as_array().unwrap())
            .map(|(i, node)| ((node[0].as_i64().unwrap(), id(&node[1])), i))
            .collect();
        let mut walks = 0;
        for (name, case) in expected["acceptance"].as_object().unwrap() {
            let params = &case["params"];
            let number = |key: &str, default: f64| params.get(key).map_or(default, |x| x.as_f64().unwrap());
            let root = case["root_position"].as_u64().unwrap();
            for run in case["runs"].as_array().unwrap() {
                let options = SamplingOptions {
                    temperature: number("temperature", 1.0),
                    top_k: number("top_k", 0.0) as usize,
                    top_p: number("top_p", 1.0),
                    min_p: number("min_p", 0.0),
                    repetition_penalty: number("repetition", 1.0),
                    presence_penalty: number("presence", 0.0),
                    frequency_penalty: number("frequency", 0.0),
                    logit_bias: BTreeMap::new(),
                    seed: run["seed"].as_u64().unwrap(),
                };
                let mut history = History::new();
                history.extend_reply(&list(&case["history"], id)); // one history for all penalties
                let (mut node, mut path, mut tokens) = (-1, Vec::new(), Vec::new());
                loop {
                    let index = root + 1 + tokens.len() as u64;
                    let sampled = draw(&rows[(node + 1) as usize], &options, &history, index).unwrap();
                    tokens.push(sampled.token);
                    history.extend_reply(&[sampled.token]);
                    match children.get(&(node, sampled.token)) {
                        Some(&child) => node = child,
                        None => break,
                    }
                    path.push(node);
                }
                assert_eq!(tokens, list(&run["emitted_tokens"], id), "{name}, seed {}", options.seed);
                assert_eq!(path, list(&run["accepted_nodes"], |x| x.as_i64().unwrap()), "{name}");
                walks += 1;
            }
        }
        assert_eq!(walks, 25);
    }

    /// The oracle's `process` and `sample`, in float64 with the platform's functions and a full sort.
    fn oracle_sample(logits: &[f32], o: &SamplingOptions, history: &[u32], index: u64) -> (u32, f64) {
        let mut z: Vec<f64> = logits.iter().map(|&x| f64::from(x)).collect();
        for &t in &history.iter().copied().collect::<HashSet<_>>() {
            let n = history.iter().filter(|&&h| h == t).count() as f64;
            let z = &mut z[t as usize];
            *z = if *z > 0.0 { *z / o.repetition_penalty } else { *z * o.repetition_penalty };
            *z -= o.presence_penalty + o.frequency_penalty * n;
        }
        let mut ids: Vec<usize> = (0..z.len()).collect();
        ids.sort_by(|&a, &b| z[b].total_cmp(&z[a]).then(a.cmp(&b)));
        ids.truncate(if o.top_k == 0 { z.len() } else { o.top_k });
        let scaled = |t: usize| (z[t] - z[ids[0]]) / o.temperature;
        let total: f64 = ids.iter().map(|&t| scaled(t).exp()).sum();
        let mut before = 0.0;
        let mut best = (0, f64::NEG_INFINITY);
        for &t in &ids {
            let weight = scaled(t).exp();
            if before >= o.top_p * total || weight < o.min_p {
                break;
            }
            before += weight;
            let u = (f64::from(noise(o.seed, index, t as u32) >> 9) + 0.5) / 8_388_608.0;
            let score = scaled(t) - (-u.ln()).ln();
            if score > best.1 {
                best = (t as u32, score);
            }
        }
        best
    }

    #[test]
    fn tokens_and_scores_match_the_oracle_on_random_rows() {
        let mut cases = 0;
        for seed in 0..40 {
            let vocab = [1, 5, 63, 64, 65, 1000, 3333][seed as usize % 7];
            let logits = bell(vocab, 3.0, seed);
            let history: Vec<u32> = (0..20).map(|i| noise(seed, 1, i) % vocab as u32).collect();
            let mut counted = History::new();
            counted.extend_reply(&history);
            for (temperature, top_k, top_p, min_p, repetition) in [
                (1.0, 0, 1.0, 0.0, 1.0),
                (0.7, 20, 0.9, 0.0, 1.0),
                (1.3, 0, 0.95, 0.0, 1.0),
                (0.6, 20, 0.95, 0.02, 1.1),
                (1.0, 0, 1.0, 0.1, 0.9),
                (4.0, 100, 0.5, 0.0, 1.3),
            ] {
                let options = SamplingOptions {
                    temperature,
                    top_k,
                    top_p,
                    min_p,
                    repetition_penalty: repetition,
                    presence_penalty: 0.2,
                    frequency_penalty: 0.1,
                    logit_bias: BTreeMap::new(),
                    seed,
                };
                let found = draw(&logits, &options, &counted, 1000 + seed).unwrap();
                let expected = oracle_sample(&logits, &options, &history, 1000 + seed);
                assert_eq!(found.token, expected.0, "{options:?}");
                assert!((found.score - expected.1).abs() < 1e-5, "{options:?}: {found:?}, expected {expected:?}");
                cases += 1;
            }
        }
        assert_eq!(cases, 240);
    }
}

/// Normal noise around 0 and a few peaks: what the logits of a model look like.
fn bell(vocab: usize, deviation: f64, seed: u64) -> Vec<f32> {
    let uniform = |token, index| (f64::from(noise(seed, index, token)) + 0.5) / 4_294_967_296.0;
    let mut logits: Vec<f32> = (0..vocab as u32)
        .map(|t| deviation * (-2.0 * uniform(t, 90).ln()).sqrt() * (std::f64::consts::TAU * uniform(t, 91)).cos())
        .map(|x| x as f32)
        .collect();
    for i in 0..5 {
        let place = noise(seed, 92, i) as usize % vocab;
        logits[place] += 3.0 * deviation as f32;
    }
    logits
}

/// The definition, spelled out: every token is ranked, weighed and given its noise.
fn naive(logits: &[f32], options: &SamplingOptions, history: &History, index: u64) -> Result<Sampled, SampleError> {
    let mut adjusted = Vec::new();
    let logits = row::adjust(logits, options, history, &mut adjusted);
    let mut ranked: Vec<Key> = (0..)
        .zip(logits)
        .filter(|(_, logit)| **logit > f32::NEG_INFINITY)
        .map(|(token, &logit)| Key::new(logit, token))
        .collect();
    ranked.sort();
    let &top = ranked.first().ok_or(SampleError { vocab: logits.len() })?;
    if options.temperature == 0.0 {
        return Ok(Sampled { token: top.token(), score: 0.0 });
    }
    if options.top_k > 0 {
        ranked.truncate(options.top_k);
    }
    let scaled = |key: Key| (f64::from(key.logit()) - f64::from(top.logit())) / options.temperature;
    if options.top_p < 1.0 {
        let scale = weight::Scale::new(top.logit(), options.temperature);
        let weights: Vec<u64> = ranked.iter().map(|&key| weight::of_steps(scale.steps(key.logit()))).collect();
        let share = options.top_p * weights.iter().sum::<u64>() as f64;
        let mut before = 0;
        let kept = weights.iter().take_while(|&&weight| {
            let keep = (before as f64) < share;
            before += weight;
            keep
        });
        let kept = kept.count().max(1);
        ranked.truncate(kept);
    }
    ranked.retain(|&key| options.min_p == 0.0 || scaled(key) >= ln::ln(options.min_p));
    ranked.sort_by_key(|key| key.token());
    let scores = ranked.iter().map(|&key| (key.token(), scaled(key) + gumbel(options.seed, index, key.token())));
    let (token, score) = scores.reduce(|best, next| if next.1 > best.1 { next } else { best }).unwrap();
    Ok(Sampled { token, score })
}

fn any_logit() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => -20f32..20.0,
        4 => (-4i8..4).prop_map(f32::from),
        1 => Just(f32::NEG_INFINITY),
        1 => Just(f32::NAN),
        1 => prop_oneof![Just(-0.0), Just(1e-40), Just(f32::MIN), Just(-1e30)],
    ]
}

fn any_logits() -> impl Strategy<Value = Vec<f32>> {
    let ordinary = prop::collection::vec(any_logit(), 1..300);
    let tied = (prop::collection::vec(any_logit(), 1..4), 1usize..700)
        .prop_map(|(values, vocab)| (0..vocab).map(|i| values[i * 7 / 3 % values.len()]).collect());
    let real =
        (1usize..20_000, 0.01..8.0, any::<u64>()).prop_map(|(vocab, deviation, seed)| bell(vocab, deviation, seed));
    let hostile =
        (prop::collection::vec(any_logit(), 1..300), any::<prop::sample::Index>()).prop_map(|(mut logits, place)| {
            let place = place.index(logits.len());
            logits[place] = f32::INFINITY;
            logits
        });
    prop_oneof![4 => ordinary, 2 => tied, 3 => real, 1 => hostile]
}

prop_compose! {
    fn any_options()(
        temperature in prop_oneof![1 => Just(0.0), 4 => 0.05..3.0, 2 => Just(1.0), 1 => prop_oneof![Just(1e-300), Just(1e300)]],
        top_k in prop_oneof![2 => Just(0usize), 3 => 1usize..40, 1 => 1usize..2000, 1 => Just(usize::MAX)],
        top_p in prop_oneof![2 => Just(1.0), 4 => 0.0..1.0, 1 => prop_oneof![Just(0.0), Just(1e-300), Just(1.0 - 1e-16)]],
        min_p in prop_oneof![3 => Just(0.0), 3 => 0.0..1.0, 1 => prop_oneof![Just(1.0), Just(1e-9)]],
        repetition_penalty in prop_oneof![Just(1.0), 0.5..2.0, Just(1e300)],
        presence_penalty in prop_oneof![Just(0.0), -2.0..2.0],
        frequency_penalty in prop_oneof![Just(0.0), -2.0..2.0],
        logit_bias in prop::collection::btree_map(0u32..300, -100.0..100.0, 0..3),
        seed in any::<u64>(),
    ) -> SamplingOptions {
        SamplingOptions {
            temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty, logit_bias, seed,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn shortcuts_change_nothing(
        logits in any_logits(),
        options in any_options(),
        prompt in prop::collection::vec(0u32..300, 0..30),
        reply in prop::collection::vec(0u32..300, 0..30),
        index in any::<u64>(),
    ) {
        let mut options = options;
        options.logit_bias.retain(|&token, _| (token as usize) < logits.len());
        let mut history = History::new();
        history.extend_prompt(&prompt);
        history.extend_reply(&reply);
        let sampler = sampler(options.clone(), logits.len());
        let mut scratch = Scratch::default();
        scratch.peaks.resize(9, f32::NAN); // leftovers of another draw
        scratch.adjusted.resize(900, 1e9);
        scratch.keys.resize(77, Key::WORST);
        scratch.histogram.resize(99_999, 1 << 50);
        let found = sampler.sample(&logits, &history, index, &mut scratch);
        prop_assert_eq!(found, naive(&logits, &options, &history, index));
        prop_assert_eq!(found, sampler.sample(&logits, &history, index, &mut scratch));
    }
}

#[test]
fn shortcuts_change_nothing_at_the_size_of_a_real_vocabulary() {
    for (seed, deviation) in [(1, 2.5), (2, 0.0), (3, 0.1), (4, 6.0)] {
        let logits = bell(151_936, deviation, seed);
        for (temperature, top_k, top_p, min_p) in [
            (1.0, 0, 1.0, 0.0),
            (0.6, 20, 0.95, 0.0),
            (1.0, 0, 0.95, 0.0),
            (5.0, 0, 0.9, 0.0),
            (1.0, 0, 1.0, 0.05),
            (2.0, 5000, 0.99, 0.0),
        ] {
            for index in 0..3 {
                let options = SamplingOptions { temperature, top_k, top_p, min_p, seed, ..Default::default() };
                let history = History::new();
                assert_eq!(draw(&logits, &options, &history, index), naive(&logits, &options, &history, index));
            }
        }
    }
}

/// Chi-square of `draws` draws against `expected` probabilities must stay below a bound that chance passes once in
/// 100,000 (Wilson and Hilferty's approximation).
fn check_distribution(logits: &[f32], options: &SamplingOptions, expected: &[f64]) {
    let draws = 40_000;
    let sampler = sampler(options.clone(), logits.len());
    let mut scratch = Scratch::default();
    let mut counts = vec![0u32; logits.len()];
    for index in 0..draws {
        counts[sampler.sample(logits, &History::new(), index, &mut scratch).unwrap().token as usize] += 1;
    }
    let mut sum = 0.0;
    let mut freedom = -1.0;
    for (token, (&count, &p)) in counts.iter().zip(expected).enumerate() {
        if p == 0.0 {
            assert_eq!(count, 0, "token {token} is filtered out and was drawn");
            continue;
        }
        let mean = p * draws as f64;
        sum += (f64::from(count) - mean).powi(2) / mean;
        freedom += 1.0;
    }
    let a = 2.0 / (9.0 * freedom);
    let bound = freedom * (1.0 - a + 4.265 * f64::sqrt(a)).powi(3);
    assert!(sum < bound, "chi-square is {sum:.1}, expected less than {bound:.1}: {counts:?}");
}

fn softmax(logits: &[f32], temperature: f64, keep: impl Fn(usize) -> bool) -> Vec<f64> {
    let exp = |(token, &z): (usize, &f32)| if keep(token) { (f64::from(z) / temperature).exp() } else { 0.0 };
    let weights: Vec<f64> = logits.iter().enumerate().map(exp).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

#[test]
fn draws_follow_the_softmax() {
    let options = SamplingOptions { seed: 11, ..Default::default() };
    check_distribution(&[0.0, 0.0], &options, &[0.5, 0.5]);
    let flat = [1.5; 200];
    check_distribution(&flat, &options, &softmax(&flat, 1.0, |_| true));
    for temperature in [0.5, 1.0, 2.0] {
        let logits: Vec<f32> = (0..150).map(|t| (t * 37 % 150) as f32 / 60.0).collect();
        let options = SamplingOptions { temperature, seed: 12, ..Default::default() };
        check_distribution(&logits, &options, &softmax(&logits, temperature, |_| true));
    }
}

#[test]
fn draws_follow_the_softmax_of_the_survivors() {
    let logits: Vec<f32> = (0..100).map(|t| (t * 37 % 100) as f32 / 20.0).collect(); // 100 distinct, 0 to 4.95
    let rank = |token: usize| 99 - token * 37 % 100;
    let seed = 13;
    let top_k = SamplingOptions { top_k: 9, seed, ..Default::default() };
    check_distribution(&logits, &top_k, &softmax(&logits, 1.0, |token| rank(token) < 9));
    // Weights are a geometric series of ratio exp(-1/20): the first 14 reach half of the sum.
    let top_p = SamplingOptions { top_p: 0.5, seed, ..Default::default() };
    check_distribution(&logits, &top_p, &softmax(&logits, 1.0, |token| rank(token) < 14));
    let min_p = SamplingOptions { min_p: 0.3, seed, ..Default::default() };
    check_distribution(&logits, &min_p, &softmax(&logits, 1.0, |token| rank(token) <= 24)); // ln 0.3 = -1.204
}

#[test]
fn greedy_takes_the_lowest_of_the_largest_after_penalties_and_bias() {
    let mut options = SamplingOptions { temperature: 0.0, ..Default::default() };
    assert_eq!(token(&[1.0, 3.0, 2.0, 3.0], &options), Ok(1));
    options.logit_bias.insert(0, 2.0);
    assert_eq!(token(&[1.0, 3.0, 2.0, 3.0], &options), Ok(0));
    options.repetition_penalty = 2.0;
    let mut history = History::new();
    history.extend_prompt(&[1]);
    history.extend_reply(&[0]);
    assert_eq!(draw(&[1.0, 3.0, 2.0, 3.0], &options, &history, 0).unwrap().token, 3);
}

#[test]
fn impossible_tokens_are_never_drawn() {
    let mut logits = vec![f32::NEG_INFINITY; 500];
    logits[100..300].fill(f32::NAN);
    for options in [
        SamplingOptions { temperature: 0.0, ..Default::default() },
        SamplingOptions { temperature: 1e300, ..Default::default() },
        SamplingOptions { top_k: 20, top_p: 0.9, ..Default::default() },
        SamplingOptions { top_p: 0.9, ..Default::default() },
        SamplingOptions { min_p: 0.1, ..Default::default() },
    ] {
        logits[444] = f32::NAN;
        assert_eq!(token(&logits, &options), Err(SampleError { vocab: 500 }));
        logits[444] = -1e30;
        assert_eq!(token(&logits, &options), Ok(444), "{options:?}");
    }
    assert_eq!(
        SampleError { vocab: 500 }.to_string(),
        "no token can be sampled: all 500 logits are NaN or -inf, expected at least one number"
    );
}

#[test]
fn a_row_of_infinities_is_shared_evenly() {
    let mut logits = [0.0; 8];
    logits[2] = f32::INFINITY;
    logits[6] = f32::INFINITY;
    let mut expected = [0.0; 8];
    expected[2] = 0.5;
    expected[6] = 0.5;
    check_distribution(&logits, &SamplingOptions::default(), &expected);
}
