//! `kapitsa doctor` on this machine.

mod common;

use std::path::Path;

use common::{kapitsa, path, stdout};
use serde_json::Value;

fn doctor(home: &Path, args: &[&str]) -> std::process::Command {
    let mut command = kapitsa(&[&["doctor"], args].concat());
    command.env("KAPITSA_HOME", home);
    command
}

/// Names of all values, as the documentation spells them.
fn keys(value: &Value, name: &str, all: &mut Vec<String>) {
    match value {
        Value::Object(entries) => entries.iter().for_each(|(key, value)| {
            let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
            keys(value, &name, all);
        }),
        Value::Array(values) if values.iter().any(Value::is_object) => {
            values.iter().for_each(|value| keys(value, &format!("{name}[]"), all));
        }
        _ => all.push(name.into()),
    }
}

#[test]
fn json_has_the_documented_keys_and_measured_numbers() {
    let home = tempfile::tempdir().unwrap();
    let text = stdout(&doctor(home.path(), &["--json"]).output().unwrap());
    let report: Value = serde_json::from_str(&text).unwrap();
    let mut found = vec![];
    keys(&report, "", &mut found);
    let page = include_str!("../../../docs/doctor.md");
    for key in &found {
        assert!(page.contains(&format!("`{key}`")), "docs/doctor.md lacks {key}");
    }
    let documented = page.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    for key in documented.flat_map(|keys| keys.split(", ")) {
        let key = key.trim_matches('`');
        assert!(found.iter().any(|found| found == key), "docs/doctor.md has {key}: {found:?}");
    }
    let memory = &report["memory"];
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value}: {text}"));
    assert!(number(&memory["available_bytes"]) <= number(&memory["total_bytes"]));
    assert!(number(&memory["read_bytes_per_second"]) > 0.0);
    assert!(number(&report["processor"]["cores"]) >= 1.0);
    let sets = report["processor"]["instruction_sets"].as_array().unwrap();
    assert_eq!((&sets[0], sets.last().unwrap()), (&"portable".into(), &report["processor"]["instruction_set"]));
    assert_eq!(report["home"], path(home.path()));
    assert!(std::fs::read_dir(home.path()).unwrap().next().is_none(), "something was left behind");
}

#[test]
fn people_get_a_line_for_each_thing() {
    let home = tempfile::tempdir().unwrap();
    let output = doctor(home.path(), &[]).output().unwrap();
    let text = stdout(&output);
    for name in ["system ", "processor ", "kernels ", "memory ", "disk ", "home "] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name}: {text}");
    }
    assert!(text.contains("GB/s") && text.contains("CPU; this build has no GPU backend"), "{text}");
}

#[test]
fn problems_of_the_configuration_are_part_of_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    std::fs::write(&file, "tread = 1\nthreads = \"x\"\n").unwrap();
    let mut command = doctor(folder.path(), &["--json"]);
    command.env("KAPITSA_CONFIG", &file).env("KAPITSA_FLY", "1").env("KAPITSA_PORT", "x");
    let report: Value = serde_json::from_str(&stdout(&command.output().unwrap())).unwrap();
    assert_eq!(report["configuration_file"], path(&file));
    let advice: Vec<&str> = report["advice"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    assert!(advice[0].ends_with(":1: unknown key `tread`; did you mean `threads`?"), "{advice:?}");
    assert!(advice[1].ends_with(":2: `threads` is of type string, expected a whole number"), "{advice:?}");
    assert!(advice[2].starts_with("KAPITSA_PORT is `x`, expected a whole number"), "{advice:?}");
    assert!(advice[3].starts_with("KAPITSA_FLY means nothing to kapitsa"), "{advice:?}");
}

/// Where there is an emulator of processors, as most distributions have in the package qemu-user.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[test]
fn a_processor_without_avx2_starts_and_is_shown() {
    let home = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new("qemu-x86_64");
    command.args(["-cpu", "Nehalem", env!("CARGO_BIN_EXE_kapitsa"), "doctor", "--json"]);
    let output = match command.env("KAPITSA_HOME", home.path()).output() {
        Ok(output) => output,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
            {
                eprintln!("SKIP: qemu-x86_64: {error}");
            }
            return;
        }
    };
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["processor"]["instruction_set"], "portable");
    assert_eq!(report["processor"]["lacking_features"][0], "avx2");
    let advice = report["advice"].as_array().unwrap();
    assert!(advice.iter().any(|line| line.as_str().unwrap().starts_with("the processor lacks avx2")), "{report}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_the_measurement_and_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    for _ in 0..5 {
        let mut child = doctor(home.path(), &[]).stdout(std::process::Stdio::piped()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300));
        std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        let status = child.wait().unwrap();
        assert!(std::fs::read_dir(home.path()).unwrap().next().is_none(), "something was left behind");
        match status.code() {
            Some(130) => return,
            // It did not listen yet, or was done already.
            code => assert!(matches!(code, None | Some(0)), "{code:?}"),
        }
    }
    panic!("the report always ended before the signal");
}
