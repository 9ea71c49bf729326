//! Arrays: the definition of every operation, and what machines without wider vectors run.

use super::{LANES, Simd};

/// Whatever the build targets.
pub(crate) struct Portable;

/// `of(0), of(1), ...`; a plain loop, since those of the standard library are not always inlined.
#[inline(always)]
fn lanes<T: Copy + Default>(of: impl Fn(usize) -> T) -> [T; LANES] {
    let mut lanes = [T::default(); LANES];
    for (l, lane) in lanes.iter_mut().enumerate() {
        *lane = of(l);
    }
    lanes
}

/// # Safety
/// `from` is valid for 16 elements, whatever its alignment.
#[inline(always)]
unsafe fn load<T>(from: *const u8) -> [T; LANES] {
    // SAFETY: the caller's promise.
    unsafe { from.cast::<[T; LANES]>().read_unaligned() }
}

/// IEEE binary16 to binary32: the exponent is moved by a product that is exact for subnormal numbers, too.
#[inline(always)]
fn widen(half: u16) -> f32 {
    let (sign, magnitude) = (u32::from(half & 0x8000) << 16, u32::from(half & 0x7fff) << 13);
    let number = (f32::from_bits(magnitude) * f32::from_bits(0x7780_0000)).to_bits(); // 2^112
    f32::from_bits(sign | if half & 0x7c00 == 0x7c00 { magnitude | 0x7f80_0000 } else { number })
}

/// `a · b + c`, rounded once: by the machine if the build may count on it, else in f64.
#[inline(always)]
fn fma(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
        return a.mul_add(b, c);
    }
    // The product is exact. What the sum loses is kept in its last bit (rounding to odd), which makes the second rounding
    // right: f64 has more than twice the digits of f32 (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums").
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    let rest = sum - product;
    let lost = (product - (sum - rest)) + (c - rest);
    let even = sum.to_bits() & 1 == 0;
    let towards_zero = (lost > 0.0) != (sum > 0.0);
    let odd = sum.to_bits().wrapping_add(if towards_zero { u64::MAX } else { 1 });
    // `lost` is NaN where the sum is infinite or NaN.
    f64::from_bits(if lost.abs() > 0.0 && even { odd } else { sum.to_bits() }) as f32
}

impl Simd for Portable {
    type I32 = [i32; LANES];
    type F32 = [f32; LANES];

