//! A plan's tensors, rounded with error compensation.

use std::ops::ControlFlow;

use halfbyte_cpu_kernels::{Context, Matrix};
use halfbyte_q4::GROUP;
use halfbyte_q4::gptq::{Factor, Options, Scales};

use super::moments::Moments;
use super::{Checkpoint, Error, Fingerprint, refuse_experts};
use sha2::{Digest, Sha256};

use crate::model::{Compute, Description, Layerwise, Stage, Transformer, Visitor};
use crate::requantize::{self, Encoding, Plan, Ready, decode, saturate};
use halfbyte_gguf::TensorInfo;

/// The rows that a thread rounds at a time: enough for a product, and few enough for all threads to have some.
const BATCH: usize = 32;

/// The largest damping. One that is not enough is raised tenfold, up to this.
const MAX_DAMPING: f64 = 1.0;

/// How tensors are rounded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recipe {
    /// Damping and order of the columns.
    pub options: Options,
    /// Choose scales by the importance of the tensor's columns that the plan has, instead of by the error that is left
    /// after compensation.
    pub scales_by_importance: bool,
}

/// How far a calibration is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Weights of the stages that are finished.
    pub weights: usize,
    /// Tensors made, in this run or an earlier one.
    pub tensors: usize,
}

/// Tensors that a calibration could not treat as asked for.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Tensors whose second moments needed more damping, and how much.
    pub damped: Vec<(String, f64)>,
    /// Tensors whose inputs were all 0, which are rounded as if inputs were uncorrelated.
    pub unused: Vec<String>,
}

/// The fingerprint of everything that decides what [`quantize`] makes: the version, the file, the windows, the recipe and
/// the plan.
pub fn fingerprint(plan: &Plan<'_>, windows: &[Vec<u32>], recipe: Recipe) -> Fingerprint {
    let mut hash = Sha256::new();
    hash.update(env!("CARGO_PKG_VERSION"));
    for bytes in plan.source().contents() {
        hash.update(bytes);
    }
    for window in windows {
        hash.update((window.len() as u64).to_le_bytes());
        hash.update(bytemuck::cast_slice(window));
    }
    hash.update(format!("{recipe:?}"));
    for tensor in plan.tensors() {
        let made = plan.quantized(&tensor.name).map(|(_, _, encoding, importance)| (encoding, importance));
        hash.update(format!("{} {made:?}", tensor.name));
    }
    hash.finalize().into()
}

/// Makes the tensors of `plan` that a stage of `model` reads and whose method is
/// [`Method::Gptq`](crate::requantize::Method::Gptq), from the inputs that `windows` of tokens give them, and adds them
/// to `checkpoint`. What is there already is not made again. `model` and
/// `plan` are of the same file.
///
/// `go_on` is asked after every window of every stage; if it breaks, so does this, with [`Error::Stopped`], and a later
/// call with the same arguments goes on where this one was.
///
/// # Errors
/// Those of the model, of the weights and of the checkpoint; [`Error::Moments`]; [`Error::Stopped`];
/// [`crate::model::Error::Feature`] for a model with experts.
pub fn quantize(
    compute: &Compute,
    model: &Transformer,
    plan: &Plan<'_>,
    windows: &[Vec<u32>],
    recipe: Recipe,
    checkpoint: &mut Checkpoint,
    go_on: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Report, Error> {
    refuse_experts(model.description())?;
    let mut quantizer = Quantizer {
        ctx: compute.context(),
        plan,
        recipe,
        description: model.description(),
        checkpoint,
        go_on,
        moments: None,
        weights: 0,
        report: Report::default(),
    };
    Layerwise::new(model, compute, windows)?.run(&mut quantizer)?;
    Ok(quantizer.report)
}

struct Quantizer<'a, 'p> {
    ctx: Context<'a>,
    plan: &'a Plan<'p>,
    recipe: Recipe,
    description: &'a Description,
    checkpoint: &'a mut Checkpoint,
    go_on: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    /// The second moments of the current stage, once there are any.
    moments: Option<Moments>,
    /// Weights of the stages that are finished.
    weights: usize,
    report: Report,
}

/// A tensor to be rounded.
#[derive(Clone, Copy)]
struct Job<'a> {
    info: &'a TensorInfo,
    matrix: Matrix<'a>,
    encoding: Encoding,
    importance: Option<&'a [f32]>,
    /// Weights are cut off at this magnitude.
    cut_off: Option<f32>,
}

impl Job<'_> {
    /// Whether it is rounded with error compensation; other tensors are rounded weight by weight.
    fn is_compensated(&self) -> bool {
        self.encoding.compensate().is_some()
    }
}

