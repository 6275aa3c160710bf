//! `halfbyte completions` and `halfbyte man`: what shells and `man` know of this program.

use std::io::{self, Write as _};

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use halfbyte_gguf::AtomicFile;

use super::args::{Cli, CompletionsArgs, ManArgs};

pub(crate) fn completions(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "halfbyte", &mut script);
    Ok(io::stdout().lock().write_all(&script)?)
}

pub(crate) fn man(args: &ManArgs) -> Result<()> {
    let folder = &args.folder;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let wrong = || format!("cannot write manual pages to {}", folder.display());
    let pages = tempfile::tempdir().with_context(wrong)?;
    clap_mangen::generate_to(Cli::command(), pages.path()).with_context(wrong)?;
    for page in pages.path().read_dir().with_context(wrong)? {
        let page = page.with_context(wrong)?;
        let mut file = AtomicFile::create(folder.join(page.file_name())).with_context(wrong)?;
        file.write_all(&std::fs::read(page.path()).with_context(wrong)?).with_context(wrong)?;
        file.commit().with_context(wrong)?;
    }
    Ok(())
}
