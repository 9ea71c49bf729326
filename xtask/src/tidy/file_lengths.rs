//! Source files are short enough to be read in one go; tables may be longer.

use super::Finding;
use crate::tree::{Lines, Tree};

const MAX_LINES: usize = 700;

/// Files that may be longer, and why.
const LONGER: &[(&str, &str)] = &[];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let files = tree.rust().filter(|file| !LONGER.iter().any(|(path, _)| *path == file.path));
    let long = files.map(|file| (file, file.lines(Lines::All).len())).filter(|(_, lines)| *lines > MAX_LINES);
    let long = long.map(|(file, lines)| {
        let what = format!("{lines} lines, expected at most {MAX_LINES}");
        Finding::new(
            file,
            lines,
            what,
            "split it by what it holds, or list it in LONGER with a reason if it is a table",
        )
    });
    let stale = LONGER.iter().filter_map(|(path, reason)| {
        let file = tree.get(path).filter(|file| file.lines(Lines::All).len() <= MAX_LINES)?;
        Some(Finding::new(file, 1, format!("listed as long ({reason}) but short"), "remove it from LONGER"))
    });
    long.chain(stale).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::expect;

    #[test]
    fn long_files_are_found() {
        expect(check, &[("a.rs", &"\n".repeat(700)), ("b.md", &"\n".repeat(9000))], &[]);
        expect(check, &[("a.rs", &"\n".repeat(701))], &["a.rs:701"]);
    }
}
