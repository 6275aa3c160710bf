//! A hub of one repository, `o/r`, on a loopback port.

#![allow(dead_code, reason = "each program that includes this uses some of it")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::json;
use sha2::{Digest, Sha256};

/// The commit that every revision is.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What it has and how it behaves.
#[derive(Default)]
pub(crate) struct Behaviour {
    files: BTreeMap<String, Vec<u8>>,
    /// Method, path and range of each request, and whether it came with the right token.
    requests: Vec<(String, bool)>,
    /// Files are somewhere else than what is known of them.
    pub(crate) elsewhere: bool,
    /// Requests for paths with this in them get this status.
    pub(crate) refuses: Option<(&'static str, u16)>,
    /// Bodies end there.
    pub(crate) cut_at: Option<usize>,
    pub(crate) no_ranges: bool,
    /// Instead of the file's SHA-256.
    pub(crate) etag: Option<String>,
    pub(crate) commit: String,
    /// Instead of the list of files.
    pub(crate) list: Option<String>,
    stopped: bool,
}

pub(crate) struct Server {
    address: SocketAddr,
    behaviour: Arc<Mutex<Behaviour>>,
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Server {
    pub(crate) fn new(files: &[(&str, &[u8])]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let files = files.iter().map(|(name, content)| ((*name).to_owned(), content.to_vec())).collect();
        let behaviour = Behaviour { files, commit: COMMIT.to_owned(), ..Behaviour::default() };
        let behaviour = Arc::new(Mutex::new(behaviour));
        let shared = Arc::clone(&behaviour);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if shared.lock().unwrap().stopped {
                    break;
                }
                // Connections are closed after a reply, so that one at a time is enough. A client may go away.
                _ = answer(stream, &shared, address);
            }
        });
        Self { address, behaviour }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.lock());
    }

    /// Method and path of each request since the last call, and the range if it has one.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        self.take_requests_with_tokens().into_iter().map(|(request, _)| request).collect()
    }

    /// The same, and whether they came with the right token.
    pub(crate) fn take_requests_with_tokens(&self) -> Vec<(String, bool)> {
        std::mem::take(&mut self.lock().requests)
    }

    /// Nobody answers any more.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        // The connection that ends the loop.
        _ = TcpStream::connect(self.address);
        while TcpStream::connect(self.address).is_ok() {
            std::thread::yield_now();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Behaviour> {
        self.behaviour.lock().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.lock().stopped = true;
        _ = TcpStream::connect(self.address);
    }
}

fn answer(mut stream: TcpStream, behaviour: &Mutex<Behaviour>, address: SocketAddr) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (mut range, mut token) = (None, false);
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "range" => range = Some(value.to_owned()),
            "authorization" => token = value == "Bearer secret",
            _ => {}
        }
    }
    let mut this = behaviour.lock().unwrap();
    let suffix = range.as_ref().map_or_else(String::new, |range| format!(" {range}"));
    this.requests.push((format!("{method} {path}{suffix}"), token));
    let mut reply = |status: u16, headers: &str, body: &[u8], length: usize| {
        write!(
            stream,
            "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
        )?;
        if method != "HEAD" {
            stream.write_all(body)?;
        }
        stream.flush()
    };
    if let Some((only, status)) = this.refuses.filter(|(only, _)| path.contains(only)) {
        debug_assert!(!only.is_empty());
        return reply(status, "", b"", 0);
    }
    if path.starts_with("/api/models/o/r/revision/") {
        let siblings: Vec<_> = this.files.keys().map(|name| json!({ "rfilename": name })).collect();
        let list = json!({"id": "o/r", "sha": this.commit, "siblings": siblings}).to_string();
        let list = this.list.clone().unwrap_or(list);
        return reply(200, "Content-Type: application/json\r\n", list.as_bytes(), list.len());
    }
    let resolve = format!("/o/r/resolve/{}/", this.commit);
    let there = path.strip_prefix(&resolve);
    let Some(content) =
        there.or_else(|| path.strip_prefix("/elsewhere/")).and_then(|name| this.files.get(name))
    else {
        return reply(404, "", b"", 0);
    };
    let etag = this.etag.clone().unwrap_or_else(|| sha256(content));
    if let (true, Some(name)) = (this.elsewhere, there) {
        let headers = format!(
            "Location: http://localhost:{}/elsewhere/{name}\r\nX-Linked-Etag: \"{etag}\"\r\nX-Linked-Size: {}\r\n",
            address.port(),
            content.len()
        );
        return reply(302, &headers, b"", 0);
    }
    let start = range
        .filter(|_| !this.no_ranges)
        .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    let rest = &content[start.unwrap_or(0).min(content.len())..];
    let body = &rest[..this.cut_at.unwrap_or(usize::MAX).min(rest.len())];
    let etag = format!("ETag: \"{etag}\"\r\n");
    match start {
        Some(start) => {
            let headers =
                format!("{etag}Content-Range: bytes {start}-{}/{}\r\n", content.len() - 1, content.len());
            reply(206, &headers, body, rest.len())
        }
        None => reply(200, &etag, body, rest.len()),
    }
}
