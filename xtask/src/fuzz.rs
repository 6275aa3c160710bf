//! `cargo xtask fuzz`: the fuzz targets in `fuzz/`, with AddressSanitizer, for a bounded time each.
//!
//! Sanitizers and coverage are unstable options of the compiler; `RUSTC_BOOTSTRAP` lets the stable one have them, so that what
//! is fuzzed is what is shipped. The flags are those that cargo-fuzz gives.

use crate::shell;
use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The targets of the program in `fuzz`.
const TARGETS: [&str; 9] =
    ["gguf", "safetensors", "mlx", "imatrix", "tokenizer", "template", "requests", "blocks", "quantizers"];

const FLAGS: &str = "-Zsanitizer=address -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares";

/// The longest input, in bytes.
const MAX_LEN: usize = 16 << 10;

/// What an input may take: far more than any should.
const LIMITS: [&str; 3] = ["-timeout=20", "-rss_limit_mb=2048", "-malloc_limit_mb=512"];

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Seconds for each target
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub(crate) seconds: u32,
    /// The targets [default: all]
    #[arg(value_parser = TARGETS)]
    pub(crate) targets: Vec<String>,
}

impl Args {
    /// A look at every target, for CI.
    pub(crate) fn quick() -> Self {
        Self { seconds: 5, targets: Vec::new() }
    }
}

/// Builds the targets, writes their seeds and runs one after the other; inputs that reach new code are kept in
/// `target/fuzz/corpus` for the next time.
///
/// # Errors
/// A build that fails; the input that a target failed on, by its file.
pub(crate) fn run(args: &Args) -> Result<()> {
    let host = shell::host()?;
    let folder = shell::target()?.join("fuzz");
    shell::run(
        Command::new("cargo")
            .args(["build", "--release", "--locked", "--manifest-path", "fuzz/Cargo.toml"])
            .args(["--target", &host, "--target-dir"])
            .arg(&folder)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", FLAGS),
    )?;
    let program = folder.join(host).join("release/halfbyte-fuzz");
    shell::run(Command::new(&program).env("FUZZ_SEEDS", folder.join("seeds")))?;
    let targets: Vec<&str> = match args.targets.as_slice() {
        [] => TARGETS.to_vec(),
        some => some.iter().map(String::as_str).collect(),
    };
    println!("\n| target | executions | a second | edges | corpus |\n|---|---|---|---|---|");
    for target in targets {
        println!("{}", fuzz(&folder, &program, target, args.seconds)?);
    }
    Ok(())
}

/// Runs a target and returns its row of the table.
fn fuzz(folder: &Path, program: &Path, target: &str, seconds: u32) -> Result<String> {
    let corpus = folder.join("corpus").join(target);
    let artifacts = folder.join("artifacts");
    for folder in [&corpus, &artifacts] {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let output = Command::new(program)
        .env("FUZZ_TARGET", target)
        .arg(&corpus)
        .arg(folder.join("seeds").join(target))
        .args(LIMITS)
        .arg(format!("-max_len={MAX_LEN}"))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/{target}-", artifacts.display()))
        .arg("-print_final_stats=1")
        // Memory that is kept is for `-rss_limit_mb` to see.
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .output()
        .with_context(|| format!("{target}: can't be started"))?;
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let lines: Vec<&str> = log.lines().collect();
        println!("{}", lines[lines.len().saturating_sub(60)..].join("\n"));
        let written = |line: &&&str| line.contains("Test unit written to ");
        let input = lines.iter().find(written).and_then(|line| line.split("written to ").nth(1));
        let input = input.map_or_else(|| "no input was written".to_owned(), str::to_owned);
        let again = format!("FUZZ_TARGET={target} {} {input}", program.display());
        bail!("{target} failed: {}, the input is {input}; again with {again}", output.status);
    }
    let after = |line: &str, name: &str| {
        line.split_once(name).and_then(|(_, rest)| rest.split_whitespace().next()).map(str::to_owned)
    };
    let stat = |name: &str| log.lines().find_map(|line| after(line, name)).unwrap_or_else(|| "?".to_owned());
    // The last line of progress: `#123 DONE cov: 45 ft: 67 corp: 8/9b ...`.
    let done = log.lines().rfind(|line| line.contains("cov: ")).unwrap_or_default();
    let field = |name: &str| after(done, name).unwrap_or_else(|| "?".to_owned());
    Ok(format!(
        "| {target} | {} | {} | {} | {} |",
        stat("stat::number_of_executed_units:"),
        stat("stat::average_exec_per_sec:"),
        field("cov: "),
        field("corp: ")
    ))
}
