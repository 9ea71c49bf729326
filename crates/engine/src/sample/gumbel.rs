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

/// `u = (bits + 1/2) / 2^23` is never 0 or 1; the variate is `-ln(-ln u)`.
pub(super) fn of_word(word: u32) -> f64 {
    let u = (f64::from(bits(word)) + 0.5) / f64::from(1 << BITS);
    -ln(-ln(u))
}

/// What of a word the variate is made of, 0 to 2^23 - 1. Signed, since many can be compared at once only then.
#[inline(always)]
pub(super) fn bits(word: u32) -> i32 {
    (word >> (32 - BITS)) as i32
}

/// Smallest [`bits`] whose variate may reach `deficit`; None if none can. Bits below surely cannot.
///
/// From `exp(-exp(-d)) >= 1 - exp(-d)`: a variate of at least `d` needs `u >= 1 - exp(-d)`. The bound is nearly tight
/// where it matters, at large `d`.
pub(super) fn threshold(deficit: f64) -> Option<i32> {
    let deficit = deficit - SLACK;
    if deficit > MAX {
        return None;
    }
    if deficit <= 0.0 {
        return Some(0);
    }
    // exp(-d) in units of 2^-23. It may be too small by 4e-7 of itself, that is 4, and by 1 for the rounding; another 1
    // is for the half in `u`.
    let tail = (exp_fixed(deficit) >> (ONE_SHIFT - BITS)) as i32;
    Some((1 << BITS) - (tail + 6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_for_every_variate() {
        let mut last = f64::NEG_INFINITY;
        let last_bits = (1 << BITS) - 1;
        for i in (0..last_bits).step_by(61).chain(last_bits - 5000..=last_bits) {
            let g = of_word((i as u32) << (32 - BITS) | 5);
            assert!(g < MAX, "{i}: {g}");
            assert!(g >= last - 1e-9 || i == last_bits - 5000, "{i}: {g} after {last}");
            last = g;
            let lowest = threshold(g).unwrap_or_else(|| panic!("{i}: {g} is thought impossible"));
            assert!(lowest <= i, "{i}: {g} is below the threshold {lowest}");
        }
        assert_eq!(threshold(17.0), None);
        assert_eq!(threshold(-3.0), Some(0));
        // Tight: at a deficit of 10 about 5e-5 of the words pass.
        let passing = 1.0 - f64::from(threshold(10.0).unwrap()) / f64::from(1 << BITS);
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
