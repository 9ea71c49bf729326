//! Options, environment and configuration file: which wins, and what a mistake in them looks like.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use common::{Model, error_of, kapitsa, output, path, stdout};

/// A configuration file in a folder of its own, with a name that not everybody can type.
struct Config(tempfile::TempDir);

impl Config {
    fn new(text: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("naïve 日本 ").tempdir().unwrap();
        std::fs::create_dir(folder.path().join("kapitsa")).unwrap();
        std::fs::write(folder.path().join("kapitsa/config.toml"), text).unwrap();
        Config(folder)
    }

    fn file(&self) -> String {
        path(&self.0.path().join("kapitsa/config.toml")).to_string()
    }

    /// The command, with this file where configuration files are.
    fn kapitsa(&self, args: &[&str]) -> Command {
        let mut command = kapitsa(args);
        command.env("XDG_CONFIG_HOME", self.0.path());
        command
    }
}

/// The seed that a reply was made with, as `run --json` tells it.
fn seed(command: &mut Command) -> u64 {
    let report: serde_json::Value = serde_json::from_str(&stdout(&command.output().unwrap())).unwrap();
    report["seed"].as_u64().unwrap()
}

#[test]
fn an_option_wins_over_the_environment_and_that_over_the_file() {
    let model = Model::new();
    let config = Config::new(&format!("# what I like\nmodel = {:?}\nseed = 1\n", model.path));
    let args = ["run", "--json", "--max-tokens", "3", "hello"];
    assert_eq!(seed(&mut config.kapitsa(&args)), 1);
    assert_eq!(seed(config.kapitsa(&args).env("KAPITSA_SEED", "2")), 2);
    let with_option = [&args[..], &["--seed", "3"]].concat();
    assert_eq!(seed(config.kapitsa(&with_option).env("KAPITSA_SEED", "2")), 3);
    assert_eq!(seed(config.kapitsa(&args).env("KAPITSA_SEED", "")), 1, "an empty variable is as good as none");
}

#[test]
fn settings_reach_each_command_that_has_the_option() {
    let model = Model::new();
    let config = Config::new(&format!("model = {:?}\ncontext = 4\nport = 9\n", model.path));
    assert!(stdout(&config.kapitsa(&["tokenize", "the"]).output().unwrap()).starts_with("       1  \"th\"\n"));
    assert!(error_of(&mut config.kapitsa(&["run", "hi"])).contains("the prompt has 9 tokens, the context 4"));
    // --exact conflicts with --kv on the command line, but is no reason to change a configuration.
    let exact = ["run", "--exact", "--context", "100", "--max-tokens", "2", "hi"];
    stdout(&config.kapitsa(&exact).env("KAPITSA_KV", "bf16").output().unwrap());
}

