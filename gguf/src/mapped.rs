//! Files mapped into memory.

use std::fs::{self, File};
use std::path::Path;

use memmap2::Mmap;

use crate::Error;

/// A whole file, mapped read-only.
///
/// The mapping is only as constant as the file. A process that overwrites the file in place changes the bytes under
/// the reader, and one that truncates it makes the next access past the new end fail with SIGBUS, which ends the
/// process. No portable call prevents either. Replacing a file by rename, as [`crate::AtomicFile`] does, is always
/// safe, because the mapping keeps the old file alive.
///
/// So this type is sound under one condition that the operating system, not the compiler, has to enforce: nobody
/// writes to the file while it is mapped. What this workspace does so that breaking the condition gives wrong numbers
/// and not undefined behaviour in practice: names, metadata and sizes are copied out and checked once, and are not
/// read from the mapping again; weights are read as types that accept every bit pattern; no length, index or
/// reference is computed from weights.
#[derive(Debug)]
pub struct MappedFile(Mmap);

impl MappedFile {
    /// Maps the file at `path`.
    ///
    /// # Errors
    /// [`Error::Open`], [`Error::NotAFile`] for a directory, pipe or device (found without opening it, so that a pipe
    /// does not block), [`Error::Empty`], [`Error::Map`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let open_error = |source| Error::Open { path: path.to_owned(), source };
        require_file(path, &fs::metadata(path).map_err(open_error)?)?;
        let file = File::open(path).map_err(open_error)?;
        // The second check is needed because the path may name something else by now.
        let metadata = file.metadata().map_err(open_error)?;
        require_file(path, &metadata)?;
        if metadata.len() == 0 {
            return Err(Error::Empty { path: path.to_owned() });
        }
        #[allow(unsafe_code, reason = "the compiler cannot check that nobody writes to a mapped file")]
        // SAFETY: the contract of `Mmap::map` is that the file is not modified while it is mapped. That is the
        // documented condition of this type, which says what follows from breaking it.
        let map = unsafe { Mmap::map(&file) };
        Ok(Self(map.map_err(|source| Error::Map { path: path.to_owned(), source })?))
    }

    /// Tells the system that the pages are not needed for now. Reading them brings them back from the file.
    pub fn release_pages(&self) {
        #[cfg(unix)]
        {
            #[allow(unsafe_code, reason = "this kind of advice loses data in writable mappings")]
            // SAFETY: the mapping is shared and read-only. Dropped pages are read from the file again, which has the
            // same bytes as before under the condition of this type.
            let advised = unsafe { self.0.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
            // It is advice: nothing depends on it.
            let _ = advised;
        }
    }
}

impl std::ops::Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Refuses what cannot be read as a whole: directories, pipes, sockets and devices.
///
/// # Errors
/// [`Error::NotAFile`], which says what `path` is.
pub fn require_file(path: &Path, metadata: &fs::Metadata) -> Result<(), Error> {
    let kind = metadata.file_type();
    if kind.is_file() {
        return Ok(());
    }
    Err(Error::NotAFile { path: path.to_owned(), got: describe_kind(kind) })
}

/// What a path that is no regular file is, in words.
pub(crate) fn describe_kind(kind: fs::FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_symlink() {
        "a link"
    } else {
        special_kind(kind)
    }
}

#[cfg(unix)]
fn special_kind(kind: fs::FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(not(unix))]
fn special_kind(_: fs::FileType) -> &'static str {
    "not a file"
}
