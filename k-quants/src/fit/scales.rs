//! Super-blocks of symmetric sub-blocks: `w = (d * sc) * level`, with whole numbers `sc`. Q3_K, Q6_K and IQ4_XS.
//!
//! The scales of the sub-blocks are fitted apart. Then units `d` are tried that put the largest of them at places inside
//! and outside either end of the range of `sc`, the codes staying as they are; the best few units are refined in steps:
//! each `sc` may move by one, codes are chosen again, and `d` is fitted to what was chosen.

use super::quadratic::{F16_MAX, Quadratic, nearest_f16};
use super::symmetric::{Group, Levels, levels};
use half::f16;

/// What a super-block stores.
#[derive(Debug, Clone)]
pub(super) struct Scales {
    pub(super) d: f16,
    /// One whole number a sub-block.
    pub(super) scales: Vec<f64>,
    /// One level a weight.
    pub(super) levels: Vec<f64>,
}

/// How many units are refined.
const STARTS: usize = 3;

/// The rounds of refinement at most; the last one rarely gains anything.
const ROUNDS: usize = 8;

/// Fits a super-block of sub-blocks of `sub` weights, whose scales are in `range`.
pub(super) fn fit_scales<L: Levels>(x: &[f64], v: &[f64], sub: usize, range: (f64, f64)) -> Scales {
    let groups: Vec<Group<'_>> =
        x.chunks_exact(sub).zip(v.chunks_exact(sub)).map(|(x, v)| Group { x, v }).collect();
    let fitted: Vec<(f64, Quadratic)> = groups.iter().map(|group| group.best_scale::<L>(21)).collect();
    let largest = fitted.iter().fold(0.0, |most: f64, (s, _)| if s.abs() > most.abs() { *s } else { most });
    let mut best = Choice {
        d: f16::ZERO,
        scales: vec![0.0; groups.len()],
        error: groups.iter().map(|g| g.error::<L>(0.0)).sum(),
    };
    for d in units(largest, &fitted, range) {
        let scales = fitted.iter().map(|(s, _)| (s / d.to_f64()).round().clamp(range.0, range.1)).collect();
        let choice = refine::<L>(&groups, d, scales, range);
        if choice.error < best.error {
            best = choice;
        }
    }
    let d = best.d.to_f64();
    let chosen =
        groups.iter().zip(&best.scales).flat_map(|(group, sc)| levels::<L>(group.x, d * sc)).collect();
    Scales { d: best.d, scales: best.scales, levels: chosen }
}

/// A unit and scales, with the error as decoded.
struct Choice {
    d: f16,
    scales: Vec<f64>,
    error: f64,
}

/// The most promising units: those of least error for the codes as fitted.
fn units(largest: f64, fitted: &[(f64, Quadratic)], range: (f64, f64)) -> Vec<f16> {
    let mut tries: Vec<(f64, f16)> = Vec::new();
    if largest == 0.0 {
        return Vec::new();
    }
    for end in [range.0, range.1] {
        for i in 0..12 {
            let d = nearest_f16(largest / (end * (0.5 + 0.05 * f64::from(i))));
            if d == f16::ZERO || tries.iter().any(|(_, other)| *other == d) {
                continue;
            }
            let unit = d.to_f64();
            let error = fitted
                .iter()
                .map(|(s, sums)| sums.error(unit * (s / unit).round().clamp(range.0, range.1), 0.0));
            tries.push((error.sum(), d));
        }
    }
    // Scales below the smallest f16 leave no unit but that.
    if tries.is_empty() {
        tries.push((0.0, f16::from_bits(1)));
    }
    tries.sort_by(|a, b| a.0.total_cmp(&b.0));
    tries.into_iter().take(STARTS).map(|(_, d)| d).collect()
}

/// Improves a unit and scales until that gains nothing.
fn refine<L: Levels>(groups: &[Group<'_>], d: f16, scales: Vec<f64>, range: (f64, f64)) -> Choice {
    let mut best = Choice { d, scales, error: f64::INFINITY };
    let mut d = d;
    for _ in 0..ROUNDS {
        let unit = d.to_f64();
        let (mut scales, mut error) = (Vec::with_capacity(groups.len()), 0.0);
        for (group, &around) in groups.iter().zip(&best.scales) {
            let tries = [around, around - 1.0, around + 1.0].into_iter();
            let tries = tries.filter(|sc| (range.0..=range.1).contains(sc));
            let tries = tries.map(|sc| (group.error::<L>(unit * sc), sc));
            let (least, sc) = tries.fold((f64::INFINITY, 0.0), |a, b| if b.0 < a.0 { b } else { a });
            error += least;
            scales.push(sc);
        }
        if error.is_nan() || error >= best.error {
            break;
        }
        best = Choice { d, scales, error };
        let (mut xq, mut qq) = (0.0, 0.0);
        for (group, &sc) in groups.iter().zip(&best.scales) {
            let sums = group.rounded::<L>(unit * sc);
            xq += sc * sums.xq;
            qq += sc * sc * sums.qq;
        }
        if qq == 0.0 || (xq / qq).abs() > F16_MAX {
            break;
        }
        d = nearest_f16(xq / qq);
        if d == f16::ZERO {
            break;
        }
    }
    best
}
