//! The safetensors files of a directory, found by the index or by their usual name. They are mapped, and their headers
//! are checked.
//!
//! ```text
//! header length u64   header, JSON: name -> dtype, shape, range of bytes   data
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::Dtype;

use super::Error;
use super::index;
use super::limits::{MAX_FILES, MAX_HEADER_BYTES};
use halfbyte_gguf::{self as gguf, MappedFile, quote};

/// Where a tensor is, and its type and shape by its file.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) dtype: Dtype,
    /// Outermost first.
    pub(super) shape: Vec<usize>,
    pub(super) file: usize,
    /// Where its bytes are, counted from the start of the file, within which they lie.
    pub(super) range: std::ops::Range<usize>,
}

/// The mapped files.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) paths: Vec<PathBuf>,
    maps: Vec<MappedFile>,
}

impl Files {
    /// Maps the safetensors files in `directory` and lists their tensors by name.
    ///
    /// # Errors
    /// There are no files; a file is missing or is not a safetensors file; a tensor is in two files, or not in the one
    /// that the index names.
    pub(super) fn open(directory: &Path) -> Result<(Self, BTreeMap<String, Entry>), Error> {
        let index = index::read(directory)?;
        let names = match &index {
            Some(index) => index.files(),
            None => vec!["model.safetensors".to_owned()],
        };
        if index.is_none() && !directory.join(&names[0]).exists() {
            return Err(Error::Incomplete { path: directory.to_owned(), missing: "model.safetensors" });
        }
        let (got, limit) = (names.len() as u64, MAX_FILES as u64);
        if got > limit {
            let path = directory.join(index::NAME);
            return Err(Error::Limit { path, what: "the number of files", got, limit });
        }
        let mut files = Self { paths: Vec::new(), maps: Vec::new() };
        let mut tensors: BTreeMap<String, Entry> = BTreeMap::new();
        for name in &names {
            let path = directory.join(name);
            let map = map(&path)?;
            for (tensor, entry) in header(&path, &map, files.maps.len())? {
                if let Some(first) = tensors.get(&tensor) {
                    let problem = format!("in {} and in {name}", names[first.file]);
                    return Err(Error::Placement { tensor: quote(&tensor), problem });
                }
                tensors.insert(tensor, entry);
            }
            files.paths.push(path);
            files.maps.push(map);
        }
        if let Some(index) = &index {
            index.check(&names, &tensors)?;
        }
        Ok((files, tensors))
    }

    /// The bytes of each file.
    pub(super) fn contents(&self) -> impl Iterator<Item = &[u8]> {
        self.maps.iter().map(|map| &**map)
    }

    pub(super) fn bytes(&self, file: usize, range: std::ops::Range<usize>) -> &[u8] {
        &self.maps[file][range]
    }

    pub(super) fn release_pages(&self) {
        for map in &self.maps {
            map.release_pages();
        }
    }
}

/// Maps the safetensors file at `path`.
fn map(path: &Path) -> Result<MappedFile, Error> {
    MappedFile::open(path).map_err(|error| match error {
        gguf::Error::Empty { path } => {
            let message = "the file is empty: expected a safetensors file".to_owned();
            Error::Safetensors { path, message }
        }
        error => error.into(),
    })
}

/// The tensors that the header of `bytes`, the file at `path`, lists: each within the file, the next where the last one
/// ends.
pub(super) fn header(path: &Path, bytes: &[u8], file: usize) -> Result<Vec<(String, Entry)>, Error> {
    let wrong = |message: String| Error::Safetensors { path: path.to_owned(), message };
    let Some((len, rest)) = bytes.split_first_chunk() else {
        return Err(wrong(format!("expected 8 bytes of header length, got {}", bytes.len())));
    };
    let got = u64::from_le_bytes(*len);
    if got > MAX_HEADER_BYTES {
        let (what, limit) = ("the header's length", MAX_HEADER_BYTES);
        return Err(Error::Limit { path: path.to_owned(), what, got, limit });
    }
    // At most `MAX_HEADER_BYTES`.
    let Some((header, data)) = rest.split_at_checked(got as usize) else {
        return Err(wrong(format!("the header has {got} bytes, but the file has {} left", rest.len())));
    };
    // Not `SafeTensors::read_metadata`: adding up sizes near 2^64, it wraps, and takes such a file for whole.
    let metadata: safetensors::tensor::Metadata =
        serde_json::from_slice(header).map_err(|e| wrong(format!("its header: {e}")))?;
    let (expected, got) = (metadata.data_len(), data.len());
    if expected != got {
        return Err(wrong(format!("its header lists {expected} bytes of tensors, but the file has {got}")));
    }
    let start = bytes.len() - data.len();
    let entry = |(name, info): (String, &safetensors::tensor::TensorInfo)| {
        let (from, to) = info.data_offsets;
        // Ranges follow each other from 0 to `expected`, which the file has.
        let (shape, range) = (info.shape.clone(), start + from..start + to);
        (name, Entry { dtype: info.dtype, shape, file, range })
    };
    Ok(metadata.tensors().into_iter().map(entry).collect())
}
