//! `unsafe` lives in two crates: the root file of every other forbids it.

use super::Finding;
use crate::tree::{File, Lines, Tree};

/// Crates with unsafe code: vector instructions, and mapping files.
const UNSAFE_CRATES: &[&str] = &["cpu", "weights"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust().filter_map(|file| finding(file, file.crate_name()?)).collect()
}

fn finding(file: &File, name: &str) -> Option<Finding> {
    let inside = file.path.strip_prefix("crates/").and_then(|path| path.strip_prefix(name));
    let inside = inside.or_else(|| file.path.strip_prefix("xtask"))?;
    let is_root = matches!(inside, "/src/lib.rs" | "/src/main.rs" | "/build.rs") || inside.starts_with("/src/bin/");
    let wanted = match UNSAFE_CRATES.contains(&name) {
        true => "#![deny(unsafe_op_in_unsafe_fn)]",
        false => "#![forbid(unsafe_code)]",
    };
    let is_there = file.lines(Lines::Code).iter().any(|(_, line)| *line == wanted);
    (is_root && !is_there)
        .then(|| Finding::new(file, 1, format!("crate root lacks `{wanted}`"), "add it below the `//!` lines"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::expect;

    #[test]
    fn every_root_says_what_it_thinks_of_unsafe() {
        let forbid = "//! A.\n#![forbid(unsafe_code)]\n";
        let deny = "//! A.\n#![deny(unsafe_op_in_unsafe_fn)]\n";
        expect(check, &[("crates/ops/src/lib.rs", forbid), ("crates/cpu/src/lib.rs", deny)], &[]);
        expect(check, &[("crates/ops/src/lib.rs", deny)], &["crates/ops/src/lib.rs:1"]);
        expect(check, &[("crates/cpu/src/lib.rs", forbid)], &["crates/cpu/src/lib.rs:1"]);
        expect(check, &[("xtask/src/main.rs", "//! #![forbid(unsafe_code)]\n")], &["xtask/src/main.rs:1"]);
        expect(check, &[("crates/ops/src/add.rs", "//! A.\n")], &[]);
    }
}
