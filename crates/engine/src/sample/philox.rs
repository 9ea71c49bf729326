//! Philox4x32-10, a counter-based generator: the noise of a token is computed from where it stands, never kept.
//!
//! Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
//! Key: the seed. Counter: (token div 4, index low, index high, stream 0). Word: token mod 4.

const ROUNDS: usize = 10;
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Tokens of one [`chunk`].
pub(super) const CHUNK: usize = 64;

/// Counters that run side by side. More were slower, with and without AVX2.
const LANES: usize = 2;

/// The four words of a counter.
pub fn philox4x32(key: [u32; 2], counter: [u32; 4]) -> [u32; 4] {
    lanes(key, counter.map(|word| [word])).map(|[word]| word)
}

/// The noise word of `token` at `index` of its sequence: uniform over u32.
pub fn noise(seed: u64, index: u64, token: u32) -> u32 {
    philox4x32(halves(seed), counter(index, token / 4))[(token % 4) as usize]
}

/// [`noise`] of the tokens `first .. first + CHUNK`; `first` is a multiple of 4.
pub(super) fn chunk(seed: u64, index: u64, first: u32) -> [u32; CHUNK] {
    let mut words = [0; CHUNK];
    let (groups, _) = words.as_chunks_mut::<{ 4 * LANES }>();
    for (group, quad) in groups.iter_mut().zip((first / 4..).step_by(LANES)) {
        let mut counters = counter(index, 0).map(|word| [word; LANES]);
        counters[0] = std::array::from_fn(|lane| quad.wrapping_add(lane as u32));
        let of_quads = lanes(halves(seed), counters);
        *group = std::array::from_fn(|t| of_quads[t % 4][t / 4]);
    }
    words
}

fn counter(index: u64, quad: u32) -> [u32; 4] {
    let [low, high] = halves(index);
    [quad, low, high, 0]
}

fn halves(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

/// Runs `N` counters of one key side by side; word by word, so that the compiler can put them into vectors.
#[inline(always)]
fn lanes<const N: usize>(mut key: [u32; 2], [mut a, mut b, mut c, mut d]: [[u32; N]; 4]) -> [[u32; N]; 4] {
    for _ in 0..ROUNDS {
        for i in 0..N {
            let x = u64::from(a[i]) * u64::from(MULTIPLIERS[0]);
            let y = u64::from(c[i]) * u64::from(MULTIPLIERS[1]);
            a[i] = (y >> 32) as u32 ^ b[i] ^ key[0];
            b[i] = y as u32;
            c[i] = (x >> 32) as u32 ^ d[i] ^ key[1];
            d[i] = x as u32;
        }
        key[0] = key[0].wrapping_add(KEY_STEPS[0]);
        key[1] = key[1].wrapping_add(KEY_STEPS[1]);
    }
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // Zero, all ones, and the digits of pi: the vectors of the paper's own library. The last: the oracle's.
        let ones = u32::MAX;
        assert_eq!(philox4x32([0; 2], [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32([ones; 2], [ones; 4]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox4x32([0xa409_3822, 0x299f_31d0], [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
        assert_eq!(philox4x32([1, 2], [3, 4, 5, 6]), [2287000220, 3243900748, 1970613706, 2103475449]);
    }

    #[test]
    fn a_chunk_holds_the_words_of_its_tokens() {
        for (seed, index, first) in [(0, 0, 0), (7, 5_000_000_000, 64), (u64::MAX, u64::MAX, 151_936 / 64 * 64)] {
            let words = chunk(seed, index, first);
            for (token, word) in (first..).zip(words) {
                assert_eq!(word, noise(seed, index, token), "token {token} of the chunk from {first}");
            }
        }
    }

    #[test]
    fn every_part_of_the_place_changes_the_noise() {
        let word = noise(1, 2, 3);
        let others = [(0, 2, 3), (1 | 1 << 32, 2, 3), (1, 3, 3), (1, 2 | 1 << 32, 3), (1, 2, 2), (1, 2, 7)];
        for (seed, index, token) in others {
            assert_ne!(noise(seed, index, token), word, "({seed}, {index}, {token})");
        }
    }
}
