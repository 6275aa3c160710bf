//! How many requests the server takes, how much of each, and how it ends.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::Server;
use halfbyte_server::ServeOptions;
use serde_json::{Value, json};

/// Waits until `done`, ten seconds at most.
#[track_caller]
fn eventually(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(10), "not within ten seconds: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A reply that goes on for as long as anyone listens.
fn endless() -> Value {
    json!({ "prompt": "Once upon a time", "max_tokens": 100_000, "stream": true, "temperature": 1.5, "seed": 1 })
}

/// A context that takes some time to fill.
fn large(slots: usize, queue: usize) -> Server {
    Server::start(slots, 512, ServeOptions { queue, ..ServeOptions::new("tiny") })
}

#[test]
fn who_leaves_frees_a_slot() {
    let server = large(1, 8);
    let mut open = server.open("/v1/completions", &endless());
    open.chunk_after_head();
    assert_eq!(server.metric("halfbyte_slots_busy"), 1.0);
    drop(open);
    eventually("the slot is free", || server.metric("halfbyte_slots_busy") == 0.0);
    assert_eq!(server.metric("halfbyte_replies_cancelled_total"), 1.0);
    // Who waits for the whole of it, too.
    let mut request = endless();
    request["stream"] = false.into();
    let open = server.open("/v1/completions", &request);
    eventually("it is begun", || server.metric("halfbyte_slots_busy") == 1.0);
    drop(open);
    eventually("the slot is free again", || server.metric("halfbyte_slots_busy") == 0.0);
    assert_eq!(server.metric("halfbyte_replies_cancelled_total"), 2.0);
    server.join();
}

#[test]
fn a_full_queue_refuses() {
    let server = large(1, 1);
    let mut first = server.open("/v1/completions", &endless());
    first.chunk_after_head();
    let second = server.open("/v1/completions", &endless());
    eventually("the second waits", || server.metric("halfbyte_requests_queued") == 1.0);
    let third = server.post("/v1/completions", &endless());
    assert_eq!(third.error(503), "1 requests are waiting already");
    assert!(third.headers.iter().any(|header| header == "retry-after: 1"), "{third:?}");
    drop((first, second));
    eventually("all have left", || {
        server.metric("halfbyte_slots_busy") + server.metric("halfbyte_requests_queued") == 0.0
    });
    server.join();
}

#[test]
fn a_server_that_ends_lets_replies_end() {
    let server = Server::start(1, 256, ServeOptions::new("tiny"));
    let request = json!({ "prompt": "The captain looked at the sea", "max_tokens": 60, "stream": true, "temperature": 0 });
    let mut open = server.open("/v1/completions", &request);
    let first = open.chunk_after_head();
    server.stop();
    let mut body = first;
    while let Some(chunk) = open.chunk() {
        body += &chunk;
    }
    assert!(body.ends_with("data: [DONE]\n\n"), "{body}");
    server.join();
}

/// The beginnings of requests whose rest does not come.
fn halves(server: &Server) -> Vec<TcpStream> {
    let head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let body = format!("{head}Content-Length: 100\r\n\r\n{{\"prompt\":");
    let pieces = ["", "POST /v1/comp", head, &body, &body];
    let send = |piece: &str| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(piece.as_bytes()).unwrap();
        stream
    };
    pieces.into_iter().map(send).collect()
}

/// A server whose clients have so much time to send the rest of their requests.
fn with_grace(grace: Duration) -> Server {
    Server::start(1, 512, ServeOptions { grace, ..ServeOptions::new("tiny") })
}

#[test]
fn a_server_that_ends_does_not_wait_for_half_sent_requests() {
    let server = with_grace(Duration::from_millis(200));
    let mut halves = halves(&server);
    let mut idle = server.send("GET", "/health", &[], "");
    assert_eq!(idle.head().0, 200);
    let start = Instant::now();
    server.join();
    // Both waits, and time for a machine that is busy.
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    // Those whose body did not come are told.
    let mut answer = String::new();
    halves.pop().unwrap().read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("the server is ending"), "{answer}");
}

