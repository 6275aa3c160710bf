//! Carrying out a plan: a few rows in memory at a time, on all threads.

use std::io::Write;
use std::ops::{ControlFlow, Range};

use halfbyte_cpu_kernels::Context;

use super::difference::decode;
use super::plan::Step;
use super::{Difference, Error, Plan};
use crate::gguf::{GgufWriter, TensorInfo, TensorType};

/// Weights that a thread takes on at a time, or one row if that is longer.
pub(super) const PIECE: usize = 1 << 15;

/// Pieces a thread before what is done is written: enough to even out threads of different speed.
pub(super) const PIECES_PER_THREAD: usize = 4;

/// What became of a tensor.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Written {
    /// Its name, type, dimensions and size in the new file; the offset says nothing.
    pub tensor: TensorInfo,
    /// Its type in the old file.
    pub from: TensorType,
    /// What the conversion changed; nothing was summed for a vector, which is copied.
    pub difference: Difference,
}

impl Plan<'_> {
    /// Writes the tensors to `writer`, which was made with this plan's [`metadata`](Self::metadata) and
    /// [`tensors`](Self::tensors), and says what became of each. The bytes and the sums are the same for any number
    /// of threads. The writer is not finished.
    ///
    /// `go_on` is called with the number of weights written so far, some thousands apart; if it breaks, so does this,
    /// with `None`.
    ///
    /// # Errors
    /// [`Error::NonFinite`], [`Error::Encode`], and those of [`GgufWriter::append`]. What the writer has then is part
    /// of a file.
    pub fn write<W: Write>(
        &self,
        ctx: Context<'_>,
        writer: &mut GgufWriter<W>,
        mut go_on: impl FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Option<Vec<Written>>, Error> {
        let mut pieces = Vec::new();
        pieces.resize_with(ctx.pool.threads() * PIECES_PER_THREAD, Piece::default);
        let (mut report, mut done) = (Vec::new(), 0);
        for ((old, new), step) in self.gguf.tensors().iter().zip(self.tensors()).zip(&self.steps) {
            let mut difference = Difference::default();
            if let Step::Vector = step {
                writer.append(self.gguf.bytes(old))?;
                done += old.n_elements();
            } else {
                let piece_rows = (PIECE / old.row_len()).max(1);
                for first in (0..old.n_rows()).step_by(piece_rows * pieces.len()) {
                    let left = old.n_rows() - first;
                    let batch_len = pieces.len().min(left.div_ceil(piece_rows));
                    let batch = &mut pieces[..batch_len];
                    ctx.pool.par_chunks_mut(batch, 1, |i, pieces| {
                        let start = first + i * piece_rows;
                        pieces[0].convert(
                            ctx,
                            self,
                            old,
                            step,
                            start..(start + piece_rows).min(old.n_rows()),
                        );
                    });
                    for piece in batch {
                        std::mem::replace(&mut piece.outcome, Ok(()))?;
                        writer.append(&piece.bytes)?;
                        difference += piece.difference;
                    }
                    done += left.min(batch_len * piece_rows) * old.row_len();
                    if go_on(done).is_break() {
                        return Ok(None);
                    }
                }
            }
            report.push(Written { tensor: new.clone(), from: old.ty, difference });
        }
        Ok(Some(report))
    }
}

/// Some rows on their way, with memory that is used again.
#[derive(Debug)]
struct Piece {
    /// A row as it was.
    x: Vec<f32>,
    /// The row as it will be read.
    decoded: Vec<f32>,
    /// All rows as they will lie in the file.
    bytes: Vec<u8>,
    difference: Difference,
    outcome: Result<(), Error>,
}

impl Default for Piece {
    fn default() -> Self {
        let (x, decoded, bytes) = (Vec::new(), Vec::new(), Vec::new());
        Self { x, decoded, bytes, difference: Difference::default(), outcome: Ok(()) }
    }
}

impl Piece {
    fn convert(
        &mut self,
        ctx: Context<'_>,
        plan: &Plan<'_>,
        old: &TensorInfo,
        step: &Step<'_>,
        rows: Range<usize>,
    ) {
        self.bytes.clear();
        self.difference = Difference::default();
        self.outcome = self.convert_rows(ctx, plan, old, step, rows);
    }

    fn convert_rows(
        &mut self,
        ctx: Context<'_>,
        plan: &Plan<'_>,
        old: &TensorInfo,
        step: &Step<'_>,
        rows: Range<usize>,
    ) -> Result<(), Error> {
        let Step::Matrix { matrix, format, copy } = step else { return Ok(()) };
        self.x.resize(old.row_len(), 0.0);
        self.decoded.resize(old.row_len(), 0.0);
        for row in rows {
            decode(ctx.isa, matrix, &old.name, row, &mut self.x)?;
            if *copy {
                let n = old.row_bytes();
                self.bytes.extend_from_slice(&plan.gguf.bytes(old)[row * n..][..n]);
                self.difference.take(&self.x, &self.x);
            } else {
                let encoded = format.encode(ctx, &self.x, &mut self.bytes, &mut self.decoded);
                encoded.map_err(|source| {
                    let (tensor, ty) = (old.name.clone(), format.tensor_type());
                    Error::Encode { tensor, row, ty, source }
                })?;
                self.difference.take(&self.x, &self.decoded);
            }
        }
        Ok(())
    }
}
