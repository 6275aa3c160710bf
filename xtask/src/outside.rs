//! A program of someone else's: it depends on our CUDA kernels by path, from a workspace of its own, with none of our
//! settings and no CUDA variables, and has to build with a plain `cargo build` and start on a machine with no driver.

use crate::shell;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;

/// It finds a GPU for the kernels, or says what is missing.
const MAIN: &str = r#"use halfbyte_cuda_driver::{Context, Driver};
use halfbyte_cuda_kernels::Kernels;

fn multiprocessors() -> Result<u32, Box<dyn std::error::Error>> {
    let context = Context::primary(Driver::load()?.device(0)?)?;
    Ok(Kernels::new(&context)?.multiprocessors())
}

fn main() {
    match multiprocessors() {
        Ok(count) => println!("multiprocessors {count}"),
        Err(e) => println!("error {e}"),
    }
}
"#;

/// What would let a build find CUDA, or our workspace's settings.
const CLEARED: [&str; 5] =
    ["CUDA_LIBRARY_PATH", "CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR", "CARGO_TARGET_DIR"];

/// Writes the program into a directory outside the workspace, builds it, and runs it.
///
/// # Errors
/// If it does not build, does not start, or says neither what it found nor what is missing.
pub(crate) fn run() -> Result<()> {
    // Outside in fact: cargo reads the settings of every directory above.
    let directory = tempfile::Builder::new().prefix("halfbyte-outside-").tempdir()?;
    write(directory.path())?;
    let mut build = command("cargo", directory.path());
    build.args(["build", "--quiet"]);
    shell::run_in(directory.path(), &mut build)?;

    let program = directory.path().join("target/debug/outside");
    let output = command(&program.to_string_lossy(), directory.path())
        .output()
        .with_context(|| format!("{}: can't be started", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    let told = text.starts_with("multiprocessors ") || text.starts_with("error no CUDA driver: ");
    if !output.status.success() || !told {
        bail!("a program outside the workspace: {}, it wrote {text:?}", output.status);
    }
    Ok(())
}

/// The program's manifest and its one file, with our lock so that nothing is resolved anew.
fn write(directory: &Path) -> Result<()> {
    let manifest = format!(
        "[package]\nname = \"outside\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n[dependencies]\n\
         halfbyte-cuda-driver = {{ path = {:?} }}\nhalfbyte-cuda-kernels = {{ path = {:?} }}\n\n[workspace]\n",
        shell::root().join("cuda-driver"),
        shell::root().join("cuda-kernels")
    );
    fs::write(directory.join("Cargo.toml"), manifest)?;
    fs::copy(shell::root().join("Cargo.lock"), directory.join("Cargo.lock"))?;
    fs::create_dir(directory.join("src"))?;
    fs::write(directory.join("src/main.rs"), MAIN)?;
    Ok(())
}

/// A command without the variables that a stranger would not have set.
fn command(program: &str, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory);
    for name in CLEARED {
        command.env_remove(name);
    }
    command
}
