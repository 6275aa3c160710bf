//! From stored rows to panels: sixteen rows of one group, transposed.

use super::panel::{AffinePanel, BlockPanel, PanelFormat};
use crate::formats::{Affine, Parameters};
use crate::packed::PanelKind;
use crate::scratch::Line;
use crate::simd::{LANES, Simd};
use halfbyte_q4::{BlockQ4_0, BlockQ4_1};
use halfbyte_q8::BlockQ8_0;

/// Stored rows that become panels.
pub(crate) trait PanelRows: Copy + Send + Sync {
    /// What the panels look like.
    type Format: PanelKind;

    /// What the panels look like.
    fn format(&self) -> Self::Format;

    /// Prefetches group `group`'s share of the bytes of rows `first..first + 16`.
    fn prefetch<S: Simd>(&self, s: S, first: usize, group: usize);

    /// Writes group `group` of the rows `first..first + valid` into `unit`, where it is group `k`. Codes of further
    /// lanes become zero.
    fn pack_group<S: Simd>(
        &self,
        s: S,
        first: usize,
        valid: usize,
        group: usize,
        k: usize,
        unit: &mut [Line],
    );

    /// Writes the panel of rows `first..first + valid` and prefetches the rows of the next one. Parameters of lanes
    /// without a row may stay as they are.
    #[inline(always)]
    fn pack<S: Simd>(&self, s: S, first: usize, valid: usize, panel: &mut [Line]) {
        let format = self.format();
        let mut group = 0;
        for unit in panel.chunks_mut(format.unit_lines()) {
            for k in 0..(unit.len() - format.parameter_lines()) / Self::Format::CODE_LINES {
                self.prefetch(s, first + LANES, group);
                self.pack_group(s, first, valid, group, k, unit);
                group += 1;
            }
        }
    }
}

/// Bytes of rows at a fixed distance, all of them inside one slice.
#[derive(Clone, Copy)]
struct Rows<'a> {
    bytes: &'a [u8],
    stride: usize,
}

impl Rows<'_> {
    /// Prefetches bytes `group * share..(group + 1) * share` of the sixteen rows from `first` on, which lie one after the
    /// other. Called for every group in order, it reads the rows as one stream.
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
        let staged = self.staged(start, valid);
        // SAFETY: `staged` holds 16 rows of 16 bytes.
        unsafe { s.load_rows(staged.as_ptr(), 16) }
    }

    /// 16 bytes of `valid` rows, from byte `start` on, and zeros for the other lanes. Not inlined: the addresses of
    /// all rows would be kept up to date in the loop over the groups, which seldom needs them.
    #[cold]
    #[inline(never)]
    fn staged(&self, start: usize, valid: usize) -> [u8; 16 * LANES] {
        let mut staged = [0; 16 * LANES];
        for r in 0..valid {
            staged[16 * r..][..16].copy_from_slice(&self.bytes[start + r * self.stride..][..16]);
        }
        staged
    }
}

/// Stores 16 words into a line.
#[inline(always)]
fn put_words<S: Simd>(s: S, line: &mut Line, v: S::I32) {
    // SAFETY: a line is 16 u32.
    unsafe { s.store_u32(line.0.as_mut_ptr(), v) }
}

/// Stores the low halves of 16 words as vector `k` of a line.
#[inline(always)]
fn put_halves<S: Simd>(s: S, line: &mut Line, k: usize, words: S::I32) {
    let halves: &mut [u16; 32] = bytemuck::cast_mut(&mut line.0);
    let halves = &mut halves[LANES * k..][..LANES];
    // SAFETY: `halves` are 16 of them.
    unsafe { s.store_u16(halves.as_mut_ptr(), words) }
}

/// Rows of blocks: f16 scale, with `MIN` f16 minimum, codes.
#[derive(Clone, Copy)]
pub(crate) struct BlockRows<'a, const CODE_LINES: usize, const ZERO_POINT: i32, const MIN: bool>(Rows<'a>);

/// Rows of Q8_0.
pub(crate) type Q8_0Rows<'a> = BlockRows<'a, 8, 0, false>;
/// Rows of Q4_0.
pub(crate) type Q4_0Rows<'a> = BlockRows<'a, 4, 8, false>;
/// Rows of Q4_1.
pub(crate) type Q4_1Rows<'a> = BlockRows<'a, 4, 0, true>;

impl<'a> Q8_0Rows<'a> {
    pub(crate) fn new(blocks: &'a [BlockQ8_0], cols: usize) -> Self {
        Self::of(bytemuck::cast_slice(blocks), cols)
    }
}

impl<'a> Q4_0Rows<'a> {
    pub(crate) fn new(blocks: &'a [BlockQ4_0], cols: usize) -> Self {
        Self::of(bytemuck::cast_slice(blocks), cols)
    }
}

impl<'a> Q4_1Rows<'a> {
    pub(crate) fn new(blocks: &'a [BlockQ4_1], cols: usize) -> Self {
        Self::of(bytemuck::cast_slice(blocks), cols)
    }
}

impl<'a, const CODE_LINES: usize, const ZERO_POINT: i32, const MIN: bool>
    BlockRows<'a, CODE_LINES, ZERO_POINT, MIN>
{
    /// Where the codes of a block begin.
    const CODES_AT: usize = if MIN { 4 } else { 2 };
    /// Bytes of a block: a lane has four in each line of codes.
    const BLOCK: usize = Self::CODES_AT + 4 * CODE_LINES;

    fn of(bytes: &'a [u8], cols: usize) -> Self {
        Self(Rows { bytes, stride: cols / 32 * Self::BLOCK })
    }
}

