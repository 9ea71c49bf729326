//! Every source file begins by saying what it is.

use super::Finding;
use crate::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let files = tree.rust().filter(|file| !file.path.starts_with("tests/fixtures/"));
    let silent = files.filter(|file| !file.text.as_deref().unwrap_or_default().starts_with("//! "));
    silent
        .map(|file| Finding::new(file, 1, "the first line is no `//!`", "say in a sentence what the file holds"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::expect;

    #[test]
    fn a_file_without_a_first_sentence_is_found() {
        let files = [("a.rs", "//! A.\n"), ("b.rs", "use x;\n"), ("c.md", ""), ("tests/fixtures/d.rs", "")];
        expect(check, &files, &["b.rs:1"]);
    }
}
