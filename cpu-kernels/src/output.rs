//! The output of a product, which several threads write to.

use crate::matrix::Matrix;
use halfbyte_threadpool::DisjointMut;

/// The output `y` of a GEMM, `tokens` x `rows` row-major, shared by threads that write disjoint columns.
#[derive(Clone, Copy)]
pub(crate) struct Output<'a> {
    y: DisjointMut<'a, f32>,
    tokens: usize,
    rows: usize,
}

impl<'a> Output<'a> {
    /// All of `y`, which must be `tokens * rows` long.
    pub(crate) fn new(y: &'a mut [f32], tokens: usize, rows: usize) -> Self {
        assert_eq!(y.len(), tokens * rows);
        Self { y: DisjointMut::new(y), tokens, rows }
    }

    /// Outputs of a token.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// `n` consecutive outputs of token `token`, from `row` on.
    ///
    /// # Panics
    /// If there is no such token, or it has no such outputs.
    ///
    /// # Safety
    /// While the result is used, nobody else uses any of these elements: a work item asks only for rows of its own.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "the caller promises that parts do not overlap")]
    pub(crate) unsafe fn at(&self, token: usize, row: usize, n: usize) -> &'a mut [f32] {
        // Otherwise the outputs would run on into the next token's, which lie inside the slice but are not the caller's.
        assert!(token < self.tokens && row <= self.rows && n <= self.rows - row, "outputs within the matrix");
        // SAFETY: `part` checks again that the elements lie inside `y`. They are outputs `row..row + n` of `token` and
        // no others, as just checked, and the caller promises that nobody else uses those.
        unsafe { self.y.part(token * self.rows + row, n) }
    }
}

/// The outputs of groups of tokens, which `y` has one after the other: each with its matrix's rows for its tokens.
pub(crate) fn split<'a>(mut y: &'a mut [f32], groups: &[(Matrix<'_>, &[usize])]) -> Vec<Output<'a>> {
    let part = |(w, tokens): &(Matrix<'_>, &[usize])| {
        let (own, others) = std::mem::take(&mut y).split_at_mut(tokens.len() * w.rows());
        y = others;
        Output::new(own, tokens.len(), w.rows())
    };
    groups.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::Output;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn outputs_stay_within_their_token() {
        let mut y = [0.0; 2 * 5];
        let output = Output::new(&mut y, 2, 5);
        // SAFETY: no other part is in use.
        unsafe { output.at(1, 3, 2) }.fill(1.0);
        for (token, row, n) in [(0, 4, 2), (2, 0, 1), (0, 6, 0), (0, 1, usize::MAX), (usize::MAX, 0, 1)] {
            // SAFETY: no other part is in use.
            let part = catch_unwind(AssertUnwindSafe(|| unsafe { output.at(token, row, n) }.len()));
            assert!(part.is_err(), "outputs {row}.. + {n} of token {token}");
        }
        assert_eq!(y, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
    }
}
