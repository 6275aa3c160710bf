//! Super-blocks of sub-blocks with a minimum: `w = (d * sc) * code - (dmin * m)`, with whole numbers `sc` and `m` from 0 on.
//! Q2_K, Q4_K and Q5_K.
//!
//! The lines of the sub-blocks are fitted apart, with minima of 0 at most. Then pairs of units are tried that put the
//! largest scale and the largest minimum inside and outside the end of the range, the codes staying as they are; the best few
//! pairs are refined in steps: each `sc` and `m` may move by one, codes are chosen again, and the two units are fitted
//! together to what was chosen.

use super::line::{Line, codes};
use super::quadratic::{Quadratic, nearest_f16};
use super::symmetric::Group;
use half::f16;

/// What a super-block stores.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    pub(super) d: f16,
    pub(super) dmin: f16,
    /// A scale and a minimum a sub-block.
    pub(super) pairs: Vec<(u8, u8)>,
    /// One a weight.
    pub(super) codes: Vec<u8>,
}

/// What the numbers of a format end at: scales and minima, and codes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) scale: f64,
    pub(super) code: f64,
}

/// How many pairs of units are refined.
const STARTS: usize = 3;

/// The rounds of refinement at most; the last one rarely gains anything.
const ROUNDS: usize = 8;

/// The units are put so that the largest number is at this share of the end of the range.
const PLACES: [f64; 9] = [0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.3];

/// Units and numbers, with the error as decoded.
#[derive(Debug, Clone)]
struct Choice {
    units: (f16, f16),
    pairs: Vec<(f64, f64)>,
    error: f64,
}

/// Fits a super-block of sub-blocks of `sub` weights.
pub(super) fn fit_lines(x: &[f64], v: &[f64], sub: usize, ends: Ends) -> Lines {
    let groups: Vec<Group<'_>> =
        x.chunks_exact(sub).zip(v.chunks_exact(sub)).map(|(x, v)| Group { x, v }).collect();
    let lines: Vec<Line> = groups.iter().map(|group| group.best_line(ends.code, true, 17)).collect();
    let nothing = vec![(0.0, 0.0); groups.len()];
    let error = groups.iter().map(|group| group.line_error(0.0, 0.0, ends.code)).sum();
    let mut best = Choice { units: (f16::ZERO, f16::ZERO), pairs: nothing, error };
    for units in units(&lines, ends) {
        let pairs = lines.iter().map(|line| nearest_pair(line, units, ends)).collect();
        let choice = refine(&groups, Choice { units, pairs, error: f64::INFINITY }, ends);
        if choice.error < best.error {
            best = choice;
        }
    }
    let (d, dmin) = (best.units.0.to_f64(), best.units.1.to_f64());
    let pairs = groups.iter().zip(&best.pairs);
    let codes = pairs.flat_map(|(group, (sc, m))| codes(group.x, d * sc, -dmin * m, ends.code)).collect();
    let pairs = best.pairs.iter().map(|&(sc, m)| (sc as u8, m as u8)).collect();
    Lines { d: best.units.0, dmin: best.units.1, pairs, codes }
}

/// The whole number in `0..=end` nearest to `value / unit`; 0 where the unit is.
fn number(value: f64, unit: f64, end: f64) -> f64 {
    if unit == 0.0 { 0.0 } else { (value / unit).round().clamp(0.0, end) }
}

/// Scale and minimum of a line in whole numbers, the minimum for the scale as rounded.
fn nearest_pair(line: &Line, units: (f16, f16), ends: Ends) -> (f64, f64) {
    let (d, dmin) = (units.0.to_f64(), units.1.to_f64());
    let sc = number(line.a, d, ends.scale);
    (sc, number(-line.sums.best_min(d * sc), dmin, ends.scale))
}

