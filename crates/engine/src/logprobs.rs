//! How likely the model thought a token and its best alternatives.

/// Most alternatives that can be asked for.
pub const MAX_TOP_LOGPROBS: usize = 20;

/// A token and the natural logarithm of its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLogprob {
    /// The token.
    pub id: u32,
    /// `ln p`, at most 0.
    pub logprob: f32,
}

/// Of one token of a reply.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// `ln p` of the token that was chosen.
    pub logprob: f32,
    /// The likeliest tokens, best first, ties in order of id; fewer than asked for if fewer are possible. The chosen token
    /// is among them only if it is one of the best.
    pub top: Vec<TokenLogprob>,
}

/// `ln softmax(logits)` of `chosen` and of the `count` likeliest tokens.
///
/// These are the probabilities of the model itself, before penalties, bias, temperature and filters, though among the tokens
/// that a constraint of the request allows: it takes the others out of `logits` by -inf. The sum is f64, in
/// order of ids. As in [`sample`](crate::sample), NaN counts as -inf, a token at -inf is impossible, and +inf counts as the
/// largest finite f32.
pub(crate) fn token_logprobs(logits: &[f32], chosen: u32, count: usize) -> TokenLogprobs {
    let number = |logit: f32| if logit.is_nan() { f32::NEG_INFINITY } else { logit.min(f32::MAX) };
    let max = logits.iter().copied().map(number).fold(f32::NEG_INFINITY, f32::max);
    let below = |logit: f32| f64::from(number(logit)) - f64::from(max);
    let ln_sum = logits.iter().map(|&logit| below(logit).exp()).sum::<f64>().ln();
    let logprob = |logit: f32| (below(logit) - ln_sum) as f32;

    // `best` stays short and sorted: almost every token fails the first comparison.
    let mut best: Vec<(f32, u32)> = Vec::with_capacity(count + 1);
    for (id, logit) in (0..).zip(logits.iter().copied().map(number)) {
        let is_full = best.len() == count;
        if logit == f32::NEG_INFINITY || is_full && best.last().is_none_or(|worst| logit <= worst.0) {
            continue;
        }
        let place = best.partition_point(|better| better.0 >= logit);
        best.insert(place, (logit, id));
        best.truncate(count);
    }
    TokenLogprobs {
        logprob: logprob(logits[chosen as usize]),
        top: best.into_iter().map(|(logit, id)| TokenLogprob { id, logprob: logprob(logit) }).collect(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sorts everything.
    fn naive(logits: &[f32], chosen: u32, count: usize) -> TokenLogprobs {
        let logits: Vec<f64> = logits
            .iter()
            .map(|&logit| match logit {
                logit if logit.is_nan() => f64::NEG_INFINITY,
                f32::INFINITY => f64::from(f32::MAX),
                logit => f64::from(logit),
            })
            .collect();
        let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|logit| (logit - max).exp()).sum();
        let logprob = |id: usize| (logits[id] - max - sum.ln()) as f32;
        let mut ids: Vec<usize> = (0..logits.len()).filter(|&id| logits[id] > f64::NEG_INFINITY).collect();
        ids.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
        let top = ids.into_iter().take(count).map(|id| TokenLogprob { id: id as u32, logprob: logprob(id) });
        TokenLogprobs { logprob: logprob(chosen as usize), top: top.collect() }
    }

    fn logit() -> impl Strategy<Value = f32> {
        prop_oneof![
            8 => -30.0f32..30.0,
            4 => (-3i8..3).prop_map(f32::from), // ties, but no -0: it ties with 0 and sorts below it
            1 => prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN]),
        ]
    }

    proptest! {
        #[test]
        fn as_the_naive_version(mut logits in prop::collection::vec(logit(), 1..70), chosen: u32, count in 0usize..=20) {
            let chosen = chosen % logits.len() as u32;
            logits[chosen as usize] = 0.5; // a token that can be chosen
            prop_assert_eq!(token_logprobs(&logits, chosen, count), naive(&logits, chosen, count));
        }
    }

    #[test]
    fn probabilities_of_a_small_row() {
        let found = token_logprobs(&[0.0, f32::NEG_INFINITY, 3f32.ln(), 0.0, f32::NAN], 3, 4);
        let ids: Vec<u32> = found.top.iter().map(|token| token.id).collect();
        assert_eq!(ids, [2, 0, 3], "ties in order of id, nothing impossible");
        assert!((found.logprob.exp() - 0.2).abs() < 1e-6 && (found.top[0].logprob.exp() - 0.6).abs() < 1e-6);
        assert!(token_logprobs(&[1.0, 2.0], 0, 0).top.is_empty());
    }
}
