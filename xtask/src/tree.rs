//! The files of the repository as checks see them.

use std::path::Path;
use std::process::Command;

/// Files that belong to the repository.
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
}

/// One file.
pub(crate) struct File {
    /// Path from the root, with forward slashes.
    pub(crate) path: String,
    /// Size.
    pub(crate) bytes: u64,
    /// Contents, unless they are not text.
    pub(crate) text: Option<String>,
}

/// Which lines of a Rust file a check looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lines {
    /// Every line.
    All,
    /// Neither comments nor items under `#[cfg(test)]`.
    Code,
}

impl Tree {
    /// Reads all files that git tracks or would track.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"];
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output();
        let output = output.map_err(|error| format!("cannot run git: {error}"))?;
        if !output.status.success() {
            return Err(format!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        let names = String::from_utf8(output.stdout).map_err(|error| format!("a file name is not UTF-8: {error}"))?;
        let mut files = vec![];
        for path in names.split_terminator('\0') {
            // Git also lists what has been removed but not committed.
            let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
            files.push(File { path: path.into(), bytes: bytes.len() as u64, text: String::from_utf8(bytes).ok() });
        }
        Ok(Tree { files })
    }

    /// A tree of `(path, text)`.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| File {
            path: path.to_string(),
            bytes: text.len() as u64,
            text: Some(text.to_string()),
        };
        Tree { files: files.iter().map(file).collect() }
    }

    /// Rust sources.
    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    /// The manifest of each crate of the workspace.
    pub(crate) fn manifests(&self) -> impl Iterator<Item = (&str, &File)> {
        self.files.iter().filter_map(|file| {
            let name = file.crate_name()?;
            let is_manifest = file.path == "xtask/Cargo.toml" || file.path == format!("crates/{name}/Cargo.toml");
            is_manifest.then_some((name, file))
        })
    }

    /// The file at `path`.
    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl File {
    /// Name of the crate's folder; `None` outside the workspace's crates.
    pub(crate) fn crate_name(&self) -> Option<&str> {
        match self.path.strip_prefix("crates/") {
            Some(rest) => rest.split_once('/').map(|(name, _)| name),
            None => self.path.starts_with("xtask/").then_some("xtask"),
        }
    }

    /// Whether the whole file is test, bench or example.
    pub(crate) fn is_test(&self) -> bool {
        let inside = |part: &str| matches!(part, "tests" | "benches" | "examples" | "tests.rs");
        self.path.split('/').any(inside)
    }

    /// Lines with their numbers, counted from 1.
    pub(crate) fn lines(&self, which: Lines) -> Vec<(usize, &str)> {
        let numbered =
            self.text.iter().flat_map(|text| text.lines()).enumerate().map(|(index, line)| (index + 1, line));
        match which {
            Lines::All => numbered.collect(),
            Lines::Code => code(numbered.collect()),
        }
    }
}

/// Drops comments and items under `#[cfg(test)]`. The sources are formatted: an item ends with a brace or a semicolon at
/// the indentation at which it began.
fn code(lines: Vec<(usize, &str)>) -> Vec<(usize, &str)> {
    let mut kept = vec![];
    let mut skipped: Option<usize> = None;
    for (number, line) in lines {
        let text = line.trim_start();
        let indentation = line.len() - text.len();
        if let Some(start) = skipped {
            let is_end = text.starts_with('}') || text.ends_with(';') || text.ends_with('}');
            if indentation == start && is_end {
                skipped = None;
            }
        } else if text.starts_with("#[cfg(test)]") || text.starts_with("#![cfg(test)]") {
            skipped = Some(if text.starts_with("#!") { usize::MAX } else { indentation });
        } else if !text.starts_with("//") {
            kept.push((number, line.split(" // ").next().unwrap_or(line)));
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_neither_comment_nor_test() {
        let source = "\
//! File.
fn a() {} // why
#[cfg(test)]
mod tests;
    // inner
fn b() {
    #[cfg(test)]
    let x = 1;
    y();
}
#[cfg(test)]
fn c(
    x: u8,
) {
    z();
}
fn d() {}
#[cfg(test)]
mod tests {
    fn e() {}
}
";
        let tree = Tree::of(&[("crates/x/src/lib.rs", source)]);
        let kept: Vec<_> = tree.files[0].lines(Lines::Code).into_iter().map(|(number, _)| number).collect();
        assert_eq!(kept, [2, 6, 9, 10, 17]);
        assert_eq!(tree.files[0].lines(Lines::Code)[0].1, "fn a() {}");
    }

    #[test]
    fn crates_and_tests_by_path() {
        let names = [
            ("crates/tensor/src/lib.rs", Some("tensor"), false),
            ("crates/tensor/tests/shapes.rs", Some("tensor"), true),
            ("crates/engine/src/sample/tests.rs", Some("engine"), true),
            ("xtask/src/main.rs", Some("xtask"), false),
            ("fuzz/src/lib.rs", None, false),
            ("crates/Cargo.toml", None, false),
        ];
        for (path, name, is_test) in names {
            let tree = Tree::of(&[(path, "")]);
            assert_eq!((tree.files[0].crate_name(), tree.files[0].is_test()), (name, is_test), "{path}");
        }
    }
}
