//! A tokenizer, to ids and back. The input is a GGUF file, or `tokenizer.json`, `tokenizer_config.json` and a text as `parts`
//! joins them.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_target!(|data: &[u8]| {
    kapitsa_fuzz::tokenizer(data);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    kapitsa_fuzz::mutate(data, size, max_size, seed, |data, rng| {
        kapitsa_fuzz::gguf_file::mutate_tokenizer(data, rng)
            .or_else(|| kapitsa_fuzz::json::mutate_parts::<3>(data, rng))
    })
});
