//! The quantizers of whole rows: a batch of rows and a group of columns at a time.

use half::f16;

use super::factor::Factor;
use super::grid::{Affine, Grid, Levels, Symmetric};
use super::group::{Problem, Solution};
use super::product::{COLUMNS, DEPTH, ROWS, rows_of, tile};
use crate::affine::{AffineScale, GroupSize, pack8};
use crate::error::{Error, check_len};
use crate::importance::check_importance;
use crate::quantize::{check_q4_0_row, check_q4_1_row};
use crate::{BlockQ4_0, BlockQ4_1, GROUP, pack_nibbles};

/// The number of rows in a batch, which share a product with the factor.
const BATCH: usize = 64;

/// The error for which a group's scale is chosen, after its weights have been changed to compensate for earlier groups.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Scales<'a> {
    /// The least squared error of the group's weights.
    Nearest,
    /// The least squared error weighted by one importance a column.
    Weighted(&'a [f32]),
    /// The least squared error of the outputs, as far as the group decides it: every try rounds the group with
    /// error compensation, so its error is computed and not estimated.
    #[default]
    Compensated,
}

/// The error of quantized rows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// `sum over rows of e^T H e`, `e` the errors as decoded and `H` the damped second moments.
    pub squared_error: f64,
}

/// Q4_0 with error compensation. `w`: whole rows of [`Factor::columns`] weights. `out`: a block for every 32.
///
/// # Errors
///
/// [`Error::Length`], also unless the factor has groups of 32; [`Error::NotWholeRows`], [`Error::NonFinite`],
/// [`Error::Importance`]; [`Error::Overflow`] when a weight is beyond 8 * 65504. Places are
/// counted from the start of `w`. Nothing is written then.
pub fn q4_0_rows(
    factor: &Factor,
    w: &[f32],
    scales: Scales<'_>,
    out: &mut [BlockQ4_0],
) -> Result<Report, Error> {
    check_len("columns in a group of the factor", GROUP, factor.group())?;
    check(factor, w, scales)?;
    check_q4_0_row(w, out.len(), 8.0)?;
    Ok(rows::<GROUP>(factor, w, scales, Symmetric, |group, s| {
        // A block that decodes to zeros is stored as `ZERO`.
        out[group] = if s.codes == [8; GROUP] || s.levels.scale == 0.0 {
            BlockQ4_0::ZERO
        } else {
            BlockQ4_0 { scale: stored_f16(s.levels.scale), codes: pack_nibbles(&s.codes) }
        };
    }))
}

/// Q4_1 with error compensation. `w`: whole rows of [`Factor::columns`] weights. `out`: a block for every 32.
///
/// # Errors
///
/// As [`q4_0_rows`]; [`Error::Overflow`] when the minimum or the scale of
/// [`q4_1_row`](crate::q4_1_row) is beyond 65504.
pub fn q4_1_rows(
    factor: &Factor,
    w: &[f32],
    scales: Scales<'_>,
    out: &mut [BlockQ4_1],
) -> Result<Report, Error> {
    check_len("columns in a group of the factor", GROUP, factor.group())?;
    check(factor, w, scales)?;
    check_q4_1_row(w, out.len())?;
    Ok(rows::<GROUP>(factor, w, scales, Affine::<f16>::new(), |group, s| {
        let (scale, min) = (stored_f16(s.levels.scale), stored_f16(s.levels.offset));
        out[group] = BlockQ4_1 { scale, min, codes: pack_nibbles(&s.codes) };
    }))
}

