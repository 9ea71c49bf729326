//! HTTP to the hub: one request at a time, in a thread of its own, so that the caller can stop at any moment.
//!
//! The `hf-hub` crate was looked at first. Version 1.0 begins each download anew, compares no hash and cannot be stopped; so
//! the two documented requests that are needed (a repository's files, and a file from an offset) are made here.
//!
//! Redirects are followed here rather than by the HTTP library: the token goes to the origin (scheme, host and port) of the
//! configured hub and to nobody else, whatever comes in between.

use std::io::Read as _;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use ureq::http::{HeaderMap, Response, header};
use ureq::{Agent, Body, Timeout};
use url::{Origin, Url};

use super::range::{ContentRange, etag_hash};
use crate::HubError;
use crate::job::{Job, POLL};
use crate::name::shorten;

/// How long to wait for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// For a name to be looked up, and again for a connection.
    pub connect: Duration,
    /// For the next byte. A transfer as a whole may take any time.
    pub stall: Duration,
    /// Before the second try; each further one waits twice as long.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing { connect: Duration::from_secs(3), stall: Duration::from_secs(30), retry: Duration::from_millis(500) }
    }
}

const MAX_REDIRECTS: usize = 10;
const CHUNK_BYTES: usize = 1 << 18;
/// Chunks that have come but are not written yet.
const MAX_CHUNKS: usize = 2;
/// The longest wait that a server can ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Talks to one hub.
pub(crate) struct Client {
    agent: Agent,
    pub(crate) endpoint: Url,
    token: Option<String>,
    pub(crate) timing: Timing,
}

/// The head of an answer, and what follows.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Whether the hub itself answered, rather than a storage server that it pointed to.
    pub(crate) is_of_hub: bool,
    /// The hash of the file, if the hub said it.
    pub(crate) hash: Option<String>,
    /// The hub's word for an error.
    pub(crate) error_code: Option<String>,
    /// What `Content-Range` says; Err with its text if it makes no sense.
    pub(crate) range: Option<Result<ContentRange, String>>,
    pub(crate) length: Option<u64>,
    pub(crate) retry_after: Option<Duration>,
    messages: Receiver<Message>,
}

/// Why there is no answer, or no more of it.
#[derive(Debug)]
pub(crate) enum Broken {
    /// Nobody answered.
    NoAnswer(String),
    /// The answer broke off.
    Cut(String),
    /// The caller wants to stop.
    Stopped(HubError),
}

enum Message {
    Head(Head),
    Chunk(Vec<u8>),
    /// The answer is whole.
    End,
    Failed(String),
}

struct Head {
    status: u16,
    is_of_hub: bool,
    hash: Option<String>,
    headers: HeaderMap,
}

impl Client {
    pub(crate) fn new(endpoint: Url, token: Option<String>, timing: Timing) -> Client {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_resolve(Some(timing.connect))
            .timeout_connect(Some(timing.connect))
            .timeout_send_request(Some(timing.stall))
            .timeout_recv_response(Some(timing.stall))
            .timeout_per_read(Some(timing.stall))
            .user_agent(concat!("kapitsa/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity");
        Client { agent: config.build().into(), endpoint, token, timing }
    }

    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// An address below the endpoint; parts are escaped.
    pub(crate) fn url<'a>(&self, parts: impl IntoIterator<Item = &'a str>) -> Url {
        let mut url = self.endpoint.clone();
        // Only addresses that cannot be a base have no segments; `Hub` takes none of these.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(parts);
        }
        url
    }

    /// Asks for `url` from byte `from` on, and waits for the head of the answer.
    pub(crate) fn get(&self, job: &mut Job, url: Url, from: u64) -> Result<Answer, Broken> {
        let (sender, messages) = sync_channel(MAX_CHUNKS);
        let request = Request {
            agent: self.agent.clone(),
            hub: self.endpoint.origin(),
            token: self.token.clone(),
            timing: self.timing,
            from,
        };
        // The thread ends by itself: when it has sent everything, when its time is up, or when nobody listens any more.
        std::thread::Builder::new()
            .name("download".to_owned())
            .spawn(move || request.run(url, &sender))
            .map_err(|error| Broken::NoAnswer(format!("no thread can be started: {error}")))?;
        match next(job, &messages)? {
            Some(Message::Head(head)) => Ok(Answer::new(head, messages)),
            Some(Message::Failed(reason)) => Err(Broken::NoAnswer(reason)),
            _ => Err(Broken::NoAnswer("the request ended without an answer".to_owned())),
        }
    }
}

