//! Models from the Hugging Face hub, by name: `hf:owner/repo/file.gguf`, `hf:owner/repo`.
//!
//! ```text
//! hf:owner/repo/file.gguf@revision   a GGUF file; of a split one all parts
//! hf:owner/repo@revision             the directory's config.json, tokenizer and safetensors files, or its one GGUF file
//! ```
//!
//! Files are kept where other programs keep and find them, in the layout of the hub's own library:
//! `$HF_HUB_CACHE`, `$HF_HOME/hub` or `~/.cache/huggingface/hub`. [`Settings::from_env`] knows `HF_ENDPOINT`, `HF_TOKEN`
//! (or the token that `hf auth login` saved) and `HF_HUB_OFFLINE`, too. All files of a model are those of one commit.
//!
//! The crate `hf-hub` lists repositories and knows the layout. Transfers are made by this module: `hf-hub` 0.5 uses the
//! hash that a server sends as a path without checking it, and keeps a body that ends early as the file. This module
//! checks names and hashes before they become part of a path, and puts a file into the cache when it is complete and
//! has the hash that it is named by.
//!
//! ```no_run
//! use halfbyte::hub::{Hub, Settings};
//! use std::ops::ControlFlow;
//!
//! let hub = Hub::new(Settings::from_env()?)?;
//! let path = hub.fetch(&"hf:owner/repo/model-Q4_0.gguf".parse()?, &mut |_| ControlFlow::Continue(()))?;
//! let model = halfbyte::source::open(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod download;
mod error;
mod listing;
mod location;
mod settings;

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use hf_hub::api::sync::{Api, ApiBuilder, ApiError};
use hf_hub::{Cache, CacheRepo, Repo, RepoType};

use download::Client;
pub use error::Error;
pub use location::Location;
pub use settings::Settings;

/// The progress of a transfer.
#[derive(Debug, Clone, Copy)]
pub struct Transfer<'a> {
    /// Its name in the repository.
    pub file: &'a str,
    /// Bytes that have arrived.
    pub done: u64,
    /// Bytes of the whole file.
    pub total: u64,
}

/// Receives the progress of transfers, and says whether to go on.
pub type Watch<'a> = &'a mut dyn FnMut(Transfer<'_>) -> ControlFlow<()>;

/// The hub and its cache on this machine.
#[derive(Debug)]
pub struct Hub {
    settings: Settings,
    cache: Cache,
    api: Api,
    client: Client,
}

impl Hub {
    /// Checks the settings; sends no request yet.
    ///
    /// # Errors
    /// [`Error::Endpoint`].
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let cache = Cache::new(settings.cache.clone());
        let builder = ApiBuilder::from_cache(cache.clone()).with_endpoint(settings.endpoint.clone());
        let api = builder.with_token(settings.token.clone()).with_progress(false).build();
        let api = api.map_err(|error| Error::Endpoint {
            got: settings.endpoint.clone(),
            problem: error.to_string(),
        })?;
        let client = Client::new(settings.token.as_deref());
        Ok(Self { settings, cache, api, client })
    }

    /// Fetches the files of a model that are not in the cache, and returns the path to open: of a GGUF file (of a split
    /// one the part that was named), or of a directory. Where the hub cannot be reached, a model that is in the cache
    /// is used as it is.
    ///
    /// # Errors
    /// A file is missing and cannot be fetched, or is not what the hub says; see [`Error`].
    pub fn fetch(&self, location: &Location, watch: Watch<'_>) -> Result<PathBuf, Error> {
        let repo = self.repo(location);
        let cached = self.cache.repo(repo.clone());
        if self.settings.offline {
            return self.find(location, &cached);
        }
        let info = match self.api.repo(repo).info() {
            Ok(info) => info,
            Err(error) => {
                let error = asked(location, &self.settings, error);
                // Without a network, the cache is used as it is.
                let here = error.is_unreachable().then(|| self.find(location, &cached).ok()).flatten();
                return here.ok_or(error);
            }
        };
        let commit = location::checked_hash(&info.sha).ok_or_else(|| Error::Reply {
            url: self.settings.endpoint.clone(),
            what: "the name of a commit",
            got: halfbyte_gguf::quote(&info.sha),
        })?;
        let names: Vec<String> = info.siblings.into_iter().map(|sibling| sibling.rfilename).collect();
        let snapshot = cached.pointer_path(commit);
        let mut get = |file: &str| {
            let url = format!("{}/{}/resolve/{commit}/{file}", self.settings.endpoint, location.repo());
            self.client.get(&url, file, &snapshot, |etag| cached.blob_path(etag), location, watch)
        };
        let wanted = listing::choose(location, &names)?;
        for file in &wanted.files {
            get(file)?;
        }
        for file in wanted.indexed(&snapshot)? {
            get(&file)?;
        }
        if location.revision() != commit {
            let reference = |source| Error::Io { path: snapshot.clone(), source };
            cached.create_ref(commit).map_err(reference)?;
        }
        Ok(wanted.path(&snapshot))
    }

    /// The model in the cache, without asking the hub.
    fn find(&self, location: &Location, cached: &CacheRepo) -> Result<PathBuf, Error> {
        let missing = |file: Option<String>| Error::NotCached {
            location: location.to_string(),
            file,
            cache: self.settings.cache.clone(),
            offline: self.settings.offline,
        };
        let reference = self.cache.path().join(self.repo(location).folder_name()).join("refs");
        let commit = match fs::read_to_string(reference.join(location.revision())) {
            Ok(commit) => location::checked_hash(commit.trim()).map(str::to_owned),
            Err(_) => location::checked_hash(location.revision()).map(str::to_owned),
        };
        let snapshot = cached.pointer_path(&commit.ok_or_else(|| missing(None))?);
        let names = listing::files_below(&snapshot);
        if names.is_empty() {
            return Err(missing(None));
        }
        let wanted = listing::choose(location, &names).map_err(|error| match error {
            Error::NoFile { file, .. } => missing(Some(file)),
            Error::NoModel { .. } => missing(None),
            other => other,
        })?;
        let needed = wanted.files.iter().cloned().chain(wanted.indexed(&snapshot)?);
        match needed.into_iter().find(|file| !snapshot.join(file).exists()) {
            Some(file) => Err(missing(Some(file))),
            None => Ok(wanted.path(&snapshot)),
        }
    }

    fn repo(&self, location: &Location) -> Repo {
        Repo::with_revision(location.repo().to_owned(), RepoType::Model, location.revision().to_owned())
    }
}

/// Turns an error of the request for the list of files into one of this module.
fn asked(location: &Location, settings: &Settings, error: ApiError) -> Error {
    let url = format!("{}/{}", settings.endpoint, location.repo());
    match error {
        ApiError::RequestError(error) => match *error {
            ureq::Error::StatusCode(status) => Error::refused(location, status, &url),
            ureq::Error::Json(error) => Error::Reply { url, what: "a list of files", got: error.to_string() },
            error => Error::Unreachable { url, problem: error.to_string() },
        },
        error => Error::Unreachable { url, problem: error.to_string() },
    }
}

/// Whether `path` names a model on the hub, not a file.
pub fn is_location(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.starts_with(location::PREFIX))
}
