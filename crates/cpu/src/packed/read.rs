//! From the rows of stored formats to panels.

use kapitsa_tensor::Weight;
use kapitsa_tensor::format::scale_min;

use super::{Bits, HALVES_BYTES, Layout, SUPER_BYTES, Scales};
use crate::activations::BLOCK;
use crate::simd::LANES;

/// Copies row `row` of `weight` to lane `lane` of a panel.
pub(super) fn row(layout: Layout, weight: &Weight, row: usize, lane: usize, codes: &mut [u8], scales: &mut [u8]) {
    let plane = |index: usize| {
        let plane = &weight.planes()[index];
        let bytes = plane.len() / weight.rows();
        &plane[row * bytes..][..bytes]
    };
    let data = plane(0);
    let (bits, kind) = match layout {
        Layout::Plain(dtype) => return interleave(data, dtype.bytes(), lane, codes),
        Layout::Blocks(bits, scales) => (bits, scales),
    };
    let mut codes = Codes { bits, lane, vectors: vectors(codes) };
    match (kind, bits) {
        (Scales::Centred { .. }, _) => legacy(data, 2, &mut codes, lane, scales),
        (Scales::Affine, _) => legacy(data, 4, &mut codes, lane, scales),
        (Scales::Super, Bits::Four) => q4_k(data, &mut codes, lane, scales),
        (Scales::Super, _) => q5_k(data, &mut codes, lane, scales),
        (Scales::Halves, _) => q6_k(data, &mut codes, lane, scales),
        (Scales::Groups { dtype, .. }, _) => {
            mlx(data, &mut codes);
            let size = dtype.bytes();
            for (group, out) in scales.chunks_exact_mut(2 * LANES * size).enumerate() {
                for (plane, at) in [(plane(1), lane), (plane(2), LANES + lane)] {
                    out[at * size..][..size].copy_from_slice(&plane[group * size..][..size]);
                }
            }
        }
    }
}

/// The codes of a panel, written a block of one lane at a time.
struct Codes<'a> {
    bits: Bits,
    lane: usize,
    vectors: &'a mut [[u32; LANES]],
}

impl Codes<'_> {
    /// Words of block `block`: four of nibbles and `more` of higher bits, or eight of bytes.
    #[inline(always)]
    fn put<const N: usize>(&mut self, block: usize, words: [u32; N]) {
        let at = block * self.bits.vectors();
        for (vector, word) in self.vectors[at..][..N].iter_mut().zip(words) {
            vector[self.lane] = word.to_le();
        }
    }
}

fn vectors(bytes: &mut [u8]) -> &mut [[u32; LANES]] {
    bytemuck::cast_slice_mut(bytes)
}

/// Every `size` bytes of a row to their place between those of the other lanes.
fn interleave(data: &[u8], size: usize, lane: usize, out: &mut [u8]) {
    for (out, element) in out.chunks_exact_mut(LANES * size).zip(data.chunks_exact(size)) {
        out[lane * size..][..size].copy_from_slice(element);
    }
}

#[inline(always)]
fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    std::array::from_fn(|i| u32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().expect("four bytes")))
}

/// Blocks of 32 with `head` bytes of scales: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0. Nibbles lie as a panel wants them.
fn legacy(data: &[u8], head: usize, codes: &mut Codes<'_>, lane: usize, scales: &mut [u8]) {
    let bytes = match codes.bits {
        Bits::Four => head + 16,
        Bits::Five => head + 20,
        _ => head + 32,
    };
    let blocks = data.chunks_exact(bytes).zip(scales.chunks_exact_mut(head * LANES)).enumerate();
    for (index, (block, scales)) in blocks {
        for (out, scale) in scales.chunks_exact_mut(2 * LANES).zip(block[..head].chunks_exact(2)) {
            out[2 * lane..][..2].copy_from_slice(scale);
        }
        let rest = &block[head..];
        match codes.bits {
            Bits::Four => codes.put(index, words::<4>(rest)),
            Bits::Five => {
                let [fifth] = words(rest);
                let [a, b, c, d] = words(&rest[4..]);
                codes.put(index, [a, b, c, d, transpose_fifth(fifth)]);
            }
            // Signed bytes become codes around 128.
            _ => codes.put(index, words::<8>(rest).map(|word| word ^ 0x8080_8080)),
        }
    }
}

/// Bit `4 i + j` goes to bit `i` of byte `j`.
#[inline(always)]
fn transpose_fifth(bits: u32) -> u32 {
    let byte = |j: u32| {
        let mut x = (bits >> j) & 0x1111_1111;
        x = (x | x >> 3) & 0x0303_0303;
        x = (x | x >> 6) & 0x000f_000f;
        (x | x >> 12) & 0xff
    };
    byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24
}

