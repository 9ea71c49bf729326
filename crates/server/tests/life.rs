//! The life of requests over sockets: clients that leave, wait, stall; a full queue, a dead engine, the end.

mod common;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use common::{Connection, Running, events, request, serve, serve_with};
use serde_json::{Value, json};

/// A reply that goes on until somebody ends it, as far as these tests are concerned.
fn endless(stream: bool) -> Value {
    let mut body = request("hello", 16_000);
    body["stream"] = stream.into();
    body
}

fn send(server: &Running, body: &Value) -> Connection {
    let mut connection = server.connect();
    connection.send("POST", "/v1/chat/completions", &[], body.to_string().as_bytes());
    connection
}

/// Occupies both slots.
fn fill(server: &Running) -> Vec<Connection> {
    let running = (0..2).map(|_| send(server, &endless(true))).collect();
    server.wait_until("full", |health| health["slots_busy"] == 2);
    running
}

#[test]
fn a_client_that_leaves_frees_its_slot_wherever_its_request_is() {
    let server = serve();
    // In mid-reply, streamed and not.
    let running = vec![send(&server, &endless(true)), send(&server, &endless(false))];
    server.wait_until("full", |health| health["slots_busy"] == 2);
    // In the queue.
    let queued = vec![send(&server, &endless(true)), send(&server, &endless(false))];
    server.wait_until("queued", |health| health["queue"] == 2);
    drop(queued);
    server.wait_until("unqueued", |health| health["queue"] == 0);
    assert_eq!(server.get("/health").json()["slots_busy"], 2);
    drop(running);
    server.wait_until_idle();
    // While the prompt is read.
    for stream in [true, false] {
        let mut body = request(&"x".repeat(15_000), 1000);
        body["stream"] = stream.into();
        let reads = send(&server, &body);
        server.wait_until("reading", |health| health["slots_busy"] == 1);
        drop(reads);
        server.wait_until_idle();
    }
    let stats = server.llm.stats();
    assert_eq!((stats.cancelled, stats.finished, stats.failed), (6, 0, 0));
    // A step that was under way has ended by then.
    std::thread::sleep(Duration::from_millis(200));
    let steps = server.llm.stats().step_times.steps();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(server.llm.stats().step_times.steps(), steps, "nothing goes on for those who left");
    server.chat(request("hello", 3));
}

#[test]
fn a_full_queue_answers_at_once_with_a_time_to_come_again() {
    let server = serve();
    let running = fill(&server);
    let queued: Vec<Connection> = (0..2).map(|_| send(&server, &endless(true))).collect();
    server.wait_until("queued", |health| health["queue"] == 2);
    for stream in [true, false] {
        let answer = server.post("/v1/chat/completions", &endless(stream));
        assert_eq!((answer.status, answer.header("retry-after")), (429, Some("2")));
        assert_eq!(answer.error()["type"], "rate_limit_error");
    }
    assert_eq!(server.llm.stats().refused, 2);
    // None of three replies is made where not all can be.
    drop(queued);
    server.wait_until("unqueued", |health| health["queue"] == 0);
    let mut three = endless(false);
    three["n"] = 3.into();
    assert_eq!(server.post("/v1/chat/completions", &three).status, 429);
    assert_eq!(server.get("/health").json()["queue"], 0);
    drop(running);
    server.wait_until_idle();
    server.chat(request("hello", 3));
}

#[test]
fn a_stream_shows_signs_of_life_before_its_first_token() {
    let server = serve_with(|options| options.limits.keep_alive = Duration::from_millis(30));
    let running = fill(&server);
    let mut waits = send(&server, &endless(true));
    assert_eq!(waits.head().status, 200);
    let first = String::from_utf8(waits.chunk().unwrap()).unwrap();
    assert!(first.starts_with("data: ") && first.contains("\"role\":\"assistant\""), "{first}");
    for _ in 0..3 {
        assert_eq!(waits.chunk().unwrap(), b": keep-alive\n\n");
    }
    drop(running);
    // Its turn has come.
    while waits.chunk().unwrap() == b": keep-alive\n\n" {}
}

#[test]
fn signs_of_life_are_what_each_api_has_its_clients_count() {
    let server = serve_with(|options| options.limits.keep_alive = Duration::from_millis(30));
    let running = fill(&server);
    for (path, body, sign) in [
        (
            "/v1/messages",
            json!({"max_tokens": 2, "messages": [{"role": "user", "content": "a"}], "stream": true}),
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"\"}}\n\n",
        ),
        (
            "/v1/responses",
            json!({"max_output_tokens": 2, "input": "a", "stream": true}),
            "event: response.in_progress\ndata: {\"type\":\"response.in_progress\"",
        ),
    ] {
        let mut connection = server.connect();
        connection.send("POST", path, &[], body.to_string().as_bytes());
        assert_eq!(connection.head().status, 200);
        let mut seen = 0;
        // More than what the stream begins with.
        while seen < 5 {
            let chunk = String::from_utf8(connection.chunk().unwrap()).unwrap();
            seen += usize::from(chunk.contains(sign));
        }
    }
    drop(running);
}

#[test]
fn a_client_that_takes_nothing_of_its_answer_loses_its_slot() {
    let server = serve_with(|options| options.limits.write_pause = Duration::from_millis(300));
    let mut body = endless(true);
    // Much text a token: the buffers of the system fill up.
    body["logprobs"] = true.into();
    body["top_logprobs"] = 20.into();
    let mut stalls = send(&server, &body);
    assert_eq!(stalls.head().status, 200);
    server.wait_until("busy", |health| health["slots_busy"] == 1);
    server.wait_until_idle();
    assert_eq!(server.llm.stats().cancelled, 1);
    // What it gets at last is cut off.
    let mut rest = vec![];
    let _ = stalls.reader.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("[DONE]"));
    server.chat(request("hello", 3));
}

