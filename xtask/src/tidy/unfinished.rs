//! Nothing in the tree waits to be finished. The words are spelled in parts so that this file does not find itself.

use super::{Finding, find_words};
use crate::tree::{Lines, Tree};

const WORDS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("db", "g!("),
];
const ENDINGS: &[&str] = &[".rs", ".py", ".sh", ".h", ".cu", ".metal", ".ts"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let files = tree.files.iter().filter(|file| ENDINGS.iter().any(|ending| file.path.ends_with(ending)));
    files
        .flat_map(|file| find_words(file, Lines::All, WORDS, "finish it, or open an issue and remove the mark"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::expect;

    #[test]
    fn marks_of_unfinished_work_are_found_in_comments_and_code() {
        for word in WORDS {
            let source = format!("//! A.\n// {word}\n");
            expect(check, &[("crates/ops/tests/a.rs", &source), ("a.md", &source)], &["crates/ops/tests/a.rs:2"]);
        }
    }
}
