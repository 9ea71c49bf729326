//! A Hugging Face hub on this machine: one repository, and every way in which a hub can let a client down.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use serde_json::json;
use sha1::{Digest, Sha1};
use sha2::Sha256;

/// The repository that every hub has.
pub const REPOSITORY: &str = "owner/name";

/// Its commit.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A hub that listens until the test ends.
pub struct FakeHub {
    /// Its address.
    pub endpoint: String,
    state: Arc<Mutex<State>>,
}

/// What a hub has, how it behaves, and what it has seen.
#[derive(Default)]
pub struct State {
    /// The files of the repository.
    pub files: Vec<FakeFile>,
    /// `model_type` in the listing.
    pub family: Option<String>,
    /// Answers the listing instead: status and body.
    pub listing: Option<(u16, String)>,
    /// Statuses that the next requests for files get, with the hub's word for each.
    pub refusals: VecDeque<(u16, &'static str)>,
    /// Refuses everything, always.
    pub refuse_all: Option<(u16, &'static str)>,
    /// Whether a request for a part gets everything.
    pub ignores_range: bool,
    /// Bytes after which the next answers break off, one each.
    pub cuts: VecDeque<usize>,
    /// Whether a cut answer stays open and silent instead.
    pub stalls: bool,
    /// Bytes a second of each answer.
    pub bytes_per_second: Option<u64>,
    /// Begins the address that requests for files are sent on to; the path follows.
    pub redirect: Option<String>,
    /// What `Content-Range` says instead.
    pub content_range: Option<String>,
    /// Every request, in order.
    pub seen: Vec<Seen>,
    /// Connections that are not over.
    open: usize,
}

/// A file of the repository.
#[derive(Clone)]
pub struct FakeFile {
    /// Its name.
    pub name: String,
    /// What is sent.
    pub bytes: Vec<u8>,
    /// What the listing is about.
    pub listed: Vec<u8>,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The path, without a query.
    pub path: String,
    /// The first byte that was asked for.
    pub from: u64,
    /// The header of this name.
    pub authorization: Option<String>,
    /// Bytes of the file that went out.
    pub sent_bytes: u64,
}

impl FakeHub {
    /// Starts a hub with these files.
    pub fn start(files: &[(&str, &[u8])]) -> FakeHub {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let files = files
            .iter()
            .map(|(name, bytes)| FakeFile { name: name.to_string(), bytes: bytes.to_vec(), listed: bytes.to_vec() })
            .collect();
        let state = Arc::new(Mutex::new(State { files, ..State::default() }));
        let shared = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                state.lock().unwrap().open += 1;
                thread::spawn(move || {
                    // A client that goes away in the middle is what tests are about.
                    let _ = serve(stream, &state);
                    state.lock().unwrap().open -= 1;
                });
            }
        });
        FakeHub { endpoint, state }
    }

    /// What the hub has, does and has seen.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Waits until everything that clients have sent so far was seen, and every connection is over.
    pub fn settle(&self) {
        // Connections are taken in turn: when this one is over, all before it were taken.
        let mut stream = TcpStream::connect(self.endpoint.trim_start_matches("http://")).unwrap();
        stream.write_all(b"SETTLE\r\n").unwrap();
        BufReader::new(stream).read_line(&mut String::new()).unwrap();
        while self.state().open > 0 {
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// First bytes and counts of the requests for a file, in order.
    pub fn requests_of(&self, name: &str) -> Vec<(u64, u64)> {
        let state = self.state();
        let of_file = state.seen.iter().filter(|seen| seen.path.ends_with(&format!("/{name}")));
        of_file.map(|seen| (seen.from, seen.sent_bytes)).collect()
    }
}

impl FakeFile {
    fn is_large(&self) -> bool {
        self.name.ends_with(".safetensors") || self.name.ends_with(".gguf")
    }

    fn hash(&self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        if self.is_large() {
            return hex(&Sha256::digest(&self.listed));
        }
        let mut hash = Sha1::new();
        hash.update(format!("blob {}\0", self.listed.len()));
        hash.update(&self.listed);
        hex(&hash.finalize())
    }

    fn in_listing(&self) -> serde_json::Value {
        let (hash, size) = (self.hash(), self.listed.len());
        match self.is_large() {
            true => {
                json!({ "rfilename": self.name, "size": size, "blobId": "00".repeat(20), "lfs": { "sha256": hash, "size": size } })
            }
            false => json!({ "rfilename": self.name, "size": size, "blobId": hash }),
        }
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.split('?').next()?.to_owned();
    let (mut from, mut is_part, mut authorization) = (0, false, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "range" => {
                from = value.trim().strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()?;
                is_part = true;
            }
            "authorization" => authorization = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let index = {
        let mut state = state.lock().unwrap();
        state.seen.push(Seen { path: path.clone(), from, authorization, sent_bytes: 0 });
        state.seen.len() - 1
    };
    answer(stream, state, index, &path, from, is_part)
}

fn answer(
    mut stream: TcpStream,
    state: &Mutex<State>,
    index: usize,
    path: &str,
    from: u64,
    is_part: bool,
) -> Option<()> {
    let mut locked = state.lock().unwrap();
    if let Some((status, code)) = locked.refuse_all {
        return send(&mut stream, status, &[("X-Error-Code", code)], b"no");
    }
    if path.starts_with("/api/models/") {
        let (status, body) = locked.listing.clone().unwrap_or_else(|| {
            if !path.starts_with(&format!("/api/models/{REPOSITORY}/revision/")) {
                return (404, "{}".to_owned());
            }
            let siblings: Vec<_> = locked.files.iter().map(FakeFile::in_listing).collect();
            (200, json!({ "sha": COMMIT, "siblings": siblings, "config": { "model_type": locked.family } }).to_string())
        });
        return send(&mut stream, status, &[], body.as_bytes());
    }
    if let Some((status, code)) = locked.refusals.pop_front() {
        return send(&mut stream, status, &[("X-Error-Code", code)], b"no");
    }
    let name =
        path.strip_prefix(&format!("/{REPOSITORY}/resolve/{COMMIT}/")).or_else(|| path.strip_prefix("/storage/"));
    let Some(file) = name.and_then(|name| locked.files.iter().find(|file| file.name == name)).cloned() else {
        return send(&mut stream, 404, &[("X-Error-Code", "EntryNotFound")], b"no");
    };
    if let Some(redirect) = locked.redirect.as_ref().filter(|_| !path.starts_with("/storage/")) {
        let (location, etag) = (format!("{redirect}/{}", file.name), format!("\"{}\"", file.hash()));
        return send(&mut stream, 302, &[("Location", &location), ("X-Linked-Etag", &etag)], b"");
    }
    let is_part = is_part && !locked.ignores_range;
    if is_part && from >= file.bytes.len() as u64 {
        return send(&mut stream, 416, &[], b"");
    }
    let body = if is_part { &file.bytes[from as usize..] } else { &file.bytes[..] };
    let mut head = format!("HTTP/1.1 {} X\r\nContent-Length: {}\r\n", if is_part { 206 } else { 200 }, body.len());
    if is_part {
        let range = format!("bytes {from}-{}/{}", file.bytes.len() - 1, file.bytes.len());
        head += &format!("Content-Range: {}\r\n", locked.content_range.clone().unwrap_or(range));
    }
    head += &format!("ETag: \"{}\"\r\nConnection: close\r\n\r\n", file.hash());
    let cut = locked.cuts.pop_front();
    let (stalls, rate) = (locked.stalls, locked.bytes_per_second);
    drop(locked);

    stream.write_all(head.as_bytes()).ok()?;
    for chunk in body[..cut.unwrap_or(body.len()).min(body.len())].chunks(4096) {
        stream.write_all(chunk).ok()?;
        state.lock().unwrap().seen[index].sent_bytes += chunk.len() as u64;
        if let Some(rate) = rate {
            thread::sleep(Duration::from_nanos(chunk.len() as u64 * 1_000_000_000 / rate));
        }
    }
    if cut.is_some() && stalls {
        // Until the client has gone, which it does in the end.
        let _ = BufReader::new(stream).read_line(&mut String::new());
    }
    Some(())
}

fn send(stream: &mut TcpStream, status: u16, headers: &[(&str, &str)], body: &[u8]) -> Option<()> {
    let mut head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n", body.len());
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).ok()?;
    stream.write_all(body).ok()
}
