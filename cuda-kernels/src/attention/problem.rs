//! The problem that an attention call computes, and the checks and arguments that its kernels share.

use super::cache::{DeviceKvCache, KvStorage};
use crate::check::{at_most, attention_head_dim, length, place, same};
use crate::profiler::Work;
use crate::{Error, Kernels};
use half::bf16;
use halfbyte_cuda_driver::{Argument, DevicePointer, DeviceSlice};
use std::f64::consts::LOG2_E;

/// The parameters that are the same for every call of a layer.
///
/// Query heads `g * i .. g * (i + 1)` read key/value head `i`, with `g = n_heads / n_kv_heads`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionParams {
    /// Query heads.
    pub n_heads: usize,
    /// Key/value heads.
    pub n_kv_heads: usize,
    /// Numbers of a head: 64, 128 or 256.
    pub head_dim: usize,
    /// The factor of every score.
    pub scale: f32,
    /// Whether a row sees no position after its own.
    pub causal: bool,
    /// How far a row sees: positions less than this away from its own; `None` is any.
    pub window: Option<u32>,
    /// Scores become `cap * tanh(score / cap)`, before masks.
    pub soft_cap: Option<f32>,
}

/// A call: rows of queries at positions that follow one another, over a cache.
///
/// ```text
/// score[r, h, j] = scale * sum over d of q[r, h, d] * key[h / g, j, d], then soft-capped
/// out[r, h]      = sum over j of e^score[r, h, j] * value[h / g, j] / (sum over j of e^score[r, h, j] + e^sinks[h])
/// ```
///
/// Row `r` stands at position `p = first + r` and sees the positions `j < kv_len`, with `causal` those `j <= p`, with a
/// window those with `|p - j| < window`. Positions that no row of a call sees are not read. If a row sees none, or all its
/// scores are -inf, its output is exactly 0.
#[derive(Debug, Clone, Copy)]
pub struct Problem<'a> {
    /// The parameters of the layer.
    pub params: AttentionParams,
    /// A score for each query head that takes part in the softmax and has no value.
    pub sinks: Option<DeviceSlice<'a, f32>>,
    /// Keys and values.
    pub cache: &'a DeviceKvCache,
    /// Positions of the cache that hold something, the rows' own among them.
    pub kv_len: usize,
    /// The position of the first row.
    pub first: usize,
    /// Rows.
    pub rows: usize,
    /// The queries, `[row][n_heads][head_dim]`.
    pub q: DeviceSlice<'a, bf16>,
}

/// The numbers and addresses of a call, as the kernels take them.
#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) q: DevicePointer,
    pub(crate) keys: DevicePointer,
    pub(crate) values: DevicePointer,
    /// Of keys and values, in fp8.
    pub(crate) scales: Option<[DevicePointer; 2]>,
    pub(crate) sinks: DevicePointer,
    pub(crate) rows: u32,
    pub(crate) n_heads: u32,
    pub(crate) group: u32,
    pub(crate) capacity: u32,
    pub(crate) first: u32,
    pub(crate) kv_len: u32,
    pub(crate) causal: u32,
    pub(crate) window: u32,
    pub(crate) scale: f32,
    pub(crate) cap: f32,
}

impl Arguments {
    /// Queries, keys, values and scales, as all kernels but the merge begin.
    pub(crate) fn cache(&self) -> Vec<Argument<'_>> {
        let mut all = vec![Argument::new(&self.q), Argument::new(&self.keys), Argument::new(&self.values)];
        all.extend(self.scales.iter().flatten().map(Argument::new));
        all
    }

    /// The numbers from `rows` on.
    pub(crate) fn numbers(&self) -> [Argument<'_>; 10] {
        [
            Argument::new(&self.rows),
            Argument::new(&self.n_heads),
            Argument::new(&self.group),
            Argument::new(&self.capacity),
            Argument::new(&self.first),
            Argument::new(&self.kv_len),
            Argument::new(&self.causal),
            Argument::new(&self.window),
            Argument::new(&self.scale),
            Argument::new(&self.cap),
        ]
    }
}

impl AttentionParams {
    /// Query heads that share a key/value head.
    #[must_use]
    pub const fn group(&self) -> usize {
        self.n_heads / self.n_kv_heads
    }

