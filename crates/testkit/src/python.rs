//! Python programs in `tests/python`, for tests that run other people's clients.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The Python with the packages of `tests/python/requirements.txt`.
///
/// Where it is missing, a person's test run prints that it skips the test; a run with `KAPITSA_REQUIRE_MODELS` set, as the
/// gate does, fails.
///
/// # Panics
/// If it is required and missing.
pub fn virtual_python() -> Option<PathBuf> {
    let path = root().join("target/python/bin/python");
    if path.exists() {
        return Some(path);
    }
    let hint = "target/python is missing; make it with `python3 -m venv target/python` and \
                `target/python/bin/pip install -r tests/python/requirements.txt`";
    assert!(std::env::var_os("KAPITSA_REQUIRE_MODELS").is_none(), "{hint}");
    #[expect(clippy::print_stderr, reason = "a test says that it is skipped")]
    {
        eprintln!("SKIP {hint}");
    }
    None
}

/// Runs a Python program in `tests/python`.
///
/// # Panics
/// If it fails.
pub fn python(program: &Path, args: &[&str], environment: &[(&str, &str)]) {
    let status = Command::new(program)
        .args(args)
        .current_dir(root().join("tests/python"))
        .envs(environment.iter().copied())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .status();
    let status = status.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    assert!(status.success(), "{} {args:?}", program.display());
}

/// Runs a file of tests in `tests/python`, unless [`virtual_python`] is missing.
///
/// # Panics
/// If a test fails.
pub fn pytest(file: &str, environment: &[(&str, &str)]) {
    if let Some(program) = virtual_python() {
        python(&program, &["-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", file], environment);
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
