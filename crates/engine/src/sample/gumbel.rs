//! Noise words as Gumbel variates: adding them to scaled logits and taking the largest samples the softmax exactly.

use super::{
    ln::ln,
    philox::noise,
    weight::{ONE_SHIFT, exp_fixed},
};

/// The uniform variate keeps this many bits of the word.
const BITS: u32 = 23;

/// No variate is larger: `-ln(-ln(1 - 2^-24))` is 16.6355.
pub(super) const MAX: f64 = 16.64;

/// Slack of the bounds below, far above any rounding of a score near the maximum, far below what would cost time.
const SLACK: f64 = 1e-6;

/// The Gumbel variate of `token` at `index` of its sequence.
pub fn gumbel(seed: u64, index: u64, token: u32) -> f64 {
    of_word(noise(seed, index, token))
}

/// `u = (word / 2^9 + 1/2) / 2^23` is never 0 or 1; the variate is `-ln(-ln u)`.
pub(super) fn of_word(word: u32) -> f64 {
    let u = (f64::from(word >> (32 - BITS)) + 0.5) / f64::from(1u32 << BITS);
    -ln(-ln(u))
}

/// Smallest word whose variate may reach `deficit`; None if none can. Words below it surely cannot.
///
/// From `exp(-exp(-d)) >= 1 - exp(-d)`: a variate of at least `d` needs `u >= 1 - exp(-d)`. The bound is nearly tight
/// where it matters, at large `d`.
pub(super) fn threshold(deficit: f64) -> Option<u32> {
    let deficit = deficit - SLACK;
    if deficit > MAX {
        return None;
    }
    if deficit <= 0.0 {
        return Some(0);
    }
    // exp(-d) in units of 2^-23. It may be too small by 4e-7 of itself, that is 4, and by 1 for the rounding; another 1
    // is for the half in `u`.
    let tail = (exp_fixed(deficit) >> (ONE_SHIFT - BITS)) as u32;
    let lowest = (1u32 << BITS).saturating_sub(tail + 6);
    Some(lowest << (32 - BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_for_every_variate() {
        let mut last = f64::NEG_INFINITY;
        for bits in (0..1u32 << BITS).step_by(61).chain((1 << BITS) - 5000..1 << BITS) {
            let word = bits << (32 - BITS);
            let g = of_word(word);
            assert!(g < MAX, "{bits}: {g}");
            assert!(g >= last - 1e-9 || bits == (1 << BITS) - 5000, "{bits}: {g} after {last}");
            last = g;
            let lowest = threshold(g).unwrap_or_else(|| panic!("{bits}: {g} is thought impossible"));
            assert!(lowest <= word, "{bits}: {g} is below the threshold {lowest}");
        }
        assert_eq!(threshold(17.0), None);
        assert_eq!(threshold(-3.0), Some(0));
        // Tight: at a deficit of 10 about 5e-5 of the words pass.
        let passing = f64::from(u32::MAX - threshold(10.0).unwrap()) / f64::from(u32::MAX);
        assert!(passing < 1.03 * (-10f64).exp(), "{passing}");
    }

    #[test]
    fn variates_match_float64_logarithms() {
        for token in 0..100_000 {
            let u = (f64::from(noise(3, 14, token) >> 9) + 0.5) / 8_388_608.0;
            let expected = -(-u.ln()).ln();
            let found = gumbel(3, 14, token);
            assert!((found - expected).abs() < 1e-14 * expected.abs().max(1.0), "token {token}: {found}, {expected}");
        }
    }
}
