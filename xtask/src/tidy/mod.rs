//! The checks, one a file. `docs/architecture.md` names the check that guards each invariant.

mod architecture_map;
mod crate_roots;
mod crate_walls;
mod dependencies;
mod devices;
mod file_headers;
mod file_lengths;
mod file_sizes;
mod local_names;
mod manifests;
mod purity;
mod unfinished;

use std::fmt;

use crate::tree::{File, Lines, Tree};

/// A rule of the repository.
pub(crate) struct Check {
    /// Name, as `docs/architecture.md` spells it.
    pub(crate) name: &'static str,
    run: fn(&Tree) -> Vec<Finding>,
}

/// A place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    what: String,
    to_do: String,
}

pub(crate) const CHECKS: &[Check] = &[
    Check { name: "architecture_map", run: architecture_map::check },
    Check { name: "crate_roots", run: crate_roots::check },
    Check { name: "crate_walls", run: crate_walls::check },
    Check { name: "dependencies", run: dependencies::check },
    Check { name: "devices", run: devices::check },
    Check { name: "file_headers", run: file_headers::check },
    Check { name: "file_lengths", run: file_lengths::check },
    Check { name: "file_sizes", run: file_sizes::check },
    Check { name: "local_names", run: local_names::check },
    Check { name: "manifests", run: manifests::check },
    Check { name: "purity", run: purity::check },
    Check { name: "unfinished", run: unfinished::check },
];

/// Everything that breaks a rule, by file and line.
pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| (check.run)(tree)).collect();
    findings.sort();
    findings
}

impl Finding {
    fn new(file: &File, line: usize, what: impl Into<String>, to_do: impl Into<String>) -> Self {
        Finding { path: file.path.clone(), line, what: what.into(), to_do: to_do.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}; {}", self.path, self.line, self.what, self.to_do)
    }
}

/// Finds each of `words` in `lines` of `file`.
fn find_words(file: &File, lines: Lines, words: &[&str], to_do: &str) -> Vec<Finding> {
    let hits = |(number, line): (usize, &str)| -> Vec<Finding> {
        let words = words.iter().filter(|word| line.contains(**word));
        words.map(|word| Finding::new(file, number, format!("found `{word}`"), to_do)).collect()
    };
    file.lines(lines).into_iter().flat_map(hits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `check` on `files` and compares `path:line` of what it finds.
    pub(super) fn expect(check: fn(&Tree) -> Vec<Finding>, files: &[(&str, &str)], places: &[&str]) {
        let mut findings = check(&Tree::of(files));
        findings.sort();
        let found: Vec<String> = findings.iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect();
        assert_eq!(found, places, "{findings:#?}");
    }

    #[test]
    fn the_repository_is_tidy() {
        let tree = Tree::read(crate::root()).unwrap();
        let findings = findings(&tree);
        let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
        assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
    }

    #[test]
    fn a_finding_says_where_what_and_what_to_do() {
        let tree = Tree::of(&[("crates/x/src/lib.rs", "fn a() {}\nlet b = dbg();\n")]);
        let findings = find_words(&tree.files[0], Lines::All, &["dbg()"], "remove it");
        assert_eq!(findings[0].to_string(), "crates/x/src/lib.rs:2: found `dbg()`; remove it");
    }
}
