//! `cargo xtask other-cpus`: the library crates on CPUs that this machine is not.
//!
//! A Debian in a folder of its own brings the compiler with the standard libraries for them, the linkers, and what runs
//! the tests: QEMU's user emulation for aarch64, Node for wasm32. It is made once (3 GB, minutes) and takes root, for
//! `debootstrap` and `chroot`; nothing is installed outside the folder, and what is mounted in it is seen by this command
//! alone.
//!
//! ```text
//! ROOT          the Debian             /source  the workspace
//! ROOT/cargo    cargo's home, fetched  /build   TARGET/other-cpus/build
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use crate::shell;

/// Written into the folder when everything is installed.
const DONE: &str = "halfbyte-packages";
const PACKAGES: [&str; 9] = [
    "rustc",
    "cargo",
    "gcc-aarch64-linux-gnu",
    "libstd-rust-dev:arm64",
    "qemu-user",
    "libstd-rust-dev-wasm32",
    "wasi-libc",
    "lld",
    "nodejs",
];
/// Where no second thread, process or timer is needed.
const KERNELS: [&str; 3] = ["halfbyte-q8", "halfbyte-q4", "halfbyte-cpu-kernels"];
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
    /// The folder of the Debian; made if it is not there [default: other-cpus/debian in cargo's target folder]
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
    /// Debian's suite: its rustc has to be as new as Cargo.toml's rust-version
    #[arg(long, value_name = "NAME", default_value = "sid")]
    suite: String,
    /// Where packages come from [default: where this machine's apt takes Debian's from]
    #[arg(long, value_name = "URL")]
    mirror: Option<String>,
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
}

/// Makes the Debian if need be, builds and tests.
///
/// # Errors
/// A program that is missing, not being root, or the step that failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = shell::target()?.join("other-cpus");
    let root = args.root.clone().unwrap_or_else(|| folder.join("debian"));
    if !root.join(DONE).is_file() {
        install(&root, args)?;
    }
    let debian = Debian { root, build: folder.join("build"), cargo: cargo_home()? };
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
    debian.cargo(&test(Cpu::Aarch64, &packages, &tests, &run_all), "qemu-aarch64 -cpu max")?;
    // A CPU without the dot product takes the scalar path, and says so.
    let isa = test(Cpu::Aarch64, &packages, &["kernels"], &format!("{run} isa::names"));
    debian.cargo(&isa, "qemu-aarch64 -cpu cortex-a53")
}

fn wasm32(debian: &Debian, run: &str) -> Result<()> {
    debian.cargo(
        &test(Cpu::Wasm32, &KERNELS, &KERNEL_TESTS, run),
        "node --no-warnings /source/xtask/src/wasi.mjs",
    )?;
    // Its tests have more than one thread.
    debian.cargo(
        &format!("build --locked --offline --target {} -p halfbyte-attention", Cpu::Wasm32.target()),
        "",
    )
}

/// The arguments of a test run.
fn test(cpu: Cpu, packages: &[&str], tests: &[&str], more: &str) -> String {
    let packages: String = packages.iter().map(|name| format!(" -p {name}")).collect();
    let tests: String = tests.iter().map(|name| format!(" --test {name}")).collect();
    format!("test --locked --offline --no-fail-fast --target {}{packages}{tests} {more}", cpu.target())
}

/// The folder with a compiler for other CPUs.
#[derive(Debug)]
struct Debian {
    root: PathBuf,
    build: PathBuf,
    cargo: PathBuf,
}

