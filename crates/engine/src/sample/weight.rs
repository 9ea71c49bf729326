//! Probabilities as integers, so that their sums are exact and have no order.
//!
//! A token whose scaled logit lies `d` below the largest has weight `exp(-d)` in units of 2^-42. `d` is rounded to
//! 2^-20 of an octave (a factor of two) first, which is finer than f32 logits of any real size are; the rest is two
//! tables and a shift. Weights end 42 octaves down, at 29 nats.

/// Steps of an octave.
const OCTAVE_SHIFT: u32 = 20;

/// The bits of a step count that each table takes.
const TABLE_SHIFT: u32 = OCTAVE_SHIFT / 2;
const TABLE: usize = 1 << TABLE_SHIFT;

/// Table entries are in units of 2^-31.
const ENTRY_SHIFT: u32 = 31;

/// Units of one: the weight of the best token is `1 << ONE_SHIFT`. Sums of 2^21 weights fit u64 with a bit to spare.
pub(super) const ONE_SHIFT: u32 = 42;

/// From here on weights are 0.
pub(super) const MAX_STEPS: u32 = (ONE_SHIFT + 1) << OCTAVE_SHIFT;

const STEPS_PER_NAT: f64 = (1u64 << OCTAVE_SHIFT) as f64 * std::f64::consts::LOG2_E;

/// `2^(-j / 2^10)` and `2^(-j / 2^20)`.
static COARSE: [u32; TABLE] = powers(TABLE_SHIFT);
static FINE: [u32; TABLE] = powers(OCTAVE_SHIFT);

/// `2^(-j / 2^shift)`.
const fn powers(shift: u32) -> [u32; TABLE] {
    let mut table = [0; TABLE];
    let mut j = 0;
    while j < TABLE {
        // Taylor series of exp at x <= 0, x > -0.7: the 20th term is below 1e-21.
        let x = -std::f64::consts::LN_2 * j as f64 / (1u64 << shift) as f64;
        let mut sum = 1.0;
        let mut n = 20;
        while n >= 1 {
            sum = 1.0 + sum * x / n as f64;
            n -= 1;
        }
        table[j] = (sum * (1u64 << ENTRY_SHIFT) as f64 + 0.5) as u32;
        j += 1;
    }
    table
}

/// Counts how far logits lie below the largest one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    top: f64,
    steps_per_logit: f64,
}

impl Scale {
    /// `top` is the largest logit; the temperature is above 0.
    pub(super) fn new(top: f32, temperature: f64) -> Self {
        // Finite even for the smallest temperature, or the best token itself would get infinity times 0.
        Scale { top: f64::from(top), steps_per_logit: (STEPS_PER_NAT / temperature).min(f64::MAX) }
    }

    /// Steps from the largest logit down to this one, at most [`MAX_STEPS`]; [`MAX_STEPS`] for NaN. Never fewer for a
    /// smaller logit.
    #[inline(always)]
    pub(super) fn steps(self, logit: f32) -> u32 {
        round((self.top - f64::from(logit)) * self.steps_per_logit)
    }
}

/// Rounds to the nearest integer; from 0 (for anything below) to [`MAX_STEPS`] (for anything above, and NaN).
#[inline(always)]
fn round(steps: f64) -> u32 {
    /// Adding it rounds a small number to an integer that can be read off the low bits: cheaper than a checked cast.
    const TO_INTEGER: f64 = (1u64 << 52) as f64;
    let steps = if steps < MAX_STEPS as f64 { steps } else { MAX_STEPS as f64 };
    let steps = if steps > 0.0 { steps } else { 0.0 };
    (steps + TO_INTEGER).to_bits() as u32
}

/// `exp(-nats) · 2^42` for `nats >= 0`; relative error below 4e-7, and that of rounding down.
pub(super) fn exp_fixed(nats: f64) -> u64 {
    of_steps(round(nats * STEPS_PER_NAT))
}

/// Weight of a token `steps` below the largest; at most [`MAX_STEPS`].
#[inline(always)]
pub(super) fn of_steps(steps: u32) -> u64 {
    let coarse = COARSE[(steps >> TABLE_SHIFT) as usize % TABLE];
    let fine = FINE[steps as usize % TABLE];
    let octaves = steps >> OCTAVE_SHIFT;
    (u64::from(coarse) * u64::from(fine)) >> (2 * ENTRY_SHIFT - ONE_SHIFT + octaves)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_accurate_and_monotone() {
        let one = (1u64 << ONE_SHIFT) as f64;
        let mut last = u64::MAX;
        for nats in (0..310_000).map(|i| f64::from(i) * 1e-4) {
            let found = exp_fixed(nats);
            let expected = (-nats).exp() * one;
            assert!((found as f64 - expected).abs() <= 1.0 + 4e-7 * expected, "exp(-{nats}): {found}, {expected}");
            assert!(found <= last, "{nats}");
            last = found;
        }
        assert_eq!(exp_fixed(0.0), 1 << ONE_SHIFT);
        for steps in 0..MAX_STEPS / 3 {
            assert!(of_steps(steps + 1) <= of_steps(steps), "{steps}");
        }
    }

    #[test]
    fn extremes_have_no_weight_and_the_top_has_it_all() {
        for nats in [30.0, 1e300, f64::INFINITY, f64::NAN] {
            assert_eq!(exp_fixed(nats), 0, "{nats}");
        }
        for temperature in [f64::from_bits(1), 1e-300, 1e-3, 1.0, 1e300] {
            for top in [f32::MIN, -1.0, 0.0, 1e-40, f32::MAX] {
                let scale = Scale::new(top, temperature);
                assert_eq!(of_steps(scale.steps(top)), 1 << ONE_SHIFT, "{top} at temperature {temperature}");
                assert_eq!(scale.steps(f32::NEG_INFINITY), MAX_STEPS);
                assert_eq!(scale.steps(f32::NAN), MAX_STEPS);
            }
        }
    }
}
