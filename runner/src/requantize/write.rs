//! Carries out a plan on all threads, with a few rows of each in memory.

use std::io::{self, Write};
use std::ops::{ControlFlow, Range};

use halfbyte_cpu_kernels::{Context, Matrix};

use super::difference::decode;
use super::plan::Step;
use super::{Difference, Error, Plan};
use crate::model;
use crate::weight_types::WeightType;
use halfbyte_gguf::{GgufWriter, TensorInfo, TensorType};

/// The weights that a thread converts at a time, or one row if that is longer.
pub(super) const PIECE: usize = 1 << 15;

/// Pieces for each thread between two writes: enough to even out threads of different speed.
pub(super) const PIECES_PER_THREAD: usize = 4;

/// What became of a tensor.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Written {
    /// Its name, type, dimensions and size in the new file; the offset says nothing.
    pub tensor: TensorInfo,
    /// Its type in the old file.
    pub from: TensorType,
    /// What the conversion changed; all zero for a vector, which is copied.
    pub difference: Difference,
    /// Groups that had no importance and were quantized with equal ones.
    pub uniform_groups: usize,
    /// Weights that were replaced by the end of the type's range ([`Plan::saturate`]).
    pub saturated: usize,
}

/// Tensors that have been made already.
pub trait Ready {
    /// The bytes of the tensor called `name`, if it is there.
    ///
    /// # Errors
    /// The bytes cannot be read.
    fn tensor(&self, name: &str) -> io::Result<Option<Vec<u8>>>;
}

/// Has no tensors.
impl Ready for () {
    fn tensor(&self, _: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }
}

impl Plan<'_> {
    /// Writes the tensors to `writer`, which was made with this plan's [`metadata`](Self::metadata) and
    /// [`tensors`](Self::tensors), and says what became of each. The bytes and the sums are the same for any number
    /// of threads. The writer is not finished.
    ///
    /// A tensor that `ready` has is taken from there; `&()` has none.
    ///
    /// `go_on` is called with the number of weights written so far, some thousands apart; if it breaks, so does this,
    /// with `None`.
    ///
    /// # Errors
    /// [`Error::NonFinite`], [`Error::Encode`], [`Error::Ready`], and those of [`GgufWriter::append`]. What the writer has then is part
    /// of a file.
    pub fn write<W: Write>(
        &self,
        ctx: Context<'_>,
        writer: &mut GgufWriter<W>,
        ready: &dyn Ready,
        mut go_on: impl FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Option<Vec<Written>>, Error> {
        let mut pieces = Vec::new();
        pieces.resize_with(ctx.pool.threads() * PIECES_PER_THREAD, Piece::default);
        let (mut report, mut done) = (Vec::new(), 0);
        for ((old, new), step) in self.source.tensors().iter().zip(self.tensors()).zip(&self.steps) {
            let mut counts = Counts::default();
            if let Step::Vector = step {
                self.require_finite(ctx, old)?;
                writer.append(self.source.bytes(old))?;
                done += old.n_elements();
            } else if let Step::Widened(matrix) = step {
                writer.append(bytemuck::cast_slice(&self.widened(ctx, old, matrix)?))?;
                done += old.n_elements();
            } else {
                let ready = self.ready(new, step, ready)?;
                let job = Job { plan: self, old, step, ready: ready.as_deref() };
                let piece_rows = (PIECE / old.row_len()).max(1);
                for first in (0..old.n_rows()).step_by(piece_rows * pieces.len()) {
                    let left = old.n_rows() - first;
                    let batch_len = pieces.len().min(left.div_ceil(piece_rows));
                    let batch = &mut pieces[..batch_len];
                    ctx.pool.par_chunks_mut(batch, 1, |i, pieces| {
                        let start = first + i * piece_rows;
                        pieces[0].convert(ctx, job, start..(start + piece_rows).min(old.n_rows()));
                    });
                    for piece in batch {
                        std::mem::replace(&mut piece.outcome, Ok(()))?;
                        writer.append(&piece.bytes)?;
                        counts.take(&piece.counts);
                    }
                    done += left.min(batch_len * piece_rows) * old.row_len();
                    if go_on(done).is_break() {
                        return Ok(None);
                    }
                }
            }
            let Counts { difference, uniform_groups, saturated } = counts;
            report.push(Written { tensor: new.clone(), from: old.ty, difference, uniform_groups, saturated });
        }
        Ok(Some(report))
    }

    /// Refuses a vector with a NaN or an infinity. Vectors of integers have neither, and other types that halfbyte does
    /// not compute with are copied as they are.
    fn require_finite(&self, ctx: Context<'_>, info: &TensorInfo) -> Result<(), Error> {
        if info.ty == TensorType::F64 {
            let (numbers, _) = self.source.bytes(info).as_chunks();
            let numbers = numbers.iter().map(|&bytes| f64::from_le_bytes(bytes));
            return match numbers.enumerate().find(|(_, value)| !value.is_finite()) {
                None => Ok(()),
                Some((position, value)) => {
                    Err(Error::NonFinite { tensor: info.name.clone(), row: 0, position, value: value as f32 })
                }
            };
        }
        if WeightType::of(info.ty).is_none() {
            return Ok(());
        }
        Self::stored(ctx, info, &model::tensor_matrix(self.source, info)?).map(|_| ())
    }

    /// The numbers of a vector or of a small matrix, in the order of the source.
    fn stored(ctx: Context<'_>, info: &TensorInfo, matrix: &Matrix<'_>) -> Result<Vec<f32>, Error> {
        let mut stored = vec![0.0; info.n_elements()];
        for (row, stored) in stored.chunks_exact_mut(matrix.cols().max(1)).enumerate() {
            decode(ctx.isa, matrix, &info.name, row, stored)?;
        }
        Ok(stored)
    }

    /// The numbers of a vector or of a small matrix, in GGUF's order.
    fn widened(&self, ctx: Context<'_>, info: &TensorInfo, matrix: &Matrix<'_>) -> Result<Vec<f32>, Error> {
        let stored = Self::stored(ctx, info, matrix)?;
        if info.dims.len() > 1 {
            return Ok(stored);
        }
        Ok((0..stored.len()).map(|i| stored[self.source.stored_row(info, i)]).collect())
    }

    /// The whole tensor `new` if it has been made already.
    fn ready(&self, new: &TensorInfo, step: &Step<'_>, ready: &dyn Ready) -> Result<Option<Vec<u8>>, Error> {
        let Step::Matrix { copy: false, .. } = step else { return Ok(None) };
        let found = ready.tensor(&new.name).and_then(|found| match found {
            Some(bytes) if bytes.len() != new.n_bytes => {
                let what = format!("expected {} bytes, got {}", new.n_bytes, bytes.len());
                Err(io::Error::new(io::ErrorKind::InvalidData, what))
            }
            found => Ok(found),
        });
        found.map_err(|source| Error::Ready { tensor: new.name.clone(), source })
    }
}