    #[inline(always)]
    unsafe fn splat_i32(value: i32) -> Self::I32 {
        [value; LANES]
    }

    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> Self::I32 {
        // SAFETY: the caller's promise.
        let words = unsafe { load::<[u8; 4]>(from) };
        lanes(|l| i32::from_le_bytes(words[l]))
    }

    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> Self::I32 {
        // SAFETY: the caller's promise.
        let bytes = unsafe { load::<u8>(from) };
        lanes(|l| i32::from(bytes[l]))
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> Self::I32 {
        // SAFETY: the caller's promise.
        let bytes = unsafe { load::<i8>(from) };
        lanes(|l| i32::from(bytes[l]))
    }

    #[inline(always)]
    unsafe fn and(a: Self::I32, b: Self::I32) -> Self::I32 {
        lanes(|l| a[l] & b[l])
    }

    #[inline(always)]
    unsafe fn or(a: Self::I32, b: Self::I32) -> Self::I32 {
        lanes(|l| a[l] | b[l])
    }

    #[inline(always)]
    unsafe fn shl<const BITS: u32>(a: Self::I32) -> Self::I32 {
        lanes(|l| a[l] << BITS)
    }

    #[inline(always)]
    unsafe fn shr<const BITS: u32>(a: Self::I32) -> Self::I32 {
        lanes(|l| (a[l] as u32 >> BITS) as i32)
    }

    #[inline(always)]
    unsafe fn dot4<const WIDE: bool>(sum: Self::I32, codes: Self::I32, x: i32) -> Self::I32 {
        let x = x.to_le_bytes();
        let product = |l: usize, i: usize| (codes[l] >> (8 * i) & 0xff) * i32::from(x[i] as i8);
        lanes(|l| sum[l] + product(l, 0) + product(l, 1) + product(l, 2) + product(l, 3))
    }

    #[inline(always)]
    unsafe fn to_f32(a: Self::I32) -> Self::F32 {
        lanes(|l| a[l] as f32)
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::F32 {
        [value; LANES]
    }

    #[inline(always)]
    unsafe fn load_f32(from: *const f32) -> Self::F32 {
        // SAFETY: the caller's promise.
        unsafe { load(from.cast()) }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::F32 {
        // SAFETY: the caller's promise.
        let halves = unsafe { load::<u16>(from.cast()) };
        lanes(|l| widen(halves[l]))
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self::F32 {
        // SAFETY: the caller's promise.
        let halves = unsafe { load::<u16>(from.cast()) };
        lanes(|l| f32::from_bits(u32::from(halves[l]) << 16))
    }

    #[inline(always)]
    unsafe fn store_bytes(to: *mut u8, a: Self::I32) {
        // SAFETY: 64 bytes are writable by the caller's promise.
        unsafe { to.cast::<[i32; LANES]>().write_unaligned(lanes(|l| a[l].to_le())) }
    }

    #[inline(always)]
    unsafe fn store_f32(to: *mut f32, a: Self::F32) {
        // SAFETY: 64 bytes are writable by the caller's promise.
        unsafe { to.cast::<[f32; LANES]>().write_unaligned(a) }
    }

    #[inline(always)]
    unsafe fn mul(a: Self::F32, b: Self::F32) -> Self::F32 {
        lanes(|l| a[l] * b[l])
    }

    #[inline(always)]
    fn fma_lane(a: f32, b: f32, c: f32) -> f32 {
        fma(a, b, c)
    }

    #[inline(always)]
    unsafe fn fma(a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        lanes(|l| fma(a[l], b[l], c[l]))
    }

    #[inline(always)]
    unsafe fn largest_magnitude(a: Self::F32, b: Self::F32) -> u32 {
        let magnitude = |a: f32| a.to_bits() & 0x7fff_ffff;
        (0..LANES).fold(0, |max, l| max.max(magnitude(a[l])).max(magnitude(b[l])))
    }

    #[inline(always)]
    unsafe fn round(a: Self::F32) -> Self::F32 {
        const ROUND: f32 = 12_582_912.0; // 1.5 · 2^23
        lanes(|l| (a[l] + ROUND) - ROUND)
    }

    #[inline(always)]
    unsafe fn sum_integers(a: Self::F32) -> f32 {
        a.iter().sum()
    }

    #[inline(always)]
    unsafe fn store_i8(to: *mut i8, a: Self::F32) {
        // SAFETY: 16 bytes are writable by the caller's promise.
        unsafe { to.cast::<[i8; LANES]>().write_unaligned(lanes(|l| a[l] as i8)) }
    }
}

#[cfg(test)]
mod tests {
    use super::{fma, widen};

    #[test]
    fn all_halves_widen_exactly() {
        for bits in 0..=u16::MAX {
            let (found, expected) = (widen(bits), half::f16::from_bits(bits).to_f32());
            assert!(found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan()), "{bits:#x}");
        }
    }

    #[test]
    fn fused_products_are_rounded_once() {
        let mut rng = kapitsa_testkit::random::Rng(1);
        let same = |a: f32, b: f32, c: f32| {
            let (found, expected) = (fma(a, b, c), a.mul_add(b, c));
            let equal = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
            assert!(equal, "{a:e} * {b:e} + {c:e}: {found:e}, expected {expected:e}");
        };
        for _ in 0..300_000 {
            let mut any = || f32::from_bits(rng.below(1 << 32) as u32);
            let (a, b, c) = (any(), any(), any());
            same(a, b, c);
            // Sums near a tie, near zero, and among the subnormal numbers.
            let product = a * b;
            same(a, b, -product);
            same(a, b, product * 16_777_216.0);
            same(a, b, product / 16_777_216.0);
            let small = f32::from_bits(c.to_bits() & 0x80ff_ffff);
            same(a, small, small);
        }
        for a in [0.0, -0.0, 1.0, f32::MIN_POSITIVE, f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            for b in [0.0, -1.0, 1e-30, f32::MAX, f32::INFINITY] {
                [0.0, -0.0, 1e-45, -1.0, f32::MAX, f32::NEG_INFINITY].into_iter().for_each(|c| same(a, b, c));
            }
        }
    }
}
