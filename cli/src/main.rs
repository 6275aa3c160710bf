//! The command `halfbyte`: run, chat with, measure and look into language models. One file a subcommand.

#![deny(unsafe_code)]

mod args;
mod bench;
mod calibration;
mod chat;
mod compare;
mod console;
mod device;
mod doctor;
mod embedded;
mod evaluation;
mod hub;
mod imatrix;
mod inspect;
mod kl;
mod loading;
mod logits;
mod memory;
mod new_file;
mod output;
mod perplexity;
mod profile;
mod profile_device;
mod progress;
mod prompt;
mod quantize;
mod ranks;
mod run;
mod sampling;
mod serve;
mod shell;
mod signals;
mod speculation;
mod tokenize;
mod types;
mod words;

use std::process::ExitCode;

use anyhow::Result;
use args::{Cli, Command};
use output::note;

/// Does what the command line says. An error is one line on stderr, causes included, and exit code 1; wrong usage
/// has been answered by clap with exit code 2. A reader of stdout that has seen enough is no error. A run that a signal has
/// stopped ends with 128 and the signal's number.
fn main() -> ExitCode {
    signals::explain_cut_files();
    let cli = Cli::from_args(std::env::args_os().collect()).unwrap_or_else(|error| error.exit());
    log_to_stderr();
    match dispatch(cli) {
        Ok(()) => signals::ended_by().map_or(ExitCode::SUCCESS, |signal| signal.exit_code().into()),
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            note!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Logs what `RUST_LOG` asks for; nothing without it.
fn log_to_stderr() {
    if std::env::var_os("RUST_LOG").is_some() {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
}

fn dispatch(Cli { global, command }: Cli) -> Result<()> {
    device::check(&global, &command)?;
    match command {
        Command::Run(args) if args.show_prompt => run::show_prompt(&global, &args),
        Command::Run(args) => ranks::together(&global, args.ranks, |ranks| run::run(&global, &args, ranks)),
        Command::Chat(args) if args.show_prompt => chat::show_prompt(&global, &args),
        Command::Chat(args) => ranks::together(&global, args.ranks, |ranks| chat::run(&global, &args, ranks)),
        Command::Serve(args) => serve::run(&global, &args),
        Command::Tokenize(args) => tokenize::run(&global, &args),
        Command::Logits(args) => logits::run(&global, &args),
        Command::Perplexity(args) => perplexity::run(&global, &args),
        Command::Kl(args) => kl::run(&global, &args),
        Command::Quantize(args) => quantize::run(&global, &args),
        Command::Compare(args) => compare::run(&global, &args),
        Command::Imatrix(args) => imatrix::run(&global, &args),
        Command::Bench(args) => bench::run(&global, &args),
        Command::Profile(args) => profile::run(&global, &args),
        Command::Inspect(args) => inspect::run(&global, &args),
        Command::Doctor(args) => doctor::run(&global, &args),
        Command::Completions(args) => shell::completions(&args),
        Command::Man(args) => shell::man(&args),
    }
}
