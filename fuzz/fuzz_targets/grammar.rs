//! JSON schemas, expressions and Lark grammars of clients, to masks. The first byte says which it is.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| kapitsa_fuzz::grammar(data));
