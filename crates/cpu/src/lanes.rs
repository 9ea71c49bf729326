//! Scalar products in 16 lanes: lane `l` sums elements `l, l + 16, ...` in order, then lanes are added in a fixed tree.
//!
//! Products and sums are separate IEEE operations everywhere (no fused multiply-add), so every instruction set and every
//! tile shape gives the same bits.

use crate::isa::Isa;

/// Lanes of a sum.
const LANES: usize = 16;

/// Every product of a row of `xs` with a row of `ws`, all of one length.
pub(crate) fn products<const R: usize, const O: usize>(isa: Isa, xs: &[&[f32]; R], ws: &[&[f32]; O]) -> [[f32; O]; R] {
    let len = xs[0].len();
    assert!(xs.iter().all(|x| x.len() == len) && ws.iter().all(|w| w.len() == len));
    match isa {
        Isa::Portable => xs.map(|x| ws.map(|w| portable(x, w))),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Isa::present` names a set only if the machine has it; all rows have one length.
        Isa::Avx2 => unsafe { x86::avx2(xs, ws) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx512 => unsafe { x86::avx512(xs, ws) },
    }
}

/// `out += scale · x`.
pub(crate) fn accumulate(isa: Isa, out: &mut [f32], scale: f32, x: &[f32]) {
    match isa {
        Isa::Portable => add_scaled(out, scale, x),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Isa::present` names a set only if the machine has it; both sets include AVX2.
        Isa::Avx2 | Isa::Avx512 => unsafe { x86::add_scaled_avx2(out, scale, x) },
    }
}

fn portable(x: &[f32], w: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let (x, w) = (x.chunks_exact(LANES), w.chunks_exact(LANES));
    let rest = (x.remainder(), w.remainder());
    for (x, w) in x.zip(w) {
        for l in 0..LANES {
            sums[l] += x[l] * w[l];
        }
    }
    finish(sums, rest.0, rest.1)
}

/// Adds the products of the last, incomplete group, then the lanes: halves first.
#[inline(always)]
fn finish(mut sums: [f32; LANES], x: &[f32], w: &[f32]) -> f32 {
    for ((sum, x), w) in sums.iter_mut().zip(x).zip(w) {
        *sum += x * w;
    }
    let eight: [f32; 8] = std::array::from_fn(|i| sums[i] + sums[i + 8]);
    let four: [f32; 4] = std::array::from_fn(|i| eight[i] + eight[i + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

#[inline(always)]
fn add_scaled(out: &mut [f32], scale: f32, x: &[f32]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out += scale * x;
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{LANES, finish};

    /// # Safety
    /// The machine has AVX-512F; all rows have one length.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn avx512<const R: usize, const O: usize>(xs: &[&[f32]; R], ws: &[&[f32]; O]) -> [[f32; O]; R] {
        let whole = xs[0].len() / LANES * LANES;
        let mut sums = [[_mm512_setzero_ps(); O]; R];
        let mut at = 0;
        while at < whole {
            // SAFETY: `at + 16 <= whole`, at most the length of every row.
            let w: [__m512; O] = std::array::from_fn(|o| unsafe { _mm512_loadu_ps(ws[o].as_ptr().add(at)) });
            for r in 0..R {
                // SAFETY: as above.
                let x = unsafe { _mm512_loadu_ps(xs[r].as_ptr().add(at)) };
                for o in 0..O {
                    sums[r][o] = _mm512_add_ps(sums[r][o], _mm512_mul_ps(x, w[o]));
                }
            }
            at += LANES;
        }
        collect(|r, o, lanes| {
            // SAFETY: `lanes` has room for 16 elements.
            unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), sums[r][o]) };
            finish(*lanes, &xs[r][whole..], &ws[o][whole..])
        })
    }

    /// # Safety
    /// The machine has AVX2; all rows have one length.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn avx2<const R: usize, const O: usize>(xs: &[&[f32]; R], ws: &[&[f32]; O]) -> [[f32; O]; R] {
        let whole = xs[0].len() / LANES * LANES;
        let mut out = [[0.0; O]; R];
        for r in 0..R {
            // Two outputs at a time: sixteen registers hold no more.
            for o in (0..O).step_by(2) {
                let second = (o + 1).min(O - 1);
                let mut sums = [_mm256_setzero_ps(); 4];
                let mut at = 0;
                while at < whole {
                    for half in 0..2 {
                        // SAFETY: `at + 16 <= whole`, at most the length of every row.
                        let load = |row: &[f32]| unsafe { _mm256_loadu_ps(row.as_ptr().add(at + 8 * half)) };
                        let x = load(xs[r]);
                        sums[half] = _mm256_add_ps(sums[half], _mm256_mul_ps(x, load(ws[o])));
                        sums[2 + half] = _mm256_add_ps(sums[2 + half], _mm256_mul_ps(x, load(ws[second])));
                    }
                    at += LANES;
                }
                for (output, sums) in [(o, &sums[..2]), (second, &sums[2..])] {
                    let mut lanes = [0.0; LANES];
                    // SAFETY: `lanes` has room for twice 8 elements.
                    unsafe {
                        _mm256_storeu_ps(lanes.as_mut_ptr(), sums[0]);
                        _mm256_storeu_ps(lanes.as_mut_ptr().add(8), sums[1]);
                    }
                    out[r][output] = finish(lanes, &xs[r][whole..], &ws[output][whole..]);
                }
            }
        }
        out
    }

    #[inline(always)]
    fn collect<const R: usize, const O: usize>(sum: impl Fn(usize, usize, &mut [f32; LANES]) -> f32) -> [[f32; O]; R] {
        std::array::from_fn(|r| std::array::from_fn(|o| sum(r, o, &mut [0.0; LANES])))
    }

    /// # Safety
    /// The machine has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn add_scaled_avx2(out: &mut [f32], scale: f32, x: &[f32]) {
        super::add_scaled(out, scale, x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_instruction_sets_and_tile_shapes_give_the_same_bits() {
        let data: Vec<f32> = (0..5000).map(|i| ((i * 7919) % 1009) as f32 / 37.0 - 13.0).collect();
        for len in [1, 15, 16, 17, 31, 64, 333, 600] {
            let xs: [&[f32]; 4] = std::array::from_fn(|i| &data[i * len..][..len]);
            let ws: [&[f32]; 4] = std::array::from_fn(|i| &data[(i + 4) * len..][..len]);
            let expected = products(Isa::Portable, &xs, &ws);
            for isa in Isa::present() {
                assert_eq!(products(isa, &xs, &ws), expected);
                for r in 0..4 {
                    assert_eq!(products(isa, &[xs[r]], &[ws[0], ws[1], ws[2]])[0], expected[r][..3]);
                    for o in 0..4 {
                        assert_eq!(products(isa, &[xs[r]], &[ws[o]]), [[expected[r][o]]]);
                    }
                }
            }
            let exact: f64 = xs[1].iter().zip(ws[2]).map(|(a, b)| *a as f64 * *b as f64).sum();
            assert!((expected[1][2] as f64 - exact).abs() < 1e-2, "{} {exact}", expected[1][2]);
        }
    }
}
