//! Repository tasks. `cargo xtask tidy` checks the rules that neither the compiler nor a lint can see; `cargo test` runs
//! the same checks.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command for the terminal")]

mod tidy;
mod tree;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => report(),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn report() -> ExitCode {
    let tree = match tree::Tree::read(root()) {
        Ok(tree) => tree,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::FAILURE;
        }
    };
    let findings = tidy::findings(&tree);
    findings.iter().for_each(|finding| println!("{finding}"));
    match findings.len() {
        0 => {
            println!("tidy: {} files, {} checks, nothing to do", tree.files.len(), tidy::CHECKS.len());
            ExitCode::SUCCESS
        }
        count => {
            eprintln!("tidy: {count} findings");
            ExitCode::FAILURE
        }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}
