//! The register tile: one panel of sixteen rows by a few tokens.

#![allow(clippy::needless_range_loop, reason = "a token or a line indexes several things at once")]

use super::panel::PanelFormat;
use super::tokens::{Group, SCALE, START, Tokens, WEIGHTED};
use crate::output::Output;
use crate::scratch::Line;
use crate::simd::{Kernel, Simd};
use bytemuck::Zeroable as _;
use core::hint::black_box;
use core::ops::Range;
use halfbyte_q8::GROUP;

/// A panel, the tokens to multiply it by, and where the products go.
#[derive(Clone, Copy)]
pub(super) struct Tile<'a, F> {
    pub(super) format: F,
    pub(super) panel: &'a [Line],
    pub(super) tokens: Tokens<'a>,
    /// The row of lane 0, and how many lanes are rows of the matrix.
    pub(super) first: usize,
    pub(super) valid: usize,
    pub(super) output: Output<'a>,
}

/// Multiplies the panel by every token, in tiles as wide as the ISA has registers for.
///
/// A kernel of its own, so that it is compiled once a format and not once a source of panels, too.
impl<F: PanelFormat> Kernel for Tile<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut token = 0;
        // Constants alone keep tiles that are too wide for the ISA from being compiled.
        if const { S::INT_TILE >= 8 } {
            while token + 8 <= self.tokens.count {
                self.times::<S, 8>(s, token);
                token += 8;
            }
        }
        if const { S::INT_TILE >= 4 } {
            while token + 4 <= self.tokens.count {
                self.times::<S, 4>(s, token);
                token += 4;
            }
        }
        if const { S::INT_TILE >= 2 } {
            while token + 2 <= self.tokens.count {
                self.times::<S, 2>(s, token);
                token += 2;
            }
        }
        while token < self.tokens.count {
            self.times::<S, 1>(s, token);
            token += 1;
        }
    }
}

impl<F: PanelFormat> Tile<'_, F> {
    /// The outputs of tokens `token..token + T`, which lie in one block.
    #[inline(always)]
    fn times<S: Simd, const T: usize>(self, s: S, token: usize) {
        // Known to the compiler, so that a word's place is a constant.
        let width = S::INT_TILE;
        debug_assert_eq!(width, self.tokens.width);
        let first = token % width;
        let mut groups = self.tokens.block(token - first);
        let mut sums = [[s.splat(0.0); T]; 2];
        let (lines, parameters) = (self.format.unit_lines(), self.format.parameter_lines());
        // A length that the compiler does not know keeps it from unrolling.
        let code_lines = if S::ROLL_LINES { black_box(F::CODE_LINES) } else { F::CODE_LINES };
        let mut units = self.panel.chunks_exact(lines);
        for unit in &mut units {
            for k in 0..self.format.unit_groups() {
                if let Some(group) = groups.next(first) {
                    let codes = &unit[parameters + k * F::CODE_LINES..][..code_lines];
                    add_group(s, self.format, unit, codes, k, group, &mut sums[k % 2]);
                }
            }
        }
        if let Some(group) = groups.next(first) {
            let unit = units.remainder();
            let codes = &unit[parameters..][..code_lines];
            add_group(s, self.format, unit, codes, 0, group, &mut sums[0]);
        }
        for t in 0..T {
            let sum = s.add(sums[0][t], sums[1][t]);
            // SAFETY: bounds are checked; a panel belongs to one work item, so no other uses its rows.
            let y = unsafe { self.output.at(token + t, self.first, self.valid) };
            s.store_up_to(y, sum);
        }
    }
}

