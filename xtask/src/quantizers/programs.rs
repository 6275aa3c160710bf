//! Running the programs that quantize and measure.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::method::{By, Method};
use crate::shell;

/// The script that calls llama.cpp's quantizer, in the workspace.
const LLAMA_SCRIPT: &str = "benches/compare/llama_quantize.py";

/// What quantizes and measures, and with how many threads.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) halfbyte: PathBuf,
    /// A Python with llama-cpp-python.
    pub(super) llama: Option<PathBuf>,
    pub(super) threads: usize,
}

/// The files of one model.
#[derive(Debug)]
pub(super) struct Files {
    /// The model as F32.
    pub(super) base: PathBuf,
    pub(super) evaluated: PathBuf,
    pub(super) calibration: PathBuf,
    pub(super) imatrix: PathBuf,
}

/// What is read of the output of a quantizer.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Made {
    pub(super) seconds: f64,
    /// Of llama-cpp-python.
    version: Option<String>,
}

impl Made {
    /// The program in words.
    pub(super) fn by(&self) -> String {
        match &self.version {
            Some(version) => format!("llama-cpp-python {version}"),
            None => format!("halfbyte {}", env!("CARGO_PKG_VERSION")),
        }
    }
}

impl Programs {
    /// Builds `halfbyte`, and looks whether the Python is of use.
    ///
    /// # Errors
    /// If either is not to be had.
    pub(super) fn new(llama: Option<PathBuf>, threads: usize) -> Result<Self> {
        shell::cargo("build --release --locked --package halfbyte-cli")?;
        let halfbyte = shell::release("halfbyte")?;
        if let Some(python) = &llama {
            let imports = Command::new(python).args(["-c", "import gguf, llama_cpp, numpy"]).output();
            let found = imports.with_context(|| format!("{}: can't be started", python.display()))?;
            if !found.status.success() {
                let python = python.display();
                bail!("{python} lacks a package: install llama-cpp-python and gguf as {LLAMA_SCRIPT} says");
            }
        }
        Ok(Self { halfbyte, llama, threads })
    }

    /// Runs `halfbyte` with `--json` and reads what it prints. Its messages are shown if it fails, its progress as it
    /// goes where it is `long`.
    pub(super) fn halfbyte<T: DeserializeOwned>(&self, args: &[&dyn AsRef<OsStr>], long: bool) -> Result<T> {
        let mut command = Command::new(&self.halfbyte);
        command.args(args).args(["--json", "--threads", &self.threads.to_string()]);
        shell::json(&mut command, long)
    }

    /// Quantizes `files` with `method` into `out`.
    pub(super) fn quantize(&self, method: &Method, files: &Files, out: &Path) -> Result<Made> {
        let Files { base, calibration, imatrix, .. } = files;
        let name = match method.by {
            By::Halfbyte(name) | By::Calibrated(name) => name,
            By::Llama => {
                let python = self.llama.as_ref().context("expected --llama")?;
                let mut command = Command::new(python);
                command.arg(LLAMA_SCRIPT).args([base, out]).args(["--type", method.ty]);
                command.args(["--threads", &self.threads.to_string()]);
                if method.imatrix {
                    command.arg("--imatrix").arg(imatrix);
                }
                return shell::json(&mut command, false);
            }
        };
        let mut args: Vec<&dyn AsRef<OsStr>> =
            vec![&"quantize", base, &out, &"--type", &method.ty, &"--method", &name];
        if method.imatrix {
            args.extend([&"--imatrix" as &dyn AsRef<OsStr>, imatrix]);
        }
        if let By::Calibrated(_) = method.by {
            args.extend([&"--calibrate" as &dyn AsRef<OsStr>, calibration]);
        }
        self.halfbyte(&args, false)
    }

    /// Of what decides the figures: the program.
    pub(super) fn fingerprint(&self) -> Result<String> {
        let bytes = std::fs::read(&self.halfbyte)
            .with_context(|| format!("{}: can't be read", self.halfbyte.display()))?;
        Ok(Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect())
    }
}
