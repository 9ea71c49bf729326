//! The small real models that tests use when they are there (`tests/fetch_models.py` brings them).

use std::path::PathBuf;

/// Names and files.
const FILES: [(&str, &str); 3] = [
    ("smollm2-135m", "SmolLM2-135M-Instruct.Q4_1.gguf"),
    ("qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
    ("qwen2.5-coder-1.5b", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
];

/// The GGUF file of a real model, from `KAPITSA_TEST_MODELS` or `~/.cache/kapitsa-test-models`.
///
/// Where it is missing, a person's test run prints that it skips the test; a run with `KAPITSA_REQUIRE_MODELS` set, as the
/// gate does, fails.
///
/// # Panics
/// If the name is unknown, or the model is required and missing.
pub fn real_model(name: &str) -> Option<PathBuf> {
    let (_, file) = FILES.iter().find(|entry| entry.0 == name).unwrap_or_else(|| panic!("no test model `{name}`"));
    let folder = std::env::var_os("KAPITSA_TEST_MODELS").map(PathBuf::from).or_else(|| {
        Some(
            PathBuf::from(std::env::var_os("HOME").or_else(|| std::env::var_os("USERPROFILE"))?)
                .join(".cache/kapitsa-test-models"),
        )
    })?;
    let path = folder.join(file);
    if path.is_file() {
        return Some(path);
    }
    let hint = format!("{} is missing; bring it with `python3 tests/fetch_models.py {name}`", path.display());
    assert!(std::env::var_os("KAPITSA_REQUIRE_MODELS").is_none(), "{hint}");
    #[expect(clippy::print_stderr, reason = "the one place where tests say that they are skipped")]
    {
        eprintln!("SKIP {hint}");
    }
    None
}
