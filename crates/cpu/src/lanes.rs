//! Scalar products in 16 lanes: lane `l` sums elements `l, l + 16, ...` in order, then lanes are added in a fixed tree.
//!
//! The source is compiled for several instruction sets and chosen at run time. Products and sums are separate IEEE
//! operations everywhere (no fused multiply-add), so all of them give the same bits.

/// Lanes of a sum.
const LANES: usize = 16;

/// `R × O` scalar products of `xs` with `ws`, all of one length.
#[inline(always)]
fn dots<const R: usize, const O: usize>(xs: &[&[f32]; R], ws: &[&[f32]; O]) -> [[f32; O]; R] {
    let len = xs[0].len();
    assert!(xs.iter().all(|x| x.len() == len) && ws.iter().all(|w| w.len() == len));
    let mut sums = [[[0.0f32; LANES]; O]; R];
    let whole = len / LANES * LANES;
    let mut at = 0;
    while at < whole {
        let x: [&[f32; LANES]; R] = std::array::from_fn(|r| xs[r][at..at + LANES].try_into().expect("16 lanes"));
        let w: [&[f32; LANES]; O] = std::array::from_fn(|o| ws[o][at..at + LANES].try_into().expect("16 lanes"));
        for r in 0..R {
            for o in 0..O {
                for l in 0..LANES {
                    sums[r][o][l] += x[r][l] * w[o][l];
                }
            }
        }
        at += LANES;
    }
    for r in 0..R {
        for o in 0..O {
            for l in 0..len - whole {
                sums[r][o][l] += xs[r][whole + l] * ws[o][whole + l];
            }
        }
    }
    std::array::from_fn(|r| std::array::from_fn(|o| tree(sums[r][o])))
}

/// Adds the lanes: halves first.
#[inline(always)]
fn tree(lanes: [f32; LANES]) -> f32 {
    let eight: [f32; 8] = std::array::from_fn(|i| lanes[i] + lanes[i + 8]);
    let four: [f32; 4] = std::array::from_fn(|i| eight[i] + eight[i + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

/// `out += scale · x`.
#[inline(always)]
fn add_scaled(out: &mut [f32], scale: f32, x: &[f32]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out += scale * x;
    }
}

/// Instruction sets that the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    /// Whatever the build targets.
    Portable,
    /// 256-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 512-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// The sets that this machine has, best last.
    pub(crate) fn present() -> Vec<Isa> {
        let mut sets = vec![Isa::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                sets.push(Isa::Avx2);
            }
            if is_x86_feature_detected!("avx512f") {
                sets.push(Isa::Avx512);
            }
        }
        sets
    }
}

macro_rules! dispatch {
    ($(#[$doc:meta])* $name:ident<$(const $c:ident),*>($($arg:ident: $ty:ty),*) $(-> $ret:ty)?, $inner:ident) => {
        $(#[$doc])*
        #[inline]
        pub(crate) fn $name<$(const $c: usize),*>(isa: Isa, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn avx2<$(const $c: usize),*>($($arg: $ty),*) $(-> $ret)? {
                $inner($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f")]
            fn avx512<$(const $c: usize),*>($($arg: $ty),*) $(-> $ret)? {
                $inner($($arg),*)
            }
            match isa {
                Isa::Portable => $inner($($arg),*),
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `Isa::present` names this set only if the machine has it.
                Isa::Avx2 => unsafe { avx2::<$($c),*>($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                Isa::Avx512 => unsafe { avx512::<$($c),*>($($arg),*) },
            }
        }
    };
}

dispatch! {
    /// Every product of a row of `xs` with a row of `ws`; each is the same whatever `R` and `O` are.
    products<const R, const O>(xs: &[&[f32]; R], ws: &[&[f32]; O]) -> [[f32; O]; R], dots
}

dispatch! {
    /// `out += scale · x`.
    accumulate<>(out: &mut [f32], scale: f32, x: &[f32]), add_scaled
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