#[test]
fn a_request_that_becomes_whole_in_time_is_answered_by_a_server_that_ends() {
    let server = with_grace(Duration::from_secs(30));
    let head = format!("POST /v1/completions HTTP/1.1\r\nHost: {}\r\n", server.address);
    let body = r#"{"prompt":"Once upon a time","max_tokens":200,"temperature":0}"#;
    let mut stream = TcpStream::connect(server.address).unwrap();
    write!(stream, "{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{{", body.len())
        .unwrap();
    // Connections are accepted in order.
    assert_eq!(server.get("/health").status, 200);
    server.stop();
    eventually("no connection is accepted", || TcpStream::connect(server.address).is_err());
    stream.write_all(&body.as_bytes()[1..]).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"completion_tokens\":200"), "{answer}");
    server.join();
}

#[test]
fn replies_under_way_outlast_the_grace_time() {
    let server = with_grace(Duration::ZERO);
    let request =
        json!({ "prompt": "Once upon a time", "max_tokens": 300, "stream": true, "temperature": 0 });
    let mut open = server.open("/v1/completions", &request);
    let mut body = open.chunk_after_head();
    let _halves = halves(&server);
    // Waits in the queue.
    let waiting = server.open("/v1/completions", &request);
    eventually("the second waits", || server.metric("halfbyte_requests_queued") == 1.0);
    server.stop();
    while let Some(chunk) = open.chunk() {
        body += &chunk;
    }
    assert!(body.ends_with("data: [DONE]\n\n"), "{body}");
    assert!(waiting.read().body.ends_with("data: [DONE]\n\n"));
    server.join();
}

#[test]
fn long_bodies_share_a_bounded_memory() {
    let max_body = 200_000;
    let server = Server::start(1, 256, ServeOptions { max_body, ..ServeOptions::new("tiny") });
    let head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let begin = |length: usize| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        write!(stream, "{head}Content-Length: {length}\r\n\r\n{{").unwrap();
        stream
    };
    // Four bodies of the largest size may be there at once.
    let held: Vec<TcpStream> = (0..4).map(|_| begin(max_body)).collect();
    let long = json!({ "prompt": " ".repeat(100_000) });
    let refused = || server.post("/v1/completions", &long);
    eventually("there is no room for a long body", || refused().status == 503);
    assert_eq!(refused().error(503), "too many long requests are being read already");
    // Short ones do not need it.
    server.post("/v1/completions", &json!({ "prompt": "A", "max_tokens": 1 })).json();
    drop(held);
    eventually("there is room again", || refused().status == 400);
    server.join();
}

#[test]
fn a_text_that_fits_in_no_context_is_refused_before_it_is_tokenized() {
    let server = Server::start(1, 32, ServeOptions::new("tiny"));
    let text = " ".repeat(3_900_000);
    let requests = [
        ("/v1/completions", json!({ "prompt": text })),
        ("/v1/chat/completions", json!({ "messages": [{ "role": "user", "content": text }] })),
    ];
    for (path, request) in requests {
        let error = server.post(path, &request).error(400);
        assert!(error.contains(" is 3900000 bytes long, a context of 32 tokens takes "), "{error}");
    }
    server.join();
}

#[test]
fn a_refused_client_can_send_all_of_its_body_before_it_reads_why() {
    // More than the system's buffers hold.
    let max_body = 16 << 20;
    let server = Server::start(1, 32, ServeOptions { max_body, ..ServeOptions::new("tiny") });
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head = format!("POST /v1/completions HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", server.address);
    let length = max_body + 1;
    write!(stream, "{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n").unwrap();
    stream.write_all(&vec![b' '; length]).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("the body is larger than 16777216 bytes"), "{answer}");
    server.join();
}

#[test]
fn without_a_template_texts_are_continued_and_messages_refused() {
    let server = Server::start_without_template();
    let request = json!({ "messages": [{ "role": "user", "content": "Hello" }] });
    let error = server.post("/v1/chat/completions", &request).error(400);
    assert!(error.starts_with("the model has no chat template"), "{error}");
    assert!(error.ends_with("; POST /v1/completions continues a text"), "{error}");
    server.post("/v1/completions", &json!({ "prompt": "A", "max_tokens": 1 })).json();
    assert_eq!(server.get("/v1/models").json()["data"][0]["chat_error"], error);
    server.join();
    let server = Server::start(1, 32, ServeOptions::new("tiny"));
    assert_eq!(server.get("/v1/models").json()["data"][0].get("chat_error"), None::<&Value>);
    server.join();
}
