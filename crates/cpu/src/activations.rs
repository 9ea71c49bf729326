//! Activations in eight bits: blocks of 32 values with one scale.
//!
//! `scale = max |x| / 127`, `code = round(x · (127 / max |x|))`, ties to even. A block whose scale would be below the
//! normal numbers is zero; one with a NaN or an infinity has NaN as its scale, so that every output it meets is NaN.

use crate::isa::Isa;

/// Adding 1.5 · 2^23 rounds to an integer, ties to even, and leaves it in the low bits.
const ROUND: f32 = 12_582_912.0;

/// Largest code of [`Sums`]: its first digit is 127, the others 0.
const SUMS_MAX: f32 = 127.0 * 128.0 * 128.0;

/// Values of a block.
pub(crate) const BLOCK: usize = 32;

/// One block; a cache line.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub(crate) struct Block {
    /// Four consecutive codes in each.
    pub(crate) codes: [[i8; 4]; 8],
    pub(crate) scale: f32,
    /// `scale · Σ codes`: what a weight's minimum multiplies.
    pub(crate) sum: f32,
    /// `-Σ codes`, of either half of the block and times the zero points of the formats that have one.
    pub(crate) minus: Zeros,
    /// In block `i` of eight, word `i` of their [`Sums`].
    of_eight: [i8; 4],
}

/// The sums of eight blocks ([`Block::sum`]) in 22 bits with one scale, for formats whose minima share a scale among eight
/// blocks: `sum = scale · (128² digits[0] + 128 digits[1] + digits[2])`.
#[derive(Clone, Copy)]
pub(crate) struct Sums {
    /// Each of two times four blocks.
    pub(crate) digits: [[[i8; 4]; 2]; 3],
    pub(crate) scale: f32,
}

/// What an integer sum starts with so that unsigned weight codes count as `code - zero point`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub(crate) struct Zeros {
    pub(crate) times_8: i32,
    pub(crate) times_16: i32,
    pub(crate) times_128: i32,
    /// By halves of the block.
    pub(crate) half_times_32: [i32; 2],
}

impl Block {
    pub(crate) const ZERO: Block = Block {
        codes: [[0; 4]; 8],
        scale: 0.0,
        sum: 0.0,
        minus: Zeros { times_8: 0, times_16: 0, times_128: 0, half_times_32: [0; 2] },
        of_eight: [0; 4],
    };
}

impl Sums {
    /// Those of eight blocks that [`quantise`] made.
    #[inline(always)]
    pub(crate) fn of(blocks: &[Block; 8]) -> Self {
        let word = |i: usize| blocks[i].of_eight;
        let digits = [[word(0), word(1)], [word(2), word(3)], [word(4), word(5)]];
        Sums { digits, scale: f32::from_ne_bytes(bytemuck::cast(word(6))) }
    }

    #[inline(always)]
    fn new(blocks: &[Block; 8]) -> Self {
        let max = f32::from_bits(blocks.iter().fold(0, |max, block| max.max(block.sum.to_bits() & 0x7fff_ffff)));
        let mut sums = Sums { digits: [[[0; 4]; 2]; 3], scale: max / SUMS_MAX };
        if !max.is_finite() {
            sums.scale = f32::NAN;
        } else if sums.scale < f32::MIN_POSITIVE {
            sums.scale = 0.0;
        } else {
            let inverse = SUMS_MAX / max;
            for (i, block) in blocks.iter().enumerate() {
                let code = (block.sum * inverse + ROUND).to_bits().wrapping_sub(ROUND.to_bits()) as i32;
                // Digits around zero.
                let high = (code + 64 * 128) >> 14;
                let middle = (code - (high << 14) + 64) >> 7;
                for (digits, digit) in sums.digits.iter_mut().zip([high, middle, code - (high << 14) - (middle << 7)]) {
                    digits[i / 4][i % 4] = digit as i8;
                }
            }
        }
        sums
    }

    #[inline(always)]
    fn put(self, blocks: &mut [Block; 8]) {
        let [[a, b], [c, d], [e, f]] = self.digits;
        for (block, word) in blocks.iter_mut().zip([a, b, c, d, e, f, bytemuck::cast(self.scale.to_ne_bytes())]) {
            block.of_eight = word;
        }
    }
}

