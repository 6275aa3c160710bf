//! Weights in the order in which the kernels read them.

mod memory;

use crate::error::Error;
use crate::float::{FloatRows, Weight, panel_lines, write_panel};
use crate::int8::panel::{AffinePanel, BlockPanel, PanelFormat, Q4_0Panel, Q4_1Panel, Q8_0Panel};
use crate::int8::{AffineRows, PanelRows, Q4_0Rows, Q4_1Rows, Q8_0Rows};
use crate::scratch::Line;
use crate::simd::{Kernel, LANES, Simd};
use crate::{Context, Matrix, Weights};
use memory::Memory;
use std::sync::Arc;

/// The format of panels.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    F32,
    F16,
    Bf16,
    Q8_0(Q8_0Panel),
    Q4_0(Q4_0Panel),
    Q4_1(Q4_1Panel),
    Affine4(AffinePanel),
}

/// Panels of sixteen rows: the weights of a [`PackedMatrix`].
#[derive(Clone, Debug)]
pub struct Panels {
    part: Part,
    kind: Kind,
    rows: usize,
    cols: usize,
}

impl Panels {
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn cols(&self) -> usize {
        self.cols
    }

    pub(crate) fn bytes(&self) -> usize {
        self.part.lines * size_of::<Line>()
    }

    pub(crate) fn is_quantized(&self) -> bool {
        !matches!(self.kind, Kind::F32 | Kind::F16 | Kind::Bf16)
    }

    /// What messages call the format.
    pub(crate) fn name(&self) -> &'static str {
        match self.kind {
            Kind::F32 => "packed F32",
            Kind::F16 => "packed F16",
            Kind::Bf16 => "packed BF16",
            _ => "packed weights",
        }
    }

    /// The memory, in the order in which a token reads it: a yardstick for how fast that can be. What stands where may
    /// change.
    pub fn as_bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self.lines())
    }

    #[inline(always)]
    pub(crate) fn lines(&self) -> &[Line] {
        self.part.lines()
    }
}

/// A matrix's part of the memory.
#[derive(Clone, Debug)]
struct Part {
    memory: Arc<Memory>,
    at: usize,
    lines: usize,
}

impl Part {
    #[inline(always)]
    fn lines(&self) -> &[Line] {
        self.memory.lines(self.at, self.lines)
    }
}

/// A weight matrix packed for this crate's kernels, made once when a model is loaded.
///
/// [`Self::as_matrix`] goes wherever the original would, and every kernel gives the same bits with both. All formats
/// but K-quants come as panels of sixteen rows side by side, read from front to end, which makes products faster, above
/// all for one token, in memory that asks for huge pages on Linux.
///
/// The memory is as much as the original's, but for rows up to a multiple of 16 and, where a row has an odd number
/// of groups (or of 16-bit numbers), half a cache line for sixteen rows ([`Self::bytes`]). A file that the original is mapped from is no
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
pub struct PackedMatrix(Panels);

impl PackedMatrix {
    /// `matrix` packed.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for K-quants and for weights that are packed already.
    pub fn new(ctx: Context<'_>, matrix: &Matrix<'_>) -> Result<Self, Error> {
        let (kind, lines) = layout(matrix)?;
        let mut memory = Memory::with_capacity(lines);
        let at = write(ctx, matrix, &mut memory);
        Ok(Self::of(matrix, kind, Part { memory: Arc::new(memory), at, lines }))
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
        let parts = starts.into_iter().zip(layouts);
        let packed = |(matrix, (at, (kind, lines)))| {
            Self::of(matrix, kind, Part { memory: Arc::clone(&memory), at, lines })
        };
        Ok(matrices.iter().zip(parts).map(packed).collect())
    }

    fn of(matrix: &Matrix<'_>, kind: Kind, part: Part) -> Self {
        Self(Panels { part, kind, rows: matrix.rows(), cols: matrix.cols() })
    }

