//! A row of logits as the filters see it: adjusted by penalties and bias, with the largest logit of every chunk.

use super::{History, SamplingOptions, philox::CHUNK};

/// Applies penalties and bias; borrows `logits` unchanged if there are none. Tokens outside `logits` are ignored.
///
/// A finite logit stays finite: it saturates.
pub(super) fn adjust<'a>(
    logits: &'a [f32],
    options: &SamplingOptions,
    history: &History,
    adjusted: &'a mut Vec<f32>,
) -> &'a [f32] {
    let penalised = if options.has_penalties() { history.seen() } else { &[] };
    if penalised.is_empty() && options.logit_bias.is_empty() {
        return logits;
    }
    adjusted.clear();
    adjusted.extend_from_slice(logits);
    for seen in penalised {
        if let Some(logit) = adjusted.get_mut(seen.token as usize) {
            change(logit, |z| {
                // `z / penalty` or `z * penalty`, without a branch on the sign, which nothing could predict.
                let penalty = options.repetition_penalty;
                let (above, below) = if z > 0.0 { (z, penalty) } else { (z * penalty, 1.0) };
                let z = above / below;
                let count = f64::from(seen.in_reply);
                if count > 0.0 { z - (options.presence_penalty + options.frequency_penalty * count) } else { z }
            });
        }
    }
    for (&token, &bias) in &options.logit_bias {
        if let Some(logit) = adjusted.get_mut(token as usize) {
            change(logit, |z| z + bias);
        }
    }
    adjusted
}

/// Changes a logit in f64 and rounds the result once; NaN and -inf stay what they are.
fn change(logit: &mut f32, f: impl FnOnce(f64) -> f64) {
    if *logit > f32::NEG_INFINITY {
        let changed = f(f64::from(finite(*logit))) as f32;
        *logit = changed.clamp(f32::MIN, f32::MAX);
    }
}

/// +inf counts as the largest number; -0 as 0, so that they tie; NaN stays (`f32::min` would lose it).
#[inline(always)]
fn finite(logit: f32) -> f32 {
    (if logit > f32::MAX { f32::MAX } else { logit }) + 0.0
}

/// Place of a token in the ranking: smaller is better, that is a larger logit or, at equal logits, a lower id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u64);

impl Key {
    /// Worse than every token.
    pub(super) const WORST: Key = Key(u64::MAX);

    /// `logit` is not NaN.
    pub(super) fn new(logit: f32, token: u32) -> Self {
        let bits = finite(logit).to_bits();
        // Ascending integers for descending numbers: flip all but the sign of positive ones.
        let descending = if bits >> 31 == 0 { bits ^ 0x7FFF_FFFF } else { bits };
        Key(u64::from(descending) << 32 | u64::from(token))
    }

    /// The token's id.
    pub(super) fn token(self) -> u32 {
        self.0 as u32
    }

    /// The token's logit.
    pub(super) fn logit(self) -> f32 {
        let descending = (self.0 >> 32) as u32;
        f32::from_bits(if descending >> 31 == 0 { descending ^ 0x7FFF_FFFF } else { descending })
    }
}

/// Logits, `[vocab]`, with the largest of every [`CHUNK`] tokens: most work skips most chunks by them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    logits: &'a [f32],
    peaks: &'a [f32],
    top: Key,
}

/// [`CHUNK`] consecutive logits of a row (fewer at its end).
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk<'a> {
    /// Id of the first.
    pub(super) first: u32,
    pub(super) logits: &'a [f32],
    /// The largest of them that is not NaN; above -inf.
    pub(super) peak: f32,
}

impl<'a> Row<'a> {
    /// Reads the row once. None if all logits are NaN or -inf.
    pub(super) fn new(logits: &'a [f32], peaks: &'a mut Vec<f32>) -> Option<Self> {
        peaks.clear();
        peaks.extend(logits.chunks(CHUNK).map(largest));
        let peaks = peaks.as_slice();
        let highest = finite(largest(peaks));
        if highest == f32::NEG_INFINITY {
            return None;
        }
        let chunk = peaks.iter().position(|&peak| peak >= highest)?;
        let place = logits[chunk * CHUNK..].iter().position(|&logit| logit >= highest)?;
        let top = Key::new(highest, (chunk * CHUNK + place) as u32);
        Some(Row { logits, peaks, top })
    }

    /// The best token.
    pub(super) fn top(&self) -> Key {
        self.top
    }

    /// How many tokens, the impossible ones included.
    pub(super) fn vocab(&self) -> usize {
        self.logits.len()
    }

