//! Where panels of floats come from: packed memory, or rows that are transposed when a block of them is needed, and decoded
//! first if they are not plain floats.

use super::BLOCK;
use super::decode::DecodeRow;
use super::transpose::{transpose_halves, transpose_words};
use crate::matrix::Matrix;
use crate::packed::{Kind, Panels};
use crate::scratch::Line;
use crate::simd::{Kernel, LANES, Simd};
use bytemuck::Pod;
use core::marker::PhantomData;
use core::ops::Range;
use half::{bf16, f16};

/// Lines of scratch that a [`PanelSource`] may use: sixteen rows of a block as f32, and the panel made of them.
pub(super) const SCRATCH: usize = 2 * BLOCK;

/// Lines of a panel of numbers of `size` bytes.
pub(crate) fn panel_lines(cols: usize, size: usize) -> usize {
    (cols * LANES * size).div_ceil(size_of::<Line>())
}

/// Floats that are widened to f32 as they are loaded.
pub(crate) trait Weight: Pod + Into<f32> + Send + Sync {
    /// The kind of packed panels of such numbers.
    const KIND: Kind;

    /// Sixteen weights.
    ///
    /// # Safety
    /// `p` is valid for reading 16 of them.
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F32;

    /// Sixteen rows, `stride` apart, as a panel: number `k` of row `r` becomes number `16 k + r`. No bit changes.
    fn transpose<S: Simd>(s: S, rows: &[Self], stride: usize, panel: &mut [Self]);
}

impl Weight for f32 {
    const KIND: Kind = Kind::F32;

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { s.load(p) }
    }
    #[inline(always)]
    fn transpose<S: Simd>(s: S, rows: &[Self], stride: usize, panel: &mut [Self]) {
        transpose_words(s, bytemuck::cast_slice(rows), stride, bytemuck::cast_slice_mut(panel));
    }
}

impl Weight for f16 {
    const KIND: Kind = Kind::F16;

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { s.load_f16(p.cast()) }
    }
    #[inline(always)]
    fn transpose<S: Simd>(s: S, rows: &[Self], stride: usize, panel: &mut [Self]) {
        transpose_halves(s, bytemuck::cast_slice(rows), stride, bytemuck::cast_slice_mut(panel));
    }
}

impl Weight for bf16 {
    const KIND: Kind = Kind::Bf16;

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { s.load_bf16(p.cast()) }
    }
    #[inline(always)]
    fn transpose<S: Simd>(s: S, rows: &[Self], stride: usize, panel: &mut [Self]) {
        transpose_halves(s, bytemuck::cast_slice(rows), stride, bytemuck::cast_slice_mut(panel));
    }
}

/// Panels of a matrix, a block at a time.
pub(super) trait PanelSource: Copy + Send + Sync {
    /// What a panel holds.
    type Weight: Weight;
    /// Tiles of tokens that are multiplied by a block before the next block is made. With few, the activations stay in the
    /// second-level cache; with many, fewer blocks have to be made, which matters where a block is decoded first.
    const TILES: usize;

    /// Inputs `inputs` of panel `panel`, sixteen weights each; `scratch` has [`SCRATCH`] lines.
    fn block<'s, S: Simd>(
        &'s self,
        s: S,
        panel: usize,
        inputs: Range<usize>,
        scratch: &'s mut [Line],
    ) -> &'s [Self::Weight];
}

/// The panels of a packed matrix of floats.
#[derive(Clone, Copy)]
pub(crate) struct PackedFloats<'a, W> {
    lines: &'a [Line],
    cols: usize,
    numbers: PhantomData<W>,
}

impl<'a, W: Weight> PackedFloats<'a, W> {
    /// Those of `packed`, whose kind must be that of `W`.
    pub(crate) fn new(packed: &'a Panels) -> Self {
        Self { lines: packed.lines(), cols: packed.cols(), numbers: PhantomData }
    }

    /// The numbers of a panel: sixteen for every input.
    #[inline(always)]
    pub(super) fn panel(&self, panel: usize) -> &'a [W] {
        let lines = panel_lines(self.cols, size_of::<W>());
        &bytemuck::cast_slice(&self.lines[panel * lines..][..lines])[..self.cols * LANES]
    }
}

impl<W: Weight> PanelSource for PackedFloats<'_, W> {
    type Weight = W;
    const TILES: usize = 16;

    #[inline(always)]
    fn block<'s, S: Simd>(&'s self, _: S, panel: usize, inputs: Range<usize>, _: &'s mut [Line]) -> &'s [W] {
        &self.panel(panel)[inputs.start * LANES..inputs.end * LANES]
    }
}

/// Rows of floats as they lie in a file.
#[derive(Clone, Copy)]
pub(crate) struct FloatRows<'a, W> {
    pub(crate) numbers: &'a [W],
    pub(crate) rows: usize,
    pub(crate) cols: usize,
}

impl<W: Weight> FloatRows<'_, W> {
    /// Writes inputs `inputs` of panel `panel`, a block at most, to `out`: sixteen weights each.
    #[inline(always)]
    pub(super) fn pack<S: Simd>(&self, s: S, panel: usize, inputs: Range<usize>, out: &mut [W]) {
        let start = panel * LANES * self.cols + inputs.start;
        let valid = self.rows - panel * LANES;
        if valid >= LANES {
            W::transpose(s, &self.numbers[start..], self.cols, out);
        } else {
            let n = inputs.len();
            let mut rows = [W::zeroed(); LANES * BLOCK];
            for r in 0..valid {
                rows[r * n..][..n].copy_from_slice(&self.numbers[start + r * self.cols..][..n]);
            }
            W::transpose(s, &rows, n, out);
        }
    }
}

impl<W: Weight> PanelSource for FloatRows<'_, W> {
    type Weight = W;
    const TILES: usize = 16;

    #[inline(always)]
    fn block<'s, S: Simd>(
        &'s self,
        s: S,
        panel: usize,
        inputs: Range<usize>,
        scratch: &'s mut [Line],
    ) -> &'s [W] {
        let out = &mut bytemuck::cast_slice_mut(scratch)[..LANES * inputs.len()];
        self.pack(s, panel, inputs, out);
        out
    }
}

/// Rows of any format, decoded to f32.
#[derive(Clone, Copy)]
pub(super) struct Decoded<'a>(pub(super) Matrix<'a>);

impl PanelSource for Decoded<'_> {
    type Weight = f32;
    const TILES: usize = 64;

    #[inline(always)]
    fn block<'s, S: Simd>(
        &'s self,
        s: S,
        panel: usize,
        inputs: Range<usize>,
        scratch: &'s mut [Line],
    ) -> &'s [f32] {
        let (rows, out) = scratch.split_at_mut(BLOCK);
        let (n, first) = (inputs.len(), panel * LANES);
        let rows: &mut [f32] = &mut bytemuck::cast_slice_mut(rows)[..LANES * n];
        for (r, out) in rows.chunks_exact_mut(n).enumerate() {
            if first + r < self.0.rows() {
                DecodeRow { matrix: self.0, row: first + r, from: inputs.start, out }.run(s);
            } else {
                out.fill(0.0);
            }
        }
        let out: &mut [f32] = &mut bytemuck::cast_slice_mut(out)[..LANES * n];
        f32::transpose(s, rows, n, out);
        out
    }
}
