//! `cargo xtask ci`: what has to hold for a change to land.

use crate::{fetch_model, outside, pool, readme, shell};
use anyhow::Result;
use std::process::Command;

/// Runs every check, the quick ones first, and stops at the first that fails.
///
/// # Errors
/// The check that failed.
pub(crate) fn run() -> Result<()> {
    shell::cargo("fmt --all --check")?;
    shell::cargo("clippy --workspace --all-targets --locked -- -D warnings")?;
    shell::cargo("clippy -p halfbyte-cuda-driver --all-targets --all-features --locked -- -D warnings")?;
    shell::run(
        Command::new("cargo")
            .args(["doc", "--workspace", "--no-deps", "--locked"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    fetch_model::run()?;
    shell::run(
        Command::new("cargo")
            .args(["test", "--workspace", "--locked", "--release"])
            .env("HALFBYTE_REQUIRE_MODEL", "1"),
    )?;
    shell::cargo("test -p halfbyte-cuda-driver --all-features --locked --release")?;
    outside::run()?;
    pool::run()?;
    // The README's commands: the tests in debug are one of them.
    readme::run()
}
