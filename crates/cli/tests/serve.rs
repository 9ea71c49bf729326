//! `kapitsa serve` as people and programs use it, and the clients in `tests/python` against it.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{Model, error, kapitsa, path};
use kapitsa_testkit::{agents, python, real_model};
use serde_json::Value;

/// A server on a free port, and what it says once it is ready.
fn serve(model: &Model, more: &[&str]) -> (Child, Value) {
    let options = ["serve", "--model", &model.path, "--port", "0", "--json", "--context", "2048", "--threads", "1"];
    let mut command = kapitsa(&[&options[..], more].concat());
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    (server, ready)
}

fn get(ready: &Value, path: &str) -> String {
    let mut stream = TcpStream::connect(ready["address"].as_str().unwrap()).unwrap();
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes())
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn stderr(mut server: Child) -> String {
    let mut text = String::new();
    server.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    server.wait().unwrap();
    text
}

#[test]
fn a_line_says_where_and_what_to_set_and_the_signal_ends_it() {
    let model = Model::new();
    let (mut server, ready) = serve(&model, &["--slots", "3"]);
    assert_eq!((&ready["model"], &ready["context"], &ready["slots"]), (&"tiny".into(), &2048.into(), &3.into()));
    let url = ready["url"].as_str().unwrap();
    assert!(url.starts_with("http://127.0.0.1:") && !url.contains(":0/") && url.ends_with("/v1"), "{url}");
    assert!(get(&ready, "/v1/models/tiny").starts_with("HTTP/1.1 200"));
    assert!(get(&ready, "/health").contains("\"slots\":3"));
    let kill = Command::new("kill").args(["-TERM", &server.id().to_string()]).status().unwrap();
    assert!(kill.success() && server.wait().unwrap().success());
    let text = stderr(server);
    let line = text.lines().next().unwrap();
    assert!(line.starts_with(&format!("serving tiny at {url} (2048 tokens of context, 3 slots)")), "{text}");
    assert!(line.ends_with(&format!("OPENAI_BASE_URL={url} OPENAI_API_KEY=any")), "{text}");
    assert_eq!(text.lines().count(), 2, "{text}");
}

#[test]
fn an_address_that_others_reach_without_a_key_is_warned_of() {
    let model = Model::new();
    for (more, warns) in [(&["--host", "0.0.0.0"][..], true), (&["--host", "0.0.0.0", "--api-key", "K"], false)] {
        let (mut server, ready) = serve(&model, more);
        assert!(ready["url"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{ready}");
        server.kill().unwrap();
        let text = stderr(server);
        assert_eq!(text.contains("warning: ") && text.contains("--api-key"), warns, "{text}");
    }
}

#[test]
fn what_cannot_be_served_is_said_in_a_line_before_the_model_is_loaded() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let message = error(&["serve", "--model", "no such model", "--port", &port]);
    assert!(message.ends_with("the port is in use; stop the other program or choose another with --port"), "{message}");
    assert!(error(&["serve", "--path-prefix", "llm"]).contains("path prefix `llm`"));
    assert!(error(&["serve", "--port", "0", "--api-key", " "]).contains("--api-key"));
    assert!(error(&["serve", "--host", "no.such.host.invalid", "--port", "0"]).contains("--host"));
}

/// Runs a Python program against this program and a model.
fn python(program: &str, args: &[&str], model: &str) {
    python::python(Path::new(program), args, &environment(model));
}

fn pytest(file: &str, model: &str) {
    python::pytest(file, &environment(model));
}

fn environment(model: &str) -> [(&str, &str); 3] {
    let no_configuration = concat!(env!("CARGO_MANIFEST_DIR"), "/no-configuration");
    [("PROGRAM", env!("CARGO_BIN_EXE_kapitsa")), ("MODEL", model), ("XDG_CONFIG_HOME", no_configuration)]
}

#[test]
fn the_official_client_works() {
    if let Some(model) = real_model("smollm2-135m") {
        pytest("test_openai_client.py", path(&model));
    }
}

#[test]
fn what_coding_agents_send_is_answered() {
    let Some(model) = real_model("smollm2-135m") else { return };
    let folder = tempfile::tempdir().unwrap();
    agents::write_seeing_model(folder.path(), &model);
    let [program, model, configuration] = environment(path(&model));
    python::pytest("test_agents.py", &[program, model, configuration, ("ROOMY_MODEL", path(folder.path()))]);
}

#[test]
#[ignore = "prompts of thousands of tokens, minutes: see CONTRIBUTING.md"]
fn long_prompts_of_coding_agents_are_answered() {
    let Some(model) = real_model("smollm2-135m") else { return };
    let [program, model, configuration] = environment(path(&model));
    let more = [program, model, configuration, ("LONG_PROMPTS", "1")];
    python::pytest("test_agents.py::test_a_small_model_answers_or_says_that_it_is_too_much", &more);
}

#[test]
fn no_request_that_the_document_allows_makes_a_server_error() {
    pytest("test_openapi.py", &Model::new().path);
}

#[cfg(target_os = "linux")]
#[test]
fn a_minute_of_clients_of_all_kinds_leaves_nothing_behind() {
    let Some(model) = real_model("smollm2-135m") else { return };
    let options = ["soak.py", "--bin", env!("CARGO_BIN_EXE_kapitsa"), "--model", path(&model)];
    python("python3", &[&options[..], &["--clients", "20", "--seconds", "60"]].concat(), path(&model));
}
