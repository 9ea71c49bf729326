//! A folder with `config.json` and `model.safetensors`, to logits and a reply. The input is both, as `parts` joins them.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_target!(|data: &[u8]| {
    kapitsa_fuzz::safetensors(data);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    kapitsa_fuzz::mutate(data, size, max_size, seed, kapitsa_fuzz::folder::mutate)
});
