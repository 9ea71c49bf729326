//! Runs the command as a person would, apart from the person's own configuration.
#![allow(dead_code, unreachable_pub, reason = "each test file uses some of this")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use kapitsa_testkit::tiny;

/// A tiny model that speaks, in a folder of its own.
pub struct Model {
    pub folder: tempfile::TempDir,
    pub path: String,
}

impl Model {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = path(&folder.path().join("tiny.gguf")).to_string();
        tiny::write_speaking_llama(path.as_ref());
        Model { folder, path }
    }
}

/// The command, with nothing on stdin and no configuration.
pub fn kapitsa(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kapitsa"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("KAPITSA_")) {
        command.env_remove(name);
    }
    // An absolute path where nothing is.
    command.env("XDG_CONFIG_HOME", concat!(env!("CARGO_MANIFEST_DIR"), "/no-configuration"));
    command.args(args).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

pub fn output(args: &[&str]) -> Output {
    kapitsa(args).output().unwrap()
}

pub fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The one line of an error that ends with exit code 1.
pub fn error(args: &[&str]) -> String {
    error_of(&mut kapitsa(args))
}

/// As [`error`], of a command with more than arguments.
pub fn error_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{command:?}: {output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text.strip_prefix("error: ").unwrap_or_else(|| panic!("{text}")).trim_end().to_string()
}

pub fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
