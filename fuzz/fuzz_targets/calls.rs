//! What a model writes, to thinking, text and calls. The first byte says the dialect and how the answer begins and ends, the second
//! how long the pieces are.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| kapitsa_fuzz::calls(data));
