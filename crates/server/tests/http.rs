//! Routes, keys, hosts, origins, bodies.

mod common;

use std::io::Write;

use common::{request, serve, serve_with};
use serde_json::json;

#[test]
fn routes_are_there_with_and_without_v1_whatever_the_query_says() {
    let server = serve();
    for path in [
        "/v1/models",
        "/models",
        "/v1/models?limit=1000",
        "/models/org/tiny",
        "/v1/models/org%2Ftiny",
        "/v1/models/tiny?x=/y",
    ] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{path}");
    }
    let list = server.get("/v1/models").json();
    assert_eq!((&list["object"], list["data"].as_array().unwrap().len()), (&json!("list"), 1));
    assert_eq!(list["data"][0], server.get("/models/tiny").json());
    let model = &list["data"][0];
    assert_eq!(
        (&model["id"], &model["object"], &model["owned_by"]),
        (&json!("org/tiny"), &json!("model"), &json!("kapitsa"))
    );
    assert_eq!((&model["context_length"], &model["max_model_len"]), (&json!(16384), &json!(16384)));
    assert!(model["created"].is_u64());
    for path in ["/v1/chat/completions?beta=true", "/chat/completions"] {
        assert_eq!(server.post(path, &request("a", 1)).status, 200);
    }
    for path in ["/v1/completions", "/completions"] {
        assert_eq!(server.post(path, &json!({"prompt": "a", "max_tokens": 1})).status, 200);
    }
    for path in ["/", "/health", "/metrics", "/openapi.json"] {
        assert_eq!(server.get(path).status, 200, "{path}");
        let head = server.request("HEAD", path, &[], b"");
        assert!(head.status == 200 && head.body.is_empty());
    }
}

#[test]
fn what_is_not_offered_is_a_404_in_the_form_of_the_api_and_a_wrong_method_a_405() {
    let server = serve();
    for path in [
        "/api/v1/models",
        "/api/tags",
        "/api/show",
        "/v1/props",
        "/props",
        "/version",
        "/api/version",
        "/v1",
        "/v1/",
        "/models/",
        "/..%2f..%2fetc/passwd",
    ] {
        for method in ["GET", "POST"] {
            let answer = server.request(method, path, &[], b"");
            assert_eq!((answer.status, &answer.error()["code"]), (404, &json!("unknown_url")), "{method} {path}");
        }
    }
    for path in ["/v1/models/other/model", "/models/%ff%fe", "/models/tiny/"] {
        let answer = server.get(path);
        assert_eq!((answer.status, &answer.error()["code"]), (404, &json!("model_not_found")), "{path}");
    }
    for (method, path) in
        [("GET", "/v1/chat/completions"), ("DELETE", "/v1/models"), ("PUT", "/"), ("OPTIONS", "/health")]
    {
        let answer = server.request(method, path, &[], b"");
        assert_eq!(answer.status, 405, "{method} {path}");
        assert!(answer.header("allow").is_some());
        answer.error();
    }
}