/// Sums over the rows of a tensor.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    difference: Difference,
    uniform_groups: usize,
    saturated: usize,
}

impl Counts {
    fn take(&mut self, other: &Self) {
        self.difference += other.difference;
        self.uniform_groups += other.uniform_groups;
        self.saturated += other.saturated;
    }
}

/// A tensor to be converted.
#[derive(Clone, Copy)]
struct Job<'a> {
    plan: &'a Plan<'a>,
    old: &'a TensorInfo,
    step: &'a Step<'a>,
    ready: Option<&'a [u8]>,
}

/// Some rows that are being converted, with buffers that are reused.
#[derive(Debug)]
struct Piece {
    /// A row of the old file.
    x: Vec<f32>,
    /// The row, cut off at the type's range if the plan says so.
    within: Vec<f32>,
    /// The row as the new bytes decode.
    decoded: Vec<f32>,
    /// The bytes of all rows in the new file.
    bytes: Vec<u8>,
    counts: Counts,
    outcome: Result<(), Error>,
}

impl Default for Piece {
    fn default() -> Self {
        let (x, within, decoded, bytes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { x, within, decoded, bytes, counts: Counts::default(), outcome: Ok(()) }
    }
}

impl Piece {
    fn convert(&mut self, ctx: Context<'_>, job: Job<'_>, rows: Range<usize>) {
        self.bytes.clear();
        self.counts = Counts::default();
        self.outcome = self.convert_rows(ctx, job, rows);
    }

    fn convert_rows(&mut self, ctx: Context<'_>, job: Job<'_>, rows: Range<usize>) -> Result<(), Error> {
        let Job { plan, old, step, ready } = job;
        let Step::Matrix { matrix, encoding, copy, importance } = step else { return Ok(()) };
        let wrong = |row, source| {
            let (tensor, ty) = (old.name.clone(), encoding.tensor_type());
            Error::Encode { tensor, row, ty, source }
        };
        self.x.resize(old.row_len(), 0.0);
        self.decoded.resize(old.row_len(), 0.0);
        for gguf_row in rows {
            let row = plan.source.stored_row(old, gguf_row);
            decode(ctx.isa, matrix, &old.name, row, &mut self.x)?;
            if *copy {
                let n = old.row_bytes();
                self.bytes.extend_from_slice(&plan.source.bytes(old)[row * n..][..n]);
                self.counts.difference.take(&self.x, &self.x);
                continue;
            }
            self.within.clone_from(&self.x);
            if let Some(limit) = plan.cut_off(*encoding) {
                self.counts.saturated += saturate(&mut self.within, limit);
            }
            let start = self.bytes.len();
            let uniform = if let Some(ready) = ready {
                let n = ready.len() / old.n_rows();
                self.bytes.extend_from_slice(&ready[row * n..][..n]);
                importance.as_deref().map_or(0, groups_of_zeros)
            } else {
                // Of stacked experts each has an importance of its own.
                let expert = gguf_row / old.dims.get(1).copied().unwrap_or(1).max(1);
                let importance = importance.as_deref().map(|all| {
                    let n = old.row_len();
                    if all.len() == n { all } else { &all[expert * n..][..n] }
                });
                let encoded = encoding.encode(ctx, &self.within, importance, &mut self.bytes);
                encoded.map_err(|source| wrong(row, source))?
            };
            encoding.decode(ctx.isa, &self.bytes[start..], &mut self.decoded)?;
            self.counts.uniform_groups += uniform;
            self.counts.difference.take(&self.x, &self.decoded);
        }
        Ok(())
    }
}

/// Groups of 32 columns without any importance.
fn groups_of_zeros(importance: &[f32]) -> usize {
    importance.chunks(32).filter(|group| group.iter().all(|&v| v == 0.0)).count()
}

/// Cuts off numbers at `limit` in magnitude, and returns how many there were.
pub(crate) fn saturate(x: &mut [f32], limit: f32) -> usize {
    let mut n = 0;
    for x in x.iter_mut().filter(|x| x.abs() > limit) {
        *x = limit.copysign(*x);
        n += 1;
    }
    n
}
