//! Downloads of files. A file grows as a `.part` beside its place, and is renamed when it is complete.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use ureq::config::RedirectAuthHeaders;
use ureq::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, ETAG, LOCATION, RANGE};
use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body, RequestBuilder};

use super::location::checked_hash;
use super::{Error, Location, Transfer, Watch};
use halfbyte_gguf::quote;

/// The longest wait for a connection, a reply or the next bytes.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most redirects within the hub.
const MAX_REDIRECTS: usize = 5;
/// Bytes read at a time.
const CHUNK: usize = 128 << 10;

/// Sends requests to the hub.
#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
    /// Follows no redirects: the hub describes a file in the headers of the redirect itself.
    unredirected: Agent,
    /// The value of the header `Authorization`.
    authorization: Option<String>,
}

/// What the hub says about a file.
struct About {
    etag: String,
    size: u64,
}

impl Client {
    pub(super) fn new(token: Option<&str>) -> Self {
        let builder = || {
            Agent::config_builder()
                .http_status_as_error(false)
                .redirect_auth_headers(RedirectAuthHeaders::SameHost)
                // Lengths and hashes are then those of the file, not of its compressed form.
                .accept_encoding("identity")
                .user_agent(concat!("halfbyte/", env!("CARGO_PKG_VERSION")))
                .timeout_connect(Some(PATIENCE))
                .timeout_recv_response(Some(PATIENCE))
                .timeout_per_read(Some(PATIENCE))
        };
        Self {
            agent: builder().build().into(),
            unredirected: builder().max_redirects(0).max_redirects_will_error(false).build().into(),
            authorization: token.map(|token| format!("Bearer {token}")),
        }
    }

    fn send<B>(
        &self,
        request: RequestBuilder<B>,
        send: impl FnOnce(RequestBuilder<B>) -> Result<Response<Body>, ureq::Error>,
        url: &str,
    ) -> Result<Response<Body>, Error> {
        let request = match &self.authorization {
            Some(value) => request.header(AUTHORIZATION, value),
            None => request,
        };
        send(request).map_err(|error| Error::Unreachable { url: url.to_owned(), problem: error.to_string() })
    }

    /// Puts the file at `url`, called `file`, below `snapshot`, its content at `blob(etag)`.
    pub(super) fn get(
        &self,
        url: &str,
        file: &str,
        snapshot: &Path,
        blob: impl Fn(&str) -> PathBuf,
        location: &Location,
        watch: Watch<'_>,
    ) -> Result<(), Error> {
        let pointer = snapshot.join(file);
        // `exists` is false for a link whose target is missing.
        if pointer.exists() {
            return Ok(());
        }
        let about = self.about(url, location)?;
        let blob = blob(&about.etag);
        if fs::metadata(&blob).map_or(true, |metadata| metadata.len() != about.size) {
            self.download(url, file, &about, &blob, location, watch)?;
        }
        link(&blob, &pointer).map_err(|source| Error::Io { path: pointer, source })
    }

    /// What the hub says of the file at `url`.
    fn about(&self, url: &str, location: &Location) -> Result<About, Error> {
        let mut url = url.to_owned();
        let mut redirects = 0;
        let response = loop {
            let response = self.send(self.unredirected.head(&url), RequestBuilder::call, &url)?;
            // A redirect within the hub is followed: the repository was renamed. One to another host leads to the
            // bytes, without the headers that describe the file.
            let next = text(response.headers(), LOCATION.as_str())
                .filter(|location| response.status().is_redirection() && location.starts_with('/'));
            match next {
                Some(path) if redirects < MAX_REDIRECTS => {
                    let origin = url.match_indices('/').nth(2).map_or(url.len(), |(at, _)| at);
                    url.truncate(origin);
                    url += path;
                    redirects += 1;
                }
                _ => break response,
            }
        };
        let status = response.status();
        if !(status.is_success() || status.is_redirection()) {
            return Err(Error::refused(location, status.as_u16(), &url));
        }
        let headers = response.headers();
        let header = |linked: &str, plain: &str| text(headers, linked).or_else(|| text(headers, plain));
        let reply = |what, got: Option<&str>| Error::Reply {
            url: url.clone(),
            what,
            got: got.map_or_else(|| "nothing".to_owned(), quote),
        };
        let etag = header("x-linked-etag", ETAG.as_str());
        let size = header("x-linked-size", CONTENT_LENGTH.as_str());
        Ok(About {
            etag: (etag.and_then(checked_hash))
                .ok_or_else(|| reply("the hash of the file in the header etag", etag))?
                .to_owned(),
            size: (size.and_then(|size| size.parse().ok()))
                .ok_or_else(|| reply("the length of the file in the header content-length", size))?,
        })
    }

