//! Weights in the order in which the kernels read them.

mod kind;
mod memory;

pub(crate) use kind::{Kind, PanelKind, UseFloatPanels, UseInt8Panels};

use crate::error::Error;
use crate::float::{FloatRows, Weight, panel_lines, write_panel};
use crate::formats::{FormatInfo, UseFloatRows, UseInt8Rows};
use crate::int8::PanelRows;
use crate::int8::panel::PanelFormat;
use crate::scratch::Line;
use crate::simd::{Kernel, LANES, Simd};
use crate::{Context, Matrix, Weights};
use memory::Memory;
use std::sync::Arc;

/// Panels of sixteen rows: the weights of a [`PackedMatrix`].
#[derive(Clone, Debug)]
pub struct Panels {
    part: Part,
    kind: Kind,
    info: FormatInfo,
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

    /// What is known of the format that was packed.
    pub(crate) fn info(&self) -> FormatInfo {
        self.info
    }

    /// The memory, in the order in which a token reads it. It lets a benchmark compare a product with plain reading.
    /// The layout may change.
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
/// Every kernel takes [`Self::as_matrix`] in place of the original and gives the same bits. The weights lie in panels of
/// sixteen rows, in the order in which a kernel reads them, which makes products faster, above all for one token. On Linux
/// the memory is advised to use huge pages.
///
/// A packed matrix of plain numbers, of Q8_0, Q4_0, Q4_1 or affine groups takes as much memory as the original
/// ([`Self::bytes`]); the other formats take 6 to 12 bits a weight (`int8/panel.rs`). Rows are filled up to a multiple of
/// 16, and sixteen rows take half a cache line more where a row has an odd number of groups (or of 16-bit numbers). A
/// file that the original is mapped from is not read any more.
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
    /// [`Error::Unsupported`] for weights that [`Matrix::supports_packing`] refuses; the message lists the formats that can
    /// be packed.
    pub fn new(ctx: Context<'_>, matrix: &Matrix<'_>) -> Result<Self, Error> {
        let (kind, lines) = layout(matrix)?;
        let mut memory = Memory::with_capacity(lines);
        let at = write(ctx, matrix, &mut memory);
        Ok(Self::of(matrix, kind, Part { memory: Arc::new(memory), at, lines }))
    }

    /// All of `matrices` packed, one after the other in one piece of memory, which is freed with the last of them.
    ///
    /// For small matrices this is better than packing them one by one, since only memory that fills a huge page can lie on
    /// one. Pass the matrices in the order in which a token reads them.
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
        Self(Panels { part, kind, info: matrix.weights().info(), rows: matrix.rows(), cols: matrix.cols() })
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
    let weights = matrix.weights();
    let layout = Layout { cols: matrix.cols() };
    let panel = weights.float_rows(layout).or_else(|| weights.int8_rows(matrix.cols(), layout));
    let (kind, panel) = panel.ok_or_else(|| Error::Unsupported {
        what: "PackedMatrix",
        got: weights.name(),
        supported: Weights::names(|format| format.packs),
    })?;
    Ok((kind, matrix.rows().div_ceil(LANES) * panel))
}

/// The kind and the lines of a panel of rows of `cols` columns.
#[derive(Clone, Copy)]
struct Layout {
    cols: usize,
}

impl UseFloatRows for Layout {
    type Output = (Kind, usize);

    fn run<W: Weight>(self, _: &[W]) -> (Kind, usize) {
        (W::KIND, panel_lines(self.cols, size_of::<W>()))
    }
}

impl UseInt8Rows for Layout {
    type Output = (Kind, usize);

    fn run<R: PanelRows>(self, rows: R) -> (Kind, usize) {
        let format = rows.format();
        (format.kind(), format.panel_lines(self.cols / 32))
    }
}

/// Appends a matrix that has a [`layout`] to `memory`; says where it begins.
fn write(ctx: Context<'_>, matrix: &Matrix<'_>, memory: &mut Memory) -> usize {
    let weights = matrix.weights();
    let floats = weights.float_rows(Write { ctx, matrix, memory });
    let at = floats.or_else(|| weights.int8_rows(matrix.cols(), Write { ctx, matrix, memory }));
    at.unwrap_or_else(|| unreachable!("{} have no layout", weights.name()))
}

/// Appends rows to `memory` as panels; says where they begin.
struct Write<'a> {
    ctx: Context<'a>,
    matrix: &'a Matrix<'a>,
    memory: &'a mut Memory,
}

impl UseFloatRows for Write<'_> {
    type Output = usize;

    fn run<W: Weight>(self, numbers: &[W]) -> usize {
        let Self { ctx, matrix, memory } = self;
        let rows = FloatRows { numbers, rows: matrix.rows(), cols: matrix.cols() };
        let lines = panel_lines(rows.cols, size_of::<W>());
        let panels = rows.rows.div_ceil(LANES);
        memory.append(ctx.pool, panels * lines, lines, |i, panel| write_panel(ctx, rows, i, panel))
    }
}

impl UseInt8Rows for Write<'_> {
    type Output = usize;

    fn run<R: PanelRows>(self, rows: R) -> usize {
        let Self { ctx, matrix, memory } = self;
        let panels = matrix.rows().div_ceil(LANES);
        let lines = rows.format().panel_lines(matrix.cols() / 32);
        memory.append(ctx.pool, panels * lines, lines, |i, panel| {
            let first = i * LANES;
            let valid = LANES.min(matrix.rows() - first);
            ctx.isa.dispatch(WritePanel { rows, first, valid, panel });
        })
    }
}

/// The panels of `weights`, if all of them are packed.
pub(crate) fn all_packed<'a, const N: usize>(weights: [Weights<'a>; N]) -> Option<[&'a Panels; N]> {
    let packed = |weights: &Weights<'a>| if let Weights::Packed(w) = *weights { Some(w) } else { None };
    let mut all = [packed(weights.first()?)?; N];
    for (panels, weights) in all.iter_mut().zip(&weights) {
        *panels = packed(weights)?;
    }
    Some(all)
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
