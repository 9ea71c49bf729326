//! Gumbel-max: the survivor with the largest scaled logit plus noise, ties to the lower id.

use super::{
    Sampled, SamplingOptions,
    filter::Survivors,
    gumbel::{MAX, bits, of_word, threshold},
    philox,
    row::{Key, Row},
};

/// Draws from the survivors, of which the best token is always one. The temperature is above 0.
///
/// Logarithms are for the few tokens that can still win: a chunk whose largest logit could not win with the largest
/// noise is skipped, and in the others only words above a bound are looked at.
pub(super) fn draw(row: &Row, survivors: &Survivors, options: &SamplingOptions, index: u64) -> Sampled {
    let &SamplingOptions { temperature, seed, .. } = options;
    let top = row.top().token();
    let mut best = Sampled { token: top, score: of_word(philox::noise(seed, index, top)) };
    for chunk in row.chunks() {
        let peak = row.scaled(chunk.peak, temperature);
        if best.score - peak > MAX || peak < survivors.lowest || Key::new(chunk.peak, chunk.first) > survivors.last {
            continue;
        }
        let Some(lowest) = threshold(best.score - peak) else { continue };
        let words = philox::chunk(seed, index, chunk.first);
        if !words.iter().fold(false, |any, &word| any | (bits(word) >= lowest)) {
            continue;
        }
        for ((token, &logit), word) in (chunk.first..).zip(chunk.logits).zip(words) {
            // NaN and -inf are no tokens.
            if bits(word) < lowest || logit.is_nan() || logit == f32::NEG_INFINITY {
                continue;
            }
            let scaled = row.scaled(logit, temperature);
            if scaled < survivors.lowest || Key::new(logit, token) > survivors.last {
                continue;
            }
            let score = scaled + of_word(word);
            if score > best.score || (score == best.score && token < best.token) {
                best = Sampled { token, score };
            }
        }
    }
    best
}
