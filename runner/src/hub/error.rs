//! Everything that can come between a name and its files.

use std::io;
use std::path::PathBuf;

use super::Location;

/// Why a model could not be had from the hub.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that is none.
    #[error(
        "{text}: {problem}; expected hf:OWNER/REPO or hf:OWNER/REPO/FILE.gguf, with @REVISION behind it if it is not main"
    )]
    Name {
        /// The name, quoted.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Nowhere to keep files.
    #[error("there is no home directory to keep models in: set HF_HOME to a folder")]
    NoHome,
    /// What is no URL of a hub.
    #[error("HF_ENDPOINT is {got}: {problem}")]
    Endpoint {
        /// What it is.
        got: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A model that is not here, and the hub is not to be asked.
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
        /// The file of it, where one is missing.
        file: Option<String>,
        /// The cache.
        cache: PathBuf,
        /// Whether that was asked for.
        offline: bool,
    },
    /// No reply, or none that was understood.
    #[error("cannot reach {url}: {problem} (with HF_HUB_OFFLINE=1 only the cache is asked)")]
    Unreachable {
        /// What was asked.
        url: String,
        /// Why.
        problem: String,
    },
    /// The hub refused.
    #[error("{location}: {url} answered {status}: {advice}")]
    Refused {
        /// The model.
        location: String,
        /// What was asked.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What that means and what can be done.
        advice: &'static str,
    },
    /// A reply that makes no sense.
    #[error("{url}: expected {what}, got {got}")]
    Reply {
        /// What was asked.
        url: String,
        /// What had to come.
        what: &'static str,
        /// What came.
        got: String,
    },
    /// A file that the repository does not have.
    #[error("hf:{repo} has no file {file}; it has {has}")]
    NoFile {
        /// The repository.
        repo: String,
        /// The file.
        file: String,
        /// What it has instead.
        has: String,
    },
    /// A repository without a model that can be run here.
    #[error(
        "hf:{repo} has no model for halfbyte: expected a .gguf file, or config.json and model.safetensors; it has {has}"
    )]
    NoModel {
        /// The repository.
        repo: String,
        /// What it has.
        has: String,
    },
    /// A repository with several models.
    #[error("hf:{repo} has {} GGUF models: expected one of {}", files.len(), files.iter().map(|file| format!("hf:{repo}/{file}")).collect::<Vec<_>>().join(", "))]
    Several {
        /// The repository.
        repo: String,
        /// The models, each by its first file.
        files: Vec<String>,
    },
    /// A transfer that ended early.
    #[error(
        "{file}: the transfer ended after {got} of {expected} bytes ({problem}); the same command goes on from there"
    )]
    Interrupted {
        /// The file.
        file: String,
        /// Its length.
        expected: u64,
        /// What is here.
        got: u64,
        /// Why.
        problem: String,
    },
    /// A file that is not what the hub says that it is.
    #[error("{file}: what came has the SHA-256 {got}: expected {expected}; it was not kept, so try again")]
    Hash {
        /// The file.
        file: String,
        /// What the hub says.
        expected: String,
        /// What it is.
        got: String,
    },
    /// Another program is at it.
    #[error("{file} is being fetched by another program: wait for it, and try again")]
    Busy {
        /// The file.
        file: String,
    },
    /// Somebody wanted to stop.
    #[error("stopped after {got} of {expected} bytes of {file}; the same command goes on from there")]
    Stopped {
        /// The file.
        file: String,
        /// Its length.
        expected: u64,
        /// What is here.
        got: u64,
    },
    /// An index of safetensors files that is none.
    #[error(transparent)]
    Index(#[from] crate::source::Error),
    /// A file of the cache that can't be read or written.
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

    /// Whether nobody answered, so that the cache may.
    pub(super) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Refused { status: 500.., .. })
    }
}
