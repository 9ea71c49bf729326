//! Activations in eight bits: blocks of 32 values with one scale.
//!
//! `scale = max |x| / 127`, `code = round(x · (127 / max |x|))`, ties to even. A block whose scale would be below the
//! normal numbers is zero; one with a NaN or an infinity has NaN as its scale, so that every output it meets is NaN.

use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

/// Values of a block.
pub(crate) const BLOCK: usize = 32;
/// Rows of a group, whose blocks lie word by word side by side: kernels that multiply them together find what they need in
/// few cache lines.
pub(crate) const GROUP: usize = 4;

/// One block of each of `W` rows, a cache line a row.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub(crate) struct Block<const W: usize> {
    /// Four consecutive codes in each.
    pub(crate) codes: [[[i8; 4]; W]; 8],
    pub(crate) scale: [f32; W],
    /// `scale · Σ codes`: what a weight's minimum multiplies.
    pub(crate) sum: [f32; W],
    /// `-Σ codes` times the zero points of the formats that have one: what an integer sum starts with so that unsigned weight
    /// codes count as `code - zero point`.
    pub(crate) minus_8: [i32; W],
    pub(crate) minus_16: [i32; W],
    pub(crate) minus_128: [i32; W],
    /// By halves of the block.
    pub(crate) minus_32: [[i32; W]; 2],
}

impl<const W: usize> Block<W> {
    pub(crate) const ZERO: Block<W> = Block {
        codes: [[[0; 4]; W]; 8],
        scale: [0.0; W],
        sum: [0.0; W],
        minus_8: [0; W],
        minus_16: [0; W],
        minus_128: [0; W],
        minus_32: [[0; W]; 2],
    };

    /// Makes a block of eight-bit codes with their sums by halves the row `lane`.
    #[inline(always)]
    fn put(&mut self, lane: usize, codes: &[[i8; 4]; 8], scale: f32, sums: [i32; 2]) {
        for (all, codes) in self.codes.iter_mut().zip(codes) {
            all[lane] = *codes;
        }
        let sum = sums[0] + sums[1];
        self.scale[lane] = scale;
        self.sum[lane] = scale * sum as f32;
        self.minus_8[lane] = -8 * sum;
        self.minus_16[lane] = -16 * sum;
        self.minus_128[lane] = -128 * sum;
        self.minus_32[0][lane] = -32 * sums[0];
        self.minus_32[1][lane] = -32 * sums[1];
    }

    /// Makes `row` the row `lane`.
    pub(crate) fn set(&mut self, lane: usize, row: &Block<1>) {
        for (all, codes) in self.codes.iter_mut().zip(&row.codes) {
            all[lane] = codes[0];
        }
        self.scale[lane] = row.scale[0];
        self.sum[lane] = row.sum[0];
        self.minus_8[lane] = row.minus_8[0];
        self.minus_16[lane] = row.minus_16[0];
        self.minus_128[lane] = row.minus_128[0];
        self.minus_32[0][lane] = row.minus_32[0][0];
        self.minus_32[1][lane] = row.minus_32[1][0];
    }
}

/// Quantises up to `W` rows. Each: `[32 · out.len()]`.
pub(crate) fn quantise<'a, const W: usize>(isa: Isa, rows: impl Iterator<Item = &'a [f32]>, out: &mut [Block<W>]) {
    for (lane, x) in rows.enumerate() {
        assert!(lane < W && x.len() == out.len() * BLOCK);
        // SAFETY: no demands beside the assertion.
        unsafe { isa.run(Row { x, lane, out }) }
    }
}

struct Row<'a, const W: usize> {
    x: &'a [f32],
    lane: usize,
    out: &'a mut [Block<W>],
}

impl<const W: usize> Kernel for Row<'_, W> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Row { x, lane, out } = self;
        for (x, out) in x.as_chunks::<BLOCK>().0.iter().zip(&mut *out) {
            // SAFETY: passed on.
            unsafe { quantise_block::<S, W>(x, lane, out) }
        }
    }
}