    /// `(logit - largest logit) / temperature`; NaN stays.
    #[inline(always)]
    pub(super) fn scaled(&self, logit: f32, temperature: f64) -> f64 {
        (f64::from(finite(logit)) - f64::from(self.top.logit())) / temperature
    }

    /// The largest logits of all chunks.
    pub(super) fn peaks(&self) -> &'a [f32] {
        self.peaks
    }

    /// All chunks that have a possible token, in order.
    pub(super) fn chunks(&self) -> impl Iterator<Item = Chunk<'a>> + use<'a> {
        let chunks = self.logits.chunks(CHUNK).zip(self.peaks).enumerate();
        chunks.filter(|(_, (_, peak))| **peak > f32::NEG_INFINITY).map(|(i, (logits, &peak))| Chunk {
            first: (i * CHUNK) as u32,
            logits,
            peak,
        })
    }
}

impl Chunk<'_> {
    /// The tokens with a logit of at least `lowest` and above -inf, by id.
    pub(super) fn tokens_from(&self, lowest: f32) -> impl Iterator<Item = Key> + '_ {
        let tokens = self.logits.iter().zip(self.first..);
        let tokens = tokens.filter(move |(logit, _)| **logit >= lowest && **logit > f32::NEG_INFINITY);
        tokens.map(|(&logit, token)| Key::new(logit, token))
    }
}

/// The largest number; -inf if there is none but NaN.
fn largest(x: &[f32]) -> f32 {
    const LANES: usize = 16;
    let max = |a: f32, b: f32| if b > a { b } else { a };
    let mut best = [f32::NEG_INFINITY; LANES];
    let (lines, rest) = x.as_chunks::<LANES>();
    for line in lines {
        for lane in 0..LANES {
            best[lane] = max(best[lane], line[lane]);
        }
    }
    best.iter().chain(rest).copied().fold(f32::NEG_INFINITY, max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_rank_and_give_back_what_they_hold() {
        let ranked = [
            (f32::INFINITY, 0),
            (f32::MAX, 1),
            (1.5, 0),
            (1.5, 1),
            (f32::MIN_POSITIVE, 0),
            (0.0, 3),
            (-0.0, 4),
            (0.0, 5),
            (-1e-40, 0),
            (-1.5, 9),
            (f32::MIN, 9),
            (f32::NEG_INFINITY, 0),
        ];
        for pair in ranked.windows(2) {
            assert!(Key::new(pair[0].0, pair[0].1) < Key::new(pair[1].0, pair[1].1), "{pair:?}");
        }
        for (logit, token) in ranked {
            let key = Key::new(logit, token);
            assert_eq!((key.logit(), key.token()), (logit.min(f32::MAX), token));
        }
    }

    #[test]
    fn the_top_is_the_lowest_id_of_the_largest_number() {
        let top = |logits: &[f32]| Row::new(logits, &mut Vec::new()).map(|row| row.top().token());
        let mut logits = vec![f32::NAN; 200];
        assert_eq!(top(&logits), None);
        assert_eq!(top(&[]), None);
        logits[150] = f32::NEG_INFINITY;
        assert_eq!(top(&logits), None);
        logits[199] = -3.0;
        assert_eq!(top(&logits), Some(199));
        logits[170] = -3.0;
        assert_eq!(top(&logits), Some(170));
        logits[180] = f32::INFINITY;
        assert_eq!(top(&logits), Some(180));
        logits[9] = f32::MAX;
        assert_eq!(top(&logits), Some(9));
    }

    #[test]
    fn adjusting_leaves_impossible_tokens_and_saturates() {
        let mut history = History::new();
        history.extend_prompt(&[0, 1, 2, 5, 900]);
        history.extend_reply(&[3, 3, 4]);
        let options = SamplingOptions {
            repetition_penalty: 2.0,
            presence_penalty: 0.5,
            frequency_penalty: 0.25,
            logit_bias: [(1, 5.0), (6, -1.0), (7, 3.0)].into(),
            ..Default::default()
        };
        let logits = [f32::NAN, f32::NEG_INFINITY, -4.0, 4.0, 0.0, f32::MIN, 1.0, f32::INFINITY];
        let mut adjusted = Vec::new();
        let found = adjust(&logits, &options, &history, &mut adjusted);
        assert!(found[0].is_nan());
        assert_eq!(found[1..], [f32::NEG_INFINITY, -8.0, 1.0, -0.75, f32::MIN, 0.0, f32::MAX]);
    }
}
