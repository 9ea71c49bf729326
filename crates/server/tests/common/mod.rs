//! Servers of a tiny model, and a client that also does what clients should not.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kapitsa::{Llm, OpenOptions};
use kapitsa_server::{ServeError, ServedModel, ServerOptions, Stopper, bind};
use kapitsa_testkit::gguf::GgufBuilder;
use kapitsa_testkit::script::Script;
use kapitsa_testkit::tiny;
use serde_json::{Value, json};

/// Longer than anything here takes; only a failure gets there.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running server; ends when it is dropped.
pub struct Running {
    pub address: SocketAddr,
    pub llm: Arc<Llm>,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

/// How the engine is opened.
pub fn open_options() -> OpenOptions {
    OpenOptions { threads: Some(1), slots: 2, queue: 2, ..OpenOptions::default() }
}

/// A server with default options.
pub fn serve() -> Running {
    serve_with(|_| {})
}

pub fn serve_with(change: impl FnOnce(&mut ServerOptions)) -> Running {
    serve_model(tiny::speaking_llama(), open_options(), change)
}

pub fn serve_model(model: GgufBuilder, open: OpenOptions, change: impl FnOnce(&mut ServerOptions)) -> Running {
    let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    model.write(file.path());
    serve_path(file.path(), open, change)
}

pub fn serve_path(path: &Path, open: OpenOptions, change: impl FnOnce(&mut ServerOptions)) -> Running {
    serve_llm(Llm::open(path, &open).unwrap(), change)
}

/// A server of a model that says what `Script` has, with `template` for its chat template.
pub fn serve_script(template: &str) -> (Running, Script) {
    serve_script_with(template, |_| {})
}

pub fn serve_script_with(template: &str, change: impl FnOnce(&mut ServerOptions)) -> (Running, Script) {
    let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    tiny::speaking_llama().set("tokenizer.chat_template", template).write(file.path());
    let script = Script::default();
    let llm = Llm::open_on(file.path(), &open_options(), Some(script.backend(tiny::END))).unwrap();
    (serve_llm(llm, change), script)
}

pub fn serve_llm(llm: Llm, change: impl FnOnce(&mut ServerOptions)) -> Running {
    let llm = Arc::new(llm);
    let mut options = ServerOptions { port: 0, ..ServerOptions::default() };
    change(&mut options);
    let bound = bind(options).unwrap();
    let address = bound.address();
    let model = ServedModel { id: "org/tiny".into(), aliases: vec!["/models/tiny.gguf".into(), "tiny".into()] };
    let server = bound.serve(llm.clone(), model).unwrap();
    let stopper = server.stopper();
    Running { address, llm, stopper, thread: Some(std::thread::spawn(move || server.run())) }
}

impl Running {
    pub fn connect(&self) -> Connection {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Connection { reader: BufReader::new(stream.try_clone().unwrap()), stream }
    }

    pub fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.request("POST", path, &[], body.to_string().as_bytes())
    }

    pub fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut connection = self.connect();
        connection.send(method, path, headers, body);
        connection.answer(method)
    }

    /// A chat that is expected to go well.
    pub fn chat(&self, body: Value) -> Value {
        let answer = self.post("/v1/chat/completions", &body);
        assert_eq!(answer.status, 200, "{body}: {}", answer.text());
        answer.json()
    }

    /// The events of a stream that is expected to go well, without signs of life.
    pub fn stream(&self, path: &str, mut body: Value) -> Vec<String> {
        body["stream"] = true.into();
        let answer = self.post(path, &body);
        assert_eq!(answer.status, 200, "{body}: {}", answer.text());
        assert_eq!(answer.header("content-type"), Some("text/event-stream"));
        assert_eq!(answer.header("cache-control"), Some("no-cache"));
        events(&answer.text())
    }

    /// Waits until nothing runs or waits any more.
    pub fn wait_until_idle(&self) {
        self.wait_until("idle", |health| health["slots_busy"] == 0 && health["queue"] == 0);
    }

    /// Waits until `/health` is as wanted.
    pub fn wait_until(&self, what: &str, is_so: impl Fn(&Value) -> bool) {
        let start = Instant::now();
        loop {
            let health = self.get("/health").json();
            if is_so(&health) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "not {what}: {health}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn stop(&self) {
        self.stopper.stop();
    }

    /// Waits for the end after [`stop`](Self::stop).
    pub fn ended(&mut self) {
        self.thread.take().unwrap().join().unwrap().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The data of events, joined over signs of life.
pub fn events(text: &str) -> Vec<String> {
    let blocks = text.split("\n\n").filter(|block| !block.is_empty() && !block.starts_with(": "));
    blocks.map(|block| block.strip_prefix("data: ").unwrap_or_else(|| panic!("{block:?}")).to_owned()).collect()
}

/// A socket.
pub struct Connection {
    pub stream: TcpStream,
    pub reader: BufReader<TcpStream>,
}

impl Connection {
    pub fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends a request whose body has a length.
    pub fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head += "host: localhost\r\n";
        }
        headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
        if method == "POST" || !body.is_empty() {
            head += &format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        }
        self.raw(format!("{head}\r\n").as_bytes());
        self.raw(body);
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Status and headers of an answer.
    pub fn head(&mut self) -> Answer {
        let status = self.line();
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let mut headers = vec![];
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Answer { status: status.expect("an answer"), headers, body: vec![] }
    }

    /// A whole answer.
    pub fn answer(&mut self, method: &str) -> Answer {
        let mut answer = self.head();
        if method == "HEAD" || answer.status == 204 {
            return answer;
        }
        if answer.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk() {
                answer.body.extend(chunk);
            }
        } else if let Some(length) = answer.header("content-length").map(|length| length.parse().unwrap()) {
            answer.body = vec![0; length];
            self.reader.read_exact(&mut answer.body).unwrap();
        }
        answer
    }

    /// The next chunk of a chunked body; `None` at its end.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        let length = usize::from_str_radix(&self.line(), 16).unwrap();
        let mut chunk = vec![0; length];
        self.reader.read_exact(&mut chunk).unwrap();
        self.line();
        (length > 0).then_some(chunk)
    }

    /// Whether the other side closes without a further byte.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.reader.read(&mut [0]), Ok(0) | Err(_))
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|header| header.0 == name).map(|header| header.1.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The error in it; fails if it is not in the API's form.
    pub fn error(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        let error = self.json()["error"].take();
        assert!(error["message"].is_string() && error["type"].is_string(), "{error}");
        let keys: Vec<&str> = error.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["message", "type", "param", "code"]);
        error
    }
}

/// A conversation of one message, for a reply of `max_tokens` that does not end before.
pub fn request(text: &str, max_tokens: usize) -> Value {
    json!({
        "model": "any", "messages": [{"role": "user", "content": text}], "max_tokens": max_tokens, "seed": 5,
        "temperature": 1, "logit_bias": {"0": -100},
    })
}

/// The text of a whole reply.
pub fn content(reply: &Value) -> &str {
    reply["choices"][0]["message"]["content"].as_str().unwrap()
}
