//! `cargo xtask ci`: what has to hold for a change to land.

use crate::cuda_compiler::Compiler;
use crate::{clients, contract, fetch_model, fuzz, outside, pool, ptx, readme, shell};
use anyhow::Result;
use std::process::Command;

/// The crates whose results could differ with the optimizer's level: all their tests run optimised, too. (The emulator's
/// are optimised in debug builds as well.)
const COMPUTE: [&str; 6] = [
    "halfbyte-threadpool",
    "halfbyte-q8",
    "halfbyte-q4",
    "halfbyte-k-quants",
    "halfbyte-cpu-kernels",
    "halfbyte-attention",
];

/// The tests that take whole models through the kernels and check numbers that others made. The rest is tested in debug
/// alone, where the crates that compute are optimised, too.
const MODEL_TESTS: [&str; 3] = ["embedded_model::", "packed::", "smollm2_model::"];

/// Runs every check, the quick ones first, and stops at the first that fails.
///
/// # Errors
/// The check that failed.
pub(crate) fn run() -> Result<()> {
    shell::cargo("fmt --all --check")?;
    shell::cargo("fmt --manifest-path fuzz/Cargo.toml --check")?;
    shell::cargo("clippy --workspace --all-targets --locked -- -D warnings")?;
    shell::cargo("clippy -p halfbyte-cuda-driver --all-targets --all-features --locked -- -D warnings")?;
    shell::cargo("clippy -p halfbyte-attention --all-targets --features cuda --locked -- -D warnings")?;
    shell::run(
        Command::new("cargo")
            .args(["doc", "--workspace", "--no-deps", "--locked"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    kernels()?;
    fetch_model::run()?;
    let optimised = |packages: &[&str], more: &[&str]| {
        shell::run(
            Command::new("cargo")
                .args(["test", "--locked", "--release"])
                .args(packages.iter().flat_map(|name| ["--package", name]))
                .args(more)
                .env("HALFBYTE_REQUIRE_MODEL", "1"),
        )
    };
    optimised(&COMPUTE, &[])?;
    let models = ["--features", "quantize", "--test", "models", "--"];
    optimised(&["halfbyte"], &[&models[..], &MODEL_TESTS].concat())?;
    shell::cargo("test -p halfbyte-cuda-driver --all-features --locked --release")?;
    shell::cargo("test -p halfbyte-attention --features cuda --locked --release --test cuda")?;
    clients::run()?;
    outside::run()?;
    pool::quick()?;
    fuzz::run(&fuzz::Args::quick())?;
    // The README's commands: the tests in debug are one of them.
    readme::run()
}

/// The PTX is what the CUDA sources give, and the kernels need what their contract says. Where the compiler can't be
/// installed, a failure in CI and a message elsewhere.
fn kernels() -> Result<()> {
    match Compiler::find_or_install() {
        Ok(_) => {
            ptx::run(&ptx::Args { check: true })?;
            contract::run(&contract::Args { check: true })
        }
        Err(error) if std::env::var_os("CI").is_none() => {
            println!("SKIPPED, the CUDA kernels were not compiled: {error:#}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}
