//! A file that appears whole or not at all.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::Error;

/// A file being written beside its destination, which
/// [`commit`](AtomicFile::commit) replaces in one step.
///
/// Until then, and for good if the writer is dropped, fails or runs out of disk
/// space, the destination stays as it was and nothing is left beside it. Only a
/// killed process can leave the temporary file (`.halfbyte-XXXXXX.tmp`).
#[derive(Debug)]
pub struct AtomicFile {
    file: BufWriter<NamedTempFile>,
    path: PathBuf,
}

impl AtomicFile {
    /// Starts a file that will be called `path`. Its directory must exist.
    ///
    /// # Errors
    /// [`Error::Write`] if the temporary file cannot be made, or if `path` is a
    /// directory or names none.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        let error = |source| Error::Write { what: path.display().to_string(), source };
        // Found now rather than after hours of quantizing.
        if path.file_name().is_none() || path.is_dir() {
            return Err(error(io::ErrorKind::IsADirectory.into()));
        }
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let file = builder().tempfile_in(directory).map_err(error)?;
        Ok(Self { file: BufWriter::with_capacity(1 << 20, file), path })
    }

    /// Writes what is buffered, waits until it is on disk, and renames.
    ///
    /// # Errors
    /// [`Error::Write`]; the destination is then as it was.
    pub fn commit(self) -> Result<(), Error> {
        let error = |source| Error::Write { what: self.path.display().to_string(), source };
        let file = self.file.into_inner().map_err(|e| error(e.into_error()))?;
        file.as_file().sync_all().map_err(error)?;
        file.persist(&self.path).map_err(|e| error(e.error))?;
        Ok(())
    }
}

impl Write for AtomicFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.file.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// How the temporary file is made: with the permissions of any new file (the
/// umask applies) rather than those of a secret one, since it becomes the real one.
fn builder() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".halfbyte-").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder
}
