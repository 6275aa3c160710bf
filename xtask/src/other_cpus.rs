//! `cargo xtask other-cpus`: the library crates on CPUs that this machine is not.
//!
//! A [Debian](crate::debian) brings the compiler with the standard libraries for them, the linkers, and what runs the tests:
//! QEMU's user emulation for aarch64, Node for wasm32.

use anyhow::Result;
use clap::ValueEnum;

use crate::debian::{self, Debian};
use crate::shell;

/// Where no second thread, process or timer is needed.
const KERNELS: [&str; 4] = ["halfbyte-q8", "halfbyte-q4", "halfbyte-k-quants", "halfbyte-cpu-kernels"];
const KERNEL_TESTS: [&str; 10] = [
    "activations",
    "q8_0",
    "affine_fit",
    "field_cases",
    "goldens",
    "properties",
    "weighted",
    "fit",
    "kernels",
    "simd",
];
/// What is run on aarch64 beside them. Of the thread pool nothing that measures time or forks: under an emulator those
/// tests test the emulator.
const THREADED: [&str; 2] = ["halfbyte-threadpool", "halfbyte-attention"];
const THREADED_TESTS: [&str; 8] =
    ["builder", "callers", "panics", "par_for", "reduce", "edges", "invariance", "twin"];

/// Options of `cargo xtask other-cpus`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// CPUs to build and test for [default: all]
    #[arg(value_enum)]
    cpus: Vec<Cpu>,
    #[command(flatten)]
    debian: debian::Place,
    /// Compile the tests and run none
    #[arg(long)]
    no_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Cpu {
    Aarch64,
    Wasm32,
}

impl Cpu {
    const fn target(self) -> &'static str {
        match self {
            Self::Aarch64 => "aarch64-unknown-linux-gnu",
            Self::Wasm32 => "wasm32-wasip1",
        }
    }

    const fn linker(self) -> &'static str {
        match self {
            Self::Aarch64 => "aarch64-linux-gnu-gcc",
            Self::Wasm32 => "wasm-ld",
        }
    }
}

/// Makes the Debian if need be, builds and tests.
///
/// # Errors
/// A program that is missing, not being root, or the step that failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    let debian = Debian::find_or_install(&args.debian)?;
    let cpus = if args.cpus.is_empty() { Cpu::value_variants() } else { &args.cpus };
    for cpu in cpus {
        // The Debian has no certificates, and needs none.
        shell::cargo(&format!("fetch --locked --target {}", cpu.target()))?;
    }
    for cpu in cpus {
        let run = if args.no_run { "--no-run" } else { "" };
        match cpu {
            Cpu::Aarch64 => aarch64(&debian, run)?,
            Cpu::Wasm32 => wasm32(&debian, run)?,
        }
    }
    Ok(())
}

fn aarch64(debian: &Debian, run: &str) -> Result<()> {
    let packages: Vec<_> = KERNELS.into_iter().chain(THREADED).collect();
    let tests: Vec<_> = KERNEL_TESTS.into_iter().chain(THREADED_TESTS).collect();
    // A program under the emulator can't start itself, unless the system knows aarch64 programs.
    let run_all = format!("{run} -- --skip isa::the_environment_overrides_the_best_path");
    cargo(debian, Cpu::Aarch64, &test(Cpu::Aarch64, &packages, &tests, &run_all), "qemu-aarch64 -cpu max")?;
    // A CPU without the dot product takes the scalar path, and says so.
    let isa = test(Cpu::Aarch64, &packages, &["kernels"], &format!("{run} isa::names"));
    cargo(debian, Cpu::Aarch64, &isa, "qemu-aarch64 -cpu cortex-a53")
}

fn wasm32(debian: &Debian, run: &str) -> Result<()> {
    let cargo =
        |args: &str| cargo(debian, Cpu::Wasm32, args, "node --no-warnings /source/xtask/src/wasi.mjs");
    cargo(&test(Cpu::Wasm32, &KERNELS, &KERNEL_TESTS, run))?;
    // Its tests have more than one thread.
    cargo(&format!("build --locked --offline --target {} -p halfbyte-attention", Cpu::Wasm32.target()))
}

/// Runs cargo with the linker of `cpu`, and its tests by `runner`.
fn cargo(debian: &Debian, cpu: Cpu, args: &str, runner: &str) -> Result<()> {
    let target = cpu.target().to_uppercase().replace('-', "_");
    debian.cargo(
        args,
        &[
            (&format!("CARGO_TARGET_{target}_LINKER"), cpu.linker()),
            (&format!("CARGO_TARGET_{target}_RUNNER"), runner),
        ],
    )
}

/// The arguments of a test run.
fn test(cpu: Cpu, packages: &[&str], tests: &[&str], more: &str) -> String {
    let packages: String = packages.iter().map(|name| format!(" -p {name}")).collect();
    let tests: String = tests.iter().map(|name| format!(" --test {name}")).collect();
    format!("test --locked --offline --no-fail-fast --target {}{packages}{tests} {more}", cpu.target())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_named_are_there() {
        for name in KERNEL_TESTS.iter().chain(&THREADED_TESTS) {
            let found = KERNELS.iter().chain(&THREADED).any(|package| {
                let tests = shell::root().join(package.trim_start_matches("halfbyte-")).join("tests");
                tests.join(format!("{name}.rs")).is_file() || tests.join(name).join("main.rs").is_file()
            });
            assert!(found, "{name}");
        }
    }
}