/// Quantises a row. `x`: `[32 · out.len()]`.
pub(crate) fn quantise(isa: Isa, x: &[f32], out: &mut [Block]) {
    isa.vectorised(
        #[inline(always)]
        || {
            for (x, out) in x.as_chunks::<BLOCK>().0.iter().zip(&mut *out) {
                *out = block(x);
            }
            for blocks in out.as_chunks_mut::<8>().0 {
                Sums::new(blocks).put(blocks);
            }
        },
    );
}

#[inline(always)]
fn block(x: &[f32; BLOCK]) -> Block {
    // Magnitudes order as integers, infinities and NaN above all numbers.
    let max = f32::from_bits(x.iter().fold(0, |max, x| max.max(x.to_bits() & 0x7fff_ffff)));
    if !max.is_finite() {
        return Block { scale: f32::NAN, sum: f32::NAN, ..Block::ZERO };
    }
    let scale = max / 127.0;
    if scale < f32::MIN_POSITIVE {
        return Block::ZERO;
    }
    let inverse = 127.0 / max;
    let mut codes = [0i8; BLOCK];
    let mut halves = [0i32; 2];
    for (half, sum) in halves.iter_mut().enumerate() {
        for i in 16 * half..16 * half + 16 {
            codes[i] = (x[i] * inverse + ROUND).to_bits() as i8;
            *sum += i32::from(codes[i]);
        }
    }
    let sum = halves[0] + halves[1];
    Block {
        codes: bytemuck::cast(codes),
        scale,
        sum: scale * sum as f32,
        minus: Zeros {
            times_8: -8 * sum,
            times_16: -16 * sum,
            times_128: -128 * sum,
            half_times_32: [-32 * halves[0], -32 * halves[1]],
        },
        of_eight: [0; 4],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_within_half_a_step_and_all_sets_agree() {
        let x: Vec<f32> =
            (0..320).map(|i| ((i * 7919) % 1009) as f32 * 1.37e-3 * 10f32.powi(i / 32 - 5) - 0.2).collect();
        let mut expected = vec![Block::ZERO; 10];
        quantise(Isa::Portable, &x, &mut expected);
        for (x, block) in x.chunks(BLOCK).zip(&expected) {
            let codes = block.codes.as_flattened();
            assert!(codes.iter().any(|c| c.abs() == 127));
            for (x, &code) in x.iter().zip(codes) {
                assert!((x - f32::from(code) * block.scale).abs() <= block.scale * 0.50001);
            }
            let sum: i32 = codes.iter().map(|&c| i32::from(c)).sum();
            assert_eq!((block.minus.times_8, block.sum), (-8 * sum, block.scale * sum as f32));
            assert_eq!(block.minus.half_times_32[0] + block.minus.half_times_32[1], -32 * sum);
        }
        let sums = Sums::of(expected[..8].first_chunk().unwrap());
        for (i, block) in expected[..8].iter().enumerate() {
            let code = sums.digits.iter().fold(0, |code, digits| 128 * code + i32::from(digits[i / 4][i % 4]));
            assert!((block.sum - code as f32 * sums.scale).abs() <= sums.scale * 0.50001);
        }
        for isa in Isa::present() {
            let mut found = vec![Block::ZERO; 10];
            quantise(isa, &x, &mut found);
            assert_eq!(found, expected, "{isa:?}");
        }
    }

    #[test]
    fn values_without_a_scale_are_zero_or_nan() {
        for (value, expected) in [(0.0, 0.0), (-0.0, 0.0), (1e-40, 0.0), (1e-35, 1e-35 / 127.0), (3e38, 3e38 / 127.0)] {
            let mut x = [0.0; BLOCK];
            x[5] = value;
            assert_eq!(block(&x).scale, expected);
            assert_eq!(f32::from(block(&x).codes[1][1]), if expected == 0.0 { 0.0 } else { 127.0 });
        }
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = [1.0; BLOCK];
            x[31] = value;
            assert!(block(&x).scale.is_nan() && block(&x).sum.is_nan());
        }
    }
}
