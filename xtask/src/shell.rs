//! Running commands from the workspace's root, loudly.

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

/// Prints `command`, runs it in the workspace's root, and says how long it took.
///
/// # Errors
/// If it can't be started or exits with anything but 0.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    run_in(&root(), command)
}

/// [`run`] in another directory.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_in(directory: &Path, command: &mut Command) -> Result<()> {
    let shown = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|a| a.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ");
    println!("\n$ {shown}");
    let start = Instant::now();
    let status =
        command.current_dir(directory).status().with_context(|| format!("{shown}: can't be started"))?;
    println!("# {:.1} s", start.elapsed().as_secs_f64());
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// [`run`] for cargo with arguments split at spaces.
///
/// # Errors
/// As [`run`].
pub(crate) fn cargo(args: &str) -> Result<()> {
    run(Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into())).args(args.split_whitespace()))
}

/// Runs a command in the workspace's root and reads the one JSON object that it prints. Its messages are shown as they come
/// with `show`, else if it fails.
///
/// # Errors
/// If it can't be started, exits with anything but 0, or prints something else.
pub(crate) fn json<T: DeserializeOwned>(command: &mut Command, show: bool) -> Result<T> {
    let name = Path::new(command.get_program()).display().to_string();
    let first = command.get_args().next().map(|arg| arg.to_string_lossy().into_owned()).unwrap_or_default();
    let what = format!("{name} {first}");
    command.current_dir(root()).stdin(Stdio::null());
    if show {
        command.stderr(Stdio::inherit());
    }
    let child = command.stdout(Stdio::piped());
    let child = if show { child } else { child.stderr(Stdio::piped()) };
    let output =
        child.spawn().and_then(|c| c.wait_with_output()).with_context(|| format!("{what}: can't be run"))?;
    if !output.status.success() {
        bail!("{what}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("{what}: unexpected output"))
}

/// Cargo's target folder, in which this program is: in a profile's folder of it.
///
/// # Errors
/// If it is elsewhere.
pub(crate) fn target() -> Result<PathBuf> {
    let program = std::env::current_exe().context("this program's path is unknown")?;
    program
        .ancestors()
        .nth(2)
        .map(Path::to_owned)
        .with_context(|| format!("{} is in no target folder", program.display()))
}

/// The program that a release build of `name` (perhaps `examples/NAME`) makes.
///
/// # Errors
/// If it is not there.
pub(crate) fn release(name: &str) -> Result<PathBuf> {
    let program = target()?.join("release").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    if !program.is_file() {
        bail!("{} is not there after the build", program.display());
    }
    Ok(program)
}

/// The machine's target, as the compiler calls it.
///
/// # Errors
/// If the compiler can't be asked.
pub(crate) fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("rustc: can't be started")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV names no host")
}
