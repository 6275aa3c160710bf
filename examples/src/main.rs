//! The command `halfbyte`: run, chat with, measure and look into language models on the CPU.

#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
