//! Where a command may write its file.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use halfbyte::source::ModelFile;
use halfbyte_gguf::AtomicFile;

/// Refuses an `output` that cannot be written or would replace what the command reads: a file of `model`, anything in the
/// directory of a model that is a directory, or one of `others`. Without `force` it also refuses one that exists.
pub(crate) fn check<'a>(
    output: &Path,
    model: &'a ModelFile,
    others: impl IntoIterator<Item = &'a Path>,
    force: bool,
) -> Result<()> {
    AtomicFile::check(output)?;
    let shown = output.display();
    // A path that does not exist replaces nothing.
    if let Ok(found) = output.canonicalize() {
        let is_found = |path: &Path| path.canonicalize().is_ok_and(|path| path == found);
        if model.files().chain(others).any(is_found) {
            bail!("{shown} is the file to be read: expected another name for the new one");
        }
        // A model that is a directory is read from files of several kinds, and other programs read the rest.
        let directories = model.files().filter(|_| model.gguf().is_none()).filter_map(Path::parent);
        let mut directories = directories.map(PathBuf::from).collect::<Vec<_>>();
        directories.dedup();
        if let Some(directory) =
            directories.iter().find(|dir| fs::canonicalize(dir).is_ok_and(|dir| found.starts_with(dir)))
        {
            bail!(
                "{shown} is a file of {}, the directory to be read: expected another name for the new one",
                directory.display()
            );
        }
        if !force {
            bail!("{shown} exists already: --force replaces it");
        }
    }
    Ok(())
}