const LOW: u32 = 0x0f0f_0f0f;
const HIGH: u32 = 0xf0f0_f0f0;

/// Nibbles of two blocks, from 32 bytes whose low nibbles are one block and whose high nibbles are the next.
#[inline(always)]
fn two_blocks(bytes: &[u8]) -> [[u32; 4]; 2] {
    let w = words::<8>(bytes);
    [
        std::array::from_fn(|i| (w[i] & LOW) | (w[i + 4] & LOW) << 4),
        std::array::from_fn(|i| (w[i] & HIGH) >> 4 | (w[i + 4] & HIGH)),
    ]
}

fn q4_k(data: &[u8], codes: &mut Codes<'_>, lane: usize, scales: &mut [u8]) {
    let blocks = data.as_chunks::<144>().0.iter().zip(scales.chunks_exact_mut(SUPER_BYTES)).enumerate();
    for (index, (block, scales)) in blocks {
        super_scales(block, lane, scales);
        for pair in 0..4 {
            let [even, odd] = two_blocks(&block[16 + 32 * pair..]);
            codes.put(8 * index + 2 * pair, even);
            codes.put(8 * index + 2 * pair + 1, odd);
        }
    }
}

fn q5_k(data: &[u8], codes: &mut Codes<'_>, lane: usize, scales: &mut [u8]) {
    let blocks = data.as_chunks::<176>().0.iter().zip(scales.chunks_exact_mut(SUPER_BYTES)).enumerate();
    for (index, (block, scales)) in blocks {
        super_scales(block, lane, scales);
        let fifth = words::<8>(&block[16..]);
        for pair in 0..4 {
            let nibbles = two_blocks(&block[48 + 32 * pair..]);
            for (odd, [a, b, c, d]) in nibbles.into_iter().enumerate() {
                let group = 2 * pair + odd;
                let high = (0..8).fold(0, |high, i| high | ((fifth[i] >> group) & 0x0101_0101) << i);
                codes.put(8 * index + group, [a, b, c, d, high]);
            }
        }
    }
}

/// The scales of Q4_K and Q5_K: `d`, `dmin`, eight six-bit scales and minima.
#[inline(always)]
fn super_scales(block: &[u8], lane: usize, out: &mut [u8]) {
    out[2 * lane..][..2].copy_from_slice(&block[..2]);
    out[32 + 2 * lane..][..2].copy_from_slice(&[block[2], block[3] ^ 0x80]); // negative
    let packed = block[4..].first_chunk().expect("12 bytes of scales");
    for (group, out) in out[64..].chunks_exact_mut(2 * LANES).enumerate() {
        (out[lane], out[LANES + lane]) = scale_min(packed, group);
    }
}

fn q6_k(data: &[u8], codes: &mut Codes<'_>, lane: usize, scales: &mut [u8]) {
    let blocks = data.as_chunks::<210>().0.iter().zip(scales.chunks_exact_mut(HALVES_BYTES)).enumerate();
    for (index, (block, scales)) in blocks {
        scales[2 * lane..][..2].copy_from_slice(&block[208..]);
        for (out, two) in scales[32..].chunks_exact_mut(2 * LANES).zip(block[192..208].chunks_exact(2)) {
            out[lane] = two[0];
            out[LANES + lane] = two[1];
        }
        for half in 0..2 {
            let low = &block[64 * half..][..64];
            let top = words::<8>(&block[128 + 32 * half..]);
            let ([a, c], [b, d]) = (two_blocks(low), two_blocks(&low[32..]));
            for (s, [w0, w1, w2, w3]) in [a, b, c, d].into_iter().enumerate() {
                let top = |first: usize| {
                    (0..4).fold(0, |bits, i| bits | ((top[first + i] >> (2 * s)) & 0x0303_0303) << (2 * i))
                };
                codes.put(8 * index + 4 * half + s, [w0, w1, w2, w3, top(0), top(4)]);
            }
        }
    }
}

/// Streams of four- or eight-bit codes.
fn mlx(data: &[u8], codes: &mut Codes<'_>) {
    match codes.bits {
        Bits::Four => {
            for (index, block) in data.as_chunks::<{ BLOCK / 2 }>().0.iter().enumerate() {
                // Codes 4 i .. 4 i + 4 are two bytes, low nibbles first.
                let word = |i: usize| {
                    let x = u32::from(u16::from_le_bytes([block[2 * i], block[2 * i + 1]]));
                    let x = (x | x << 8) & 0x00ff_00ff;
                    (x | x << 4) & LOW
                };
                codes.put::<4>(index, std::array::from_fn(|i| word(i) | word(i + 4) << 4));
            }
        }
        _ => {
            for (index, block) in data.as_chunks::<BLOCK>().0.iter().enumerate() {
                codes.put(index, words::<8>(block));
            }
        }
    }
}
