//! The exponential function as plain arithmetic: loops over it become vectors, with the same bits on every instruction set.

use crate::simd::Simd;

/// `e^x` within 2 units in the last place; 0 below -87.3, `e^88` above 88, NaN for NaN.
///
/// `x = n ln 2 + r` with `|r| <= ln 2 / 2`; `e^r` is `1 + r + r² p(r)`, with the polynomial of degree 4 that makes the largest
/// relative error smallest (2^-28; found by reweighted least squares).
#[inline(always)]
pub(crate) fn exp<S: Simd>(x: f32) -> f32 {
    // Adding 1.5 · 2^23 rounds to an integer and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts; multiples of the first are exact.
    const LN2_HIGH: f32 = 355.0 / 512.0;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let clamped = x.clamp(-87.3, 88.0);
    let shifted = S::fma_lane(clamped, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = S::fma_lane(n, -LN2_LOW, S::fma_lane(n, -LN2_HIGH, clamped));
    let mut p = 0.001_381_461_3;
    for c in [0.008_368_71, 0.041_668_39, 0.166_665_21, 0.499_999_94, 1.0, 1.0] {
        p = S::fma_lane(p, r, c);
    }
    // n is -126 to 127. The shift drops all other bits.
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    if x < -87.3 { 0.0 } else { p * power }
}

#[cfg(test)]
mod tests {
    use crate::simd::Portable;

    fn exp(x: f32) -> f32 {
        super::exp::<Portable>(x)
    }

    #[test]
    fn close_to_the_exact_value_and_right_at_the_ends() {
        let mut worst: f64 = 0.0;
        for i in -873_000..880_000 {
            let x = i as f32 * 1e-4;
            let exact = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - exact).abs() / exact);
        }
        assert!(worst < 2.0 * f64::from(f32::EPSILON), "{worst:e}");
        assert_eq!((exp(0.0), exp(-88.0), exp(f32::NEG_INFINITY)), (1.0, 0.0, 0.0));
        assert_eq!((exp(89.0), exp(f32::INFINITY)), (exp(88.0), exp(88.0)));
        assert!(exp(f32::NAN).is_nan());
    }
}