    /// Numbers of a row of queries.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.n_heads * self.head_dim
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let Self { n_heads, n_kv_heads, head_dim, .. } = *self;
        attention_head_dim(head_dim)?;
        if n_heads == 0 || n_kv_heads == 0 || !n_heads.is_multiple_of(n_kv_heads) {
            return Err(Error::HeadGroups { n_heads, n_kv_heads });
        }
        // The extent of a grid in y.
        at_most("query heads", 65_535, n_heads)?;
        let wrong = |what, expected, got: f32| Error::Parameter { what, expected, got: got.to_string() };
        if !self.scale.is_finite() {
            return Err(wrong("scale", "a finite number", self.scale));
        }
        match self.soft_cap {
            Some(cap) if !(cap.is_normal() && cap > 0.0) => {
                return Err(wrong("soft-cap", "a positive normal number", cap));
            }
            _ => {}
        }
        match self.window {
            Some(0) => Err(Error::Parameter { what: "window", expected: "1 or more", got: "0".into() }),
            _ => Ok(()),
        }
    }

    /// The factor of the scores, and the cap, both for exponents of 2.
    pub(crate) fn in_base_2(&self) -> (f32, f32) {
        let scale = f64::from(self.scale) * LOG2_E;
        match self.soft_cap {
            None => (scale as f32, 0.0),
            Some(cap) => ((2.0 * scale / f64::from(cap)) as f32, (f64::from(cap) * LOG2_E) as f32),
        }
    }
}

impl Problem<'_> {
    /// The arguments, if everything fits together.
    pub(crate) fn arguments(&self, kernels: &Kernels) -> Result<Arguments, Error> {
        let Self { params, cache, kv_len, first, rows, q, .. } = self;
        params.check()?;
        let layout = cache.layout();
        same("the cache's key/value heads", params.n_kv_heads, layout.n_kv_heads())?;
        same("the cache's head_dim", params.head_dim, layout.head_dim())?;
        at_most("positions in use of a cache", layout.capacity(), *kv_len)?;
        const MOST: usize = i32::MAX as usize;
        at_most("rows times query heads of attention", MOST, rows.saturating_mul(params.n_heads))?;
        at_most("the last position of attention", MOST, first.saturating_add(*rows))?;
        length("queries", rows * params.width(), q.len())?;
        let context = kernels.context();
        place("queries", context, q.context(), q.pointer(), 16)?;
        let sinks = match &self.sinks {
            None => DevicePointer(0),
            Some(sinks) => {
                length("sinks", params.n_heads, sinks.len())?;
                place("sinks", context, sinks.context(), sinks.pointer(), 4)?;
                sinks.pointer()
            }
        };
        let (keys, values, scales) = match cache.storage() {
            KvStorage::Bf16 { keys, values } => {
                place("keys", context, keys.context(), keys.pointer(), 16)?;
                place("values", context, values.context(), values.pointer(), 16)?;
                (keys.pointer(), values.pointer(), None)
            }
            KvStorage::Fp8 { keys, values, key_scales, value_scales } => {
                place("keys", context, keys.context(), keys.pointer(), 16)?;
                place("values", context, values.context(), values.pointer(), 16)?;
                place("scales of keys", context, key_scales.context(), key_scales.pointer(), 16)?;
                place("scales of values", context, value_scales.context(), value_scales.pointer(), 16)?;
                (keys.pointer(), values.pointer(), Some([key_scales.pointer(), value_scales.pointer()]))
            }
        };
        let (scale, cap) = params.in_base_2();
        Ok(Arguments {
            q: q.pointer(),
            keys,
            values,
            scales,
            sinks,
            rows: *rows as u32,
            n_heads: params.n_heads as u32,
            group: params.group() as u32,
            capacity: layout.capacity() as u32,
            first: *first as u32,
            kv_len: *kv_len as u32,
            causal: params.causal.into(),
            window: params.window.map_or(0, |window| window.min(MOST as u32)),
            scale,
            cap,
        })
    }

    /// The positions that row `row` sees; empty if `start >= end`. Both ends never decrease with the row.
    pub(crate) fn seen(&self, row: usize) -> std::ops::Range<usize> {
        let own = self.first + row + 1;
        let (low, high) = match (self.params.window, self.params.causal) {
            (None, true) => (0, own),
            (None, false) => (0, self.kv_len),
            (Some(window), true) => (own.saturating_sub(window as usize), own),
            (Some(window), false) => {
                (own.saturating_sub(window as usize), own.saturating_add(window as usize) - 1)
            }
        };
        low..high.min(self.kv_len)
    }

    /// Two products of the pairs of a row and a position that it sees; queries, outputs and what is seen once.
    pub(crate) fn work(&self) -> (String, Work) {
        let AttentionParams { n_heads, n_kv_heads, head_dim, .. } = self.params;
        let pairs: usize = (0..self.rows).map(|row| self.seen(row).len()).sum();
        let (from, to) = match self.rows {
            0 => (0, 0),
            rows => (self.seen(0).start, self.seen(rows - 1).end),
        };
        let row_bytes = match self.cache.storage() {
            KvStorage::Bf16 { .. } => head_dim * 2,
            KvStorage::Fp8 { .. } => head_dim + 4,
        };
        let operations = 4 * pairs * n_heads * head_dim;
        let bytes = 4 * self.rows * n_heads * head_dim + 2 * to.saturating_sub(from) * n_kv_heads * row_bytes;
        let shape = format!("{}x{}h{}/{}d{}", self.rows, to, n_heads, n_kv_heads, head_dim);
        (shape, Work { operations: operations as u64, bytes: bytes as u64 })
    }
}