#[test]
fn sockets_that_say_nothing_hold_nobody_up_and_are_closed() {
    let server = serve_with(|options| {
        options.limits.head_time = Duration::from_millis(800);
        options.limits.body_pause = Duration::from_millis(800);
    });
    let heads = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 500\r\n\r\n";
    let mut silent: Vec<Connection> = (0..200)
        .map(|index| {
            let mut connection = server.connect();
            // Headers and no body, half the headers, nothing.
            connection.raw([&heads[..], &heads[..40], b""][index % 3]);
            connection
        })
        .collect();
    server.chat(request("hello", 3));
    for (index, connection) in silent.iter_mut().enumerate() {
        if index % 3 == 0 {
            assert_eq!(connection.answer("POST").status, 408);
        }
        let mut rest = vec![];
        let _ = connection.reader.read_to_end(&mut rest);
    }
}

#[test]
fn a_body_that_trickles_is_given_up() {
    let server = serve_with(|options| options.limits.body_time = Duration::from_millis(400));
    let mut connection = server.connect();
    connection.raw(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n");
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) && connection.stream.write_all(b" ").is_ok() {
        std::thread::sleep(Duration::from_millis(20));
        let mut buffer = [0];
        connection.stream.set_nonblocking(true).unwrap();
        let answered = connection.stream.peek(&mut buffer).is_ok();
        connection.stream.set_nonblocking(false).unwrap();
        if answered {
            break;
        }
    }
    assert_eq!(connection.answer("POST").status, 408);
}

#[test]
fn a_dead_engine_is_told_by_health_and_by_every_request() {
    let server = serve();
    let mut streams = send(&server, &endless(true));
    let mut waits = send(&server, &endless(false));
    server.wait_until("full", |health| health["slots_busy"] == 2);
    server.llm.stop();
    // A stream that has begun ends in an error and without the word that all is well.
    let answer = streams.answer("POST");
    assert_eq!(answer.status, 200);
    let last: Value = serde_json::from_str(events(&answer.text()).last().unwrap()).unwrap();
    assert_eq!((&last["error"]["type"], &last["error"]["code"]), (&json!("server_error"), &json!("engine_stopped")));
    assert_eq!(waits.answer("POST").status, 503);
    for answer in [
        server.get("/health"),
        server.post("/v1/chat/completions", &request("a", 1)),
        server.post("/completions", &json!({"prompt": "a"})),
    ] {
        assert_eq!((answer.status, &answer.error()["code"]), (503, &json!("engine_stopped")));
    }
}

#[test]
fn replies_under_way_may_end_when_the_server_stops() {
    let mut server = serve_with(|options| options.limits.shutdown_time = Duration::from_secs(120));
    let mut streams = send(&server, &request("hello", 2000));
    let mut stream = request("hello", 2000);
    stream["stream"] = true.into();
    let mut second = send(&server, &stream);
    server.wait_until("busy", |health| health["slots_busy"] != 0);
    server.stop();
    assert_eq!(streams.answer("POST").status, 200);
    assert!(second.answer("POST").text().ends_with("data: [DONE]\n\n"));
    server.ended();
}

#[test]
fn the_end_waits_for_nobody_for_long() {
    let mut server = serve_with(|options| options.limits.shutdown_time = Duration::from_millis(500));
    let mut streams = send(&server, &endless(true));
    let mut wedged = endless(true);
    wedged["logprobs"] = true.into();
    wedged["top_logprobs"] = 20.into();
    let wedged = send(&server, &wedged);
    let idle = server.connect();
    let mut half = server.connect();
    half.raw(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 500\r\n\r\n{");
    server.wait_until("full", |health| health["slots_busy"] == 2);
    server.stop();
    server.ended();
    let text = streams.answer("POST").text();
    let last: Value = serde_json::from_str(events(&text).last().unwrap()).unwrap();
    assert_eq!(last["error"]["code"], "engine_stopped");
    assert!(std::net::TcpStream::connect(server.address).is_err(), "nobody listens any more");
    drop((wedged, idle, half));
}

#[test]
fn a_port_in_use_is_named_with_the_next_step() {
    let server = serve();
    let options = kapitsa_server::ServerOptions { port: server.address.port(), ..Default::default() };
    let error = kapitsa_server::bind(options).err().unwrap().to_string();
    let expected = format!(
        "cannot listen on 127.0.0.1:{}: the port is in use; stop the other program or choose another with --port",
        server.address.port()
    );
    assert_eq!(error, expected);
}

#[test]
fn twenty_lengths_at_once_say_what_they_say_alone() {
    let open = kapitsa::OpenOptions { slots: 4, queue: 64, ..common::open_options() };
    let server = common::serve_model(kapitsa_testkit::tiny::speaking_llama(), open, |_| {});
    let bodies: Vec<Value> =
        (0..20).map(|index| request(&"ab ".repeat(1 + index * 37 % 100), 5 + index * 7 % 40)).collect();
    let alone: Vec<Value> = bodies.iter().map(|body| server.chat(body.clone())["choices"].take()).collect();
    std::thread::scope(|scope| {
        for (body, alone) in bodies.iter().zip(&alone) {
            let server = &server;
            scope.spawn(move || assert_eq!(server.chat(body.clone())["choices"], *alone));
        }
    });
    server.wait_until_idle();
}