/// # Safety
/// The machine has the instructions of `S`.
#[inline(always)]
unsafe fn quantise_block<S: Simd, const W: usize>(x: &[f32; BLOCK], lane: usize, out: &mut Block<W>) {
    // SAFETY: all loads and stores are inside arrays of 32.
    unsafe {
        let halves = [S::load_f32(x.as_ptr()), S::load_f32(x.as_ptr().add(LANES))];
        let max = f32::from_bits(S::largest_magnitude(halves[0], halves[1]));
        let (mut scale, mut inverse) = (max / 127.0, 127.0 / max);
        if !max.is_finite() {
            // A sum of 1 makes the block's sum a NaN, too.
            return out.put(lane, &[[0; 4]; 8], f32::NAN, [1, 0]);
        }
        if scale < f32::MIN_POSITIVE {
            (scale, inverse) = (0.0, 0.0);
        }
        let (mut codes, mut sums) = ([[0; 4]; 8], [0; 2]);
        for (half, (x, sum)) in halves.into_iter().zip(&mut sums).enumerate() {
            let x = S::round(S::mul(x, S::splat(inverse)));
            *sum = S::sum_integers(x) as i32;
            S::store_i8(codes.as_mut_ptr().cast::<i8>().add(half * LANES), x);
        }
        out.put(lane, &codes, scale, sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn single(isa: Isa, x: &[f32]) -> Vec<Block<1>> {
        let mut out = vec![Block::ZERO; x.len() / BLOCK];
        quantise(isa, [x].into_iter(), &mut out);
        out
    }

    #[test]
    fn codes_are_within_half_a_step_and_all_sets_agree() {
        let x: Vec<f32> =
            (0..320).map(|i| ((i * 7919) % 1009) as f32 * 1.37e-3 * 10f32.powi(i / 32 - 5) - 0.2).collect();
        let expected = single(Isa::Portable, &x);
        for (x, block) in x.chunks(BLOCK).zip(&expected) {
            let codes = block.codes.as_flattened().as_flattened();
            assert!(codes.iter().any(|c| c.abs() == 127));
            for (x, &code) in x.iter().zip(codes) {
                assert!((x - f32::from(code) * block.scale[0]).abs() <= block.scale[0] * 0.50001);
            }
            let sum: i32 = codes.iter().map(|&c| i32::from(c)).sum();
            assert_eq!((block.minus_8[0], block.sum[0]), (-8 * sum, block.scale[0] * sum as f32));
            assert_eq!(block.minus_32[0][0] + block.minus_32[1][0], -32 * sum);
        }
        for isa in Isa::present() {
            assert_eq!(single(isa, &x), expected, "{isa:?}");
        }
    }

    #[test]
    fn groups_hold_the_blocks_of_their_rows() {
        let x: Vec<f32> = (0..3 * 320).map(|i| ((i * 7919) % 1009) as f32 - 500.0).collect();
        let mut groups = [Block::<GROUP>::ZERO; 10];
        quantise(Isa::best(), x.chunks(320), &mut groups);
        let mut expected = [Block::<GROUP>::ZERO; 10];
        for (lane, x) in x.chunks(320).enumerate() {
            expected.iter_mut().zip(single(Isa::best(), x)).for_each(|(group, block)| group.set(lane, &block));
        }
        assert_eq!(groups, expected);
        assert_eq!(size_of::<Block<GROUP>>(), 64 * GROUP);
    }

    #[test]
    fn values_without_a_scale_are_zero_or_nan() {
        for (value, expected) in [(0.0, 0.0), (-0.0, 0.0), (1e-40, 0.0), (1e-35, 1e-35 / 127.0), (3e38, 3e38 / 127.0)] {
            let mut x = [0.0; BLOCK];
            x[5] = value;
            assert_eq!(single(Isa::Portable, &x)[0].scale, [expected]);
            assert_eq!(
                f32::from(single(Isa::Portable, &x)[0].codes[1][0][1]),
                if expected == 0.0 { 0.0 } else { 127.0 }
            );
        }
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = [1.0; BLOCK];
            x[31] = value;
            let block = &single(Isa::Portable, &x)[0];
            assert!(block.scale[0].is_nan() && block.sum[0].is_nan());
        }
    }
}
