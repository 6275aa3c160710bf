//! The CUDA compiler, out of Python wheels: no toolkit, no GPU, nothing installed outside `target/`.

use crate::shell;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The pinned wheels. 13.0 writes PTX ISA 9.0, which a driver of the r580 series reads; later compilers write later ones.
const WHEELS: [&str; 5] = [
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-cuda-runtime==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-cccl==13.0.85",
];
/// What nvcc says of itself when it is the pinned one.
const VERSION: &str = "V13.0.88";

/// An installed compiler.
#[derive(Debug)]
pub(crate) struct Compiler {
    bin: PathBuf,
}

impl Compiler {
    /// The compiler in `target/cuda-13.0.88`, put there with pip (130 MB) unless it is there already.
    ///
    /// # Errors
    /// If there is no Python with venv and pip, pip fails, or nvcc does not run; it needs a host C++ compiler for its
    /// preprocessor.
    pub(crate) fn find_or_install() -> Result<Self> {
        let venv = shell::root().join("target/cuda-13.0.88");
        if let Some(found) = Self::in_venv(&venv) {
            return found.checked();
        }
        std::fs::create_dir_all(shell::root().join("target"))?;
        shell::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))
            .context("the CUDA compiler is installed into a Python virtual environment")?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"];
        shell::run(Command::new(venv.join("bin/python")).args(pip).args(WHEELS))?;
        Self::in_venv(&venv).context("the wheels hold no nvcc where it was expected")?.checked()
    }

    fn in_venv(venv: &Path) -> Option<Self> {
        let pythons = std::fs::read_dir(venv.join("lib")).ok()?;
        let bins = pythons.filter_map(|p| Some(p.ok()?.path().join("site-packages/nvidia/cu13/bin")));
        bins.into_iter()
            .find(|bin| bin.join("nvcc").exists() && bin.join("ptxas").exists())
            .map(|bin| Self { bin })
    }

    fn checked(self) -> Result<Self> {
        let said =
            Command::new(self.bin.join("nvcc")).arg("--version").output().context("nvcc does not start")?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        if !said.contains(VERSION) {
            bail!("nvcc: expected {VERSION}, got {said:?}; remove target/cuda-13.0.88 to install anew");
        }
        Ok(self)
    }

    /// `nvcc`, to be given arguments.
    pub(crate) fn nvcc(&self) -> Command {
        Command::new(self.bin.join("nvcc"))
    }
}

impl Compiler {
    /// `ptxas`, to be given arguments.
    pub(crate) fn ptxas(&self) -> Command {
        Command::new(self.bin.join("ptxas"))
    }
}

/// The standard output and error of a command that has to succeed.
///
/// # Errors
/// If it can't be started, or fails; then with what it printed.
pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("{command:?}: can't be started"))?;
    let said = [out.stdout, out.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    if !out.status.success() {
        bail!("{command:?}: {}\n{said}", out.status);
    }
    Ok(said)
}
