//! The programs that measure, and what is read of their output.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::shell;

/// The script that asks llama.cpp, in the workspace.
const LLAMA_SCRIPT: &str = "benches/compare/llama_kl.py";

/// What measures, and with how many threads where it is not told otherwise.
#[derive(Debug)]
pub(super) struct Programs {
    halfbyte: PathBuf,
    /// A Python with llama-cpp-python.
    llama: Option<PathBuf>,
    threads: usize,
}

/// `halfbyte kl --json`.
#[derive(Debug, Deserialize)]
pub(super) struct Comparison {
    pub(super) base: Side,
    pub(super) model: Side,
    pub(super) context: usize,
    pub(super) windows: usize,
    pub(super) tokens: usize,
    pub(super) kl: Divergence,
    pub(super) same_top_percent: f64,
}

/// One of two models.
#[derive(Debug, Deserialize)]
pub(super) struct Side {
    pub(super) perplexity: f64,
}

/// Nats a token.
#[derive(Debug, Deserialize)]
pub(super) struct Divergence {
    pub(super) mean: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

/// `halfbyte bench --json`.
#[derive(Debug, Deserialize)]
pub(super) struct Bench {
    pub(super) results: Vec<Timed>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Timed {
    pub(super) threads: usize,
    /// 0 where a reply was timed.
    pub(super) n_prompt: usize,
    pub(super) tokens_per_second: Spread,
}

#[derive(Debug, Deserialize)]
pub(super) struct Spread {
    pub(super) median: f64,
}

/// `halfbyte run --show-prompt --json`, and `halfbyte chat` the same.
#[derive(Debug, Deserialize)]
pub(super) struct Prompt {
    pub(super) text: String,
    pub(super) ids: Vec<u32>,
}

/// `halfbyte tokenize --json`.
#[derive(Debug, Deserialize)]
struct Tokens {
    ids: Vec<u32>,
}

/// `halfbyte run --json`.
#[derive(Debug, Deserialize)]
pub(super) struct Reply {
    pub(super) prompt_ids: Vec<u32>,
    pub(super) ids: Vec<u32>,
}

/// What the script prints.
#[derive(Debug, Deserialize)]
pub(super) struct Llama {
    pub(super) version: String,
    pub(super) base: Side,
    pub(super) model: Side,
    pub(super) tokens: usize,
    pub(super) kl: Divergence,
    pub(super) same_top_percent: f64,
    /// `None` if no questions were asked.
    pub(super) equal_replies: Option<usize>,
}

#[derive(Debug, Deserialize)]
struct Machine {
    isa: Isas,
}

#[derive(Debug, Deserialize)]
struct Isas {
    available: Vec<String>,
}

impl Programs {
    /// Takes `halfbyte`, or builds it, and looks whether the Python is of use.
    ///
    /// # Errors
    /// If either is not to be had.
    pub(super) fn new(halfbyte: Option<PathBuf>, llama: Option<PathBuf>, threads: usize) -> Result<Self> {
        let halfbyte = match halfbyte {
            // Relative to where the task was started, which is not where programs run.
            Some(path) => std::path::absolute(&path).with_context(|| path.display().to_string())?,
            None => {
                shell::cargo("build --release --locked --package halfbyte-cli")?;
                shell::release("halfbyte")?
            }
        };
        let llama =
            llama.map(
                |python| {
                    if python.components().count() > 1 { std::path::absolute(python) } else { Ok(python) }
                },
            );
        let llama = llama.transpose().context("--llama")?;
        if let Some(python) = &llama {
            let imports = Command::new(python).args(["-c", "import llama_cpp, numpy"]).output();
            let found = imports.with_context(|| format!("{}: can't be started", python.display()))?;
            if !found.status.success() {
                bail!(
                    "{}: expected a Python with llama-cpp-python, as {LLAMA_SCRIPT} says",
                    python.display()
                );
            }
        }
        Ok(Self { halfbyte, llama, threads })
    }

    pub(super) fn has_llama(&self) -> bool {
        self.llama.is_some()
    }

    /// Runs `halfbyte` with `--json` and all threads, and reads what it prints. Its progress is shown where it is `long`.
    ///
    /// # Errors
    /// If it fails.
    pub(super) fn halfbyte<T: DeserializeOwned>(&self, args: &[&dyn AsRef<OsStr>], long: bool) -> Result<T> {
        let threads = self.threads.to_string();
        let mut command = Command::new(&self.halfbyte);
        shell::json(command.args(args).args(["--json", "--threads", &threads]), long)
    }

    /// The tokens of a text's bytes, nothing added.
    ///
    /// # Errors
    /// If the text can't be read or `halfbyte tokenize` fails.
    pub(super) fn tokenize(&self, model: &Path, text: &Path) -> Result<Vec<u32>> {
        let file = File::open(text).with_context(|| format!("{}: can't be read", text.display()))?;
        let mut command = Command::new(&self.halfbyte);
        let output = command.args(["tokenize", "--json", "--model"]).arg(model).stdin(file).output();
        let output = output.context("halfbyte tokenize: can't be run")?;
        if !output.status.success() {
            bail!("halfbyte tokenize: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let tokens: Tokens = serde_json::from_slice(&output.stdout).context("halfbyte tokenize")?;
        Ok(tokens.ids)
    }

    /// llama.cpp's predictions for `windows` from `model`, beside its own from `base`, and its replies to `questions`;
    /// `None` without a Python.
    ///
    /// # Errors
    /// If the script fails.
    pub(super) fn llama(
        &self,
        [model, base, windows]: [&Path; 3],
        questions: Option<&Path>,
    ) -> Result<Option<Llama>> {
        let Some(python) = &self.llama else { return Ok(None) };
        let mut command = Command::new(python);
        command.arg(LLAMA_SCRIPT).args([model, base, windows]);
        command.args(["--threads", &self.threads.to_string()]);
        if let Some(questions) = questions {
            command.arg("--questions").arg(questions);
        }
        shell::json(&mut command, false).map(Some)
    }

    /// The fastest path of this machine, and AVX2 if it has it and that is another.
    ///
    /// # Errors
    /// If `halfbyte doctor` fails.
    pub(super) fn default_isas(&self) -> Result<Vec<String>> {
        let machine: Machine = self.halfbyte(&[&"doctor"], false)?;
        let available = machine.isa.available;
        let fastest = available.last().cloned().context("halfbyte doctor names no instruction set")?;
        let avx2 = available.into_iter().find(|isa| isa == "avx2" && *isa != fastest);
        Ok([Some(fastest), avx2].into_iter().flatten().collect())
    }
}
