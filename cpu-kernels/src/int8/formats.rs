//! From stored rows to panels: sixteen rows of one group, transposed.

use crate::matrix::{Affine4, Parameters};
use crate::scratch::Line;
use crate::simd::{LANES, Simd};
use halfbyte_q4::{BlockQ4_0, BlockQ4_1};
use halfbyte_q8::BlockQ8_0;

/// How a format's group of 32 becomes lines of a panel: `CODE_LINES` lines of codes, one of f32 scales and, if
/// `MIN`, one of f32 minima.
pub(super) trait PanelFormat: Copy + Send + Sync {
    /// 4 for 4-bit codes (low nibbles first half, high nibbles second half of the group), 8 for 8-bit ones.
    const CODE_LINES: usize;
    /// What 4-bit codes are counted from.
    const ZERO_POINT: i32;
    /// Whether groups have a minimum besides the scale.
    const MIN: bool;

    /// Asks for the part of rows `first..first + 16` that is group `group`'s share of their bytes.
    fn prefetch<S: Simd>(&self, s: S, first: usize, group: usize);

    /// Packs group `group` of the rows `first..first + valid`; further lanes become zero.
    fn pack<S: Simd>(&self, s: S, first: usize, valid: usize, group: usize, lines: &mut [Line]);
}

/// Bytes of rows at a fixed distance, all of them inside one slice.
#[derive(Clone, Copy)]
struct Rows<'a> {
    bytes: &'a [u8],
    stride: usize,
}

impl Rows<'_> {
    /// Asks for bytes `group * share..(group + 1) * share` of the sixteen rows from `first` on, which lie one after
    /// the other: once for every group, in order, the calls bring the rows in as one stream.
    #[inline(always)]
    fn prefetch<S: Simd>(&self, s: S, first: usize, group: usize, share: usize) {
        let start = self.bytes.as_ptr().wrapping_add(first * self.stride + group * share);
        for offset in (0..share).step_by(64) {
            s.prefetch(start.wrapping_add(offset));
        }
    }

    /// The 16 bytes at `offset` of rows `first..first + valid`, transposed to words by row.
    #[inline(always)]
    fn words<S: Simd>(&self, s: S, first: usize, valid: usize, offset: usize) -> [S::I32; 4] {
        let start = first * self.stride + offset;
        if valid == LANES {
            let span = &self.bytes[start..start + (LANES - 1) * self.stride + 16];
            // SAFETY: `span` reaches from row 0 to the end of the 16 bytes of row 15.
            return unsafe { s.load_rows(span.as_ptr(), self.stride) };
        }
        let mut staged = [0u8; 16 * LANES];
        for r in 0..valid {
            staged[16 * r..][..16].copy_from_slice(&self.bytes[start + r * self.stride..][..16]);
        }
        // SAFETY: `staged` holds 16 rows of 16 bytes.
        unsafe { s.load_rows(staged.as_ptr(), 16) }
    }
}

/// Stores 16 words into a line.
#[inline(always)]
fn put_words<S: Simd>(s: S, line: &mut Line, v: S::I32) {
    // SAFETY: a line is 16 u32.
    unsafe { s.store_u32(line.0.as_mut_ptr(), v) }
}

/// Stores 16 f32 into a line.
#[inline(always)]
fn put<S: Simd>(s: S, line: &mut Line, v: S::F32) {
    put_words(s, line, s.to_bits(v));
}

/// Q4_0: scale, 16 bytes of nibbles.
#[derive(Clone, Copy)]
pub(super) struct Q4_0Rows<'a>(Rows<'a>);

impl<'a> Q4_0Rows<'a> {
    pub(super) fn new(blocks: &'a [BlockQ4_0], cols: usize) -> Self {
        Self(Rows { bytes: bytemuck::cast_slice(blocks), stride: cols / 32 * size_of::<BlockQ4_0>() })
    }
}

impl PanelFormat for Q4_0Rows<'_> {
    const CODE_LINES: usize = 4;
    const ZERO_POINT: i32 = 8;
    const MIN: bool = false;

    #[inline(always)]
    fn prefetch<S: Simd>(&self, s: S, first: usize, group: usize) {
        self.0.prefetch(s, first, group, LANES * size_of::<BlockQ4_0>());
    }

    #[inline(always)]
    fn pack<S: Simd>(&self, s: S, first: usize, valid: usize, group: usize, lines: &mut [Line]) {
        let at = group * size_of::<BlockQ4_0>();
        let words = self.0.words(s, first, valid, at + 2);
        for j in 0..4 {
            put_words(s, &mut lines[j], words[j]);
        }
        // The block's first word has the scale in its low half.
        let head = self.0.words(s, first, valid, at)[0];
        put(s, &mut lines[4], s.widen_f16(head));
    }
}

/// Q4_1: scale, minimum, 16 bytes of nibbles.
#[derive(Clone, Copy)]
pub(super) struct Q4_1Rows<'a>(Rows<'a>);

impl<'a> Q4_1Rows<'a> {
    pub(super) fn new(blocks: &'a [BlockQ4_1], cols: usize) -> Self {
        Self(Rows { bytes: bytemuck::cast_slice(blocks), stride: cols / 32 * size_of::<BlockQ4_1>() })
    }
}