/// The most promising pairs of units: those of least error for the codes as fitted.
fn units(lines: &[Line], ends: Ends) -> Vec<(f16, f16)> {
    let steepest = lines.iter().fold(0.0, |most: f64, line| most.max(line.a));
    let lowest = lines.iter().fold(0.0, |most: f64, line| most.max(-line.b));
    // Where even the largest number needs less than the smallest f16, that is the only unit there is.
    let smallest = f16::from_bits(1).to_f64();
    let candidates = |largest: f64| {
        let places = PLACES.iter().map(|place| largest / (ends.scale * place));
        let mut units: Vec<f16> = match largest {
            0.0 => vec![f16::ZERO],
            _ => places.map(|unit| nearest_f16(unit.max(smallest))).collect(),
        };
        units.dedup();
        units
    };
    let mut tries = Vec::new();
    for d in candidates(steepest) {
        for dmin in candidates(lowest) {
            let error = lines.iter().map(|line| {
                let (sc, m) = nearest_pair(line, (d, dmin), ends);
                line.sums.error(d.to_f64() * sc, -dmin.to_f64() * m)
            });
            tries.push((error.sum::<f64>(), (d, dmin)));
        }
    }
    tries.sort_by(|a, b| a.0.total_cmp(&b.0));
    tries.into_iter().take(STARTS).map(|(_, units)| units).collect()
}

/// Improves units and numbers until that gains nothing.
fn refine(groups: &[Group<'_>], start: Choice, ends: Ends) -> Choice {
    let mut best = start.clone();
    let mut units = start.units;
    for _ in 0..ROUNDS {
        let (d, dmin) = (units.0.to_f64(), units.1.to_f64());
        let (mut pairs, mut error) = (Vec::with_capacity(groups.len()), 0.0);
        for (group, &(sc, m)) in groups.iter().zip(&best.pairs) {
            let (mut least, mut pair) = (f64::INFINITY, (sc, m));
            for sc in [sc, sc - 1.0, sc + 1.0] {
                for m in [m, m - 1.0, m + 1.0] {
                    if !(0.0..=ends.scale).contains(&sc) || !(0.0..=ends.scale).contains(&m) {
                        continue;
                    }
                    let tried = group.line_error(d * sc, -dmin * m, ends.code);
                    if tried < least {
                        (least, pair) = (tried, (sc, m));
                    }
                }
            }
            error += least;
            pairs.push(pair);
        }
        if error.is_nan() || error >= best.error {
            break;
        }
        best = Choice { units, pairs, error };
        match fit_units(groups, &best, ends) {
            Some(next) if next != units => units = next,
            _ => break,
        }
    }
    best
}

/// The units of least error for the codes of `choice`; `None` where there is no best pair.
fn fit_units(groups: &[Group<'_>], choice: &Choice, ends: Ends) -> Option<(f16, f16)> {
    let (d, dmin) = (choice.units.0.to_f64(), choice.units.1.to_f64());
    // The normal equations: aa d - am dmin = ax, am d - mm dmin = mx.
    let (mut aa, mut am, mut mm, mut ax, mut mx) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (group, &(sc, m)) in groups.iter().zip(&choice.pairs) {
        let (a, b) = (d * sc, -dmin * m);
        let inverse = if a == 0.0 { 0.0 } else { 1.0 / a };
        let sums: Quadratic = Quadratic::of_weights(group.x, group.v)
            .with_codes(group.x, group.v, |x| Group::code(x, inverse, b, ends.code));
        aa += sc * sc * sums.qq;
        am += sc * m * sums.q;
        mm += m * m * sums.one;
        ax += sc * sums.xq;
        mx += m * sums.x;
    }
    let determinant = aa * mm - am * am;
    let (d, dmin) = if determinant > 1e-12 * aa * mm {
        ((ax * mm - am * mx) / determinant, (am * ax - aa * mx) / determinant)
    } else if aa > 0.0 {
        (ax / aa, dmin)
    } else {
        return None;
    };
    let units = (nearest_f16(d), nearest_f16(dmin));
    (d >= 0.0 && units.0 != f16::ZERO).then_some(units)
}
