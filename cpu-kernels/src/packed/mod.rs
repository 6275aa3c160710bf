//! Weights in the order in which the kernels read them.

mod memory;

use crate::error::Error;
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
    Q8_0(Q8_0Panel),
    Q4_0(Q4_0Panel),
    Q4_1(Q4_1Panel),
    Affine4(AffinePanel),
}

/// What a packed matrix looks like.
#[derive(Clone, Copy, Debug)]
enum Form {
    Panels(Kind),
    F32,
    F16,
    Bf16,
}

/// Panels of sixteen rows: the weights of a [`PackedMatrix`] of a quantized format.
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
/// [`Self::as_matrix`] goes wherever the original would, and every kernel gives the same bits with both. Q8_0, Q4_0,
/// Q4_1 and MLX affine 4-bit come as panels of sixteen rows side by side, read from front to end, which makes
/// [`crate::gemm_int8`] faster, above all for one token. F32, F16 and BF16 keep their rows. All lie in memory that
/// asks for huge pages on Linux, which is what one token gains with the latter.
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
pub struct PackedMatrix(Packed);

#[derive(Clone, Debug)]
enum Packed {
    Panels(Panels),
    F32(Rows),
    F16(Rows),
    Bf16(Rows),
}

/// Rows as they were.
#[derive(Clone, Debug)]
struct Rows {
    part: Part,
    rows: usize,
    cols: usize,
}

impl Rows {
    /// All of them, as numbers of type `T`.
    fn numbers<T: bytemuck::AnyBitPattern>(&self) -> &[T] {
        &bytemuck::cast_slice(self.part.lines())[..self.rows * self.cols]
    }
}

impl PackedMatrix {
    /// `matrix` packed.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for K-quants and for weights that are packed already.
    pub fn new(ctx: Context<'_>, matrix: &Matrix<'_>) -> Result<Self, Error> {
        let (form, lines) = layout(matrix)?;
        let mut memory = Memory::with_capacity(lines);
        let at = write(ctx, matrix, &mut memory);
        Ok(Self::of(matrix, form, Part { memory: Arc::new(memory), at, lines }))
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
        let packed = |(matrix, (at, (form, lines)))| {
            Self::of(matrix, form, Part { memory: Arc::clone(&memory), at, lines })
        };
        Ok(matrices.iter().zip(parts).map(packed).collect())
    }

    fn of(matrix: &Matrix<'_>, form: Form, part: Part) -> Self {
        let (rows, cols) = (matrix.rows(), matrix.cols());
        Self(match form {
            Form::Panels(kind) => Packed::Panels(Panels { part, kind, rows, cols }),
            Form::F32 => Packed::F32(Rows { part, rows, cols }),
            Form::F16 => Packed::F16(Rows { part, rows, cols }),
            Form::Bf16 => Packed::Bf16(Rows { part, rows, cols }),
        })
    }

    /// The matrix, for every kernel that takes one.
    #[must_use]
    pub fn as_matrix(&self) -> Matrix<'_> {
        match &self.0 {
            Packed::Panels(p) => Matrix::of_packed(Weights::Packed(p), p.rows, p.cols),
            Packed::F32(w) => Matrix::of_packed(Weights::F32(w.numbers()), w.rows, w.cols),
            Packed::F16(w) => Matrix::of_packed(Weights::F16(w.numbers()), w.rows, w.cols),
            Packed::Bf16(w) => Matrix::of_packed(Weights::Bf16(w.numbers()), w.rows, w.cols),
        }
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
fn layout(matrix: &Matrix<'_>) -> Result<(Form, usize), Error> {
    let rows = |form| Ok((form, matrix.bytes().div_ceil(size_of::<Line>())));
    let groups = matrix.cols() / 32;
    let (kind, panel) = match matrix.weights() {
        Weights::Q8_0(_) => (Kind::Q8_0(BlockPanel), Q8_0Panel::panel_lines(&BlockPanel, groups)),
        Weights::Q4_0(_) => (Kind::Q4_0(BlockPanel), Q4_0Panel::panel_lines(&BlockPanel, groups)),
        Weights::Q4_1(_) => (Kind::Q4_1(BlockPanel), Q4_1Panel::panel_lines(&BlockPanel, groups)),
        Weights::Affine4(affine) => {
            let format = AffinePanel::of(&affine);
            (Kind::Affine4(format), format.panel_lines(groups))
        }
        Weights::F32(_) => return rows(Form::F32),
        Weights::F16(_) => return rows(Form::F16),
        Weights::Bf16(_) => return rows(Form::Bf16),
        other @ (Weights::Affine8(_) | Weights::Q4K(_) | Weights::Q6K(_) | Weights::Packed(_)) => {
            return Err(Error::Unsupported {
                what: "PackedMatrix",
                got: other.name(),
                supported: "F32, F16, BF16, Q8_0, Q4_0, Q4_1, MLX affine 4-bit",
            });
        }
    };
    Ok((Form::Panels(kind), matrix.rows().div_ceil(LANES) * panel))
}

/// Appends a matrix that has a [`layout`] to `memory`; says where they begin.
fn write(ctx: Context<'_>, matrix: &Matrix<'_>, memory: &mut Memory) -> usize {
    let cols = matrix.cols();
    match matrix.weights() {
        Weights::Q8_0(blocks) => write_rows(ctx, matrix, Q8_0Rows::new(blocks, cols), memory),
        Weights::Q4_0(blocks) => write_rows(ctx, matrix, Q4_0Rows::new(blocks, cols), memory),
        Weights::Q4_1(blocks) => write_rows(ctx, matrix, Q4_1Rows::new(blocks, cols), memory),
        Weights::Affine4(affine) => write_rows(ctx, matrix, AffineRows::new(affine, cols), memory),
        Weights::F32(w) => copy(ctx, bytemuck::cast_slice(w), memory),
        Weights::F16(w) => copy(ctx, bytemuck::cast_slice(w), memory),
        Weights::Bf16(w) => copy(ctx, bytemuck::cast_slice(w), memory),
        other => unreachable!("{} have no layout", other.name()),
    }
}

/// Appends `bytes` as they are, a huge page at a time.
fn copy(ctx: Context<'_>, bytes: &[u8], memory: &mut Memory) -> usize {
    const PIECE: usize = 2 << 20;
    let lines = bytes.len().div_ceil(size_of::<Line>());
    memory.append(ctx.pool, lines, PIECE / size_of::<Line>(), |i, piece| {
        let from = &bytes[i * PIECE..];
        let n = from.len().min(size_of_val(piece));
        bytemuck::cast_slice_mut(piece)[..n].copy_from_slice(&from[..n]);
    })
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

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.rows.pack(s, self.first, self.valid, self.panel);
    }
}