    /// Fetches the rest of `blob`, of which its `.part` has the beginning.
    fn download(
        &self,
        url: &str,
        file: &str,
        about: &About,
        blob: &Path,
        location: &Location,
        watch: Watch<'_>,
    ) -> Result<(), Error> {
        let part = blob.with_extension("part");
        let io = |source| Error::Io { path: part.clone(), source };
        if let Some(folder) = blob.parent() {
            fs::create_dir_all(folder).map_err(io)?;
        }
        let mut output = OpenOptions::new().create(true).read(true).append(true).open(&part).map_err(io)?;
        match output.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(Error::Busy { file: file.to_owned() }),
            Err(fs::TryLockError::Error(source)) => return Err(io(source)),
        }
        let expected = about.size;
        let mut hasher = Sha256::new();
        let mut done = output.metadata().map_err(io)?.len();
        if done > expected {
            done = 0;
        } else if done > 0 {
            output.seek(SeekFrom::Start(0)).map_err(io)?;
            io::copy(&mut output, &mut hasher).map_err(io)?;
        }
        output.set_len(done).map_err(io)?;
        if done < expected {
            let request = self.agent.get(url);
            let request = if done > 0 { request.header(RANGE, format!("bytes={done}-")) } else { request };
            let response = self.send(request, RequestBuilder::call, url)?;
            let status = response.status().as_u16();
            match status {
                206 if done > 0 && starts_at(response.headers(), done) => {}
                // The server sends the whole file, whatever range was asked for.
                200 => {
                    (done, hasher) = (0, Sha256::new());
                    output.set_len(0).map_err(io)?;
                }
                206 | 416 => {
                    // The next attempt starts from the beginning.
                    output.set_len(0).map_err(io)?;
                    let got = text(response.headers(), CONTENT_RANGE.as_str());
                    let got = got.map_or_else(|| format!("status {status}"), quote);
                    return Err(Error::Reply { url: url.to_owned(), what: "the rest of the file", got });
                }
                _ => return Err(Error::refused(location, status, url)),
            }
            let mut body = response.into_body().into_reader();
            let mut buffer = vec![0; CHUNK];
            while done < expected {
                let interrupted =
                    |problem| Error::Interrupted { file: file.to_owned(), expected, got: done, problem };
                let n = match body.read(&mut buffer) {
                    Ok(0) => return Err(interrupted("the server closed the connection".to_owned())),
                    Ok(n) => n.min(usize::try_from(expected - done).unwrap_or(n)),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(interrupted(error.to_string())),
                };
                output.write_all(&buffer[..n]).map_err(io)?;
                hasher.update(&buffer[..n]);
                done += n as u64;
                if let ControlFlow::Break(()) = watch(Transfer { file, done, total: expected }) {
                    return Err(Error::Stopped { file: file.to_owned(), expected, got: done });
                }
            }
        }
        // The names of large files are their SHA-256, those of small files a hash of git's.
        if about.etag.len() == 64 {
            let got: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
            if got != about.etag {
                fs::remove_file(&part).map_err(io)?;
                return Err(Error::Hash { file: file.to_owned(), expected: about.etag.clone(), got });
            }
        }
        output.sync_all().map_err(io)?;
        fs::rename(&part, blob).map_err(io)
    }
}

/// The value of a header, if it is text.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Whether the reply starts at the byte that was asked for.
fn starts_at(headers: &HeaderMap, start: u64) -> bool {
    let range = text(headers, CONTENT_RANGE.as_str()).and_then(|range| range.strip_prefix("bytes "));
    range.and_then(|range| range.split_once('-')).is_some_and(|(from, _)| from.parse() == Ok(start))
}

/// Makes `pointer` lead to `blob`, relative to it, so that the cache can be moved.
#[cfg(unix)]
fn link(blob: &Path, pointer: &Path) -> io::Result<()> {
    if let Some(folder) = pointer.parent() {
        fs::create_dir_all(folder)?;
    }
    match fs::remove_file(pointer) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Both are in the repository's folder: as many steps up as `pointer` is below it, then down to the blob.
    let repository = blob.parent().and_then(Path::parent).unwrap_or(blob);
    let (Ok(below), Ok(target)) = (pointer.strip_prefix(repository), blob.strip_prefix(repository)) else {
        return std::os::unix::fs::symlink(blob, pointer);
    };
    let up: PathBuf = below.components().skip(1).map(|_| "..").collect();
    std::os::unix::fs::symlink(up.join(target), pointer)
}

/// Makes `pointer` the same file as `blob`, or a copy of it.
#[cfg(not(unix))]
fn link(blob: &Path, pointer: &Path) -> io::Result<()> {
    if let Some(folder) = pointer.parent() {
        fs::create_dir_all(folder)?;
    }
    match fs::hard_link(blob, pointer) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(_) => fs::copy(blob, pointer).map(drop),
    }
}
