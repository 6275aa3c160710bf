//! The distance between the outputs of two files' matrices.

use std::ops::ControlFlow;

use halfbyte_cpu_kernels::{Context, Matrix, gemm_f32};

use super::{Error, refuse_experts};
use crate::model::{Compute, Description, Layerwise, Stage, Transformer, Visitor, tensor_matrix};
use crate::source::Source;

/// The rows of inputs that are multiplied at once, which bounds the memory for the outputs of a large vocabulary.
const ROWS: usize = 64;

/// Sums over the outputs of a matrix, in f64.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OutputError {
    /// `sum |W x - Q x|^2`.
    pub squared_error: f64,
    /// `sum |W x|^2`.
    pub squared_outputs: f64,
}

impl OutputError {
    /// `sum |W x - Q x|^2 / sum |W x|^2`: 0 where nothing differs, infinite where only zeros do.
    pub fn relative(&self) -> f64 {
        if self.squared_error == 0.0 { 0.0 } else { self.squared_error / self.squared_outputs }
    }

    /// Adds two slices of outputs of the same length.
    fn take(&mut self, ours: &[f32], theirs: &[f32]) {
        for (&a, &b) in ours.iter().zip(theirs) {
            let (a, difference) = (f64::from(a), f64::from(a) - f64::from(b));
            self.squared_error += difference * difference;
            self.squared_outputs += a * a;
        }
    }
}

/// Multiplies the matrices `W` of `model`, which is of the file `files.0`, and those of their names in `files.1`, `Q`,
/// by the inputs `x` that `windows` of tokens, each from an empty context, give `W`. Both see the inputs of the first
/// file's model: an error is the matrix's own, not that of the ones before it.
///
/// Returns the errors by name, in the order in which the model uses the matrices; the output matrix has the embedding's
/// name where the two are tied. Matrices that the second file lacks or has in another shape are left out. Products are f32, so two
/// files that differ by less than f32 rounding in the outputs differ by noise.
///
/// `go_on` is asked before each window with the number of those done; if it breaks, so does this, with
/// [`Error::Stopped`].
///
/// # Errors
/// Those of the model, and [`crate::model::Error::Feature`] for one with experts; a type in the second file that no model is
/// computed with; [`Error::Stopped`].
pub fn output_errors(
    compute: &Compute,
    model: &Transformer,
    files: (&dyn Source, &dyn Source),
    windows: &[Vec<u32>],
    mut go_on: impl FnMut(usize) -> ControlFlow<()>,
) -> Result<Vec<(String, OutputError)>, Error> {
    refuse_experts(model.description())?;
    let mut pairs = Vec::new();
    for name in Stage::all(model.description()).flat_map(|stage| stage.tensors(model.description())) {
        let (Some(a), Some(b)) = (files.0.opt_tensor(&name), files.1.opt_tensor(&name)) else { continue };
        if a.dims == b.dims {
            let matrices = (tensor_matrix(files.0, a)?, tensor_matrix(files.1, b)?);
            let rows = (0..a.n_rows()).map(|row| (files.0.stored_row(a, row), files.1.stored_row(b, row)));
            let order = rows.clone().any(|(a, b)| a != b).then(|| rows.collect());
            pairs.push(Pair { name, matrices, order, error: OutputError::default() });
        }
    }
    let mut comparer = Comparer {
        ctx: compute.context(),
        description: model.description(),
        pairs,
        outputs: Default::default(),
    };
    for (done, window) in windows.iter().enumerate() {
        if go_on(done).is_break() {
            return Err(Error::Stopped);
        }
        Layerwise::new(model, compute, std::slice::from_ref(window))?.run(&mut comparer)?;
    }
    Ok(comparer.pairs.into_iter().map(|pair| (pair.name, pair.error)).collect())
}

/// A matrix of both files, and its error so far.
struct Pair<'a> {
    name: String,
    matrices: (Matrix<'a>, Matrix<'a>),
    /// Which rows correspond, where their numbers differ.
    order: Option<Vec<(usize, usize)>>,
    error: OutputError,
}

struct Comparer<'a> {
    ctx: Context<'a>,
    description: &'a Description,
    pairs: Vec<Pair<'a>>,
    /// The outputs of both matrices for some rows of inputs.
    outputs: (Vec<f32>, Vec<f32>),
}

impl Visitor for Comparer<'_> {
    type Error = Error;

    fn inputs(&mut self, stage: Stage, x: &[f32], rows: usize) -> Result<(), Error> {
        let (ctx, (ours, theirs)) = (self.ctx, &mut self.outputs);
        for name in stage.tensors(self.description) {
            let Some(pair) = self.pairs.iter_mut().find(|pair| pair.name == name) else { continue };
            let (a, b) = pair.matrices;
            for x in x.chunks(ROWS * (x.len() / rows)) {
                let n = x.len() / a.cols();
                for (matrix, outputs) in [(a, &mut *ours), (b, &mut *theirs)] {
                    outputs.resize(n * a.rows(), 0.0);
                    gemm_f32(ctx, &matrix, x, n, outputs).map_err(crate::model::Error::from)?;
                }
                if let Some(order) = &pair.order {
                    for (ours, theirs) in ours.chunks_mut(order.len()).zip(theirs.chunks_mut(order.len())) {
                        let sorted: (Vec<f32>, Vec<f32>) =
                            order.iter().map(|&(a, b)| (ours[a], theirs[b])).unzip();
                        ours.copy_from_slice(&sorted.0);
                        theirs.copy_from_slice(&sorted.1);
                    }
                }
                pair.error.take(ours, theirs);
            }
        }
        Ok(())
    }
}