/// MLX affine groups with error compensation. `w`: whole rows of [`Factor::columns`] weights; `packed`, `scales`
/// and `biases` as for [`affine::quantize_row`](crate::affine::quantize_row), row after row.
///
/// # Errors
///
/// [`Error::GroupSize`] unless the factor has groups of 32, 64 or 128; [`Error::NotWholeRows`],
/// [`Error::Length`], [`Error::NonFinite`], [`Error::Importance`]; [`Error::Overflow`] when a weight is beyond the
/// largest `S`. Nothing is written then.
pub fn affine_rows<S: AffineScale>(
    factor: &Factor,
    w: &[f32],
    search: Scales<'_>,
    packed: &mut [u32],
    scales: &mut [S],
    biases: &mut [S],
) -> Result<Report, Error> {
    let size = GroupSize::try_from(factor.group())?;
    check(factor, w, search)?;
    check_len("packed", w.len() / 8, packed.len())?;
    check_len("scales", w.len() / size.weights(), scales.len())?;
    check_len("biases", w.len() / size.weights(), biases.len())?;
    crate::error::check_finite(w, size.weights())?;
    if let Some(index) = w.iter().position(|v| v.abs() > S::LIMIT) {
        let (group, value) = (index / size.weights(), w[index]);
        return Err(Error::Overflow { index, group, what: "bias", value, limit: S::LIMIT });
    }
    let grid = Affine::<S>::new();
    let words = size.weights() / 8;
    let mut write = |group: usize, levels: Levels, codes: &[u8]| {
        for (word, codes) in packed[group * words..][..words].iter_mut().zip(codes.as_chunks::<8>().0) {
            *word = pack8(codes);
        }
        // Exact: the levels are as stored.
        scales[group] = S::from_f32(levels.scale as f32);
        biases[group] = S::from_f32(levels.offset as f32);
    };
    Ok(match size {
        GroupSize::G32 => rows::<32>(factor, w, search, grid, |g, s| write(g, s.levels, &s.codes)),
        GroupSize::G64 => rows::<64>(factor, w, search, grid, |g, s| write(g, s.levels, &s.codes)),
        GroupSize::G128 => rows::<128>(factor, w, search, grid, |g, s| write(g, s.levels, &s.codes)),
    })
}

fn check(factor: &Factor, w: &[f32], scales: Scales<'_>) -> Result<(), Error> {
    let columns = factor.columns();
    if columns == 0 || !w.len().is_multiple_of(columns) {
        return Err(Error::NotWholeRows { columns, got: w.len() });
    }
    if let Scales::Weighted(importance) = scales {
        check_importance(importance, columns)?;
    }
    Ok(())
}

/// A stored parameter, which is an f16 value already, as f16.
fn stored_f16(v: f64) -> f16 {
    f16::from_f32(v as f32)
}

/// The factor's rows and columns of one group.
fn triangle<const G: usize>(factor: &Factor, start: usize) -> Box<[[f64; G]; G]> {
    let mut triangle = Box::new([[0.0; G]; G]);
    for (j, row) in triangle.iter_mut().enumerate() {
        for (i, l) in row[..=j].iter_mut().enumerate() {
            *l = factor.lower[(start + j) * factor.stride + start + i];
        }
    }
    triangle
}

/// Quantizes checked rows and hands every group's solution, codes in the order of the columns, to `write` with
/// its number in `w`.
fn rows<const G: usize>(
    factor: &Factor,
    w: &[f32],
    scales: Scales<'_>,
    grid: impl Grid,
    mut write: impl FnMut(usize, &Solution<G>),
) -> Report {
    let n = factor.columns();
    let mut report = Report::default();
    for (batch, rows) in w.chunks(BATCH * n).enumerate() {
        let count = rows.len() / n;
        let mut errors = vec![0.0; count.next_multiple_of(ROWS) * n];
        let mut carried = vec![[0.0; G]; count.next_multiple_of(ROWS)];
        for start in (0..n).step_by(G).rev() {
            let end = start + G;
            carry(factor, &errors, start, &mut carried);
            let columns = &factor.order[start..end];
            let triangle = triangle::<G>(factor, start);
            let first = columns.iter().min().map_or(0, |c| c / G * G);
            let chooser = Chooser::new(scales, columns);
            for (r, row) in rows.chunks_exact(n).enumerate() {
                let weights: [f64; G] = std::array::from_fn(|j| f64::from(row[columns[j]]));
                let target = target(&weights, &carried[r], &triangle);
                let problem = Problem { target: &target, triangle: &triangle };
                let solution = chooser.solve(&problem, grid);
                report.squared_error += solution.error;
                let mut in_order = solution;
                for (j, &column) in columns.iter().enumerate() {
                    let code = solution.codes[j];
                    errors[r * n + start + j] =
                        weights[j] - (solution.levels.scale * f64::from(code) + solution.levels.offset);
                    in_order.codes[column - first] = code;
                }
                write(((batch * BATCH + r) * n + first) / G, &in_order);
            }
        }
    }
    report
}

