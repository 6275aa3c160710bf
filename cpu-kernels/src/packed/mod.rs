//! Quantized weights in the order in which the kernels read them.

mod memory;

use crate::error::Error;
use crate::int8::panel::{AffinePanel, BlockPanel, PanelFormat, Q4_0Panel, Q4_1Panel, Q8_0Panel};
use crate::int8::{AffineRows, PanelRows, Q4_0Rows, Q4_1Rows, Q8_0Rows};
use crate::scratch::Line;
use crate::simd::{Kernel, LANES, Simd};
use crate::{Context, Matrix, Weights};
use memory::Memory;
use std::sync::Arc;

/// The format of packed weights.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Q8_0(Q8_0Panel),
    Q4_0(Q4_0Panel),
    Q4_1(Q4_1Panel),
    Affine4(AffinePanel),
}

/// A weight matrix packed for this crate's kernels, made once when a model is loaded.
///
/// Packed are Q8_0, Q4_0, Q4_1 and MLX affine 4-bit. [`Self::as_matrix`] goes wherever the original would, and
/// every kernel gives the same bits with both; [`crate::gemm_int8`] is faster, above all for one token. Sixteen rows
/// lie side by side in panels that are read from front to end, in memory that asks for huge pages on Linux.
///
/// The memory is as much as the original's, but for rows up to a multiple of 16 and, where a row has an odd number
/// of groups, half a cache line for sixteen rows ([`Self::bytes`]). A file that the original is mapped from is no
/// longer read.
///
/// ```
/// use halfbyte_cpu_kernels::{Context, Matrix, PackedMatrix, Weights, matvec_int8, quantize_activations};
/// use halfbyte_q4::BlockQ4_0;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = halfbyte_threadpool::ThreadPool::new(2)?;
/// let ctx = Context::new(&pool)?;
/// let blocks = vec![BlockQ4_0 { scale: half::f16::ONE, codes: [0x79; 16] }; 3 * 2];
/// let w = Matrix::new(Weights::Q4_0(&blocks), 3, 64)?;
/// let packed = PackedMatrix::new(ctx, &w)?;
///
/// let mut x = halfbyte_q8::Activations::new();
/// quantize_activations(ctx, &[1.0; 64], 1, 64, &mut x)?;
/// let (mut y, mut same) = ([0.0; 3], [0.0; 3]);
/// matvec_int8(ctx, &w, &x, &mut y)?;
/// matvec_int8(ctx, &packed.as_matrix(), &x, &mut same)?;
/// assert_eq!(y, same);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct PackedMatrix {
    memory: Arc<Memory>,
    /// The lines of this matrix.
    at: usize,
    lines: usize,
    kind: Kind,
    rows: usize,
    cols: usize,
}

impl PackedMatrix {
    /// `matrix` packed.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for weights of other types, also for those that are packed already.
    pub fn new(ctx: Context<'_>, matrix: &Matrix<'_>) -> Result<Self, Error> {
        let (kind, lines) = layout(matrix)?;
        let mut memory = Memory::with_capacity(lines);
        write(ctx, matrix, &mut memory);
        let (rows, cols) = (matrix.rows(), matrix.cols());
        Ok(Self { memory: Arc::new(memory), at: 0, lines, kind, rows, cols })
    }

    /// All of `matrices` packed, one after the other in one piece of memory, which is freed with the last of them.
    ///
    /// Better than one by one where matrices are small, since only what fills a huge page can lie on one. The
    /// order in which a token reads them is the best.
    ///
    /// # Errors
    /// [`Error::Unsupported`] as for [`Self::new`], before anything is allocated.
    pub fn pack_all(ctx: Context<'_>, matrices: &[Matrix<'_>]) -> Result<Vec<Self>, Error> {
        let layouts = matrices.iter().map(layout).collect::<Result<Vec<_>, _>>()?;
        let mut memory = Memory::with_capacity(layouts.iter().map(|(_, lines)| lines).sum());
        let starts: Vec<usize> = matrices.iter().map(|matrix| write(ctx, matrix, &mut memory)).collect();
        let memory = Arc::new(memory);
        let packed = |((matrix, at), (kind, lines)): ((&Matrix<'_>, usize), (Kind, usize))| Self {
            memory: Arc::clone(&memory),
            at,
            lines,
            kind,
            rows: matrix.rows(),
            cols: matrix.cols(),
        };
        Ok(matrices.iter().zip(starts).zip(layouts).map(packed).collect())
    }

    /// The matrix, for every kernel that takes one.
    #[must_use]
    pub fn as_matrix(&self) -> Matrix<'_> {
        Matrix::of_packed(self)
    }

    /// Outputs.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes of memory that the panels take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lines * size_of::<Line>()
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The panels.
    #[inline(always)]
    pub(crate) fn lines(&self) -> &[Line] {
        self.memory.lines(self.at, self.lines)
    }
}

/// The format that `matrix` will have, and the lines it takes.
fn layout(matrix: &Matrix<'_>) -> Result<(Kind, usize), Error> {
    let groups = matrix.cols() / 32;
    let (kind, panel) = match matrix.weights() {
        Weights::Q8_0(_) => (Kind::Q8_0(BlockPanel), Q8_0Panel::panel_lines(&BlockPanel, groups)),
        Weights::Q4_0(_) => (Kind::Q4_0(BlockPanel), Q4_0Panel::panel_lines(&BlockPanel, groups)),
        Weights::Q4_1(_) => (Kind::Q4_1(BlockPanel), Q4_1Panel::panel_lines(&BlockPanel, groups)),
        Weights::Affine4(affine) => {
            let format = AffinePanel::of(&affine);
            (Kind::Affine4(format), format.panel_lines(groups))
        }
        other => {
            return Err(Error::Unsupported {
                what: "PackedMatrix",
                got: other.name(),
                supported: "Q8_0, Q4_0, Q4_1, MLX affine 4-bit",
            });
        }
    };
    Ok((kind, matrix.rows().div_ceil(LANES) * panel))
}

/// Appends the panels of a matrix that has a [`layout`] to `memory`; says where they begin.
fn write(ctx: Context<'_>, matrix: &Matrix<'_>, memory: &mut Memory) -> usize {
    let cols = matrix.cols();
    match matrix.weights() {
        Weights::Q8_0(blocks) => write_rows(ctx, matrix, Q8_0Rows::new(blocks, cols), memory),
        Weights::Q4_0(blocks) => write_rows(ctx, matrix, Q4_0Rows::new(blocks, cols), memory),
        Weights::Q4_1(blocks) => write_rows(ctx, matrix, Q4_1Rows::new(blocks, cols), memory),
        Weights::Affine4(affine) => write_rows(ctx, matrix, AffineRows::new(affine, cols), memory),
        other => unreachable!("{} have no layout", other.name()),
    }
}

fn write_rows<R: PanelRows>(ctx: Context<'_>, matrix: &Matrix<'_>, rows: R, memory: &mut Memory) -> usize {
    let panels = matrix.rows().div_ceil(LANES);
    let lines = rows.format().panel_lines(matrix.cols() / 32);
    memory.append(ctx.pool, panels, lines, |i, panel| {
        let first = i * LANES;
        let valid = LANES.min(matrix.rows() - first);
        ctx.isa.dispatch(WritePanel { rows, first, valid, panel });
    })
}

/// Packs rows `first..first + valid`.
struct WritePanel<'a, R> {
    rows: R,
    first: usize,
    valid: usize,
    panel: &'a mut [Line],
}

impl<R: PanelRows> Kernel for WritePanel<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.rows.pack(s, self.first, self.valid, self.panel);
    }
}
