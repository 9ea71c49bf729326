//! What a crate must know nothing of, beyond what its dependencies already say.

use super::{Finding, find_words};
use crate::tree::{Lines, Tree};

/// A crate, words that its code does not contain, and why.
const WALLS: &[(&str, &[&str], &str)] = &[
    (
        "text",
        &["std::fs", "std::net", "std::process", "SystemTime::now", "Instant::now", "thread_rng"],
        "text is pure: take files, clock and random numbers as arguments",
    ),
    (
        "dialects",
        &["std::fs", "std::net", "std::process", "SystemTime::now", "Instant::now", "Tensor"],
        "dialects is pure: text in, events out",
    ),
    (
        "grammar",
        &["std::fs", "std::net", "std::process", "SystemTime::now", "Instant::now", "Tensor"],
        "grammar is pure: grammars and tokens in, masks out",
    ),
    (
        "vision",
        &["std::fs", "std::net", "std::process", "SystemTime::now", "Instant::now", "Tensor"],
        "vision is pure and fetches nothing: take bytes, return numbers",
    ),
    (
        "models",
        &["Format", "gguf", "Gguf", "GGUF", "cfg(", "cfg!("],
        "a model does not depend on format, container or device: let `weights` translate",
    ),
    (
        "models",
        &["PageId", "PagePool", "Sampler", "sample::"],
        "a model neither samples nor owns pages: that is `engine`",
    ),
    (
        "engine",
        &["tokenizer", "Tokenizer", "detokeniz", "Detokeniz", "template", "Template"],
        "the engine sees token ids only: text belongs in `text` and the facade",
    ),
    (
        "server",
        &["Engine,", "Generation", "open_engine", "std::fs"],
        "the server talks to `Llm` and reads no file: models are opened by whoever starts it",
    ),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let files = tree.rust().filter(|file| !file.is_test());
    files
        .flat_map(|file| {
            let walls = WALLS.iter().filter(|(name, ..)| file.crate_name() == Some(name));
            walls.flat_map(|(_, words, to_do)| find_words(file, Lines::Code, words, to_do))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::expect;

    #[test]
    fn text_reads_no_file_and_models_know_no_format() {
        let source = "//! GGUF.\nuse std::fs;\nlet x = Format::F32;\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
        expect(check, &[("crates/text/src/a.rs", source)], &["crates/text/src/a.rs:2"]);
        expect(check, &[("crates/models/src/a.rs", source)], &["crates/models/src/a.rs:3"]);
        expect(check, &[("crates/weights/src/a.rs", source), ("crates/text/tests/a.rs", source)], &[]);
    }
}
