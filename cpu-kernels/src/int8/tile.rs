//! The register tile: one panel of sixteen rows by up to eight tokens.

#![allow(clippy::needless_range_loop, reason = "a token or a line indexes several things at once")]

use super::formats::PanelFormat;
use crate::output::Output;
use crate::scratch::Line;
use crate::simd::{LANES, Simd};
use halfbyte_q8::{Activations, GROUP};

/// What a tile knows of its panel.
#[derive(Clone, Copy)]
struct Tile<'a> {
    panel: &'a [Line],
    x: &'a Activations,
    first: usize,
    valid: usize,
    output: Output<'a>,
}

/// Multiplies a packed panel by every token of `x`, in tiles as wide as the ISA has registers for.
#[inline(always)]
pub(super) fn multiply<S: Simd, F: PanelFormat>(
    s: S,
    panel: &[Line],
    x: &Activations,
    first: usize,
    valid: usize,
    output: Output<'_>,
) {
    let tile = Tile { panel, x, first, valid, output };
    let mut token = 0;
    while token + 8 <= x.rows() && S::INT_TILE >= 8 {
        tile.run::<S, F, 8>(s, token);
        token += 8;
    }
    while token + 4 <= x.rows() && S::INT_TILE >= 4 {
        tile.run::<S, F, 4>(s, token);
        token += 4;
    }
    while token + 2 <= x.rows() && S::INT_TILE >= 2 {
        tile.run::<S, F, 2>(s, token);
        token += 2;
    }
    while token < x.rows() {
        tile.run::<S, F, 1>(s, token);
        token += 1;
    }
}

/// One token's codes, scales and sums.
#[derive(Clone, Copy)]
struct Token<'a> {
    codes: &'a [i8],
    scales: &'a [f32],
    sums: &'a [i32],
}

impl Token<'_> {
    /// The four codes from input `i` on, as they lie in memory.
    ///
    /// # Safety
    /// `i + 4` is at most the number of codes.
    #[inline(always)]
    unsafe fn quad(&self, i: usize) -> i32 {
        debug_assert!(i + 4 <= self.codes.len());
        // SAFETY: inside `codes` by the caller's promise.
        let at = unsafe { self.codes.as_ptr().add(i) };
        // SAFETY: four bytes are readable there; unaligned is allowed.
        unsafe { at.cast::<i32>().read_unaligned() }
    }
}

impl Tile<'_> {
    /// The outputs of tokens `token..token + T`.
    #[inline(always)]
    fn run<S: Simd, F: PanelFormat, const T: usize>(self, s: S, token: usize) {
        let per_group = F::CODE_LINES + 1 + usize::from(F::MIN);
        let groups = self.x.groups();
        let tokens: [Token<'_>; T] = core::array::from_fn(|t| Token {
            codes: self.x.codes(token + t),
            scales: &self.x.scales(token + t)[..groups],
            sums: &self.x.sums(token + t)[..groups],
        });
        let mut even = [s.splat(0.0); T];
        let mut odd = even;
        let mut lines = self.panel.chunks_exact(per_group);
        let mut g = 0;
        while g + 2 <= groups {
            if let (Some(a), Some(b)) = (lines.next(), lines.next()) {
                group::<S, F, T>(s, a, g, &tokens, &mut even);
                group::<S, F, T>(s, b, g + 1, &tokens, &mut odd);
            }
            g += 2;
        }
        if let Some(a) = lines.next() {
            group::<S, F, T>(s, a, g, &tokens, &mut even);
        }
        for t in 0..T {
            let sum = s.add(even[t], odd[t]);
            // SAFETY: this panel's rows are written by this work item alone.
            let y = unsafe { self.output.at(token + t, self.first, self.valid) };
            if self.valid == LANES {
                s.store_slice(y, sum);
            } else {
                s.store_partial(y, sum);
            }
        }
    }
}

/// The sixteen words of a line.
#[inline(always)]
fn words<S: Simd>(s: S, line: &Line) -> S::I32 {
    // SAFETY: a line is 16 u32.
    unsafe { s.load_u32(line.0.as_ptr()) }
}

/// Adds group `g` of sixteen rows and `T` tokens to `acc`.
#[inline(always)]
fn group<S: Simd, F: PanelFormat, const T: usize>(
    s: S,
    lines: &[Line],
    g: usize,
    tokens: &[Token<'_>; T],
    acc: &mut [S::F32; T],
) {
    let lines = &lines[..F::CODE_LINES + 1 + usize::from(F::MIN)];
    let scale = s.from_bits(words(s, &lines[F::CODE_LINES]));
    let at = g * GROUP;
    let mut dots = [s.splat_i32(0); T];
    if F::CODE_LINES == 4 {
        let mut init = [0; T];
        let mut running = [s.dot4_start(0); T];
        for t in 0..T {
            init[t] = -F::ZERO_POINT * tokens[t].sums[g];
            running[t] = s.dot4_start(init[t]);
        }
        let mask = s.splat_i32(0x0f0f_0f0f);
        for j in 0..4 {
            let codes = words(s, &lines[j]);
            let (low, high) = (s.and(codes, mask), s.and(s.shr::<4>(codes), mask));
            for t in 0..T {
                // SAFETY: group `g` lies inside the token's codes.
                running[t] = s.dot4(running[t], low, unsafe { tokens[t].quad(at + 4 * j) });
                // SAFETY: group `g` lies inside the token's codes.
                running[t] = s.dot4(running[t], high, unsafe { tokens[t].quad(at + 16 + 4 * j) });
            }
        }
        for t in 0..T {
            dots[t] = s.dot4_finish(running[t], init[t]);
        }
    } else {
        for t in 0..T {
            dots[t] = s.dot8_start(tokens[t].sums[g]);
        }
        for j in 0..8 {
            let codes = s.prepare8(words(s, &lines[j]));
            for t in 0..T {
                // SAFETY: group `g` lies inside the token's codes.
                dots[t] = s.dot8(dots[t], codes, unsafe { tokens[t].quad(at + 4 * j) });
            }
        }
    }
    for t in 0..T {
        let a = tokens[t].scales[g];
        acc[t] = s.fma(s.from_i32(dots[t]), s.mul(scale, s.splat(a)), acc[t]);
        if F::MIN {
            let weighted = a * tokens[t].sums[g] as f32;
            let min = s.from_bits(words(s, &lines[F::CODE_LINES + 1]));
            acc[t] = s.fma(min, s.splat(weighted), acc[t]);
        }
    }
}
