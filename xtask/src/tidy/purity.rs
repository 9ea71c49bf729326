//! Libraries neither print nor read the environment nor end the process: that is for programs.

use super::{Finding, find_words};
use crate::tree::{Lines, Tree};

/// Programs, and helpers that only tests see.
const EXEMPT: &[&str] = &["cli", "xtask", "testkit"];
const PRINTING: &[&str] = &["println!", "print!(", "io::stdout", "io::stderr"];
const ENVIRONMENT: &[&str] = &["std::env", "use std::env", "env::var", "option_env!"];
const ENDING: &[&str] = &["process::exit", "process::abort"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let is_library = |name: &str| !EXEMPT.contains(&name);
    let mut findings = vec![];
    for file in tree.rust().filter(|file| file.crate_name().is_some_and(is_library) && !file.is_test()) {
        findings.extend(find_words(
            file,
            Lines::Code,
            PRINTING,
            "log with `tracing`, or return it for the program to print",
        ));
        findings.extend(find_words(
            file,
            Lines::Code,
            ENVIRONMENT,
            "take it as an argument; `cli` reads the environment",
        ));
        findings.extend(find_words(file, Lines::Code, ENDING, "return an error"));
        // What the compiler passes about the package itself is a constant.
        let reads = |(_, line): &(usize, &str)| line.contains("env!(") && !line.contains("env!(\"CARGO_PKG_");
        let lines = file.lines(Lines::Code).into_iter().filter(|line| reads(line) && !line.1.contains("option_env!"));
        findings.extend(lines.map(|(number, _)| Finding::new(file, number, "found `env!`", "take it as an argument")));
    }
    findings.dedup_by(|a, b| (&a.path, a.line) == (&b.path, b.line));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::expect;

    #[test]
    fn libraries_do_not_print_or_read_the_environment() {
        for line in
            ["println!(\"a\");", "eprint!(\"a\");", "std::env::var(\"A\")", "env!(\"HOME\")", "std::process::exit(1)"]
        {
            let source = format!("//! println!\nfn a() {{ {line} }}\n#[cfg(test)]\nmod tests {{\n    {line}\n}}\n");
            expect(check, &[("crates/ops/src/a.rs", &source)], &["crates/ops/src/a.rs:2"]);
            expect(check, &[("crates/cli/src/a.rs", &source), ("crates/ops/tests/a.rs", &source)], &[]);
        }
        expect(check, &[("crates/ops/src/a.rs", "const V: &str = env!(\"CARGO_PKG_VERSION\");\n")], &[]);
    }
}
