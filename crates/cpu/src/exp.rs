//! The exponential function as plain arithmetic: loops over it become vectors, with the same bits on every instruction set.

/// `e^x` within 2 units in the last place; 0 below -87.3, infinite above 88.7, NaN for NaN.
///
/// `x = n ln 2 + r` with `|r| <= ln 2 / 2`; `e^r` is its Taylor polynomial of degree 7, whose remainder is below 2^-27.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Adding 1.5 · 2^23 rounds to an integer and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts; multiples of the first are exact.
    const LN2_HIGH: f32 = 355.0 / 512.0;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let clamped = x.clamp(-87.3, 89.0);
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = clamped - n * LN2_HIGH - n * LN2_LOW;
    let mut p = 1.0 / 5040.0;
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = p * r + c;
    }
    // Two factors, since 2^128 is no number: n is -126 to 128.
    let half = (shifted.to_bits() as i32 - ROUND.to_bits() as i32) >> 1;
    let other = (shifted.to_bits() as i32 - ROUND.to_bits() as i32) - half;
    let power = |n: i32| f32::from_bits(((n + 127) << 23) as u32);
    let value = p * power(half) * power(other);
    if x < -87.3 { 0.0 } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_to_the_exact_value_and_right_at_the_ends() {
        let mut worst: f64 = 0.0;
        for i in -873_000..887_000 {
            let x = i as f32 * 1e-4;
            let exact = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - exact).abs() / exact);
        }
        assert!(worst < 2.0 * f64::from(f32::EPSILON), "{worst:e}");
        assert_eq!((exp(0.0), exp(-88.0), exp(f32::NEG_INFINITY)), (1.0, 0.0, 0.0));
        assert_eq!((exp(89.0), exp(f32::INFINITY)), (f32::INFINITY, f32::INFINITY));
        assert!(exp(f32::NAN).is_nan());
    }
}