/// The contribution of the errors behind the group at `start` to its targets: `errors` (whole rows, a multiple of [`ROWS`])
/// times the factor's rows behind the group and its columns of the group.
fn carry<const G: usize>(factor: &Factor, errors: &[f64], start: usize, carried: &mut [[f64; G]]) {
    const { assert!(G.is_multiple_of(COLUMNS)) };
    let n = factor.columns();
    let mut packed = vec![[0.0; COLUMNS]; DEPTH * G / COLUMNS];
    carried.fill([0.0; G]);
    for first in (start + G..n).step_by(DEPTH) {
        let terms = first..n.min(first + DEPTH);
        let depth = terms.len();
        for (k, term) in terms.clone().enumerate() {
            let row = &factor.lower[term * factor.stride + start..][..G];
            for (block, columns) in row.as_chunks::<COLUMNS>().0.iter().enumerate() {
                packed[block * depth + k] = *columns;
            }
        }
        for (i, carried) in carried.chunks_exact_mut(ROWS).enumerate() {
            let errors = rows_of(errors, n, i * ROWS, terms.clone());
            for (block, packed) in packed.chunks_exact(depth).take(G / COLUMNS).enumerate() {
                for (to, product) in carried.iter_mut().zip(tile(errors, packed)) {
                    let to = &mut to[block * COLUMNS..][..COLUMNS];
                    to.iter_mut().zip(product).for_each(|(to, product)| *to += product);
                }
            }
        }
    }
}

/// The weights of a group, changed to compensate for the errors of earlier groups: `w + L^-T carried`.
fn target<const G: usize>(w: &[f64; G], carried: &[f64; G], triangle: &[[f64; G]; G]) -> [f64; G] {
    let mut right = *carried;
    let mut target = *w;
    for j in (0..G).rev() {
        let z = right[j] / triangle[j][j];
        target[j] += z;
        for (right, l) in right[..j].iter_mut().zip(&triangle[j]) {
            *right -= l * z;
        }
    }
    target
}

/// Chooses the levels of groups by the rule of a [`Scales`].
struct Chooser<const G: usize> {
    /// The square roots of the importances, on a diagonal; `None` for [`Scales::Compensated`].
    diagonal: Option<Box<[[f64; G]; G]>>,
}

impl<const G: usize> Chooser<G> {
    fn new(scales: Scales<'_>, columns: &[usize]) -> Self {
        let importance: [f64; G] = match scales {
            Scales::Compensated => return Self { diagonal: None },
            Scales::Nearest => [1.0; G],
            Scales::Weighted(importance) => {
                let importance = std::array::from_fn(|j| f64::from(importance[columns[j]]));
                // A group without any importance is quantized with equal ones.
                if importance == [0.0; G] { [1.0; G] } else { importance }
            }
        };
        // Zeros are replaced by a tiny importance, because the search divides by its root.
        let least = importance.iter().fold(0.0f64, |m, &v| m.max(v)) * 1e-12;
        let mut diagonal = Box::new([[0.0; G]; G]);
        for (j, row) in diagonal.iter_mut().enumerate() {
            row[j] = importance[j].max(least).sqrt();
        }
        Self { diagonal: Some(diagonal) }
    }

    fn solve(&self, problem: &Problem<'_, G>, grid: impl Grid) -> Solution<G> {
        match &self.diagonal {
            None => problem.solve(grid),
            Some(diagonal) => {
                let plain = Problem { target: problem.target, triangle: diagonal };
                problem.round(plain.solve(grid).levels)
            }
        }
    }
}
