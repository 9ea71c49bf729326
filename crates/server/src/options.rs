//! What a server is told.

use std::time::Duration;

use kapitsa::LocalTime;

/// How to serve. The default listens on this machine alone, needs no key and takes any model name.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Name or address to listen on.
    pub host: String,
    /// 0 takes any free port.
    pub port: u16,
    /// Clients must send it as `Authorization: Bearer KEY` or `x-api-key: KEY`.
    pub api_key: Option<String>,
    /// Refuses model names that are not the loaded model's.
    pub strict_models: bool,
    /// Put before every path, such as `/llm`. Empty for none.
    pub path_prefix: String,
    /// Origins whose pages may use the server, such as `https://example.com`; `*` allows all.
    pub cors_origins: Vec<String>,
    /// Names that a `Host` header may have besides those of this machine, while no key is set.
    pub allowed_hosts: Vec<String>,
    /// Most tokens of thinking in a turn, for requests that say nothing of it.
    pub thinking_budget: Option<usize>,
    /// For chat templates with a date.
    pub now: Option<fn() -> LocalTime>,
    /// Sizes and times.
    pub limits: Limits,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            host: "127.0.0.1".into(),
            port: 8000,
            api_key: None,
            strict_models: false,
            path_prefix: String::new(),
            cors_origins: vec![],
            allowed_hosts: vec![],
            thinking_budget: None,
            now: None,
            limits: Limits::default(),
        }
    }
}

/// What one client may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Bytes of all bodies that are read or waiting to become tokens.
    pub all_bodies_bytes: usize,
    /// Bytes of all images of prompts that wait or are replied to, as the model takes them.
    pub all_images_bytes: usize,
    /// Open connections; more wait to be accepted.
    pub connections: usize,
    /// For a request's head, from the end of the answer before.
    pub head_time: Duration,
    /// Between two pieces of a body.
    pub body_pause: Duration,
    /// For a whole body.
    pub body_time: Duration,
    /// How long a client may take nothing of an answer before its connection is closed.
    pub write_pause: Duration,
    /// Longest silence of a stream.
    pub keep_alive: Duration,
    /// From the signal to stop to the end.
    pub shutdown_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            body_bytes: 64 << 20,
            all_bodies_bytes: 256 << 20,
            all_images_bytes: 2 << 30,
            connections: 1024,
            head_time: Duration::from_secs(30),
            body_pause: Duration::from_secs(15),
            body_time: Duration::from_secs(120),
            write_pause: Duration::from_secs(120),
            keep_alive: Duration::from_secs(5),
            shutdown_time: Duration::from_secs(5),
        }
    }
}

/// What the loaded model is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedModel {
    /// Its id in every answer.
    pub id: String,
    /// Other names that are taken for it, such as its path.
    pub aliases: Vec<String>,
}
