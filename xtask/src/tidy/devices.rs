//! Cargo features choose devices, and only the facade looks at them.

use super::{Finding, find_words};
use crate::tree::{Lines, Tree};

const WORDS: &[&str] =
    &["cfg(feature", "cfg!(feature", "cfg_attr(feature", "cfg(not(feature", "cfg(any(feature", "cfg(all(feature"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let files = tree.rust().filter(|file| !matches!(file.crate_name(), Some("kapitsa" | "xtask")));
    files
        .flat_map(|file| find_words(file, Lines::Code, WORDS, "only the facade chooses devices: decide there"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::expect;

    #[test]
    fn features_are_seen_by_the_facade_alone() {
        let source = "//! A.\n#[cfg(feature = \"cuda\")]\nmod cuda;\n";
        expect(check, &[("crates/kapitsa/src/lib.rs", source)], &[]);
        expect(check, &[("crates/engine/src/lib.rs", source)], &["crates/engine/src/lib.rs:2"]);
    }
}
