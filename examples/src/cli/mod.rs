//! The command line: one file a subcommand.

mod args;
mod bench;
mod chat;
mod console;
mod doctor;
mod engine;
mod inspect;
mod logits;
mod memory;
mod output;
mod run;
mod sampling;
mod tokenize;

use std::process::ExitCode;

use anyhow::Result;
use args::{Cli, Command};
use clap::Parser;
use output::note;

/// Does what the command line says. An error is one line on stderr, causes included, and exit code 1; wrong usage
/// has been answered by clap with exit code 2. A reader of stdout that has seen enough is no error.
pub(crate) fn main() -> ExitCode {
    match dispatch(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            note!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(Cli { global, command }: Cli) -> Result<()> {
    match command {
        None => run::run(&global, &run::defaults()),
        Some(Command::Run(args)) => run::run(&global, &args),
        Some(Command::Chat(args)) => chat::run(&global, &args),
        Some(Command::Tokenize(args)) => tokenize::run(&global, &args),
        Some(Command::Logits(args)) => logits::run(&global, &args),
        Some(Command::Bench(args)) => bench::run(&global, &args),
        Some(Command::Inspect(args)) => inspect::run(&global, &args),
        Some(Command::Doctor(args)) => doctor::run(&global, &args),
    }
}
