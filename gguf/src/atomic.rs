//! A file that appears whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempPath;

use crate::Error;
use crate::mapped::describe_kind;

/// A file that is written beside its destination and then takes the destination's place in one step, with
/// [`commit`](AtomicFile::commit).
///
/// The destination is a name that is not in use, or a regular file, which is replaced. A symbolic link to a regular file
/// is followed: the file is replaced, and the link stays. Everything else is refused and left as it is: directories,
/// devices, pipes, sockets, and links that lead nowhere.
///
/// If the writer is dropped, fails or runs out of disk space, the destination stays as it was and nothing is left beside
/// it. A process that is about to exit without running destructors calls [`remove_unfinished`](AtomicFile::remove_unfinished). Only a
/// killed process can leave the temporary file (`.halfbyte-XXXXXX.tmp`).
#[derive(Debug)]
pub struct AtomicFile {
    file: BufWriter<File>,
    temporary: TempPath,
    /// The path as given, for messages.
    path: PathBuf,
    /// The path that is replaced: what `path` leads to if it is a link.
    destination: PathBuf,
    unfinished: Unfinished,
}

/// The temporary files of this process that are being written.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a path in [`UNFINISHED`] for as long as this value lives.
#[derive(Debug)]
struct Unfinished(PathBuf);

impl Unfinished {
    fn new(path: &Path) -> Self {
        unfinished().push(path.to_owned());
        Self(path.to_owned())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        unfinished().retain(|path| *path != self.0);
    }
}

impl AtomicFile {
    /// Finds out whether [`create`](Self::create) accepts `path`, for work that takes long before it has anything to write.
    ///
    /// # Errors
    /// [`Error::OutputKind`] and [`Error::OutputFolder`], as [`create`](Self::create).
    pub fn check(path: impl AsRef<Path>) -> Result<(), Error> {
        destination(path.as_ref()).map(drop)
    }

    /// Starts a file that will be called `path`. Its directory must exist.
    ///
    /// # Errors
    /// [`Error::OutputKind`] if there is something at `path` that is not a regular file,
    /// [`Error::OutputFolder`] if its directory does not exist, [`Error::Write`] if the temporary file cannot be made.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        let destination = destination(&path)?;
        let error = |source| Error::Write { what: path.display().to_string(), source };
        let folder = folder(&destination);
        // The error's own text has the name of the temporary file, which says nothing to a user.
        let file = builder().tempfile_in(folder).map_err(|e| error(e.kind().into()))?;
        let unfinished = Unfinished::new(file.path());
        // Apart, so that errors of writing do not have the temporary file's name either.
        let (file, temporary) = file.into_parts();
        Ok(Self { file: BufWriter::with_capacity(1 << 20, file), temporary, path, destination, unfinished })
    }

    /// Writes what is buffered, waits until it is on disk, and renames.
    ///
    /// # Errors
    /// [`Error::Write`], or [`Error::OutputKind`] if something else than a regular file has appeared at the destination
    /// since [`create`](Self::create); the destination is then as it was.
    pub fn commit(self) -> Result<(), Error> {
        let Self { file, temporary, path, destination, unfinished } = self;
        let error = |source| Error::Write { what: path.display().to_string(), source };
        let file = file.into_inner().map_err(|e| error(e.into_error()))?;
        file.sync_all().map_err(error)?;
        require_replaceable(&path, &destination)?;
        temporary.persist(&destination).map_err(|e| error(e.error))?;
        drop(unfinished);
        Ok(())
    }

    /// Deletes the temporary files of all writers of this process, none of which can be committed afterwards. For a
    /// process that is about to exit without running destructors, such as one that handles a signal.
    pub fn remove_unfinished() {
        for path in unfinished().drain(..) {
            // It may be gone already, and there is nobody left to tell.
            let _ = fs::remove_file(path);
        }
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

/// The path that a file called `path` takes: `path` itself, or the regular file that it is a link to.
fn destination(path: &Path) -> Result<PathBuf, Error> {
    let refuse = |got| Err(Error::OutputKind { path: path.to_owned(), got });
    if path.file_name().is_none() {
        return refuse("a directory");
    }
    let destination = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => match path.canonicalize() {
            Ok(target) => target,
            Err(_) => return refuse("a link that leads nowhere"),
        },
        _ => path.to_owned(),
    };
    require_replaceable(path, &destination)?;
    let folder = folder(&destination);
    if !folder.is_dir() {
        return Err(Error::OutputFolder { path: path.to_owned(), folder: folder.to_owned() });
    }
    Ok(destination)
}

/// The directory that a file is in.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Refuses a `destination` that is there and is no regular file.
fn require_replaceable(path: &Path, destination: &Path) -> Result<(), Error> {
    match fs::symlink_metadata(destination) {
        Ok(found) if !found.is_file() => {
            Err(Error::OutputKind { path: path.to_owned(), got: describe_kind(found.file_type()) })
        }
        _ => Ok(()),
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
