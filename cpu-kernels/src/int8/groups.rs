//! Products of groups of tokens, each group with a matrix of its own: what a mixture of experts computes.

use super::panel::PanelFormat;
use super::tokens::{Codes, with_groups};
use super::{OnDemand, PanelRows, PanelSource, PanelsTimesTokens, Prepacked};
use crate::Context;
use crate::error::{Error, check_len, check_shape};
use crate::formats::UseInt8Rows;
use crate::matrix::Matrix;
use crate::output::{Output, split};
use crate::packed::{PanelKind, Panels, UseInt8Panels};
use crate::panels::share_panels;
use crate::scratch::{Purpose, with_lines};
use crate::weights::Weights;
use halfbyte_q8::Activations;

/// `y = W x` for groups of tokens, each group with a matrix of its own: the products of a mixture of experts.
///
/// A group is a matrix and the numbers of its tokens, which are rows of `x`; a row may be in many groups. `y` has a row of
/// outputs for each token of each group, in order. Packed matrices of one format, such as the experts of a layer, are shared
/// out to the threads as if they were one, and each is read once.
///
/// Numerics: those of [`crate::gemm_int8`]. A row's bits depend on its weights and its activations alone, not on the group.
///
/// # Errors
/// [`Error::Unsupported`] for a matrix of a type that [`crate::gemm_int8`] refuses, [`Error::Shape`] if the columns of a
/// matrix and the activations differ, if matrices differ in rows, or if there is no such row of `x`, and [`Error::Length`]
/// if `y` is not as long as all groups together times the rows of a matrix. Nothing is written then.
pub fn gemm_int8_grouped(
    ctx: Context<'_>,
    groups: &[(Matrix<'_>, &[usize])],
    x: &Activations,
    y: &mut [f32],
) -> Result<(), Error> {
    check_groups(groups, x.rows(), x.cols(), y.len())?;
    for (w, _) in groups {
        if !w.supports_int8() {
            let supported = Weights::names(|format| format.int8);
            return Err(Error::Unsupported { what: "gemm_int8_grouped", got: w.weights().name(), supported });
        }
    }
    let outputs = split(y, groups);
    let tokens: Vec<&[usize]> = groups.iter().map(|&(_, tokens)| tokens).collect();
    let packed = groups.iter().map(|(w, _)| match w.weights() {
        Weights::Packed(panels) => Some(panels),
        _ => None,
    });
    let packed: Option<Vec<&Panels>> = packed.collect();
    let multiply = |packed: &[&Panels], tokens: &[&[usize]], outputs: &[Output<'_>]| {
        let first = packed.first().map(|panels| panels.kind());
        let multiply = MultiplyPacked { ctx, packed, tokens, outputs, x };
        first.and_then(|kind| kind.int8(multiply)).unwrap_or(false)
    };
    if packed.is_some_and(|packed| multiply(&packed, &tokens, &outputs)) {
        return Ok(());
    }
    // The matrices differ in format, or are not packed: one group after the other.
    for (((w, _), tokens), output) in groups.iter().zip(&tokens).zip(&outputs) {
        let done = match w.weights() {
            Weights::Packed(panels) => multiply(&[panels], &[*tokens], &[*output]),
            weights => {
                weights.int8_rows(x.cols(), MultiplyRows { ctx, tokens, output: *output, x }).is_some()
            }
        };
        assert!(done, "{} were refused", w.weights().name());
    }
    Ok(())
}

/// Whether the shapes of groups, of `rows` x `cols` activations and of `len` outputs agree.
pub(crate) fn check_groups(
    groups: &[(Matrix<'_>, &[usize])],
    rows: usize,
    cols: usize,
    len: usize,
) -> Result<(), Error> {
    let outputs = groups.first().map_or(0, |(w, _)| w.rows());
    for (w, tokens) in groups {
        check_shape("columns of the activations", w.cols(), cols)?;
        check_shape("rows of a group's matrix", outputs, w.rows())?;
        if let Some(&row) = tokens.iter().find(|&&row| row >= rows) {
            return Err(Error::Shape {
                what: "rows of the activations of a group",
                expected: row + 1,
                got: rows,
            });
        }
    }
    let tokens: usize = groups.iter().map(|(_, tokens)| tokens.len()).sum();
    check_len("y", tokens.saturating_mul(outputs), len)
}

/// The product of one group whose matrix is not packed.
struct MultiplyRows<'a> {
    ctx: Context<'a>,
    tokens: &'a [usize],
    output: Output<'a>,
    x: &'a Activations,
}

impl UseInt8Rows for MultiplyRows<'_> {
    type Output = ();

    fn run<R: PanelRows>(self, rows: R) {
        run(self.ctx, &[OnDemand(rows)], &[self.tokens], &[self.output], self.x);
    }
}

/// The products of groups whose matrices are packed, if all are of the format of the first; says whether they are.
#[derive(Clone, Copy)]
struct MultiplyPacked<'a> {
    ctx: Context<'a>,
    packed: &'a [&'a Panels],
    tokens: &'a [&'a [usize]],
    outputs: &'a [Output<'a>],
    x: &'a Activations,
}

impl UseInt8Panels for MultiplyPacked<'_> {
    type Output = bool;

    fn run<F: PanelKind>(self, _: F) -> bool {
        let panels =
            self.packed.iter().map(|&packed| Some(Prepacked { packed, format: F::of(packed.kind())? }));
        let Some(panels) = panels.collect::<Option<Vec<_>>>() else { return false };
        run(self.ctx, &panels, self.tokens, self.outputs, self.x);
        true
    }
}

/// The products of groups with matrices of one format, whose panels are counted as if they were one matrix's.
fn run<P: PanelSource>(
    ctx: Context<'_>,
    matrices: &[P],
    groups: &[&[usize]],
    outputs: &[Output<'_>],
    x: &Activations,
) {
    let zero_point = (P::Format::CODE_LINES == 4).then_some(P::Format::ZERO_POINT);
    with_groups(ctx, x, groups, Codes { zero_point, halves: P::Format::HALVES }, |tokens| {
        share_panels(ctx.pool, outputs, |i, range| {
            let (panels, tokens, output) = (matrices[i], tokens[i], outputs[i]);
            if tokens.count == 0 {
                return;
            }
            with_lines(Purpose::Weights, 2 * panels.format().panel_lines(x.groups()), |scratch| {
                let rows = output.rows();
                ctx.isa.dispatch(PanelsTimesTokens { panels, range, rows, tokens, scratch, output });
            });
        });
    });
}