impl PanelFormat for Q4_1Rows<'_> {
    const CODE_LINES: usize = 4;
    const ZERO_POINT: i32 = 0;
    const MIN: bool = true;

    #[inline(always)]
    fn prefetch<S: Simd>(&self, s: S, first: usize, group: usize) {
        self.0.prefetch(s, first, group, LANES * size_of::<BlockQ4_1>());
    }

    #[inline(always)]
    fn pack<S: Simd>(&self, s: S, first: usize, valid: usize, group: usize, lines: &mut [Line]) {
        let at = group * size_of::<BlockQ4_1>();
        let words = self.0.words(s, first, valid, at + 4);
        for j in 0..4 {
            put_words(s, &mut lines[j], words[j]);
        }
        // The block's first word: scale below, minimum above.
        let head = self.0.words(s, first, valid, at)[0];
        put(s, &mut lines[4], s.widen_f16(head));
        put(s, &mut lines[5], s.widen_f16(s.shr::<16>(head)));
    }
}

/// Q8_0: scale, 32 signed bytes.
#[derive(Clone, Copy)]
pub(super) struct Q8_0Rows<'a>(Rows<'a>);

impl<'a> Q8_0Rows<'a> {
    pub(super) fn new(blocks: &'a [BlockQ8_0], cols: usize) -> Self {
        Self(Rows { bytes: bytemuck::cast_slice(blocks), stride: cols / 32 * size_of::<BlockQ8_0>() })
    }
}

impl PanelFormat for Q8_0Rows<'_> {
    const CODE_LINES: usize = 8;
    const ZERO_POINT: i32 = 0;
    const MIN: bool = false;

    #[inline(always)]
    fn prefetch<S: Simd>(&self, s: S, first: usize, group: usize) {
        self.0.prefetch(s, first, group, LANES * size_of::<BlockQ8_0>());
    }

    #[inline(always)]
    fn pack<S: Simd>(&self, s: S, first: usize, valid: usize, group: usize, lines: &mut [Line]) {
        let at = group * size_of::<BlockQ8_0>();
        for half in 0..2 {
            let words = self.0.words(s, first, valid, at + 2 + 16 * half);
            for j in 0..4 {
                put_words(s, &mut lines[4 * half + j], words[j]);
            }
        }
        // The block's first word has the scale in its low half.
        let head = self.0.words(s, first, valid, at)[0];
        put(s, &mut lines[8], s.widen_f16(head));
    }
}

/// MLX affine 4-bit: words of eight codes, scales and biases apart. The nibbles of a group are reordered into
/// Q4_0's order (inputs 0-15 low, 16-31 high), so that the same tile multiplies them.
#[derive(Clone, Copy)]
pub(super) struct AffineRows<'a> {
    codes: Rows<'a>,
    scales: Parameters<'a>,
    biases: Parameters<'a>,
    groups_a_row: usize,
    /// Groups of 32 that share a scale.
    share: usize,
}

impl<'a> AffineRows<'a> {
    pub(super) fn new(affine: Affine4<'a>, cols: usize) -> Self {
        Self {
            codes: Rows { bytes: bytemuck::cast_slice(affine.codes), stride: cols / 2 },
            scales: affine.scales,
            biases: affine.biases,
            groups_a_row: cols / affine.group,
            share: affine.group / 32,
        }
    }

    #[inline(always)]
    fn parameters<S: Simd>(
        &self,
        s: S,
        from: Parameters<'_>,
        first: usize,
        valid: usize,
        group: usize,
    ) -> S::F32 {
        let mut values = [0.0; LANES];
        for (r, v) in values.iter_mut().enumerate().take(valid) {
            *v = from.get((first + r) * self.groups_a_row + group / self.share);
        }
        s.load_slice(&values)
    }
}

/// The four lowest nibbles of every word, one a byte.
#[inline(always)]
fn spread_nibbles<S: Simd>(s: S, v: S::I32) -> S::I32 {
    let v = s.and(v, s.splat_i32(0xffff));
    let v = s.and(s.or(v, s.shl::<8>(v)), s.splat_i32(0x00ff_00ff));
    s.and(s.or(v, s.shl::<4>(v)), s.splat_i32(0x0f0f_0f0f))
}

impl PanelFormat for AffineRows<'_> {
    const CODE_LINES: usize = 4;
    const ZERO_POINT: i32 = 0;
    const MIN: bool = true;

    #[inline(always)]
    fn prefetch<S: Simd>(&self, s: S, first: usize, group: usize) {
        self.codes.prefetch(s, first, group, LANES * 16);
    }

    #[inline(always)]
    fn pack<S: Simd>(&self, s: S, first: usize, valid: usize, group: usize, lines: &mut [Line]) {
        let words = self.codes.words(s, first, valid, 16 * group);
        for j in 0..4 {
            // Inputs 4 j .. 4 j + 4 are the low or high half of word j / 2; 16 inputs on, of word 2 + j / 2.
            let (low, high) = (words[j / 2], words[2 + j / 2]);
            let (low, high) = if j % 2 == 0 { (low, high) } else { (s.shr::<16>(low), s.shr::<16>(high)) };
            let packed = s.or(spread_nibbles(s, low), s.shl::<4>(spread_nibbles(s, high)));
            put_words(s, &mut lines[j], packed);
        }
        put(s, &mut lines[4], self.parameters(s, self.scales, first, valid, group));
        put(s, &mut lines[5], self.parameters(s, self.biases, first, valid, group));
    }
}
