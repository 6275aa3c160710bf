//! A model, quantized every way and measured.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::figures::{Estimate, Loss, Row, Subject};
use super::method::{By, METHODS, Method, REFERENCE};
use super::programs::{Files, Programs};
use super::text;

/// Tokens in a window, in measuring as in calibration.
const CONTEXT: usize = 512;
/// Of the evaluated text, for the errors of outputs: four windows, more rows than the test model has columns.
const OUTPUT_TOKENS: usize = 2048;

/// A model that is to be measured.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) key: &'static str,
    pub(super) name: &'static str,
    pub(super) source: &'static str,
    pub(super) model: PathBuf,
    pub(super) text: PathBuf,
    /// To evaluate at most, if nobody asks for another number.
    pub(super) windows: u32,
    /// Whether its weights come from Q4_1 blocks, which Q4_1 then has nothing to lose on.
    pub(super) on_grid: bool,
}

/// Which methods, and on how much text.
#[derive(Debug)]
pub(super) struct Extent<'a> {
    pub(super) windows: u32,
    /// All if there are none.
    pub(super) only: &'a [String],
}

impl Extent<'_> {
    /// The methods for `task`, the reference always among them.
    fn methods<'m>(
        &self,
        task: &Task,
        programs: &Programs,
        all: &'m [Method],
    ) -> impl Iterator<Item = &'m Method> {
        all.iter().filter(move |m| {
            let wanted =
                self.only.is_empty() || m.key == REFERENCE || self.only.iter().any(|key| key == m.key);
            let possible = m.by != By::Llama || programs.llama.is_some();
            wanted && possible && !(task.on_grid && m.ty == "q4_1")
        })
    }
}

/// Figures of an earlier run that ended early.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// Of the program.
    fingerprint: String,
    subject: Subject,
}

#[derive(Debug, Deserialize)]
struct Quality {
    base: Side,
    model: Side,
    tokens: usize,
    windows: usize,
    kl: Divergence,
    loss_difference: Estimate,
    same_top_percent: f64,
}

#[derive(Debug, Deserialize)]
struct Side {
    loss: f64,
    loss_stderr: f64,
    perplexity: f64,
    perplexity_stderr: f64,
}

#[derive(Debug, Deserialize)]
struct Divergence {
    mean: f64,
    stderr: f64,
}

#[derive(Debug, Deserialize)]
struct Difference {
    tensors: Vec<Tensor>,
    relative_squared_error: f64,
    relative_squared_output_error: f64,
    bits_per_weight_b: f64,
}

#[derive(Debug, Deserialize)]
struct Tensor {
    name: String,
    shape: Vec<usize>,
    type_b: String,
}

#[derive(Debug, Deserialize)]
struct Seconds {
    seconds: f64,
}

impl From<&Side> for Loss {
    fn from(side: &Side) -> Self {
        Self {
            loss: Estimate { value: side.loss, stderr: side.loss_stderr },
            perplexity: Estimate { value: side.perplexity, stderr: side.perplexity_stderr },
        }
    }
}

