//! What packagers install: completions and man pages.

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::{output, path, stdout};

/// Runs a tool of the system, if it is there.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn tool(program: &str, args: &[&str]) -> Option<Output> {
    let output = Command::new(program).args(args).output();
    output.inspect_err(|error| eprintln!("SKIP: {program}: {error}")).ok()
}

/// The commands that `kapitsa help` lists.
fn commands() -> Vec<String> {
    let help = stdout(&output(&["--help"]));
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<String> = lines.filter_map(|line| line.split_whitespace().next()).map(String::from).collect();
    assert!(names.len() > 5 && names.contains(&"run".into()), "{help}");
    names.into_iter().filter(|name| name != "help").collect()
}

#[cfg(unix)]
#[test]
fn bash_completes_commands_and_options() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("kapitsa.bash");
    std::fs::write(&script, stdout(&output(&["completions", "bash"]))).unwrap();
    let Some(checked) = tool("bash", &["-n", path(&script)]) else { return };
    assert!(checked.status.success() && checked.stderr.is_empty(), "{checked:?}");
    let complete = |words: &[&str]| {
        let last = words.last().unwrap();
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let code = format!(
            "source {}; COMP_WORDS=({}); COMP_CWORD={}; _kapitsa kapitsa '{last}' '{}'; echo \"${{COMPREPLY[@]}}\"",
            path(&script),
            quoted.join(" "),
            words.len() - 1,
            words[words.len() - 2],
        );
        stdout(&tool("bash", &["--norc", "-c", &code]).unwrap()).trim_end().to_string()
    };
    assert_eq!(complete(&["kapitsa", "tok"]), "tokenize");
    assert_eq!(complete(&["kapitsa", "run", "--temp"]), "--temperature");
    assert_eq!(complete(&["kapitsa", "run", "--kv", "b"]), "bf16");
}

#[test]
fn every_shell_gets_a_script_that_names_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = stdout(&output(&["completions", shell]));
        for command in commands() {
            assert!(script.contains(&command), "{shell} lacks {command}");
        }
    }
}

/// A page as it is shown, if the tool for that is here.
fn shown(page: &Path) -> Option<String> {
    let shown = tool("groff", &["-man", "-Tascii", "-ww", "-P-c", path(page)])?;
    assert!(shown.status.success() && shown.stderr.is_empty(), "{shown:?}");
    let text = String::from_utf8(shown.stdout).unwrap();
    // A typewriter prints bold letters twice, and underlined ones over a line.
    let mut plain = String::new();
    for letter in text.chars() {
        match letter {
            '\u{8}' => drop(plain.pop()),
            letter => plain.push(letter),
        }
    }
    Some(plain)
}

#[test]
fn man_pages_render_and_name_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let (alone, pages) = (folder.path().join("alone.1"), folder.path().join("pages"));
    std::fs::write(&alone, stdout(&output(&["man"]))).unwrap();
    assert_eq!(stdout(&output(&["man", "--out", path(&pages)])), "");
    let mut files: Vec<String> =
        std::fs::read_dir(&pages).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    let mut expected: Vec<String> = commands().iter().map(|name| format!("kapitsa-{name}.1")).collect();
    expected.push("kapitsa.1".into());
    expected.sort();
    assert_eq!(files, expected);
    for page in [alone, pages.join("kapitsa.1")] {
        let Some(text) = shown(&page) else { return };
        for command in commands() {
            assert!(text.contains(&format!("kapitsa-{command}(1)")), "{command} is missing:\n{text}");
        }
    }
    let text = shown(&pages.join("kapitsa-run.1")).unwrap();
    assert!(text.contains("--temperature") && text.contains("stdin"), "{text}");
}