#[test]
fn a_prefix_goes_before_every_path() {
    let server = serve_with(|options| options.path_prefix = "/llm/x/".into());
    for path in [
        "/llm/x",
        "/llm/x/",
        "/llm/x/health",
        "/llm/x/metrics",
        "/llm/x/openapi.json",
        "/llm/x/v1/models",
        "/llm/x/models/tiny",
    ] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    assert_eq!(server.post("/llm/x/v1/chat/completions", &request("a", 1)).status, 200);
    for path in ["/v1/models", "/health", "/llm/v1/models", "/llm/xv1/models"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    assert_eq!(server.get("/llm/x/openapi.json").json()["servers"][0]["url"], "/llm/x");
    for prefix in ["llm", "/a//b", "/a b", "/{x}", "/a?b"] {
        let options = kapitsa_server::ServerOptions { path_prefix: prefix.into(), port: 0, ..Default::default() };
        assert!(kapitsa_server::bind(options).is_err(), "{prefix}");
    }
}

#[test]
fn a_key_is_needed_on_every_route_that_says_something() {
    let server = serve_with(|options| options.api_key = Some("K1".into()));
    for path in ["/v1/models", "/metrics", "/openapi.json", "/v1/chat/completions", "/nothing"] {
        for headers in [&[][..], &[("authorization", "Bearer K2")], &[("x-api-key", "K")]] {
            let answer = server.request("GET", path, headers, b"");
            assert_eq!((answer.status, &answer.error()["code"]), (401, &json!("invalid_api_key")), "{path}");
        }
    }
    for headers in [&[("authorization", "Bearer K1")][..], &[("x-api-key", "K1")]] {
        assert_eq!(server.request("GET", "/v1/models", headers, b"").status, 200);
        let body = request("a", 1).to_string();
        assert_eq!(server.request("POST", "/v1/chat/completions", headers, body.as_bytes()).status, 200);
    }
    // With a key, the host does not matter; probes need none.
    assert_eq!(server.request("GET", "/v1/models", &[("host", "evil.example"), ("x-api-key", "K1")], b"").status, 200);
    assert_eq!((server.get("/health").status, server.get("/").status), (200, 200));
}

#[test]
fn a_foreign_host_is_refused_while_no_key_is_set() {
    let server = serve_with(|options| options.allowed_hosts = vec!["box.lan".into()]);
    let status = |host: &str| server.request("GET", "/v1/models", &[("host", host)], b"").status;
    for host in ["localhost:8000", "127.0.0.1", "[::1]:9", "box.lan:8000"] {
        assert_eq!(status(host), 200, "{host}");
    }
    for host in ["evil.example", "evil.example:8000", "localhost.evil.example", "10.0.0.1"] {
        assert_eq!(status(host), 403, "{host}");
    }
    let answer = server.request("POST", "/v1/chat/completions", &[("host", "evil.example")], b"{}");
    assert!(answer.error()["message"].as_str().unwrap().contains("--allowed-host"));
    let absolute = server.request("GET", "http://evil.example/v1/models", &[], b"");
    assert_eq!(absolute.status, 403);
}

#[test]
fn pages_of_other_origins_get_in_only_where_they_are_let() {
    let preflight = [
        ("origin", "https://app.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization, content-type, x-stainless-os"),
    ];
    let closed = serve();
    let answer = closed.request("OPTIONS", "/v1/chat/completions", &preflight, b"");
    assert!(answer.status == 405 && answer.header("access-control-allow-origin").is_none());
    assert!(closed.request("GET", "/v1/models", &preflight[..1], b"").header("access-control-allow-origin").is_none());

    let open = serve_with(|options| {
        options.cors_origins = vec!["https://app.example".into(), "http://localhost:3000/".into()];
        options.api_key = Some("K1".into());
    });
    let answer = open.request("OPTIONS", "/v1/chat/completions", &preflight, b"");
    assert!((200..300).contains(&answer.status));
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"));
    assert!(answer.header("access-control-allow-methods").unwrap().contains("POST"));
    let allowed = answer.header("access-control-allow-headers").unwrap();
    assert!(allowed.contains("authorization") && allowed.contains("x-stainless-os"));
    // The real request without a key: the page may read why.
    let answer = open.request("POST", "/v1/chat/completions", &preflight[..1], b"{}");
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (401, Some("https://app.example")));
    let answer = open.request("GET", "/v1/models", &[("origin", "http://localhost:3000"), ("x-api-key", "K1")], b"");
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, Some("http://localhost:3000")));
    let answer = open.request("GET", "/v1/models", &[("origin", "https://evil.example"), ("x-api-key", "K1")], b"");
    assert!(answer.header("access-control-allow-origin").is_none());
    let any = serve_with(|options| options.cors_origins = vec!["*".into()]);
    assert_eq!(any.get("/v1/models").header("access-control-allow-origin"), Some("*"));
}

