//! `cargo xtask pool`: the thread pool's proofs that a plain test run does not make.

use anyhow::Result;
use std::process::Command;

use crate::debian::{self, Debian};
use crate::shell;

/// Tests that start threads and nothing that ThreadSanitizer forbids, such as threads after a fork.
const RACED: [&str; 6] = ["callers", "panics", "par_for", "reduce", "sleep", "stress"];

/// Those of them in which threads meet nowhere but in the pool: they need no standard library that the sanitizer sees into.
const RACED_IN_THE_POOL_ALONE: [&str; 2] = ["reduce", "sleep"];

/// What a test program's own threads do in the standard library that came compiled.
const NOT_OURS: &str = "race:test::event::CompletedTest\nrace:test::run_test\n";

/// ThreadSanitizer on the compiler of this machine, and with the runtime that GCC has, which must come before the C library.
const SANITIZED: &str = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer";
const SANITIZED_BY_GCC: &str = "-Zsanitizer=thread -Zexternal-clangrt -Zpre-link-arg=-Wl,--no-as-needed \
                                -Zpre-link-arg=/usr/lib/x86_64-linux-gnu/libtsan.so.2";

/// Options of `cargo xtask pool`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// All tests under ThreadSanitizer, with a standard library that is built with it, in a Debian that has its source
    /// (x86-64, as root)
    #[arg(long)]
    sanitize_all: bool,
    #[command(flatten)]
    debian: debian::Place,
}

/// Runs the loom models, each mutant of the protocol against them, and tests under ThreadSanitizer.
///
/// # Errors
/// The part that failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.sanitize_all {
        models()?;
        sanitize_all(&args.debian)
    } else {
        quick()
    }
}

/// What needs nothing but the compiler, for CI.
///
/// # Errors
/// The part that failed.
pub(crate) fn quick() -> Result<()> {
    models()?;
    sanitize()
}

fn models() -> Result<()> {
    shell::run(
        Command::new("cargo")
            .args(["test", "--package", "halfbyte-threadpool", "--locked", "--release", "--lib", "models"])
            .args(["--target-dir", "target/loom", "--", "--nocapture"])
            .env("RUSTFLAGS", "--cfg loom"),
    )
}

/// On the stable compiler, which lets `RUSTC_BOOTSTRAP` have what is unstable.
fn sanitize() -> Result<()> {
    let host = shell::host()?;
    let suppressions = shell::target()?.join("tsan-suppressions");
    std::fs::write(&suppressions, NOT_OURS)?;
    shell::run(
        Command::new("cargo")
            .args(test(&host, &RACED_IN_THE_POOL_ALONE).split_whitespace())
            .args(["--target-dir", "target/tsan"])
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", SANITIZED)
            .env("TSAN_OPTIONS", format!("suppressions={}", suppressions.display())),
    )
}

fn sanitize_all(place: &debian::Place) -> Result<()> {
    let debian = Debian::find_or_install(place)?;
    shell::cargo("fetch --locked")?;
    debian.fetch_std()?;
    debian.cargo(
        &format!("{} --offline -Zbuild-std --lib", test("x86_64-unknown-linux-gnu", &RACED)),
        &[("RUSTC_BOOTSTRAP", "1"), ("RUSTFLAGS", SANITIZED_BY_GCC)],
    )
}

fn test(target: &str, tests: &[&str]) -> String {
    let tests: String = tests.iter().map(|test| format!(" --test {test}")).collect();
    format!("test --package halfbyte-threadpool --locked --release --no-fail-fast --target {target}{tests}")
}
