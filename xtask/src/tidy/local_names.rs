//! Nothing names a package registry's host or a path of one machine. The words are spelled in parts so that this file
//! does not find itself.

use super::{Finding, find_words};
use crate::tree::{Lines, Tree};

const HOSTS: &[&str] = &[
    concat!("://", "registry."),
    concat!("://", "static."),
    concat!("://", "files."),
    concat!("://", "index."),
    concat!("://", "deb."),
    concat!("pypi", ".org"),
    concat!("pypi", ".com"),
    concat!("pypi", ".net"),
    concat!("pythonhosted", ".org"),
];
const FOLDERS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/fa", "rm/")];
const SCRATCH: &[&str] = &[concat!("\"/t", "mp"), concat!("(/t", "mp/")];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = vec![];
    // Cargo writes the registry into its lock file.
    for file in tree.files.iter().filter(|file| !file.path.ends_with("Cargo.lock")) {
        findings.extend(find_words(file, Lines::All, HOSTS, "name packages, not hosts, so that mirrors keep working"));
        findings.extend(find_words(file, Lines::All, FOLDERS, "use a path that exists on every machine"));
        if file.path.ends_with(".rs") && !file.is_test() {
            findings.extend(find_words(file, Lines::Code, SCRATCH, "ask for the temporary folder of the system"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::expect;

    #[test]
    fn hosts_and_folders_of_one_machine_are_found() {
        for word in HOSTS.iter().chain(FOLDERS) {
            let text = format!("a\nhttps{word}x\n");
            expect(check, &[("README.md", &text), ("Cargo.lock", &text)], &["README.md:2"]);
        }
        let scratch = format!("let a = {}/x\";\n", SCRATCH[0]);
        expect(check, &[("crates/ops/src/a.rs", &scratch)], &["crates/ops/src/a.rs:1"]);
        expect(check, &[("crates/ops/tests/a.rs", &scratch)], &[]);
    }
}
