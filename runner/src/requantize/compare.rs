//! Compares two files.

use std::ops::{ControlFlow, Range};

use halfbyte_cpu_kernels::{Context, Isa, Matrix};

use super::difference::decode;
use super::write::{PIECE, PIECES_PER_THREAD};
use super::{Difference, Error};
use crate::model;
use crate::source::Source;
use halfbyte_gguf::TensorInfo;

/// Two files' tensors, matched by name.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Pairing<'a> {
    /// Tensors of the same name and shape, in the first file's order.
    pub same: Vec<(&'a TensorInfo, &'a TensorInfo)>,
    /// Tensors of the same name and different shapes.
    pub reshaped: Vec<(&'a TensorInfo, &'a TensorInfo)>,
    /// Tensors that only the first file has.
    pub only_a: Vec<&'a TensorInfo>,
    /// Tensors that only the second file has.
    pub only_b: Vec<&'a TensorInfo>,
}

impl<'a> Pairing<'a> {
    /// Matches the tensors of two files.
    pub fn new(a: &'a dyn Source, b: &'a dyn Source) -> Self {
        let mut pairing = Self::default();
        for tensor in a.tensors() {
            match b.opt_tensor(&tensor.name) {
                None => pairing.only_a.push(tensor),
                Some(other) if other.dims == tensor.dims => pairing.same.push((tensor, other)),
                Some(other) => pairing.reshaped.push((tensor, other)),
            }
        }
        pairing.only_b.extend(b.tensors().iter().filter(|t| a.opt_tensor(&t.name).is_none()));
        pairing
    }

    /// Whether every tensor of either file is in [`same`](Self::same).
    pub fn is_complete(&self) -> bool {
        self.reshaped.is_empty() && self.only_a.is_empty() && self.only_b.is_empty()
    }
}

/// Compares the weights `w` of `tensors.0`, in file `files.0`, with the weights `q` of `tensors.1`, in file `files.1`. The
/// sums are the same for any number of threads.
///
/// `go_on` is called with the number of weights compared so far, some thousands apart; if it breaks, so does this,
/// with `None`.
///
/// # Errors
/// A type that no model is computed with; [`Error::NonFinite`] in either file.
///
/// # Panics
/// If the shapes differ, or a tensor lies outside its file.
pub fn difference(
    files: (&dyn Source, &dyn Source),
    tensors: (&TensorInfo, &TensorInfo),
    ctx: Context<'_>,
    mut go_on: impl FnMut(usize) -> ControlFlow<()>,
) -> Result<Option<Difference>, Error> {
    let (a, b) = tensors;
    assert_eq!(a.dims, b.dims, "compared tensors have one shape");
    let matrices = (model::tensor_matrix(files.0, a)?, model::tensor_matrix(files.1, b)?);
    let (cols, rows) = (a.row_len(), a.n_rows());
    let piece_rows = (PIECE / cols).max(1);
    let mut sum = Difference::default();
    let mut pieces: Vec<Result<Difference, Error>> = Vec::new();
    pieces.resize_with(ctx.pool.threads() * PIECES_PER_THREAD, || Ok(Difference::default()));
    for first in (0..rows).step_by(piece_rows * pieces.len()) {
        let left = rows - first;
        let batch_len = pieces.len().min(left.div_ceil(piece_rows));
        let batch = &mut pieces[..batch_len];
        ctx.pool.par_chunks_mut(batch, 1, |i, pieces| {
            let start = first + i * piece_rows;
            let rows = start..(start + piece_rows).min(rows);
            pieces[0] = of_rows(ctx.isa, files, tensors, matrices, rows);
        });
        for piece in batch {
            sum += std::mem::replace(piece, Ok(Difference::default()))?;
        }
        if go_on((first + left.min(batch_len * piece_rows)) * cols).is_break() {
            return Ok(None);
        }
    }
    Ok(Some(sum))
}

/// The difference of some rows of two tensors.
fn of_rows(
    isa: Isa,
    files: (&dyn Source, &dyn Source),
    tensors: (&TensorInfo, &TensorInfo),
    matrices: (Matrix<'_>, Matrix<'_>),
    rows: Range<usize>,
) -> Result<Difference, Error> {
    let (mut w, mut q) = (vec![0.0; matrices.0.cols()], vec![0.0; matrices.1.cols()]);
    let mut sum = Difference::default();
    for row in rows {
        let (a, b) = tensors;
        decode(isa, &matrices.0, &a.name, files.0.stored_row(a, row), &mut w)?;
        decode(isa, &matrices.1, &b.name, files.1.stored_row(b, row), &mut q)?;
        sum.take(&w, &q);
    }
    Ok(sum)
}
