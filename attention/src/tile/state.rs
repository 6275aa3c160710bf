//! The state of a query after some of its keys, and how the states after two ranges of keys are merged.
//!
//! ```text
//! record:  | o: the weighted values, a head wide | l: the sums of weights, 16 lanes | m: the largest score, 15 unused |
//! ```
//!
//! Records of consecutive chunks of keys are merged in order. `a` is the merged record of the earlier chunks, `c` the record
//! of the next one:
//!
//! ```text
//! m = max(m_a, m_c)
//! l = exp(m_c - m) * l_c + exp(m_a - m) * l_a          the second product rounded, the first fused; the same for o
//! ```
//!
//! The record of the first chunk that a query sees is copied unchanged; chunks of which it sees no key are skipped.

use halfbyte_cpu_kernels::simd::{LANES, Simd, exp};

/// The number of elements of a record, for heads of `vectors * 16` elements.
pub(crate) const fn record(vectors: usize) -> usize {
    (vectors + 2) * LANES
}

/// The parts of a record.
pub(super) struct State<'a> {
    pub(super) outputs: &'a mut [f32],
    pub(super) sums: &'a mut [f32],
    pub(super) max: &'a mut f32,
}

impl<'a> State<'a> {
    #[inline(always)]
    pub(super) fn of(record: &'a mut [f32]) -> Self {
        let at = record.len() - 2 * LANES;
        let (outputs, rest) = record.split_at_mut(at);
        let (sums, max) = rest.split_at_mut(LANES);
        Self { outputs, sums, max: &mut max[0] }
    }

    /// Sets the state before the first key.
    #[inline(always)]
    pub(super) fn reset(self) {
        self.outputs.fill(0.0);
        self.sums.fill(0.0);
        *self.max = f32::NEG_INFINITY;
    }

    /// Merges the record of the next chunk into this one.
    #[inline(always)]
    pub(super) fn merge<S: Simd>(self, s: S, next: &[f32]) {
        let (before, largest) = (*self.max, next[next.len() - LANES]);
        let max = if before > largest { before } else { largest };
        let base = s.splat(finite_or_zero(max));
        let a = exp(s, s.sub(s.splat(before), base));
        let c = exp(s, s.sub(s.splat(largest), base));
        let all = self.outputs.chunks_exact_mut(LANES).chain(self.sums.chunks_exact_mut(LANES));
        for (x, y) in all.zip(next.chunks_exact(LANES)) {
            let sum = s.fma(c, s.load_slice(y), s.mul(a, s.load_slice(x)));
            s.store_slice(x, sum);
        }
        *self.max = max;
    }

    /// Divides by the sum of weights and writes the output, with a sink's weight in the sum if there is one.
    #[inline(always)]
    pub(super) fn finish<S: Simd>(self, s: S, sink: Option<f32>, to: &mut [f32]) {
        let mut total = s.reduce_add(s.load_slice(self.sums));
        let mut share = s.splat(1.0);
        if let Some(sink) = sink.filter(|&sink| sink > f32::NEG_INFINITY) {
            let base = s.splat(if *self.max > sink { *self.max } else { sink });
            share = exp(s, s.sub(s.splat(*self.max), base));
            let sink = exp(s, s.sub(s.splat(sink), base));
            total = s.to_array(s.fma(s.splat(total), share, sink))[0];
        } else if total == 0.0 {
            // The largest score has weight 1, so every score was -inf.
            to.fill(0.0);
            return;
        }
        let total = s.splat(total);
        for (x, y) in self.outputs.chunks_exact(LANES).zip(to.chunks_mut(LANES)) {
            let x = one_nan(s, s.div(s.mul(s.load_slice(x), share), total));
            if y.len() == LANES { s.store_slice(y, x) } else { s.store_partial(y, x) }
        }
    }
}

/// The number that is subtracted from scores: the maximum, or 0 where every score so far is -inf, so that weights become 0
/// and not NaN.
#[inline(always)]
pub(super) fn finite_or_zero(max: f32) -> f32 {
    if max == f32::NEG_INFINITY { 0.0 } else { max }
}

/// `x`, with every NaN replaced by the quiet NaN of positive sign and empty payload: which NaN an operation
/// returns differs between instruction sets.
#[inline(always)]
fn one_nan<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let nan = s.splat(f32::from_bits(0x7fc0_0000));
    let not_negative = s.select_lt(s.splat(-1.0), x, x, nan);
    s.select_lt(x, s.splat(0.0), x, not_negative)
}
