//! Finds the files of a model among those of a repository.

use std::fs;
use std::path::{Path, PathBuf};

use super::location::is_inside;
use super::{Error, Location};
use crate::source;
use halfbyte_gguf as gguf;

/// The files besides weights that [`crate::source`] reads of a directory.
const COMPANIONS: [&str; 5] = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "chat_template.jinja",
];

const WEIGHTS: &str = "model.safetensors";

/// Folders that files may be in.
const MAX_DEPTH: usize = 8;

/// The files of a model.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) files: Vec<String>,
    /// The file to open; `None` for the directory.
    opened: Option<String>,
    /// Whether one of them is an index, which names more files.
    has_index: bool,
}

impl Wanted {
    /// The path to open when the files are below `snapshot`.
    pub(super) fn path(&self, snapshot: &Path) -> PathBuf {
        self.opened.as_ref().map_or_else(|| snapshot.to_owned(), |file| snapshot.join(file))
    }

    /// The files that the index below `snapshot` names.
    ///
    /// # Errors
    /// An index that is not one, or names files elsewhere.
    pub(super) fn indexed(&self, snapshot: &Path) -> Result<Vec<String>, Error> {
        Ok(if self.has_index { source::indexed_files(snapshot)? } else { Vec::new() })
    }
}

/// The files of the model at `location`, in a repository that has `names`.
///
/// # Errors
/// [`Error::NoFile`], [`Error::NoModel`], [`Error::Several`].
pub(super) fn choose(location: &Location, names: &[String]) -> Result<Wanted, Error> {
    let has = |name: &str| names.iter().any(|n| n == name);
    let repo = || location.repo().to_owned();
    // A GGUF file and, if it is one of several parts, the others.
    let parts = |file: &str| {
        let files = gguf::split_file_names(file).unwrap_or_else(|| vec![file.to_owned()]);
        if let Some(file) = files.iter().find(|file| !has(file)) {
            let models = models(names);
            let has = shown(if models.is_empty() { names } else { &models });
            return Err(Error::NoFile { repo: repo(), file: file.clone(), has });
        }
        Ok(Wanted { files, opened: Some(file.to_owned()), has_index: false })
    };
    if let Some(file) = location.file() {
        return parts(file);
    }
    let has_index = has(source::INDEX_NAME);
    if has("config.json") && (has_index || has(WEIGHTS)) {
        let companions = COMPANIONS.into_iter().filter(|name| has(name));
        let weights = if has_index { source::INDEX_NAME } else { WEIGHTS };
        let files = companions.chain([weights]).map(str::to_owned).collect();
        return Ok(Wanted { files, opened: None, has_index });
    }
    let models = models(names);
    match models.as_slice() {
        [] => Err(Error::NoModel { repo: repo(), has: shown(names) }),
        [file] => parts(file),
        _ => Err(Error::Several { repo: repo(), files: models }),
    }
}

/// The GGUF models among `names`, each by its first file.
fn models(names: &[String]) -> Vec<String> {
    let is_first =
        |name: &String| gguf::split_file_names(name).is_none_or(|parts| parts.first() == Some(name));
    names
        .iter()
        .filter(|name| name.ends_with(".gguf") && is_inside(name) && is_first(name))
        .cloned()
        .collect()
}

/// The first few of `names`, for a message.
fn shown(names: &[String]) -> String {
    const MOST: usize = 8;
    if names.is_empty() {
        return "no files".to_owned();
    }
    let mut text = names.iter().take(MOST).map(|name| gguf::quote(name)).collect::<Vec<_>>().join(", ");
    if names.len() > MOST {
        text += &format!(" and {} more", names.len() - MOST);
    }
    text
}

/// The files below `folder`, by their names in it; none if it can't be read.
pub(super) fn files_below(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![(folder.to_owned(), String::new(), 0)];
    while let Some((path, prefix, depth)) = folders.pop() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let name = format!("{prefix}{name}");
            if !entry.path().is_dir() {
                names.push(name);
            } else if depth < MAX_DEPTH {
                folders.push((entry.path(), format!("{name}/"), depth + 1));
            }
        }
    }
    names.sort_unstable();
    names
}
