//! `halfbyte serve`, as a user starts and ends it. What it answers is tested in the server's own crate.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Stdio};
use std::time::{Duration, Instant};

use crate::support::{halfbyte, interrupt, run};
use serde_json::{Value, json};

/// The program while it serves.
struct Serving {
    child: Child,
    stderr: BufReader<ChildStderr>,
    /// What it said before it listened, a line each.
    said: Vec<String>,
    address: String,
}

impl Serving {
    fn start(args: &[&str]) -> Self {
        let mut command = halfbyte(&[&["serve", "--port", "0"], args].concat());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut serving = Self { child, stderr, said: Vec::new(), address: String::new() };
        while serving.address.is_empty() {
            let mut line = String::new();
            assert!(serving.stderr.read_line(&mut line).unwrap() > 0, "it has ended: {:?}", serving.said);
            match line.strip_prefix("listening on http://") {
                Some(rest) => serving.address = rest.split(',').next().unwrap().to_owned(),
                None => serving.said.push(line),
            }
        }
        serving
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream
    }

    /// The status and the body of the answer to a request.
    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let mut stream = self.connect();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_model_without_a_template_is_served_by_name_with_a_warning() {
    let serving = Serving::start(&["--host", "localhost", "--slots", "1", "--ctx", "64"]);
    assert!(serving.address.starts_with("127.0.0.1:"), "{}", serving.address);
    let warning = serving.said.iter().find(|line| line.contains("no chat template"));
    assert!(warning.is_some_and(|line| line.contains("/v1/completions works")), "{:?}", serving.said);
    let (status, answer) = serving.post("/v1/completions", &json!({ "prompt": "A", "max_tokens": 2 }));
    assert_eq!((status, &answer["usage"]["completion_tokens"]), (200, &json!(2)), "{answer}");
    let messages = json!({ "messages": [{ "role": "user", "content": "A" }] });
    let (status, answer) = serving.post("/v1/chat/completions", &messages);
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("no_chat_template")), "{answer}");
}

/// Other devices take the same way: slots, prompts in parts beside replies, tokens chosen on the device and here.
#[test]
fn replies_are_made_on_the_device() {
    let device = ["--device", "cuda-emulator", "--ctx", "64"];
    let alone = |prompt: &str, sampling: [&str; 2]| {
        let args = [&["run", "--prompt", prompt, "-n", "3", "--json"], &sampling[..], &device[..]].concat();
        run(&args).json()["text"].clone()
    };
    let expected =
        [alone("The captain looked", ["--temperature", "0"]), alone("Once upon a time", ["--seed", "7"])];
    let serving = Serving::start(&[&["--slots", "2"], &device[..]].concat());
    let requests = [
        json!({ "prompt": "The captain looked", "max_tokens": 3, "temperature": 0 }),
        json!({ "prompt": "Once upon a time", "max_tokens": 3, "seed": 7 }),
    ];
    let replies: Vec<(u16, Value)> = std::thread::scope(|scope| {
        let serving = &serving;
        let post = |request| scope.spawn(move || serving.post("/v1/completions", request));
        let threads: Vec<_> = requests.iter().map(post).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for ((status, answer), expected) in replies.iter().zip(expected) {
        assert_eq!((*status, &answer["choices"][0]["text"]), (200, &expected), "{answer}");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupted_server_ends_though_clients_have_sent_half_a_request() {
    let mut serving = Serving::start(&["--slots", "1", "--ctx", "64"]);
    let half = |_| {
        let mut stream = serving.connect();
        write!(stream, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-").unwrap();
        stream
    };
    let _halves: Vec<TcpStream> = (0..5).map(half).collect();
    // It has accepted them: this one came later.
    serving.post("/v1/completions", &json!({ "prompt": "A", "max_tokens": 1 }));
    let start = Instant::now();
    interrupt(&serving.child);
    let status = serving.child.wait().unwrap();
    // Six seconds, and time for a machine that is busy.
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    let mut said = String::new();
    serving.stderr.read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(0), "{said}");
}