/// The products of some panels, one or two, of `format` with the only token, a vector each.
#[inline(always)]
pub(super) fn times_one<S: Simd, F: PanelFormat, const N: usize>(
    s: S,
    format: F,
    panels: [&[Line]; N],
    token: Tokens<'_>,
) -> [S::F32; N] {
    debug_assert_eq!((token.width, token.count), (1, 1));
    let mut sums = [[[s.splat(0.0)]; 2]; N];
    let (lines, parameters) = (format.unit_lines(), format.parameter_lines());
    let mut groups = token.block(0);
    let mut start = 0;
    while groups.len() > 0 {
        let count = format.unit_groups().min(groups.len());
        let mut units = panels;
        for (unit, panel) in units.iter_mut().zip(panels) {
            *unit = &panel[start..][..parameters + count * F::CODE_LINES];
        }
        for k in 0..count {
            let Some(group) = groups.next(0) else { break };
            for n in 0..N {
                let codes = &units[n][parameters + k * F::CODE_LINES..][..F::CODE_LINES];
                add_group(s, format, units[n], codes, k, group, &mut sums[n][k % 2]);
            }
        }
        start += lines;
    }
    let mut totals = [s.splat(0.0); N];
    for n in 0..N {
        totals[n] = s.add(sums[n][0][0], sums[n][1][0]);
    }
    totals
}

/// Adds group `k` of a unit, sixteen rows by `T` tokens, to `sums`; `codes` are the group's lines.
#[inline(always)]
fn add_group<S: Simd, F: PanelFormat, const T: usize>(
    s: S,
    format: F,
    unit: &[Line],
    codes: &[Line],
    k: usize,
    x: Group<'_, T>,
    sums: &mut [S::F32; T],
) {
    let parameters = [
        (format.scales(s, unit, k), format.minima(s, unit, k)),
        (format.second_scales(s, unit, k), format.second_minima(s, unit, k)),
    ];
    if F::HALVES {
        for half in 0..2 {
            let mut dots = [s.splat_i32(0); T];
            for t in 0..T {
                dots[t] = s.splat_i32(x.half(half, t).0.cast_signed());
            }
            let lines = 4 * half..4 * half + 4;
            add_bytes(s, &codes[lines.clone()], lines.start, x, &mut dots);
            add_high_bytes(s, F::CODE_LINES, codes, x, lines, &mut dots);
            for t in 0..T {
                let weighted = f32::from_bits(x.half(half, t).1);
                add_dots::<S, F>(s, dots[t], parameters[half], x.word(SCALE, t), weighted, &mut sums[t]);
            }
        }
        return;
    }
    let mut dots = [s.splat_i32(0); T];
    if F::CODE_LINES == 4 {
        let mut running = [s.dot4_start(0); T];
        for t in 0..T {
            running[t] = s.dot4_start(x.word(START, t).cast_signed());
        }
        let mask = s.splat_i32(0x0f0f_0f0f);
        for (line, j) in codes.iter().zip(0..F::CODE_LINES) {
            let line = words(s, line);
            let (low, high) = (s.and(line, mask), s.and(s.shr::<4>(line), mask));
            for t in 0..T {
                running[t] = s.dot4(running[t], low, x.word(j, t).cast_signed());
            }
            for t in 0..T {
                running[t] = s.dot4(running[t], high, x.word(j + GROUP / 8, t).cast_signed());
            }
        }
        for t in 0..T {
            dots[t] = s.dot4_finish(running[t], x.word(START, t).cast_signed());
        }
    } else {
        for t in 0..T {
            dots[t] = s.splat_i32(x.word(START, t).cast_signed());
        }
        add_bytes(s, codes, 0, x, &mut dots);
    }
    add_high_bytes(s, F::CODE_LINES, codes, x, 0..8, &mut dots);
    for t in 0..T {
        let weighted = f32::from_bits(x.word(WEIGHTED, t));
        add_dots::<S, F>(s, dots[t], parameters[0], x.word(SCALE, t), weighted, &mut sums[t]);
    }
}

/// Adds the products of a token's dot products and scales, and of minima, to `sum`.
#[inline(always)]
fn add_dots<S: Simd, F: PanelFormat>(
    s: S,
    dots: S::I32,
    (scales, minima): (S::F32, S::F32),
    scale: u32,
    weighted: f32,
    sum: &mut S::F32,
) {
    let a = s.splat(f32::from_bits(scale));
    *sum = s.fma(s.from_i32(dots), s.mul(scales, a), *sum);
    if F::MIN {
        *sum = s.fma(minima, s.splat(weighted), *sum);
    }
}

