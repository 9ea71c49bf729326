//! The natural logarithm from additions, multiplications and divisions only: the same bits on every machine.

/// `[1/√2, √2)` starts here; numbers are split into a power of two and a factor from that range.
const SQRT_HALF_BITS: u64 = 0x3FE6_A09E_667F_3BCD;

/// Natural logarithm of a positive, normal, finite number, to a few units in the last place.
///
/// `ln x = e ln 2 + 2 artanh(s)` with `x = m 2^e`, `s = (m - 1) / (m + 1)`, so `|s| < 0.172` and eleven terms of
/// `artanh(s) = s + s³/3 + s⁵/5 + ...` reach full precision.
#[inline(always)]
pub(super) fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = (bits.wrapping_sub(SQRT_HALF_BITS) as i64) >> 52;
    let m = f64::from_bits(bits.wrapping_sub((exponent << 52) as u64));
    let f = m - 1.0;
    let s = f / (f + 2.0);
    let z = s * s;
    let mut sum = 0.0;
    let mut n = 21;
    while n >= 3 {
        sum = (sum + 1.0 / f64::from(n)) * z;
        n -= 2;
    }
    let s2 = s + s;
    exponent as f64 * std::f64::consts::LN_2 + (s2 * sum + s2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ln_is_accurate() {
        let mut x = 1e-8;
        while x < 1e8 {
            let (found, expected) = (ln(x), x.ln());
            assert!((found - expected).abs() <= 4e-16 * expected.abs(), "ln({x}) is {found}, expected {expected}");
            x *= 1.000_37;
        }
        for x in [1.0, 1.0 - f64::EPSILON / 2.0, 1.0 + f64::EPSILON, f64::MIN_POSITIVE, f64::MAX, 0.5, 2.0] {
            assert!((ln(x) - x.ln()).abs() <= 4e-16 * x.ln().abs(), "ln({x}) is {}, expected {}", ln(x), x.ln());
        }
    }
}
