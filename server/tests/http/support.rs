//! A server on the embedded model, and a client that speaks just enough HTTP.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use halfbyte::generate::CachedSession;
use halfbyte::model::{Compute, CpuSession, SessionOptions, Transformer};
use halfbyte::source;
use halfbyte_server::{ServeError, ServeOptions, serve};
use halfbyte_tokenizer::{Tokenizer, TokenizerSpec};
use serde_json::Value;
use tokio::sync::Notify;

/// The embedded model has no template of its own.
const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}\
                        {% if enable_thinking is defined and not enable_thinking %}quick {% endif %}\
                        {% if add_generation_prompt %}assistant:{% endif %}";

/// An empty context of the embedded model, with two threads.
pub(crate) fn session(context: usize) -> CpuSession {
    let model = Transformer::new(source::open(&halfbyte_testing::tiny_model()).unwrap()).unwrap();
    CpuSession::new(&model, &Compute::new(2).unwrap(), SessionOptions::new(context)).unwrap()
}

/// The embedded model's tokenizer, with a template.
pub(crate) fn tokenizer() -> Tokenizer {
    tokenizer_with(Some(TEMPLATE))
}

/// The embedded model's tokenizer with this template, or without one.
fn tokenizer_with(template: Option<&str>) -> Tokenizer {
    let gguf = halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap();
    let spec = TokenizerSpec::from_metadata(gguf.metadata()).unwrap();
    Tokenizer::new(&TokenizerSpec { chat_template: template.map(str::to_owned), ..spec }).unwrap()
}

/// A running server.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Server {
    /// With `slots` contexts of `context` tokens.
    pub(crate) fn start(slots: usize, context: usize, options: ServeOptions) -> Self {
        Self::start_with(tokenizer(), slots, context, options)
    }

    /// One slot, and no chat template.
    pub(crate) fn start_without_template() -> Self {
        Self::start_with(tokenizer_with(None), 1, 256, ServeOptions::new("tiny"))
    }

    fn start_with(tokenizer: Tokenizer, slots: usize, context: usize, options: ServeOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let first = session(context);
            let (model, compute) = (first.model(), Compute::new(2).unwrap());
            let session = |_| CpuSession::new(model, &compute, first.options()).unwrap();
            let sessions = (0..slots).map(|n| CachedSession::new(session(n))).collect();
            serve(sessions, tokenizer, options, listener, async move { stopped.notified().await })
        });
        Self { address, stop, thread: Some(thread) }
    }

    /// Asks it to end, without waiting.
    pub(crate) fn stop(&self) {
        self.stop.notify_one();
    }

    /// Waits until it has ended.
    pub(crate) fn join(mut self) {
        self.stop();
        self.thread.take().unwrap().join().unwrap().unwrap();
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").read()
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.open(path, body).read()
    }

    /// Sends a request and reads no more than the head of the answer.
    pub(crate) fn open(&self, path: &str, body: &Value) -> Open {
        self.send("POST", path, &["Content-Type: application/json"], &body.to_string())
    }

    pub(crate) fn send(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Open {
        let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|header| header.starts_with("Host:")) {
            text += &format!("Host: {}\r\n", self.address);
        }
        for header in headers {
            text += &format!("{header}\r\n");
        }
        text += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        // A server that refuses early may not read all of it.
        let _ = stream.write_all(text.as_bytes());
        Open { reader: BufReader::new(stream) }
    }

    /// The number of this name in /metrics.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").body;
        let line = text.lines().find(|line| line.split(' ').next() == Some(name));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).rsplit(' ').next().unwrap().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A request that is being answered.
pub(crate) struct Open {
    reader: BufReader<TcpStream>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<String>,
    pub(crate) body: String,
}

impl Open {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Status and headers.
    pub(crate) fn head(&mut self) -> (u16, Vec<String>) {
        let status = self.line().split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            if line.is_empty() {
                return (status, headers);
            }
            headers.push(line.to_ascii_lowercase());
        }
    }

    /// The next chunk of the body; `None` after the last.
    pub(crate) fn chunk(&mut self) -> Option<String> {
        let size = usize::from_str_radix(&self.line(), 16).unwrap();
        let mut bytes = vec![0; size + 2];
        self.reader.read_exact(&mut bytes).unwrap();
        bytes.truncate(size);
        (size > 0).then(|| String::from_utf8(bytes).unwrap())
    }

    /// The first chunk of a stream.
    #[track_caller]
    pub(crate) fn chunk_after_head(&mut self) -> String {
        assert_eq!(self.head().0, 200);
        self.chunk().unwrap()
    }

    pub(crate) fn read(mut self) -> Answer {
        let (status, headers) = self.head();
        let mut body = String::new();
        if headers.iter().any(|header| header == "transfer-encoding: chunked") {
            while let Some(chunk) = self.chunk() {
                body += &chunk;
            }
        } else {
            self.reader.read_to_string(&mut body).unwrap();
        }
        Answer { status, headers, body }
    }
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        serde_json::from_str(&self.body).unwrap()
    }

    /// The message of an error with this status.
    #[track_caller]
    pub(crate) fn error(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.body);
        let body: Value = serde_json::from_str(&self.body).unwrap();
        body["error"]["message"].as_str().unwrap().to_owned()
    }

    /// The objects of a stream that came to its end.
    #[track_caller]
    pub(crate) fn events(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.body);
        let mut data: Vec<&str> =
            self.body.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
        assert_eq!(data.pop(), Some("[DONE]"), "{}", self.body);
        data.into_iter().map(|text| serde_json::from_str(text).unwrap()).collect()
    }
}