#[test]
fn a_large_body_is_read_and_a_larger_one_refused_unread() {
    let server = serve();
    let body = request(&"x".repeat(20 << 20), 1).to_string();
    let answer = server.request("POST", "/v1/chat/completions", &[], body.as_bytes());
    assert_eq!((answer.status, &answer.error()["code"]), (400, &json!("context_length_exceeded")));

    // Only announced: the answer does not wait for it.
    let mut connection = server.connect();
    connection.raw(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 400000000\r\n\r\n");
    let answer = connection.answer("POST");
    assert_eq!((answer.status, answer.header("connection")), (413, Some("close")));
    answer.error();

    let small = serve_with(|options| options.limits.body_bytes = 1000);
    let answer = small.request("POST", "/v1/chat/completions", &[], &vec![b' '; 200_000]);
    assert_eq!(answer.status, 413, "sent whole");
    let mut connection = small.connect();
    connection.raw(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n");
    for _ in 0..20 {
        connection.raw(format!("64\r\n{}\r\n", " ".repeat(100)).as_bytes());
    }
    connection.raw(b"0\r\n\r\n");
    assert_eq!(connection.answer("POST").status, 413, "in chunks");
    small.chat(request("a", 1));
}

#[test]
fn all_bodies_together_have_a_limit_and_give_their_share_back() {
    let server = serve_with(|options| options.limits.all_bodies_bytes = 1 << 20);
    let part = vec![b' '; 600_000];
    let begin = || {
        let mut connection = server.connect();
        connection.raw(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 600002\r\n\r\n");
        connection.raw(&part);
        connection
    };
    let large = json!({"pad": "x".repeat(600_000)});
    // Where the second comes before the first has arrived, the first may be the one that is refused.
    let (mut first, refused) = std::iter::repeat_with(|| {
        let first = begin();
        std::thread::sleep(std::time::Duration::from_millis(20));
        (first, server.post("/v1/chat/completions", &large))
    })
    .find(|(_, answer)| answer.status == 429)
    .unwrap();
    assert_eq!(refused.header("retry-after"), Some("2"));
    first.raw(b"{}");
    assert_eq!(first.answer("POST").status, 400);
    assert_eq!(server.post("/v1/chat/completions", &large).status, 400);
}

#[test]
fn expect_continue_and_chunks_work_and_connections_stay_open() {
    let server = serve();
    let body = request("a", 1).to_string();
    let mut connection = server.connect();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
        body.len()
    );
    connection.raw(head.as_bytes());
    assert_eq!(connection.head().status, 100);
    connection.raw(body.as_bytes());
    assert_eq!(connection.answer("POST").status, 200);
    connection.raw(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n");
    for byte in body.as_bytes().chunks(7) {
        connection.raw(format!("{:x}\r\n", byte.len()).as_bytes());
        connection.raw(byte);
        connection.raw(b"\r\n");
    }
    connection.raw(b"0\r\n\r\n");
    assert_eq!(connection.answer("POST").status, 200);
    connection.send("GET", "/health", &[], b"");
    assert_eq!(connection.answer("GET").status, 200);
    // A body that is too large is not asked for.
    let mut connection = server.connect();
    connection.raw(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 400000000\r\nexpect: 100-continue\r\n\r\n");
    assert_eq!(connection.head().status, 413);
}

#[test]
fn garbage_on_the_line_harms_nobody() {
    let server = serve();
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
    ] {
        let mut connection = server.connect();
        let _ = connection.stream.write_all(bytes);
        let _ = connection.stream.shutdown(std::net::Shutdown::Write);
        let mut answer = vec![];
        let _ = std::io::Read::read_to_end(&mut connection.reader, &mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&answer));
    }
    let long = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "a".repeat(1 << 20));
    let mut connection = server.connect();
    let _ = connection.stream.write_all(long.as_bytes());
    server.chat(request("a", 1));
}

#[test]
fn the_document_names_every_route_and_only_those() {
    let server = serve();
    let document = server.get("/openapi.json").json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3."));
    for (path, methods) in document["paths"].as_object().unwrap() {
        let real = path.replace("{id}", "tiny");
        for method in methods.as_object().unwrap().keys() {
            let answer = server.request(&method.to_uppercase(), &real, &[], b"");
            assert!(answer.status != 404 && answer.status != 405, "{method} {path}");
            assert!(
                methods[method]["responses"].get(answer.status.to_string()).is_some(),
                "{method} {path} {}",
                answer.status
            );
        }
    }
    let mut paths: Vec<&str> = document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    paths.sort_unstable();
    let expected = [
        "/",
        "/health",
        "/metrics",
        "/openapi.json",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/models",
        "/v1/models/{id}",
        "/v1/responses",
    ];
    assert_eq!(paths, expected);
    assert_eq!(kapitsa_server::document().unwrap().parse::<serde_json::Value>().unwrap(), document);
}

#[test]
fn metrics_count_what_happened() {
    let server = serve();
    server.chat(request("hello", 20));
    assert_eq!(server.post("/v1/chat/completions", &json!({})).status, 400);
    let answer = server.get("/metrics");
    assert!(answer.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    let text = answer.text();
    for line in [
        "kapitsa_requests_total{outcome=\"finished\"} 1",
        "kapitsa_requests_total{outcome=\"refused\"} 0",
        "kapitsa_tokens_total{kind=\"read\"} 12",
        "kapitsa_tokens_total{kind=\"reused\"} 0",
        "kapitsa_tokens_total{kind=\"written\"} 20",
        "kapitsa_slots 2",
        "kapitsa_slots_busy 0",
        "kapitsa_queue 0",
        "kapitsa_queue_limit 2",
        "kapitsa_step_seconds_count 20",
        "kapitsa_step_seconds_bucket{le=\"+Inf\"} 20",
        "kapitsa_http_responses_total{route=\"/v1/chat/completions\",status=\"200\"} 1",
        "kapitsa_http_responses_total{route=\"/v1/chat/completions\",status=\"400\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "no `{line}` in\n{text}");
    }
}
