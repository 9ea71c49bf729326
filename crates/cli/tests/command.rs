//! The command as a person uses it: what it prints where, and how it ends.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use kapitsa_testkit::{Tensors, fixture, real_model, tiny};

struct Model {
    folder: tempfile::TempDir,
    path: String,
}

impl Model {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = path(&folder.path().join("tiny.gguf")).to_string();
        tiny::write_speaking_llama(path.as_ref());
        Model { folder, path }
    }
}

fn kapitsa(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kapitsa"));
    command.args(args).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

fn output(args: &[&str]) -> Output {
    kapitsa(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The one line of an error that ends with exit code 1.
fn error(args: &[&str]) -> String {
    let output = output(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text.strip_prefix("error: ").unwrap_or_else(|| panic!("{text}")).trim_end().to_string()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn answers_go_to_stdout_and_statistics_to_stderr() {
    let model = Model::new();
    let output = output(&["run", "--model", &model.path, "--max-tokens", "12", "hello"]);
    let text = stdout(&output);
    assert!(text.ends_with('\n') && text.len() > 1, "{text:?}");
    let statistics = String::from_utf8(output.stderr).unwrap();
    assert!(statistics.contains("answer 12 tokens") && statistics.contains("length"), "{statistics}");
}

#[test]
fn json_is_one_object_with_the_same_text() {
    let model = Model::new();
    let args = ["run", "--model", &model.path, "--max-tokens", "12", "hello"];
    let plain = stdout(&output(&args));
    let json = stdout(&output(&[&args[..], &["--json"]].concat()));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["text"].as_str().unwrap(), plain.strip_suffix('\n').unwrap());
    assert_eq!((&json["finish_reason"], &json["usage"]["completion_tokens"]), (&"length".into(), &12.into()));
    // "user:hello<|end|>>" is one token a byte, and one for the end of the turn
    assert_eq!(json["usage"]["prompt_tokens"], 12);
}

#[test]
fn a_seed_fixes_the_answer_whatever_the_threads() {
    let model = Model::new();
    let run = |seed, threads| {
        let sampling =
            ["--temperature", "1", "--top-p", "0.9", "--top-k", "50", "--min-p", "0.01", "--max-tokens", "40"];
        let args = ["run", "--model", &model.path, "--seed", seed, "--threads", threads, "hello"];
        stdout(&output(&[&args[..], &sampling].concat()))
    };
    let first = run("7", "1");
    assert_eq!(first, run("7", "2"));
    assert_eq!(first, run("7", "3"));
    assert_ne!(first, run("8", "1"));
}

#[test]
fn prompts_come_from_stdin_too() {
    let model = Model::new();
    let args = ["run", "--model", &model.path, "--max-tokens", "5"];
    let expected = stdout(&output(&[&args[..], &["from here"]].concat()));
    for extra in [&[][..], &["-"]] {
        let mut child =
            kapitsa(&[&args[..], extra].concat()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"from here").unwrap();
        assert_eq!(stdout(&child.wait_with_output().unwrap()), expected);
    }
    assert_eq!(error(&args), "the prompt is empty; give it as an argument or on stdin");
}

#[test]
fn tokens_of_a_text() {
    let model = Model::new();
    let text = stdout(&output(&["tokenize", "--model", &model.path, "the<|end|>"]));
    assert_eq!(text, "       1  \"th\"\n     101  \"e\"\n       0  \"<|end|>\"\n");
    let json = stdout(&output(&["tokenize", "--json", "--model", &model.path, "é"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["ids"], serde_json::json!([0xc3, 0xa9]));
}

#[test]
fn logits_of_a_folder_without_tokenizer() {
    let model = fixture("oracle/models/qwen2");
    let expected = Tensors::open(model.join("expected.safetensors"));
    let ids = expected.i64("seq1.input_ids").iter().map(i64::to_string).collect::<Vec<_>>();
    let folder = tempfile::tempdir().unwrap();
    let (list, out) = (folder.path().join("ids.txt"), folder.path().join("logits.safetensors"));
    std::fs::write(&list, ids.join("\n")).unwrap();
    for tokens in [ids.join(","), path(&list).to_string()] {
        let args = ["logits", "--model", path(&model), "--tokens", &tokens, "--exact", "--out", path(&out)];
        stdout(&output(&args));
        let found = Tensors::open(&out);
        assert_eq!(found.shape("logits"), [27, 256]);
        for (f, e) in found.f32("logits").iter().zip(expected.f32("seq1.logits")) {
            assert!((f - e).abs() < 1e-4, "{f}, expected {e}");
        }
        std::fs::remove_file(&out).unwrap();
    }
    let best = stdout(&output(&["logits", "--model", path(&model), "--tokens", "5, 6", "--json"]));
    let best: serde_json::Value = serde_json::from_str(&best).unwrap();
    assert_eq!(best["positions"].as_array().unwrap().len(), 2);
}

#[test]
fn errors_are_one_line_with_the_next_step() {
    let model = Model::new();
    let run = |extra: &[&str]| error(&[&["run", "--model", &model.path, "hi"], extra].concat());
    assert!(error(&["run", "--model", "no-such-model", "hi"]).contains("smollm2-135m"));
    assert_eq!(run(&["--temperature", "-1"]), "temperature is -1, expected a number of at least 0");
    assert_eq!(run(&["--temperature", "NaN"]), "temperature is NaN, expected a number of at least 0");
    assert!(run(&["--context", "0"]).starts_with("context is 0, expected 1 to"));
    assert!(run(&["--context", "4"]).contains("the prompt has 9 tokens, the context 4"));
    let qwen = fixture("oracle/models/qwen2");
    assert!(error(&["run", "--model", path(&qwen), "hi"]).contains("tokenizer.json"));
    assert!(error(&["logits", "--model", path(&qwen), "--tokens", "1,256"]).contains("token 256 is outside"));
    assert!(error(&["logits", "--model", path(&qwen), "--tokens", "1,x"]).contains("neither a list of ids nor"));
    assert!(error(&["logits", "--model", path(&qwen), "--tokens", " "]).contains("empty"));
}

#[test]
fn broken_files_are_one_line() {
    let model = Model::new();
    let whole = std::fs::read(&model.path).unwrap();
    let broken = model.folder.path().join("broken.gguf");
    let mut cases: Vec<Vec<u8>> = [0, 3, 4, 24, 1000, whole.len() / 2, whole.len() - 1024, whole.len() - 1]
        .iter()
        .map(|&len| whole[..len].to_vec())
        .collect();
    cases.push(b"not a model at all".to_vec());
    cases.push([&b"GGUF"[..], &[0xff; 400]].concat());
    for bytes in cases {
        std::fs::write(&broken, bytes).unwrap();
        let line = error(&["run", "--model", path(&broken), "hi"]);
        assert!(line.contains("broken.gguf"), "{line}");
    }
}

#[test]
fn wrong_usage_ends_with_code_2() {
    for args in [&["run", "--exact", "--kv", "f16", "x"][..], &["logits"], &["run", "--threads", "0", "x"], &["fly"]] {
        assert_eq!(output(args).status.code(), Some(2), "{args:?}");
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_the_answer_with_code_130() {
    let model = Model::new();
    // The tiny model is quick: it takes a long answer for the signal to arrive in the middle of it.
    let args = ["run", "--model", &model.path, "--temperature", "1", "--context", "16000", "hello"];
    for _ in 0..20 {
        let mut child = kapitsa(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
        let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(kill.success());
        let output = child.wait_with_output().unwrap();
        match output.status.code() {
            Some(130) => {
                assert!(String::from_utf8_lossy(&output.stderr).contains("cancelled"), "{output:?}");
                return;
            }
            code => assert_eq!(code, Some(0), "{output:?}"), // the answer ended by itself before the signal came
        }
    }
    panic!("the answer always ended before the signal");
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let model = Model::new();
    let args = ["run", "--model", &model.path, "--temperature", "1", "--seed", "1", "hello"];
    let mut child = kapitsa(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && !String::from_utf8_lossy(&output.stderr).contains("error"), "{output:?}");
}

#[test]
fn a_real_model_writes_code() {
    let Some(model) = real_model("qwen2.5-coder-0.5b") else { return };
    let prompt = "Write a Python function that reverses a linked list";
    let text = stdout(&output(&["run", "--model", path(&model), "--max-tokens", "60", prompt]));
    assert!(text.contains("```python\nclass ListNode:"), "{text}");
}