/// Measures every method on `task`. `work`: a folder of cargo's target, for intermediate files, gone in the end, and for
/// the rows that are done, which an interrupted run's successor goes on from if its programs and options are the same.
///
/// # Errors
/// If a file is missing or a program fails.
pub(super) fn measure(task: &Task, programs: &Programs, extent: &Extent<'_>, work: &Path) -> Result<Subject> {
    println!("\n{}", task.name);
    let text = std::fs::read_to_string(&task.text)
        .with_context(|| format!("{}: can't be read as UTF-8", task.text.display()))?;
    let (evaluated, calibration) = text::split(&text).with_context(|| task.text.display().to_string())?;
    let folder = tempfile::tempdir_in(work).context("no temporary folder in target")?;
    let at = |name: &str| folder.path().join(name);
    let files = Files {
        base: at("f32.gguf"),
        evaluated: at("evaluated.txt"),
        calibration: at("calibration.txt"),
        imatrix: at("imatrix.gguf"),
    };
    std::fs::write(&files.evaluated, evaluated)?;
    std::fs::write(&files.calibration, calibration)?;
    let _: Seconds = programs.halfbyte(&[&"quantize", &task.model, &files.base, &"--type", &"f32"], false)?;
    let imatrix: Seconds = programs.halfbyte(
        &[&"imatrix", &"--model", &files.base, &"--text", &files.calibration, &files.imatrix],
        false,
    )?;
    println!("{:28} {:.1} s", "imatrix", imatrix.seconds);

    let mut subject = Subject {
        key: task.key.to_owned(),
        name: task.name.to_owned(),
        source: task.source.to_owned(),
        on_grid: task.on_grid,
        text: task.text.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
        evaluated_bytes: evaluated.len(),
        calibration_bytes: calibration.len(),
        context: CONTEXT,
        windows: 0,
        scored_tokens: 0,
        output_tokens: OUTPUT_TOKENS,
        threads: programs.threads,
        imatrix_seconds: imatrix.seconds,
        base: Loss {
            loss: Estimate { value: 0.0, stderr: 0.0 },
            perplexity: Estimate { value: 0.0, stderr: 0.0 },
        },
        rows: Vec::new(),
    };
    let keep = work.join(format!("{}.json", task.key));
    let fingerprint = format!("{} {}", programs.fingerprint()?, extent.windows);
    let kept = kept(&keep, &fingerprint, &subject);
    for method in extent.methods(task, programs, METHODS) {
        if let Some(row) = kept.as_ref().and_then(|kept| kept.row(method.key)) {
            println!("{:28} measured before", method.label);
            subject.rows.push(row.clone());
            continue;
        }
        let (row, quality) = one(method, programs, extent, &files, &at("quantized.gguf"))
            .with_context(|| format!("{}, {}", task.name, method.label))?;
        println!("{:28} KL {:.5} +- {:.5}, {:.1} s", method.label, row.kl.value, row.kl.stderr, row.seconds);
        subject.rows.push(row);
        subject.base = Loss::from(&quality.base);
        (subject.windows, subject.scored_tokens) = (quality.windows, quality.tokens);
        let kept = Kept { fingerprint: fingerprint.clone(), subject: subject.clone() };
        std::fs::write(&keep, serde_json::to_vec(&kept)?)?;
    }
    if let Some(kept) = kept
        && subject.scored_tokens == 0
    {
        (subject.base, subject.windows, subject.scored_tokens) =
            (kept.base, kept.windows, kept.scored_tokens);
    }
    Ok(subject)
}

/// What an earlier run measured, if all that decides it was the same.
fn kept(path: &Path, fingerprint: &str, subject: &Subject) -> Option<Subject> {
    let kept: Kept = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    let old = &kept.subject;
    let setting = |s: &Subject| {
        (s.text.clone(), s.evaluated_bytes, s.calibration_bytes, s.context, s.output_tokens, s.threads)
    };
    (kept.fingerprint == fingerprint && setting(old) == setting(subject)).then_some(kept.subject)
}

fn one(
    method: &Method,
    programs: &Programs,
    extent: &Extent<'_>,
    files: &Files,
    out: &Path,
) -> Result<(Row, Quality)> {
    let made = programs.quantize(method, files, out)?;
    let tokens = OUTPUT_TOKENS.to_string();
    let text: [&dyn AsRef<OsStr>; 4] = [&"--text", &files.evaluated, &"--tokens", &tokens];
    let difference: Difference = programs
        .halfbyte(&[&[&"compare" as &dyn AsRef<OsStr>, &files.base, &out], &text[..]].concat(), true)?;
    // A table of one type: a quantizer that spares a matrix would look better than it is.
    let wanted = method.ty.to_uppercase();
    if let Some(other) = difference.tensors.iter().find(|t| t.shape.len() > 1 && t.type_b != wanted) {
        bail!("{} became {}: expected {wanted}", other.name, other.type_b);
    }
    let (context, windows) = (CONTEXT.to_string(), extent.windows.to_string());
    let quality: Quality = programs.halfbyte(
        &[
            &"kl",
            &"--base",
            &files.base,
            &"--model",
            &out,
            &"--text",
            &files.evaluated,
            &"--ctx",
            &context,
            &"--stride",
            &context,
            &"--windows",
            &windows,
            &"--activations",
            &"f32",
        ],
        true,
    )?;
    std::fs::remove_file(out).with_context(|| format!("{}: can't be removed", out.display()))?;
    let row = Row {
        method: method.key.to_owned(),
        by: made.by(),
        bits_per_weight: difference.bits_per_weight_b,
        relative_squared_error: difference.relative_squared_error,
        relative_squared_output_error: difference.relative_squared_output_error,
        quantized: Loss::from(&quality.model),
        loss_difference: quality.loss_difference,
        kl: Estimate { value: quality.kl.mean, stderr: quality.kl.stderr },
        same_top_percent: quality.same_top_percent,
        seconds: made.seconds,
    };
    Ok((row, quality))
}
