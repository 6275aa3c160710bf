//! Names of models on the hub.

use std::fmt;
use std::str::FromStr;

use super::Error;
use crate::source::is_name;

pub(super) const PREFIX: &str = "hf:";

/// The longest owner, repository, file or revision, in bytes.
const MAX_NAME: usize = 96;

/// `hf:owner/repo[/file.gguf][@revision]`.
///
/// Every part was checked: joined to a path or a URL, it stays below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    repo: String,
    file: Option<String>,
    revision: String,
}

impl Location {
    /// `owner/repo`.
    pub fn repo(&self) -> &str {
        &self.repo
    }

    /// The file, with the folders that it is in.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// A branch, tag or commit; `main` if none is named.
    pub fn revision(&self) -> &str {
        &self.revision
    }
}

impl FromStr for Location {
    type Err = Error;

    /// # Errors
    /// [`Error::Name`].
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |problem: String| Error::Name { text: halfbyte_gguf::quote(text), problem };
        let name = text.strip_prefix(PREFIX).ok_or_else(|| wrong("it does not start with hf:".to_owned()))?;
        let (name, revision) = match name.split_once('@') {
            Some((name, revision)) => (name, revision),
            None => (name, "main"),
        };
        let mut parts = name.splitn(3, '/');
        let (owner, repo) = match (parts.next(), parts.next()) {
            (Some(owner), Some(repo)) => (owner, repo),
            _ => return Err(wrong("it has no owner and repository with a / between".to_owned())),
        };
        for (what, part) in [("owner", owner), ("repository", repo)] {
            if !is_plain(part) || part.contains("--") {
                let quoted = halfbyte_gguf::quote(part);
                return Err(wrong(format!("{quoted} is no name of {what}")));
            }
        }
        if !revision.split('/').all(is_plain) {
            return Err(wrong(format!("{} is no name of a revision", halfbyte_gguf::quote(revision))));
        }
        let file = parts.next();
        if let Some(file) = file {
            if !is_inside(file) {
                return Err(wrong(format!("{} is no file in a repository", halfbyte_gguf::quote(file))));
            }
            if !file.ends_with(".gguf") {
                return Err(wrong(format!("{} is no GGUF file", halfbyte_gguf::quote(file))));
            }
        }
        Ok(Self {
            repo: format!("{owner}/{repo}"),
            file: file.map(str::to_owned),
            revision: revision.to_owned(),
        })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.repo)?;
        if let Some(file) = &self.file {
            write!(f, "/{file}")?;
        }
        if self.revision == "main" { Ok(()) } else { write!(f, "@{}", self.revision) }
    }
}

/// Whether a part has only letters, digits, `-`, `_` and `.`, with no `.` in front and no two side by side.
fn is_plain(part: &str) -> bool {
    (1..=MAX_NAME).contains(&part.len())
        && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && !part.starts_with(['.', '-'])
        && !part.contains("..")
}

/// Whether `file` is a relative path of characters without a meaning in URLs, which does not leave the repository.
pub(super) fn is_inside(file: &str) -> bool {
    let fine =
        |part: &str| is_name(part) && part.bytes().all(|b| b.is_ascii_graphic() && !b"%?#".contains(&b));
    file.len() <= 1024 && file.split('/').all(fine)
}

/// `hash`, the hub's name of a commit or of a file's content, if it may be part of a path.
pub(super) fn checked_hash(hash: &str) -> Option<&str> {
    let hash = hash.strip_prefix("W/").unwrap_or(hash).trim_matches('"');
    ((8..=128).contains(&hash.len()) && hash.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'))
        .then_some(hash)
}
