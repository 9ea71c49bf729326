//! Top-k, top-p and min-p. Each keeps the best tokens up to some place in the ranking, so their result is a place.

use super::{
    SamplingOptions,
    ln::ln,
    philox::CHUNK,
    row::{Chunk, Key, Row},
    weight::{MAX_STEPS, Scale, of_steps},
};

/// Bins of the top-p histogram are 2^14 steps, a 64th of an octave, wide.
const BIN_SHIFT: u32 = 14;
const BINS: usize = (MAX_STEPS >> BIN_SHIFT) as usize + 1;

/// The tokens that may be drawn: ranked up to `last` and with a scaled logit of at least `lowest`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Survivors {
    pub(super) last: Key,
    pub(super) lowest: f64,
}

/// Applies the filters in their order. The temperature is above 0. `keys` and `histogram` are scratch space.
pub(super) fn survivors(
    row: &Row,
    options: &SamplingOptions,
    keys: &mut Vec<Key>,
    histogram: &mut Vec<u64>,
) -> Survivors {
    let &SamplingOptions { temperature, top_k, top_p, min_p, .. } = options;
    let scale = Scale::new(row.top().logit(), temperature);
    let last = if 0 < top_k && top_k < row.vocab() {
        keep_top_k(row, top_k, keys);
        match keys.iter().max() {
            Some(_) if top_p < 1.0 => keep_top_p(scale, top_p, keys),
            Some(&last) => last,
            None => Key::WORST,
        }
    } else if top_p < 1.0 {
        top_p_of_row(row, scale, top_p, keys, histogram)
    } else {
        Key::WORST
    };
    // The largest probability is exp(0): a ratio of probabilities is a difference of scaled logits.
    let lowest = if min_p >= f64::MIN_POSITIVE { ln(min_p) } else { f64::NEG_INFINITY };
    Survivors { last, lowest }
}

/// Leaves the `k` best tokens in `keys`, in no order; fewer if fewer are possible.
fn keep_top_k(row: &Row, k: usize, keys: &mut Vec<Key>) {
    keys.clear();
    // The k-th largest peak bounds the k-th largest logit from below, since the k peaks above it are logits as well.
    let mut lowest = f32::NEG_INFINITY;
    if k <= row.peaks().len() {
        keys.extend(row.chunks().map(|chunk| Key::new(chunk.peak, 0)));
        if k <= keys.len() {
            lowest = keys.select_nth_unstable(k - 1).1.logit();
        }
        keys.clear();
    }
    for chunk in row.chunks().filter(|chunk| chunk.peak >= lowest) {
        keys.extend(chunk.tokens_from(lowest));
    }
    if k < keys.len() {
        keys.select_nth_unstable(k - 1);
        keys.truncate(k);
    }
}

/// The last of `keys` (not empty) that top-p keeps.
fn keep_top_p(scale: Scale, top_p: f64, keys: &mut [Key]) -> Key {
    let total = keys.iter().map(|&key| weight(scale, key)).sum();
    last_within(keys, share(top_p, total), scale)
}

/// The last token of the row that top-p keeps: a histogram finds the bin it lies in, only that bin is looked into.
fn top_p_of_row(row: &Row, scale: Scale, top_p: f64, keys: &mut Vec<Key>, histogram: &mut Vec<u64>) -> Key {
    histogram.clear();
    histogram.resize(2 * BINS, 0);
    // Two histograms in turn: neighbours may share a bin, and an addition must wait for the one before it.
    let (even, odd) = histogram.split_at_mut(BINS);
    for chunk in row.chunks().filter(|chunk| scale.steps(chunk.peak) < MAX_STEPS) {
        for pair in steps(&chunk, scale).as_chunks().0 {
            let &[a, b] = pair;
            even[bin(a)] += of_steps(a);
            odd[bin(b)] += of_steps(b);
        }
    }
    let weights = || even.iter().zip(odd.iter()).map(|(a, b)| a + b);
    let mut missing = share(top_p, weights().sum());
    let mut last_bin = 0;
    for (bin, weight) in weights().enumerate() {
        last_bin = bin;
        if weight >= missing {
            break;
        }
        missing -= weight;
    }
    keys.clear();
    for chunk in row.chunks().filter(|chunk| bin(scale.steps(chunk.peak)) <= last_bin) {
        let tokens = (chunk.first..).zip(chunk.logits).zip(steps(&chunk, scale));
        let tokens = tokens.filter(|((_, logit), steps)| bin(*steps) == last_bin && **logit > f32::NEG_INFINITY);
        keys.extend(tokens.map(|((token, &logit), _)| Key::new(logit, token)));
    }
    last_within(keys, missing, scale)
}

/// Steps of all tokens of a chunk; [`MAX_STEPS`] beyond its end.
fn steps(chunk: &Chunk, scale: Scale) -> [u32; CHUNK] {
    let mut steps = [MAX_STEPS; CHUNK];
    for (steps, &logit) in steps.iter_mut().zip(chunk.logits) {
        *steps = scale.steps(logit);
    }
    steps
}

fn bin(steps: u32) -> usize {
    (steps >> BIN_SHIFT) as usize
}

fn weight(scale: Scale, key: Key) -> u64 {
    of_steps(scale.steps(key.logit()))
}

/// The weight that a token's betters must reach together for the token to be cut; from 1 to `total`, which is not 0.
fn share(top_p: f64, total: u64) -> u64 {
    ((top_p * total as f64).ceil() as u64).clamp(1, total.max(1))
}

/// The first of `keys` (not empty) in rank order at which the sum of weights reaches `share`, which is at most the sum
/// of all. Halves the range each time, so it takes time linear in `keys`.
fn last_within(keys: &mut [Key], mut share: u64, scale: Scale) -> Key {
    let mut range = keys;
    while range.len() > 1 {
        let middle = range.len() / 2;
        range.select_nth_unstable(middle);
        let (better, rest) = range.split_at_mut(middle);
        let sum: u64 = better.iter().map(|&key| weight(scale, key)).sum();
        if sum >= share {
            range = better;
        } else {
            share -= sum;
            range = rest;
        }
    }
    range.first().copied().unwrap_or(Key::WORST)
}
