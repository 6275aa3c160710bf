//! Models that are named by their place on the Hugging Face hub.

use std::borrow::Cow;
use std::path::Path;

use anyhow::Result;

/// Where the model is on this machine: `path`, or the place in the cache of what `hf:` names, fetched if need be.
#[cfg(feature = "hub")]
pub(crate) fn local(path: &Path) -> Result<Cow<'_, Path>> {
    use std::ops::ControlFlow;

    use super::progress::Progress;
    use halfbyte::hub::{Hub, Settings, is_location};

    if !is_location(path) {
        return Ok(Cow::Borrowed(path));
    }
    let location = path.to_string_lossy().parse()?;
    let hub = Hub::new(Settings::from_env()?)?;
    // A bar for each file.
    let mut bar: Option<(String, Progress)> = None;
    let path = hub.fetch(&location, &mut |transfer| {
        if bar.as_ref().is_none_or(|(file, _)| file != transfer.file) {
            bar = Progress::of_file(usize::try_from(transfer.total).unwrap_or(usize::MAX), transfer.file)
                .ok()
                .map(|progress| (transfer.file.to_owned(), progress));
        }
        let done = usize::try_from(transfer.done).unwrap_or(usize::MAX);
        bar.as_mut().map_or(ControlFlow::Continue(()), |(_, progress)| progress.show(done))
    })?;
    Ok(Cow::Owned(path))
}

/// Where the model is on this machine: `path`.
#[cfg(not(feature = "hub"))]
pub(crate) fn local(path: &Path) -> Result<Cow<'_, Path>> {
    if path.to_str().is_some_and(|path| path.starts_with("hf:")) {
        anyhow::bail!(
            "{}: this halfbyte was built without the feature hub; fetch the file with a browser and name it",
            path.display()
        );
    }
    Ok(Cow::Borrowed(path))
}