impl Answer {
    fn new(head: Head, messages: Receiver<Message>) -> Answer {
        let Head { status, is_of_hub, hash, headers } = head;
        let text = |name: &str| headers.get(name)?.to_str().ok();
        let range = text("content-range");
        let seconds = text("retry-after").and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
        Answer {
            status,
            is_of_hub,
            hash,
            error_code: text("x-error-code").map(str::to_owned),
            range: range.map(|range| ContentRange::parse(range).ok_or_else(|| shorten(range))),
            length: text("content-length").and_then(|text| text.parse().ok()),
            retry_after: seconds.map(|time| time.min(MAX_RETRY_AFTER)),
            messages,
        }
    }

    /// The next bytes; None at the end of a whole answer.
    pub(crate) fn next(&mut self, job: &mut Job) -> Result<Option<Vec<u8>>, Broken> {
        match next(job, &self.messages)? {
            Some(Message::Chunk(bytes)) => Ok(Some(bytes)),
            Some(Message::End) => Ok(None),
            Some(Message::Failed(reason)) => Err(Broken::Cut(reason)),
            Some(Message::Head(_)) | None => Err(Broken::Cut("the answer ended early".to_owned())),
        }
    }
}

fn next(job: &mut Job, messages: &Receiver<Message>) -> Result<Option<Message>, Broken> {
    loop {
        job.check().map_err(Broken::Stopped)?;
        match messages.recv_timeout(POLL) {
            Ok(message) => return Ok(Some(message)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
        }
    }
}

/// What the thread of one request needs.
struct Request {
    agent: Agent,
    hub: Origin,
    token: Option<String>,
    timing: Timing,
    from: u64,
}

impl Request {
    fn run(&self, url: Url, sender: &SyncSender<Message>) {
        let (head, body) = match self.follow(url) {
            Ok(answer) => answer,
            Err(reason) => {
                // Sending fails if nobody listens any more: then this is not needed either.
                let _ = sender.send(Message::Failed(reason));
                return;
            }
        };
        if sender.send(Message::Head(head)).is_err() {
            return;
        }
        let mut reader = body.into_reader();
        loop {
            let mut chunk = vec![0; CHUNK_BYTES];
            let message = match reader.read(&mut chunk) {
                Ok(0) => Message::End,
                Ok(read) => {
                    chunk.truncate(read);
                    Message::Chunk(chunk)
                }
                Err(error) => match error.downcast::<ureq::Error>() {
                    Ok(error) => Message::Failed(self.reason(&error)),
                    Err(error) => Message::Failed(shorten(&error.to_string())),
                },
            };
            let is_last = !matches!(message, Message::Chunk(_));
            if sender.send(message).is_err() || is_last {
                return;
            }
        }
    }

    /// Asks, and asks again wherever it is sent to.
    fn follow(&self, mut url: Url) -> Result<(Head, Body), String> {
        let mut hash = None;
        for _ in 0..=MAX_REDIRECTS {
            let is_of_hub = url.origin() == self.hub;
            let response = self.ask(&url, is_of_hub)?;
            let status = response.status().as_u16();
            let text = |name: &str| response.headers().get(name)?.to_str().ok();
            if is_of_hub && hash.is_none() {
                hash = text("x-linked-etag").or(text("etag")).and_then(etag_hash);
            }
            let location = match status {
                301 | 302 | 303 | 307 | 308 => text("location"),
                _ => None,
            };
            let Some(location) = location else {
                let (parts, body) = response.into_parts();
                return Ok((Head { status, is_of_hub, hash, headers: parts.headers }, body));
            };
            let next = url.join(location).map_err(|error| format!("it points to no address ({error})"))?;
            let is_less_safe = url.scheme() == "https" && next.scheme() != "https";
            if is_less_safe || !matches!(next.scheme(), "http" | "https") {
                return Err(format!(
                    "it points to an address of scheme {}, which is not followed",
                    shorten(next.scheme())
                ));
            }
            url = next;
        }
        Err(format!("it points on and on, more than {MAX_REDIRECTS} times"))
    }

    fn ask(&self, url: &Url, is_of_hub: bool) -> Result<Response<Body>, String> {
        let mut request = self.agent.get(url.as_str());
        if self.from > 0 {
            request = request.header(header::RANGE, format!("bytes={}-", self.from));
        }
        if let Some(token) = self.token.as_ref().filter(|_| is_of_hub) {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        request.call().map_err(|error| self.reason(&error))
    }

    fn reason(&self, error: &ureq::Error) -> String {
        match error {
            ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect) => {
                format!("no connection within {} s", self.timing.connect.as_secs_f64())
            }
            ureq::Error::Timeout(_) => format!("nothing came for {} s", self.timing.stall.as_secs_f64()),
            error => shorten(&error.to_string()),
        }
    }
}
