//! The command as a person uses it: what it prints where, and how it ends.

mod common;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{Model, error, kapitsa, output, path, stdout};
use kapitsa_testkit::{Tensors, fixture, real_model, tiny};

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
fn images_come_before_the_prompt() {
    let folder = tempfile::tempdir().unwrap();
    tiny::write_seeing_qwen(folder.path());
    let [wide, small, damaged] = ["wide.png", "small", "damaged.bmp"].map(|name| folder.path().join(name));
    // Bytes tell the format, not names.
    std::fs::write(&wide, tiny::bmp(24, 16, [0; 3])).unwrap();
    std::fs::write(&small, tiny::bmp(8, 8, [0; 3])).unwrap();
    std::fs::write(&damaged, &tiny::bmp(80, 80, [0; 3])[..100]).unwrap();
    let args = ["run", "--model", path(folder.path()), "--json", "--max-tokens", "5", "what is it"];
    let tokens = |images: &[&Path]| {
        let images = images.iter().flat_map(|image| ["--image", path(image)]).collect::<Vec<_>>();
        let json: serde_json::Value = serde_json::from_str(&stdout(&output(&[&args[..], &images].concat()))).unwrap();
        json["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    assert_eq!((tokens(&[]), tokens(&[&wide]), tokens(&[&small, &wide])), (17, 25, 28));

    let refused = |image: &Path| error(&[&args[..], &["--image", path(&wide), "--image", path(image)]].concat());
    let missing = folder.path().join("missing.png");
    assert!(refused(&missing).starts_with(&format!("cannot read image {}: ", missing.display())));
    let expected = format!("{}: BMP image cannot be decoded: ", damaged.display());
    assert!(refused(&damaged).starts_with(&expected), "{}", refused(&damaged));
    let config = folder.path().join("config.json");
    assert_eq!(
        refused(&config),
        format!("{}: image format is not known; send PNG, JPEG, WebP, GIF or BMP", config.display())
    );
    let blind = Model::new();
    let error = error(&["run", "--model", &blind.path, "--image", path(&wide), "hi"]);
    assert_eq!(error, "the model sees no images; send text only");
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
fn log_probabilities_are_part_of_the_json() {
    let model = Model::new();
    let run = |extra: &[&str]| {
        let args = ["run", "--model", &model.path, "--max-tokens", "5", "--json", "hello"];
        let json: serde_json::Value = serde_json::from_str(&stdout(&output(&[&args[..], extra].concat()))).unwrap();
        json
    };
    assert!(run(&[]).get("logprobs").is_none());
    let chosen = run(&["--logprobs"]);
    let with_top = run(&["--logprobs=3"]);
    let tokens = with_top["logprobs"].as_array().unwrap();
    assert_eq!(tokens.len(), 5);
    let mut bytes = vec![];
    for (token, chosen) in tokens.iter().zip(chosen["logprobs"].as_array().unwrap()) {
        assert_eq!((&token["id"], &token["logprob"]), (&chosen["id"], &chosen["logprob"]));
        assert_eq!((chosen["top"].as_array().unwrap().len(), token["top"].as_array().unwrap().len()), (0, 3));
        // Greedy: the chosen token is the likeliest.
        assert_eq!((&token["top"][0]["id"], &token["top"][0]["logprob"]), (&token["id"], &token["logprob"]));
        assert!(token["logprob"].as_f64().unwrap() < 0.0);
        bytes.extend(token["bytes"].as_array().unwrap().iter().map(|byte| byte.as_u64().unwrap() as u8));
    }
    assert_eq!(String::from_utf8_lossy(&bytes), with_top["text"].as_str().unwrap());
    assert_eq!(output(&["run", "--logprobs", "--model", &model.path, "x"]).status.code(), Some(2), "only with --json");
    let too_many = ["run", "--model", &model.path, "--json", "--logprobs=21", "x"];
    assert_eq!(error(&too_many), "21 alternatives for each token were asked for, expected at most 20");
}

/// A chat that reads `lines` from a pipe.
fn chat(model: &Model, extra: &[&str], lines: &str) -> Output {
    let args = ["chat", "--model", &model.path, "--max-tokens", "8"];
    let mut child = kapitsa(&[&args[..], extra].concat());
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// The answers and what was said beside them.
fn said(output: &Output) -> (Vec<String>, String) {
    let text = stdout(output);
    (text.lines().map(String::from).collect(), String::from_utf8(output.stderr.clone()).unwrap())
}

/// The seed gives answers of eight tokens without a line break.
const ONE_LINE: [&str; 6] = ["--seed", "3", "--temperature", "0.6", "--top-k", "12"];

#[test]
fn a_chat_sends_all_that_was_said() {
    let model = Model::new();
    let (answers, notes) = said(&chat(&model, &ONE_LINE, "hello\n/stats\nagain\n/stats\n"));
    assert_eq!(answers.len(), 2, "{answers:?}");
    let run =
        stdout(&output(&[&["run", "--model", &model.path, "--max-tokens", "8", "hello"], &ONE_LINE[..]].concat()));
    assert_eq!(run.trim_end_matches('\n'), answers[0], "the first message is that of `run`");
    // user:hello<|end|>> is 12 tokens, and the second prompt has the first exchange, too
    let prompts: Vec<&str> = notes.lines().filter(|line| line.contains("· prompt ")).collect();
    assert!(prompts[0].starts_with("context 20 of 16384 tokens · prompt 12 tokens"), "{notes}");
    let second: usize = prompts[1].split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(second > 20 + 12, "{notes}");
}

#[test]
fn commands_change_the_conversation() {
    let model = Model::new();
    let answers = |lines: &str| said(&chat(&model, &ONE_LINE, lines)).0;
    let hello = &answers("hello\n")[0];
    let again = answers("hello\nagain\n");
    assert_eq!(&again[0], hello);
    assert_eq!(answers("x\n/new\nhello\n")[1], *hello);
    assert_eq!(answers("x\n/undo\nhello\n")[1], *hello);
    assert_eq!(answers("hello\nx\n/undo\nagain\n")[2], again[1]);
    assert_ne!(answers("/system be brief\nhello\n")[0], *hello);
    assert_ne!(answers("hello\n/retry\n")[1], *hello, "another seed");
    assert_eq!(answers("hello\n/quit\nmore\n").len(), 1);
    assert_eq!(answers("\n  \n"), [""; 0]);
    // Three more characters than in `hello`.
    let (_, notes) = said(&chat(&model, &ONE_LINE, "//etc/hi\n/stats\n/system s\n/system\n/help\n"));
    assert!(notes.contains("prompt 14 tokens") && notes.contains("\ns\n") && notes.contains("/retry "), "{notes}");
}

#[test]
fn a_script_ends_at_its_first_error() {
    let model = Model::new();
    let fails = |extra: &[&str], lines: &str| {
        let output = chat(&model, extra, lines);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        text.lines().last().unwrap().strip_prefix("error: ").unwrap().to_string()
    };
    assert!(fails(&[], "/fly\nhello\n").starts_with("unknown command `/fly`; /help lists the commands"));
    assert_eq!(fails(&[], "/undo\n"), "there is nothing to drop");
    assert_eq!(fails(&[], "/retry\n"), "there is no message to answer again");
    let full = fails(&["--context", "24"], "hello\nagain\n");
    let expected =
        " tokens with this message, the context 24; make room by /undo or /new, then /retry sends the message again";
    assert!(full.starts_with("the conversation has ") && full.ends_with(expected), "{full}");
    let bare = model.folder.path().join("bare.gguf");
    tiny::speaking_llama().unset("tokenizer.chat_template").write(&bare);
    assert!(error(&["chat", "--model", path(&bare)]).starts_with("the model has no chat template, so it cannot chat"));
}

#[test]
fn an_answer_that_fills_the_context_says_so() {
    let model = Model::new();
    let (answers, notes) = said(&chat(&model, &[&ONE_LINE[..], &["--context", "18"]].concat(), "hello\n"));
    assert_eq!(answers.len(), 1);
    assert!(
        notes.contains("the context of 18 tokens is full, so the answer is cut; /undo or /new makes room"),
        "{notes}"
    );
}

/// Weights are packed tensor by tensor, and the pages of the file go back meanwhile.
#[cfg(target_os = "linux")]
#[test]
fn a_real_model_takes_no_more_memory_than_its_file_and_its_cache() {
    use std::io::Read;

    let Some(model) = real_model("qwen2.5-coder-0.5b") else { return };
    let args = ["run", "--model", path(&model), "--max-tokens", "30", "--temperature", "0", "Count from 1 to 100."];
    let mut child = kapitsa(&args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut stdout = child.stdout.take().unwrap();
    let mut peak = 0;
    // The peak is known as long as the process is there; it is reached before the first text comes.
    while stdout.read(&mut [0; 64]).unwrap() > 0 {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak = line.map_or(peak, |line| line.trim().trim_end_matches(" kB").parse().unwrap());
    }
    assert!(child.wait().unwrap().success());
    // 24 layers of two KV heads of 64 elements, keys and values in f16, for two pages of 64 tokens.
    let cache = 24 * 2 * 64 * 2 * 2 * 2 * 64;
    let limit = std::fs::metadata(&model).unwrap().len() + cache + 150_000_000;
    assert!((100_000..=limit / 1024).contains(&peak), "a peak of {peak} kB, expected at most {} kB", limit / 1024);
}

#[test]
fn a_real_model_writes_code() {
    let Some(model) = real_model("qwen2.5-coder-0.5b") else { return };
    let prompt = "Write a Python function that reverses a linked list";
    let text = stdout(&output(&["run", "--model", path(&model), "--max-tokens", "60", prompt]));
    assert!(text.contains("```python\nclass ListNode:"), "{text}");
}
