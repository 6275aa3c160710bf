//! Why a model of the hub cannot be had.

use std::io;
use std::path::PathBuf;

use super::Location;

/// Why a model could not be had from the hub.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name of a model is malformed.
    #[error(
        "{text}: {problem}; expected hf:OWNER/REPO or hf:OWNER/REPO/FILE.gguf, with @REVISION behind it if it is not main"
    )]
    Name {
        /// The name, quoted.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no folder to keep files in.
    #[error("there is no home directory to keep models in: set HF_HOME to a folder")]
    NoHome,
    /// `HF_ENDPOINT` is not the URL of a server.
    #[error("HF_ENDPOINT is {got}: {problem}")]
    Endpoint {
        /// Its value.
        got: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The model is not in the cache, and the hub may not be asked or does not answer.
    #[error(
        "{location}: {} not in the cache {}, and HF_HUB_OFFLINE is {}: {}",
        file.as_ref().map_or_else(|| "it is".to_owned(), |file| format!("{file} is")),
        cache.display(),
        if *offline { "set" } else { "not set" },
        "run this once without HF_HUB_OFFLINE and with a network, or copy the cache of a machine that has the model"
    )]
    NotCached {
        /// The model.
        location: String,
        /// The file that is missing, if the others are there.
        file: Option<String>,
        /// The cache.
        cache: PathBuf,
        /// Whether `HF_HUB_OFFLINE` is set.
        offline: bool,
    },
    /// The hub gave no reply.
    #[error("cannot reach {url}: {problem} (with HF_HUB_OFFLINE=1 only the cache is asked)")]
    Unreachable {
        /// The URL.
        url: String,
        /// The reason.
        problem: String,
    },
    /// The hub refused the request.
    #[error("{location}: {url} answered {status}: {advice}")]
    Refused {
        /// The model.
        location: String,
        /// The URL.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What that means and what can be done.
        advice: &'static str,
    },
    /// A reply has not the form that it should have.
    #[error("{url}: expected {what}, got {got}")]
    Reply {
        /// The URL.
        url: String,
        /// What was expected.
        what: &'static str,
        /// What the hub sent.
        got: String,
    },
    /// The repository does not have the file.
    #[error("hf:{repo} has no file {file}; it has {has}")]
    NoFile {
        /// The repository.
        repo: String,
        /// The file.
        file: String,
        /// What it has instead.
        has: String,
    },
    /// The repository has no model that halfbyte can run.
    #[error(
        "hf:{repo} has no model for halfbyte: expected a .gguf file, or config.json and model.safetensors; it has {has}"
    )]
    NoModel {
        /// The repository.
        repo: String,
        /// What it has.
        has: String,
    },
    /// The repository has several models, and the name does not say which.
    #[error("hf:{repo} has {} GGUF models: expected one of {}", files.len(), files.iter().map(|file| format!("hf:{repo}/{file}")).collect::<Vec<_>>().join(", "))]
    Several {
        /// The repository.
        repo: String,
        /// The models, each by its first file.
        files: Vec<String>,
    },
    /// A transfer ended early.
    #[error(
        "{file}: the transfer ended after {got} of {expected} bytes ({problem}); the same command goes on from there"
    )]
    Interrupted {
        /// The file.
        file: String,
        /// Its length.
        expected: u64,
        /// The number of bytes that are here.
        got: u64,
        /// The reason.
        problem: String,
    },
    /// A file has another hash than the hub says.
    #[error("{file}: what came has the SHA-256 {got}: expected {expected}; it was not kept, so try again")]
    Hash {
        /// The file.
        file: String,
        /// The hash that the hub says.
        expected: String,
        /// The hash of the file.
        got: String,
    },
    /// Another program fetches the file.
    #[error("{file} is being fetched by another program: wait for it, and try again")]
    Busy {
        /// The file.
        file: String,
    },
    /// The caller stopped the transfer.
    #[error("stopped after {got} of {expected} bytes of {file}; the same command goes on from there")]
    Stopped {
        /// The file.
        file: String,
        /// Its length.
        expected: u64,
        /// The number of bytes that are here.
        got: u64,
    },
    /// An index of safetensors files is malformed.
    #[error(transparent)]
    Index(#[from] crate::source::Error),
    /// A file of the cache cannot be written.
    #[error("cannot write {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    pub(super) fn refused(location: &Location, status: u16, url: &str) -> Self {
        let advice = match status {
            401 => {
                "the repository is private, or there is none of that name; \
                 set HF_TOKEN to a token of yours that may read it"
            }
            403 => {
                "access has to be asked for on the repository's page, with the account whose token is in HF_TOKEN"
            }
            404 => "there is no such repository or revision",
            429 => "too many requests; try again later, or set HF_TOKEN",
            500.. => "the server is in trouble; try again later",
            _ => "expected 200",
        };
        Self::Refused { location: location.to_string(), url: url.to_owned(), status, advice }
    }

    /// Whether the hub gave no answer, so that the cache may be used instead.
    pub(super) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Refused { status: 500.., .. })
    }
}