impl Debian {
    /// Runs cargo in there, tests by `runner`.
    fn cargo(&self, args: &str, runner: &str) -> Result<()> {
        let root = self.root.display();
        std::fs::create_dir_all(&self.build)?;
        let mounts =
            [(shell::root(), "source"), (self.cargo.clone(), "cargo"), (self.build.clone(), "build")];
        let mut script = String::from("set -e\n");
        for (from, to) in mounts {
            std::fs::create_dir_all(self.root.join(to))?;
            script += &format!("mount --bind '{}' '{root}/{to}'\n", from.display());
        }
        script += &format!("mount -t proc proc '{root}/proc'\n");
        script += &format!("exec chroot '{root}' env -i \"$@\" sh -c 'cd /source && exec cargo {args}'\n");
        let variables = [
            "PATH=/usr/bin:/bin",
            "HOME=/root",
            "CARGO_HOME=/cargo",
            "CARGO_TARGET_DIR=/build",
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc",
            "CARGO_TARGET_WASM32_WASIP1_LINKER=wasm-ld",
            &format!("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER={runner}"),
            &format!("CARGO_TARGET_WASM32_WASIP1_RUNNER={runner}"),
        ];
        println!("\n# in {root}: cargo {args}");
        shell::run(Command::new("unshare").args(["--mount", "sh", "-c", &script, "sh"]).args(variables))
    }
}

/// Makes the Debian. It takes its name when it is complete.
fn install(root: &Path, args: &Args) -> Result<()> {
    for program in ["debootstrap", "unshare", "chroot"] {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output()?;
        ensure!(found.status.success(), "{program} is not installed: expected it of Debian's packages");
    }
    let user = Command::new("id").arg("-u").output().context("id can't be started")?;
    ensure!(user.stdout.trim_ascii() == b"0", "not root: debootstrap and chroot can't do without");
    let mirror = args.mirror.clone().map_or_else(apt_mirror, Ok)?;
    let started = root.with_extension("partial");
    if started.exists() {
        std::fs::remove_dir_all(&started).with_context(|| started.display().to_string())?;
    }
    ensure!(
        !root.exists(),
        "{} is there and not complete: remove it, or name another --root",
        root.display()
    );
    std::fs::create_dir_all(&started)?;
    let mut debootstrap = Command::new("debootstrap");
    shell::run(debootstrap.arg("--variant=minbase").arg(&args.suite).arg(&started).arg(mirror))?;
    // Signatures are checked; a mirror that is some weeks behind will do.
    std::fs::write(started.join("etc/apt/apt.conf.d/90halfbyte"), "Acquire::Check-Valid-Until \"false\";\n")?;
    let inside = |command: &[&str]| {
        shell::run(
            Command::new("chroot")
                .arg(&started)
                .args(["env", "DEBIAN_FRONTEND=noninteractive"])
                .args(command),
        )
    };
    inside(&["dpkg", "--add-architecture", "arm64"])?;
    inside(&["apt-get", "update", "-q"])?;
    inside(&[&["apt-get", "install", "-qq", "--no-install-recommends"], &PACKAGES[..]].concat())?;
    inside(&["apt-get", "clean"])?;
    std::fs::write(started.join(DONE), PACKAGES.join("\n"))?;
    std::fs::rename(&started, root).with_context(|| root.display().to_string())
}

/// The first place that this machine's apt takes Debian's main packages from.
fn apt_mirror() -> Result<String> {
    let advice = "name one: --mirror URL";
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(LABEL) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"])
        .output()
        .with_context(|| format!("apt-get can't be started; {advice}"))?;
    mirror_of(&String::from_utf8_lossy(&output.stdout))
        .with_context(|| format!("this machine's apt knows no place of Debian's packages; {advice}"))
}

/// Of lines `LABEL COMPONENT URL`, the first URL of Debian's main packages.
fn mirror_of(lines: &str) -> Option<String> {
    lines.lines().find_map(|line| line.strip_prefix("Debian main ")).map(str::to_owned)
}

/// Where cargo keeps what it fetches.
fn cargo_home() -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    match home {
        Some(home) if home.is_dir() => Ok(home),
        _ => bail!("cargo's home is unknown: expected CARGO_HOME or HOME to lead there"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_that_of_debians_packages() {
        let lines = "Other main http://other/\nDebian-Security main http://security/\nDebian contrib http://c/\n\
                     Debian main http://debian/\nDebian main http://second/\n";
        assert_eq!(mirror_of(lines).as_deref(), Some("http://debian/"));
        assert_eq!(mirror_of("Debian-Security main http://security/\n"), None);
    }

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
