//! What the fuzz targets share: how an input becomes files, what is done with a model, and mutators that know the file
//! formats, so that inputs get past the header.

mod calls;
pub mod folder;
pub mod gguf_file;
mod grammars;
pub mod json;
mod memory;
pub mod models;
pub mod parts;
mod run;
pub mod template_text;
mod texts;

pub use calls::calls;
pub use grammars::grammar;
pub use run::{gguf, safetensors};
pub use texts::{template, tokenizer};

use kapitsa_testkit::random::Rng;

/// Calls the fuzzer's own mutator, or `know_how`, which understands the input; it returns `None` if it does not.
pub fn mutate(
    data: &mut [u8],
    size: usize,
    max_size: usize,
    seed: u32,
    know_how: impl Fn(&[u8], &mut Rng) -> Option<Vec<u8>>,
) -> usize {
    let mut rng = Rng(u64::from(seed));
    if rng.below(8) > 0
        && let Some(mutated) = know_how(&data[..size], &mut rng)
        && mutated.len() <= max_size
    {
        data[..mutated.len()].copy_from_slice(&mutated);
        return mutated.len();
    }
    libfuzzer_sys::fuzzer_mutate(data, size, max_size)
}

/// Numbers at which sizes, counts and offsets go wrong.
pub fn odd_number(rng: &mut Rng) -> u64 {
    match rng.below(8) {
        0 => rng.below(5) as u64,
        1 => 1 << rng.below(64),
        2 => (1u64 << rng.below(64)).wrapping_sub(1),
        3 => (1u64 << rng.below(64)).wrapping_add(1),
        4 => u64::MAX - rng.below(64) as u64,
        5 => rng.bits() >> rng.below(64),
        6 => 8 * rng.below(65) as u64,
        _ => rng.below(300) as u64,
    }
}

/// An index below `len`; `None` if there is none.
pub fn pick(rng: &mut Rng, len: usize) -> Option<usize> {
    (len > 0).then(|| rng.below(len))
}