impl Quantizer<'_, '_> {
    fn job(&self, name: &str) -> Option<Job<'_>> {
        let (info, matrix, encoding, importance) = self.plan.quantized(name)?;
        Some(Job { info, matrix, encoding, importance, cut_off: self.plan.cut_off(encoding) })
    }

    /// Whether a tensor has to be made from second moments.
    fn is_wanted(&self, name: &str) -> bool {
        self.job(name).is_some_and(|job| job.is_compensated()) && !self.checkpoint.has(name)
    }

    fn ask(&mut self) -> Result<(), Error> {
        let progress = Progress { weights: self.weights, tensors: self.checkpoint.len() };
        if (self.go_on)(progress).is_break() { Err(Error::Stopped) } else { Ok(()) }
    }

    /// The factor of the stage's second moments, with more damping if need be.
    fn factor(&mut self, tensors: &[String]) -> Result<Factor, Error> {
        let of = || tensors.join(", ");
        let moments = self.moments.take().unwrap_or_else(|| Moments::new(0));
        let n = moments.columns();
        if (0..n).all(|i| moments.sums()[i * n + i] == 0.0) {
            self.report.unused.push(of());
        }
        let mut options = self.recipe.options;
        loop {
            match Factor::new(moments.sums(), n, GROUP, options) {
                Ok(factor) => {
                    if options != self.recipe.options {
                        self.report.damped.push((of(), options.damping));
                    }
                    return Ok(factor);
                }
                Err(halfbyte_q4::Error::NotPositiveDefinite { .. })
                    if 10.0 * options.damping.max(1e-4) <= MAX_DAMPING =>
                {
                    options.damping = 10.0 * options.damping.max(1e-4);
                }
                Err(source) => return Err(Error::Moments { tensors: of(), source }),
            }
        }
    }

    /// A tensor's bytes and, if `keep` says so, what they decode to.
    fn round(&self, job: Job<'_>, factor: Option<&Factor>, keep: bool) -> Result<(Vec<u8>, Vec<f32>), Error> {
        let (rows, cols) = (job.info.n_rows(), job.info.row_len());
        let ty = job.encoding.tensor_type();
        let row_bytes = cols / ty.block_len() * ty.block_bytes();
        let mut batches: Vec<Batch> = (0..rows)
            .step_by(BATCH)
            .map(|first| Batch { first, rows: BATCH.min(rows - first), made: Ok((Vec::new(), Vec::new())) })
            .collect();
        let (ctx, by_importance) = (self.ctx, self.recipe.scales_by_importance);
        ctx.pool.par_chunks_mut(&mut batches, 1, |_, batch| {
            let Batch { first, rows, .. } = batch[0];
            batch[0].made = round_rows(ctx, job, factor, by_importance, first, rows, keep);
        });
        let mut bytes = Vec::with_capacity(rows * row_bytes);
        let mut decoded = Vec::with_capacity(if keep { rows * cols } else { 0 });
        for batch in batches {
            let made = batch.made?;
            bytes.extend(made.0);
            decoded.extend(made.1);
        }
        Ok((bytes, decoded))
    }
}

/// Some rows of a tensor.
struct Batch {
    first: usize,
    rows: usize,
    made: Result<(Vec<u8>, Vec<f32>), requantize::Error>,
}

fn round_rows(
    ctx: Context<'_>,
    job: Job<'_>,
    factor: Option<&Factor>,
    by_importance: bool,
    first: usize,
    rows: usize,
    keep: bool,
) -> Result<(Vec<u8>, Vec<f32>), requantize::Error> {
    let cols = job.info.row_len();
    let mut w = vec![0.0; rows * cols];
    for (r, row) in w.chunks_exact_mut(cols).enumerate() {
        decode(ctx.isa, &job.matrix, &job.info.name, first + r, row)?;
        if let Some(limit) = job.cut_off {
            // They are counted where the tensor is written.
            saturate(row, limit);
        }
    }
    let wrong = |row, source| {
        let (tensor, ty) = (job.info.name.clone(), job.encoding.tensor_type());
        requantize::Error::Encode { tensor, row, ty, source }
    };
    let scales = match job.importance {
        Some(importance) if by_importance => Scales::Weighted(importance),
        _ => Scales::Compensated,
    };
    let mut bytes = Vec::new();
    if let (Some(factor), Some(compensate)) = (factor, job.encoding.compensate()) {
        compensate(factor, &w, scales, &mut bytes).map_err(|e| wrong(first, e.into()))?;
    } else {
        for (r, w) in w.chunks_exact(cols).enumerate() {
            let encoded = job.encoding.encode(ctx, w, job.importance, &mut bytes);
            encoded.map_err(|e| wrong(first + r, e))?;
        }
    }
    let mut decoded = Vec::new();
    if keep {
        decoded.resize(w.len(), 0.0);
        job.encoding.decode(ctx.isa, &bytes, &mut decoded)?;
    }
    Ok((bytes, decoded))
}

impl Visitor for Quantizer<'_, '_> {
    type Error = Error;

    fn inputs(&mut self, stage: Stage, x: &[f32], rows: usize) -> Result<(), Error> {
        self.ask()?;
        if stage.tensors(self.description).iter().any(|name| self.is_wanted(name)) {
            let moments = self.moments.get_or_insert_with(|| Moments::new(x.len() / rows));
            moments.add(self.ctx, x, rows)?;
        }
        Ok(())
    }

    fn finish(&mut self, stage: Stage) -> Result<Vec<Vec<f32>>, Error> {
        let tensors = stage.tensors(self.description);
        let factor = match self.moments {
            Some(_) => Some(self.factor(&tensors)?),
            None => None,
        };
        // No stage comes after the output matrix.
        let keep = stage != Stage::Output;
        let mut changed = Vec::new();
        for name in &tensors {
            changed.push(Vec::new());
            let Some(job) = self.job(name) else { continue };
            let n = job.info.n_elements();
            let found = self
                .checkpoint
                .tensor(name)
                .map_err(|source| requantize::Error::Ready { tensor: name.clone(), source })?;
            let decoded = if let Some(bytes) = found {
                let mut decoded = vec![0.0; if keep { n } else { 0 }];
                if keep {
                    job.encoding.decode(self.ctx.isa, &bytes, &mut decoded)?;
                }
                decoded
            } else {
                let compensated = job.is_compensated();
                let (bytes, decoded) = self.round(job, factor.as_ref().filter(|_| compensated), keep)?;
                if compensated {
                    self.checkpoint.add(name, &bytes)?;
                }
                decoded
            };
            changed.pop();
            changed.push(decoded);
            self.weights += n;
        }
        self.ask()?;
        Ok(changed)
    }
}