/// The status of an answer to a request for `host`.
fn status(address: &str, request: &str, host: &str, body: &str) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head = format!("{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n");
    write!(stream, "{head}Content-Type: application/json\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_server_takes_switches_and_lists() {
    let model = Model::new();
    let config = Config::new(&format!(
        "model = {:?}\nport = 0\nslots = 2\npath-prefix = \"/llm\"\nstrict-models = false\nallowed-host = [\"a.lan\", \"b.lan\"]",
        model.path
    ));
    let mut command = config.kapitsa(&["serve", "--json"]);
    command.env("KAPITSA_STRICT_MODELS", "1").env("KAPITSA_SLOTS", "3");
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let report: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = report["address"].as_str().unwrap();
    let status = |request: &str, host: &str, body: &str| status(address, request, host, body);
    let found = [
        status("GET /llm/v1/models", "a.lan", ""),
        status("GET /llm/v1/models", "b.lan", ""),
        status("GET /llm/v1/models", "c.lan", ""),
        status("POST /llm/v1/completions", "a.lan", r#"{"model":"another","prompt":"x","max_tokens":1}"#),
    ];
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!((&report["slots"], &report["needs_key"]), (&3.into(), &false.into()));
    assert_eq!(found, [200, 200, 403, 404]);
}

#[test]
fn the_home_folder_comes_from_the_environment_or_the_file() {
    let homes = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let config = Config::new(&format!("home = {:?}\n", homes[0].path()));
    // No python can be found, so nothing is fetched; the error comes after the folder is made.
    let attempt = |command: &mut Command| {
        command.env("PATH", "").output().unwrap();
    };
    attempt(&mut config.kapitsa(&["tokenize", "x"]));
    assert!(homes[0].path().join("models").is_dir() && !homes[1].path().join("models").exists());
    attempt(config.kapitsa(&["tokenize", "x"]).env("KAPITSA_HOME", homes[1].path()));
    assert!(homes[1].path().join("models").is_dir());
}

#[test]
fn mistakes_in_the_file_are_one_line_with_the_place() {
    let wrong = |text: &str| {
        let config = Config::new(text);
        let line = error_of(&mut config.kapitsa(&["run", "--model", "x", "hi"]));
        line.strip_prefix(&config.file()).unwrap_or_else(|| panic!("{line}")).to_string()
    };
    assert_eq!(wrong("\ntread = 1"), ":2: unknown key `tread`; did you mean `threads`?");
    assert_eq!(wrong("top_p = 1"), ":1: unknown key `top_p`; did you mean `top-p`?");
    assert_eq!(wrong("[models]\na = 1"), ":1: unknown key `models`; did you mean `model`?");
    assert_eq!(wrong("gpu = true"), ":1: unknown key `gpu`; docs/configuration.md lists what there is");
    assert_eq!(wrong("threads = \"4\""), ":1: `threads` is of type string, expected a whole number");
    assert_eq!(wrong("threads = 0"), ":1: `threads` is `0`, expected a whole number (0 is not in 1..=1024)");
    assert_eq!(wrong("kv = \"f64\""), ":1: `kv` is `f64`, expected f16 or bf16 or f32");
    assert_eq!(wrong("home = \"here\""), ":1: `home` is `here`, expected an absolute path or one that begins with ~/");
    assert!(wrong("threads = 1\nthreads = 2").starts_with(":2: duplicate key"));
    assert!(wrong("seed = 1\n = 2\n").starts_with(":2: "));
}

#[test]
fn mistakes_in_the_environment_name_the_variable() {
    let run = |name, value| error_of(kapitsa(&["run", "--model", "x", "hi"]).env(name, value));
    assert!(run("KAPITSA_THREADS", "many").starts_with("KAPITSA_THREADS is `many`, expected a whole number ("));
    assert_eq!(run("KAPITSA_KV", "f64"), "KAPITSA_KV is `f64`, expected f16 or bf16 or f32");
    let missing = run("KAPITSA_CONFIG", "no-such-file.toml");
    assert!(missing.starts_with("no-such-file.toml: the configuration file that KAPITSA_CONFIG names cannot be read"));
    let model = Model::new();
    let tokenize = ["tokenize", "--model", &model.path, "the"];
    let warned = kapitsa(&tokenize).env("KAPITSA_THREAD", "4").output().unwrap();
    assert!(!stdout(&warned).is_empty());
    let warning = String::from_utf8(warned.stderr).unwrap();
    assert_eq!(warning, "warning: KAPITSA_THREAD means nothing to kapitsa; did you mean `KAPITSA_THREADS`?\n");
}

#[test]
fn another_file_can_be_named() {
    let model = Model::new();
    let (usual, other) = (Config::new("seed = 1"), Config::new(&format!("model = {:?}\nseed = 5", model.path)));
    let args = ["run", "--json", "--max-tokens", "3", "hello"];
    assert_eq!(seed(usual.kapitsa(&args).env("KAPITSA_CONFIG", other.file())), 5);
}

#[cfg(unix)]
#[test]
fn the_file_is_found_below_the_users_folder() {
    let model = Model::new();
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join(".config/kapitsa");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::copy(&model.path, folder.path().join("tiny.gguf")).unwrap();
    std::fs::write(place.join("config.toml"), "model = \"~/tiny.gguf\"").unwrap();
    // A relative XDG_CONFIG_HOME is to be ignored.
    for xdg in ["", "relative"] {
        let mut command = kapitsa(&["tokenize", "the"]);
        command.env("HOME", folder.path()).env("XDG_CONFIG_HOME", xdg);
        assert!(stdout(&command.output().unwrap()).contains("\"th\""));
    }
}

#[test]
fn secrets_are_not_shown() {
    let config = Config::new("api-key = 12345\n");
    let line = error_of(&mut config.kapitsa(&["run", "--model", "x", "hi"]));
    assert!(line.ends_with(":1: `api-key` is not what it takes, expected a text"), "{line}");
    let config = Config::new("api-key = \"hunter2\"\n");
    for args in [&["help", "serve"][..], &["serve", "--help"], &["run", "--model", "no-such-model", "x"]] {
        let output = config.kapitsa(args).env("RUST_LOG", "trace").output().unwrap();
        assert!(!format!("{output:?}").contains("hunter2"), "{output:?}");
    }
}

#[test]
fn help_completions_and_man_pages_need_no_configuration() {
    let config = Config::new("nonsense");
    for args in [&["--help"][..], &["help", "run"], &["completions", "bash"], &["man"]] {
        assert!(!stdout(&config.kapitsa(args).output().unwrap()).is_empty());
    }
    assert_eq!(output(&["completions", "tcsh"]).status.code(), Some(2));
}
