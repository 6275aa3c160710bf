//! `cargo xtask pool`: the thread pool's proofs that a plain test run does not make.

use crate::shell;
use anyhow::Result;
use std::process::Command;

/// Tests that start threads and nothing that ThreadSanitizer forbids, such as threads after a fork.
const RACED: [&str; 6] = ["callers", "panics", "par_for", "reduce", "sleep", "stress"];

/// Runs the loom models, each mutant of the protocol against them, and the tests under ThreadSanitizer.
///
/// The sanitizer needs the standard library built with it too, or it misses what goes through there; so it needs a
/// nightly toolchain with `rust-src`. Without one this says so and goes on.
///
/// # Errors
/// The part that failed.
pub(crate) fn run() -> Result<()> {
    shell::run(
        Command::new("cargo")
            .args(["test", "--package", "halfbyte-threadpool", "--locked", "--release", "--lib", "models"])
            .args(["--target-dir", "target/loom", "--", "--nocapture"])
            .env("RUSTFLAGS", "--cfg loom"),
    )?;
    let Some(host) = nightly_host() else {
        println!("\n# ThreadSanitizer: SKIPPED, it needs a nightly toolchain with the component rust-src");
        return Ok(());
    };
    shell::run(
        Command::new("rustup")
            .args(["run", "nightly", "cargo", "test", "--package", "halfbyte-threadpool", "--locked"])
            .args(["-Zbuild-std", "--target", &host, "--release"])
            .args(["--target-dir", "target/tsan", "--lib"])
            .args(RACED.iter().flat_map(|test| ["--test", test]))
            .env_remove("RUSTUP_TOOLCHAIN")
            .env("RUSTFLAGS", "-Zsanitizer=thread"),
    )
}

/// The host of the nightly toolchain, if there is one and it has the standard library's source.
fn nightly_host() -> Option<String> {
    let output = |args: &[&str]| {
        let output = Command::new("rustup").args(args).env_remove("RUSTUP_TOOLCHAIN").output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let components = output(&["component", "list", "--installed", "--toolchain", "nightly"])?;
    components.lines().find(|line| *line == "rust-src")?;
    let version = output(&["run", "nightly", "rustc", "-vV"])?;
    version.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned)
}