impl<const CODE_LINES: usize, const ZERO_POINT: i32, const MIN: bool> PanelRows
    for BlockRows<'_, CODE_LINES, ZERO_POINT, MIN>
where
    BlockPanel<CODE_LINES, ZERO_POINT, MIN>: PanelKind,
{
    type Format = BlockPanel<CODE_LINES, ZERO_POINT, MIN>;

    #[inline(always)]
    fn format(&self) -> Self::Format {
        BlockPanel
    }

    #[inline(always)]
    fn prefetch<S: Simd>(&self, s: S, first: usize, group: usize) {
        self.0.prefetch(s, first, group, LANES * Self::BLOCK);
    }

    #[inline(always)]
    fn pack_group<S: Simd>(
        &self,
        s: S,
        first: usize,
        valid: usize,
        group: usize,
        k: usize,
        unit: &mut [Line],
    ) {
        let at = group * Self::BLOCK;
        let (parameters, codes) = unit.split_at_mut(self.format().parameter_lines());
        let codes = &mut codes[k * CODE_LINES..][..CODE_LINES];
        for (part, codes) in codes.chunks_exact_mut(4).enumerate() {
            let words = self.0.words(s, first, valid, at + Self::CODES_AT + 16 * part);
            for j in 0..4 {
                put_words(s, &mut codes[j], words[j]);
            }
        }
        // The block's first word: scale below, minimum or codes above.
        let head = self.0.words(s, first, valid, at)[0];
        put_halves(s, &mut parameters[0], k, head);
        if MIN {
            put_halves(s, &mut parameters[1], k, s.shr::<16>(head));
        }
    }
}

/// MLX affine 4-bit: words of eight codes, scales and biases apart. The nibbles of a group are reordered into
/// Q4_0's order (inputs 0-15 low, 16-31 high), so that the same tile multiplies them.
#[derive(Clone, Copy)]
pub(crate) struct AffineRows<'a> {
    codes: Rows<'a>,
    scales: Parameters<'a>,
    biases: Parameters<'a>,
    format: AffinePanel,
    /// Sets of parameters in a row.
    sets: usize,
}

impl<'a> AffineRows<'a> {
    pub(crate) fn new(affine: Affine<'a>, cols: usize) -> Self {
        Self {
            codes: Rows { bytes: bytemuck::cast_slice(affine.codes), stride: cols / 2 },
            scales: affine.scales,
            biases: affine.biases,
            format: AffinePanel::of(&affine),
            sets: cols / affine.group,
        }
    }

    /// Copies the parameters of rows `first..first + valid` for group `group` to byte `at` of a unit.
    #[inline(always)]
    fn copy(
        &self,
        from: Parameters<'_>,
        first: usize,
        valid: usize,
        group: usize,
        at: usize,
        unit: &mut [Line],
    ) {
        let set = group / self.format.share;
        let out = &mut bytemuck::cast_slice_mut::<Line, u8>(unit)[at..];
        for r in 0..valid {
            let i = (first + r) * self.sets + set;
            match from {
                Parameters::F32(p) => out[4 * r..][..4].copy_from_slice(&p[i].to_ne_bytes()),
                Parameters::F16(p) => out[2 * r..][..2].copy_from_slice(&p[i].to_ne_bytes()),
                Parameters::Bf16(p) => out[2 * r..][..2].copy_from_slice(&p[i].to_ne_bytes()),
            }
        }
    }
}

/// The four lowest nibbles of every word, one a byte.
#[inline(always)]
fn spread_nibbles<S: Simd>(s: S, v: S::I32) -> S::I32 {
    let v = s.and(v, s.splat_i32(0xffff));
    let v = s.and(s.or(v, s.shl::<8>(v)), s.splat_i32(0x00ff_00ff));
    s.and(s.or(v, s.shl::<4>(v)), s.splat_i32(0x0f0f_0f0f))
}

impl PanelRows for AffineRows<'_> {
    type Format = AffinePanel;

    #[inline(always)]
    fn format(&self) -> AffinePanel {
        self.format
    }

    #[inline(always)]
    fn prefetch<S: Simd>(&self, s: S, first: usize, group: usize) {
        self.codes.prefetch(s, first, group, LANES * 16);
    }

    #[inline(always)]
    fn pack_group<S: Simd>(
        &self,
        s: S,
        first: usize,
        valid: usize,
        group: usize,
        k: usize,
        unit: &mut [Line],
    ) {
        let words = self.codes.words(s, first, valid, 16 * group);
        let codes = &mut unit[self.format.parameter_lines() + 4 * k..][..4];
        for j in 0..4 {
            // Inputs 4 j .. 4 j + 4 are the low or high half of word j / 2; 16 inputs on, of word 2 + j / 2.
            let (low, high) = (words[j / 2], words[2 + j / 2]);
            let (low, high) = if j % 2 == 0 { (low, high) } else { (s.shr::<16>(low), s.shr::<16>(high)) };
            let packed = s.or(spread_nibbles(s, low), s.shl::<4>(spread_nibbles(s, high)));
            put_words(s, &mut codes[j], packed);
        }
        self.copy(self.scales, first, valid, group, self.format.scales_at(k), unit);
        self.copy(self.biases, first, valid, group, self.format.biases_at(k), unit);
    }
}
