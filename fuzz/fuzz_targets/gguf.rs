//! A GGUF file, to logits and a reply. The input is the file.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_target!(|data: &[u8]| {
    kapitsa_fuzz::gguf(data);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    kapitsa_fuzz::mutate(data, size, max_size, seed, kapitsa_fuzz::gguf_file::mutate)
});
