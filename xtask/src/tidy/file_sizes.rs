//! The repository stays small: fixtures have a budget, other files a limit.

use super::Finding;
use crate::tree::Tree;

const FIXTURES: &str = "tests/fixtures/";
const FIXTURES_BYTES: u64 = 50_000_000;
const FILE_BYTES: u64 = 2_000_000;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let (fixtures, others): (Vec<_>, Vec<_>) = tree.files.iter().partition(|file| file.path.starts_with(FIXTURES));
    let large = others.into_iter().filter(|file| file.bytes > FILE_BYTES).map(|file| {
        let what = format!("{} bytes, expected at most {FILE_BYTES}", file.bytes);
        Finding::new(file, 1, what, "keep it out of the repository, or make it a fixture")
    });
    let total: u64 = fixtures.iter().map(|file| file.bytes).sum();
    let heaviest = fixtures.into_iter().filter(|_| total > FIXTURES_BYTES).max_by_key(|file| file.bytes).map(|file| {
        let what = format!("fixtures have {total} bytes, expected at most {FIXTURES_BYTES}; this file is the largest");
        Finding::new(file, 1, what, "make fixtures smaller or generate them in the test")
    });
    large.chain(heaviest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::File;

    #[test]
    fn a_large_file_and_a_heavy_fixture_folder_are_found() {
        let file = |path: &str, bytes| File { path: path.into(), bytes, text: None };
        let found =
            |files: Vec<File>| check(&Tree { files }).into_iter().map(|finding| finding.path).collect::<Vec<_>>();
        assert!(found(vec![file("a.bin", 2_000_000), file("tests/fixtures/a", 50_000_000)]).is_empty());
        assert_eq!(found(vec![file("a.bin", 2_000_001)]), ["a.bin"]);
        let heavy = vec![file("tests/fixtures/a", 30_000_000), file("tests/fixtures/b", 20_000_001)];
        assert_eq!(found(heavy), ["tests/fixtures/a"]);
    }
}
