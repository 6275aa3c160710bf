//! `cargo xtask clients`: the server beside the clients that people have.

use crate::shell;
use anyhow::{Context, Result};
use std::process::Command;

/// OpenAI's own client.
const OPENAI: &str = "openai==3.57.0";

/// Runs the tests of `halfbyte serve` that need OpenAI's Python package, which pip puts under `target/`, and Chromium with
/// its driver, which have to be there (Debian's packages chromium and chromium-driver).
///
/// # Errors
/// If a client is missing or a test fails.
pub(crate) fn run() -> Result<()> {
    let venv = shell::root().join("target").join(OPENAI.replace("==", "-"));
    let python = venv.join("bin/python");
    let has = |python| {
        Command::new(python).args(["-c", "import openai"]).output().is_ok_and(|o| o.status.success())
    };
    if !has(&python) {
        shell::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))
            .context("OpenAI's client is installed into a Python virtual environment")?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", OPENAI];
        shell::run(Command::new(&python).args(pip))?;
    }
    shell::run(
        Command::new("cargo")
            .args([
                "test",
                "--package",
                "halfbyte-server",
                "--locked",
                "--release",
                "--test",
                "http",
                "clients::",
            ])
            .env("HALFBYTE_REQUIRE_CLIENTS", "1")
            .env("HALFBYTE_OPENAI_PYTHON", python)
            .env("HALFBYTE_CHROMEDRIVER", "chromedriver"),
    )
}