    /// The matrix, for every kernel that takes one.
    #[must_use]
    pub fn as_matrix(&self) -> Matrix<'_> {
        Matrix::of_packed(Weights::Packed(&self.0), self.0.rows, self.0.cols)
    }

    /// Outputs.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.as_matrix().rows()
    }

    /// Inputs.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.as_matrix().cols()
    }

    /// Bytes of memory that the weights take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.as_matrix().bytes()
    }
}

/// The format that `matrix` will have, and the lines it takes.
fn layout(matrix: &Matrix<'_>) -> Result<(Kind, usize), Error> {
    let (cols, groups) = (matrix.cols(), matrix.cols() / 32);
    let (kind, panel) = match matrix.weights() {
        Weights::F32(_) => (Kind::F32, panel_lines(cols, 4)),
        Weights::F16(_) => (Kind::F16, panel_lines(cols, 2)),
        Weights::Bf16(_) => (Kind::Bf16, panel_lines(cols, 2)),
        Weights::Q8_0(_) => (Kind::Q8_0(BlockPanel), Q8_0Panel::panel_lines(&BlockPanel, groups)),
        Weights::Q4_0(_) => (Kind::Q4_0(BlockPanel), Q4_0Panel::panel_lines(&BlockPanel, groups)),
        Weights::Q4_1(_) => (Kind::Q4_1(BlockPanel), Q4_1Panel::panel_lines(&BlockPanel, groups)),
        Weights::Affine4(affine) => {
            let format = AffinePanel::of(&affine);
            (Kind::Affine4(format), format.panel_lines(groups))
        }
        other @ (Weights::Affine8(_) | Weights::Q4K(_) | Weights::Q6K(_) | Weights::Packed(_)) => {
            return Err(Error::Unsupported {
                what: "PackedMatrix",
                got: other.name(),
                supported: "F32, F16, BF16, Q8_0, Q4_0, Q4_1, MLX affine 4-bit",
            });
        }
    };
    Ok((kind, matrix.rows().div_ceil(LANES) * panel))
}

/// Appends a matrix that has a [`layout`] to `memory`; says where they begin.
fn write(ctx: Context<'_>, matrix: &Matrix<'_>, memory: &mut Memory) -> usize {
    let cols = matrix.cols();
    match matrix.weights() {
        Weights::Q8_0(blocks) => write_rows(ctx, matrix, Q8_0Rows::new(blocks, cols), memory),
        Weights::Q4_0(blocks) => write_rows(ctx, matrix, Q4_0Rows::new(blocks, cols), memory),
        Weights::Q4_1(blocks) => write_rows(ctx, matrix, Q4_1Rows::new(blocks, cols), memory),
        Weights::Affine4(affine) => write_rows(ctx, matrix, AffineRows::new(affine, cols), memory),
        Weights::F32(numbers) => write_floats(ctx, matrix, numbers, memory),
        Weights::F16(numbers) => write_floats(ctx, matrix, numbers, memory),
        Weights::Bf16(numbers) => write_floats(ctx, matrix, numbers, memory),
        other => unreachable!("{} have no layout", other.name()),
    }
}

fn write_floats<W: Weight>(
    ctx: Context<'_>,
    matrix: &Matrix<'_>,
    numbers: &[W],
    memory: &mut Memory,
) -> usize {
    let rows = FloatRows { numbers, rows: matrix.rows(), cols: matrix.cols() };
    let lines = panel_lines(rows.cols, size_of::<W>());
    let panels = rows.rows.div_ceil(LANES);
    memory.append(ctx.pool, panels * lines, lines, |i, panel| write_panel(ctx, rows, i, panel))
}

fn write_rows<R: PanelRows>(ctx: Context<'_>, matrix: &Matrix<'_>, rows: R, memory: &mut Memory) -> usize {
    let panels = matrix.rows().div_ceil(LANES);
    let lines = rows.format().panel_lines(matrix.cols() / 32);
    memory.append(ctx.pool, panels * lines, lines, |i, panel| {
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
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.rows.pack(s, self.first, self.valid, self.panel);
    }
}
