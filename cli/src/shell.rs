//! `halfbyte completions` and `halfbyte man`: what shells and `man` know of this program.

use std::io;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;

use super::args::{Cli, CompletionsArgs, ManArgs};

pub(crate) fn completions(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "halfbyte", &mut script);
    Ok(io::Write::write_all(&mut io::stdout().lock(), &script)?)
}

pub(crate) fn man(args: &ManArgs) -> Result<()> {
    let folder = &args.folder;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    clap_mangen::generate_to(Cli::command(), folder)
        .with_context(|| format!("cannot write manual pages to {}", folder.display()))
}