/// Adds the products of lines of 8-bit codes, which are the group's from line `first` on.
#[inline(always)]
fn add_bytes<S: Simd, const T: usize>(
    s: S,
    codes: &[Line],
    first: usize,
    x: Group<'_, T>,
    dots: &mut [S::I32; T],
) {
    for (line, j) in codes.iter().zip(first..8) {
        let line = s.prepare8(words(s, line));
        for t in 0..T {
            dots[t] = s.dot8(dots[t], line, x.word(j, t).cast_signed());
        }
    }
}

/// Adds 256 times the products of the high bytes that the group has in words `range` of four inputs, a half of the group or
/// all of it, to `dots`.
#[inline(always)]
fn add_high_bytes<S: Simd, const T: usize>(
    s: S,
    code_lines: usize,
    codes: &[Line],
    x: Group<'_, T>,
    range: Range<usize>,
    dots: &mut [S::I32; T],
) {
    if x.mark & ((1 << range.end) - (1 << range.start)) == 0 {
        return;
    }
    let mut out = [Line::zeroed(); T];
    s.vectorize(HighBytes { code_lines, codes, x, range, out: &mut out });
    for t in 0..T {
        dots[t] = s.add_i32(dots[t], words(s, &out[t]));
    }
}

/// What [`add_high_bytes`] adds, a line for each token.
///
/// A kernel of its own, so that it is compiled once for a number of tokens and not into every tile: few groups need it.
struct HighBytes<'a, const T: usize> {
    code_lines: usize,
    codes: &'a [Line],
    x: Group<'a, T>,
    range: Range<usize>,
    out: &'a mut [Line; T],
}

impl<const T: usize> Kernel for HighBytes<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { code_lines, codes, x, range, out } = self;
        let below = (1 << range.start) - 1;
        let mut marks = x.mark & ((1 << range.end) - 1) & !below;
        let mut line = 2 + (x.mark & below).count_ones() as usize;
        let mut finished = [s.splat_i32(0); T];
        if code_lines == 4 {
            let mask = s.splat_i32(0x0f0f_0f0f);
            let mut high = [s.dot4_start(0); T];
            while marks != 0 {
                let j = marks.trailing_zeros() as usize;
                let (codes, bytes) = (words(s, &codes[j % 4]), x.high_line(line));
                // The low nibbles are of inputs 0 to 15.
                let codes = s.and(if j < 4 { codes } else { s.shr::<4>(codes) }, mask);
                for t in 0..T {
                    high[t] = s.dot4(high[t], codes, bytes[t].cast_signed());
                }
                (marks, line) = (marks & (marks - 1), line + 1);
            }
            for t in 0..T {
                finished[t] = s.dot4_finish(high[t], 0);
            }
        } else {
            for t in 0..T {
                let [first, second] = [0, 1].map(|half| x.high_line(half)[t].cast_signed());
                finished[t] = s.splat_i32(match (range.start, range.end) {
                    (0, 8) => first + second,
                    (0, _) => first,
                    _ => second,
                });
            }
            while marks != 0 {
                let j = marks.trailing_zeros() as usize;
                let (codes, bytes) = (s.prepare8(words(s, &codes[j])), x.high_line(line));
                for t in 0..T {
                    finished[t] = s.dot8(finished[t], codes, bytes[t].cast_signed());
                }
                (marks, line) = (marks & (marks - 1), line + 1);
            }
        }
        for t in 0..T {
            let sums = s.shl::<8>(finished[t]);
            // SAFETY: a line is 16 u32.
            unsafe { s.store_u32(out[t].0.as_mut_ptr(), sums) };
        }
    }
}

/// The sixteen words of a line.
#[inline(always)]
fn words<S: Simd>(s: S, line: &Line) -> S::I32 {
    // SAFETY: a line is 16 u32.
    unsafe { s.load_u32(line.0.as_ptr()) }
}
