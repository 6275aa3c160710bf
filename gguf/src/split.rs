//! Models in several files: `NAME-00001-of-00003.gguf` and the parts that follow.
//!
//! Each part is a GGUF file with tensors of its own. `split.no` (from 0) and `split.count` say which it is,
//! `split.tensors.count` of the first how many tensors all of them have; all other metadata is the first part's.

use std::path::{Path, PathBuf};

use crate::error::quote;
use crate::limits::{MAX_PARTS, MAX_TENSORS, at_most};
use crate::metadata::{Metadata, sorted_index};
use crate::{Error, Gguf};

/// What a part says of its split.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split {
    pub(crate) no: u32,
    pub(crate) count: u32,
    tensors: Option<u32>,
}

impl Split {
    /// `None` for a model in one file.
    ///
    /// # Errors
    /// Keys of another type, and more parts than [`MAX_PARTS`].
    pub(crate) fn of(metadata: &Metadata) -> Result<Option<Self>, Error> {
        let Some(count) = metadata.opt_u32("split.count")?.filter(|&count| count > 1) else {
            return Ok(None);
        };
        at_most(count.into(), MAX_PARTS, "metadata key \"split.count\"", "the number of parts")?;
        let no = metadata.u32("split.no")?;
        Ok(Some(Self { no, count, tensors: metadata.opt_u32("split.tensors.count")? }))
    }

    /// The file of part `no`, beside this part's, which is called `path`.
    fn file(self, path: &Path, no: u32) -> Option<PathBuf> {
        let name = path.file_name()?.to_str()?;
        let prefix = name.strip_suffix(&suffix(self.no, self.count))?;
        Some(path.with_file_name(format!("{prefix}{}", suffix(no, self.count))))
    }
}

fn suffix(no: u32, count: u32) -> String {
    format!("-{:05}-of-{count:05}.gguf", no.saturating_add(1))
}

/// The file names of all parts of a split model, if `file` is called as one part is (`NAME-00001-of-00003.gguf`).
pub fn file_names(file: &str) -> Option<Vec<String>> {
    let (rest, count) = file.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (prefix, no) = rest.rsplit_once('-')?;
    let number = |text: &str| text.parse::<u32>().ok().filter(|_| text.len() == 5);
    let (no, count) = (number(no)?, number(count)?);
    let range = 2..=u32::try_from(MAX_PARTS).ok()?;
    (range.contains(&count) && (1..=count).contains(&no))
        .then(|| (0..count).map(|no| format!("{prefix}{}", suffix(no, count))).collect())
}

impl Gguf {
    /// The files of this model, which was opened by `path`.
    pub fn files(&self, path: &Path) -> Vec<PathBuf> {
        match Split::of(self.metadata()) {
            Ok(Some(split)) => (0..split.count).filter_map(|no| split.file(path, no)).collect(),
            _ => vec![path.to_owned()],
        }
    }

    /// This first part, which was read from `path`, with all the others.
    pub(crate) fn with_parts(mut self, path: &Path, split: Split) -> Result<Self, Error> {
        let Split { no, count, tensors } = split;
        let unnamed = || Error::SplitName { path: path.to_owned(), no, count };
        let first = split.file(path, 0).ok_or_else(unnamed)?;
        if no != 0 {
            let first = first.display().to_string();
            return Err(Error::SplitNotFirst { path: path.to_owned(), no, count, first });
        }
        for no in 1..count {
            let path = split.file(path, no).ok_or_else(unnamed)?;
            let wrong = |source| Error::SplitPart { part: no + 1, count, source: Box::new(source) };
            let part = Self::open_part(&path).map_err(|source| match source {
                named @ (Error::Open { .. }
                | Error::NotAFile { .. }
                | Error::Empty { .. }
                | Error::Map { .. }) => wrong(named),
                source => wrong(Error::InFile { path: path.clone(), source: Box::new(source) }),
            })?;
            let (got, got_count) = match Split::of(&part.parsed.metadata).map_err(wrong)? {
                Some(Split { no, count, .. }) => (no, count),
                None => (0, 1),
            };
            if (got, got_count) != (no, count) {
                return Err(Error::SplitMismatch { path, no, count, got, got_count });
            }
            let n = self.parsed.tensors.len() + part.parsed.tensors.len();
            at_most(n as u64, MAX_TENSORS, "split model", "tensor count")?;
            let index = self.parts.len();
            self.parts.extend(part.parts);
            self.parsed.tensors.extend(part.parsed.tensors.into_iter().map(|mut info| {
                info.part = index;
                info
            }));
        }
        let all = &self.parsed.tensors;
        if let Some(expected) = tensors.filter(|&n| n as usize != all.len()) {
            return Err(Error::SplitTensors { expected, got: all.len() });
        }
        self.parsed.by_name = sorted_index(all.len(), |i| &all[i].name)
            .map_err(|i| Error::DuplicateTensor { tensor: quote(&all[i].name) })?;
        Ok(self)
    }
}
