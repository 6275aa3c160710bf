//! The search for the levels and codes of one group of one row.

use super::grid::{Grid, Levels, Sums};
use crate::rounding::round_clamped_f64;

/// The number of tries that are computed together, one a SIMD lane.
const LANES: usize = 8;

/// The most rounds of refitting levels to codes. A round that does not lower the error is the last; later rounds gain
/// little.
const ROUNDS: usize = 4;

/// The problem of a group: minimise `|L^T (target - level(code))|^2` over levels and codes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Problem<'a, const G: usize> {
    /// The weights, changed to compensate for the errors of earlier groups.
    pub(super) target: &'a [f64; G],
    /// `triangle[j][i]`: the factor's row `j`, column `i <= j`.
    pub(super) triangle: &'a [[f64; G]; G],
}

/// Levels as stored, the codes for them, and their error.
#[derive(Debug, Clone, Copy)]
pub(super) struct Solution<const G: usize> {
    pub(super) levels: Levels,
    pub(super) codes: [u8; G],
    pub(super) error: f64,
}

impl<const G: usize> Problem<'_, G> {
    /// The best of the grid's tries, refitted.
    pub(super) fn solve(&self, grid: impl Grid) -> Solution<G> {
        let mean = self.target.iter().sum::<f64>() / G as f64;
        // One level at the mean, or at 0 if the mean is out of range.
        let flat =
            grid.store(Levels { scale: 0.0, offset: mean }).unwrap_or(Levels { scale: 0.0, offset: 0.0 });
        let mut best = self.round(flat);
        let tries: Vec<Levels> = grid.tries(self.target).into_iter().filter_map(|l| grid.store(l)).collect();
        for tries in tries.chunks(LANES) {
            // Lanes that have no try repeat the first one of the chunk.
            let lanes: [Levels; LANES] = std::array::from_fn(|i| *tries.get(i).unwrap_or(&tries[0]));
            let (codes, errors) = self.round_all(&lanes);
            for (lane, &error) in errors.iter().enumerate().take(tries.len()) {
                if error < best.error {
                    let codes = std::array::from_fn(|j| codes[j][lane] as u8);
                    best = Solution { levels: lanes[lane], codes, error };
                }
            }
        }
        for _ in 0..ROUNDS {
            let Some(levels) = grid.fit(self.sums(&best.codes)).and_then(|l| grid.store(l)) else { break };
            let next = self.round(levels);
            if next.error >= best.error {
                break;
            }
            best = next;
        }
        best
    }

    /// The codes for given levels, column by column from the last, each compensating for the errors of those before.
    pub(super) fn round(&self, levels: Levels) -> Solution<G> {
        let (codes, [error]) = self.round_all(&[levels]);
        Solution { levels, codes: codes.map(|[code]| code as u8), error }
    }

    /// [`Self::round`] for several levels at once: codes by column and lane, errors by lane.
    fn round_all<const N: usize>(&self, levels: &[Levels; N]) -> ([[f64; N]; G], [f64; N]) {
        let scale = levels.map(|l| l.scale);
        let inverse = scale.map(|s| if s == 0.0 { 0.0 } else { 1.0 / s });
        let offset = levels.map(|l| l.offset);
        let mut codes = [[0.0; N]; G];
        let mut carried = [[0.0; N]; G];
        let mut errors = [0.0; N];
        for j in (0..G).rev() {
            let row = &self.triangle[j];
            let (diagonal, inverse_diagonal) = (row[j], 1.0 / row[j]);
            let mut off = [0.0; N];
            for n in 0..N {
                let wanted = self.target[j] + carried[j][n] * inverse_diagonal;
                let code = round_clamped_f64((wanted - offset[n]) * inverse[n], 0.0, 15.0);
                let value = scale[n] * code + offset[n];
                codes[j][n] = code;
                off[n] = self.target[j] - value;
                errors[n] += (diagonal * (wanted - value)).powi(2);
            }
            for (carried, &l) in carried[..j].iter_mut().zip(row) {
                for n in 0..N {
                    carried[n] += l * off[n];
                }
            }
        }
        (codes, errors)
    }

    /// The sums of the least-squares fit for given codes, weighted by the factor.
    fn sums(&self, codes: &[u8; G]) -> Sums {
        let (mut a, mut b, mut t) = ([0.0; G], [0.0; G], [0.0; G]);
        for (j, &code) in codes.iter().enumerate() {
            let code = f64::from(code);
            for (i, &l) in self.triangle[j][..=j].iter().enumerate() {
                a[i] += l * code;
                b[i] += l;
                t[i] += l * self.target[j];
            }
        }
        let mut sums = Sums::default();
        for i in 0..G {
            sums.aa += a[i] * a[i];
            sums.ab += a[i] * b[i];
            sums.bb += b[i] * b[i];
            sums.at += a[i] * t[i];
            sums.bt += b[i] * t[i];
        }
        sums
    }
}
