//! Tokens through all layers, those of one context or of several together.

use super::profile::Phase;
use super::ranks::{Shares, To};
use super::session::ActivationType;
use super::step::{Buffers, Step, embed, matrix_work};
use super::{Error, Model};
use halfbyte_attention::{AttentionParams, KvCache};
use halfbyte_cpu_kernels::{Context, RopeTable};
use std::ops::Range;

/// Tokens that follow those of one context.
#[derive(Debug)]
pub(super) struct Run<'a> {
    /// Of every layer, all of one length.
    pub(super) caches: &'a mut [KvCache],
    pub(super) rope: &'a mut RopeTable,
    pub(super) ids: &'a [u32],
}

/// What computes, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forward<'m> {
    pub(super) model: &'m Model<'m>,
    pub(super) ctx: Context<'m>,
    pub(super) activations: ActivationType,
    pub(super) params: AttentionParams,
    /// Where `model` is one rank's part, the way to the others.
    pub(super) shares: Option<Shares<'m>>,
}

impl Forward<'_> {
    /// Whether contexts that compute by these two can be fed together.
    pub(super) fn is_with(&self, other: &Self) -> bool {
        std::ptr::eq(self.model, other.model)
            && std::ptr::eq(self.ctx.pool, other.ctx.pool)
            && self.ctx.isa == other.ctx.isa
            && self.activations == other.activations
    }

    /// Takes the tokens of all `runs` through all layers, each weight being read once; the residual stream of
    /// each token stays in `b.x`, run after run.
    pub(super) fn layers(self, runs: &mut [Run<'_>], b: &mut Buffers) -> Result<(), Error> {
        let Self { model: Model { config, weights, .. }, ctx, activations, params, shares } = self;
        let rows = runs.iter().map(|run| run.ids.len()).sum();
        b.profiler.restart();
        b.x.resize(rows * config.width, 0.0);
        let mut x = b.x.as_mut_slice();
        for run in &mut *runs {
            let first = run.caches.first().map_or(0, KvCache::len);
            run.rope.extend_to(first + run.ids.len());
            let (own, others) = x.split_at_mut(run.ids.len() * config.width);
            embed(ctx, &weights.embedding.matrix(), run.ids, own)?;
            x = others;
        }
        b.profiler.plain(Phase::Embedding);
        let step = Step { ctx, config, activations, params, rows, shares };
        for (l, layer) in weights.layers.iter().enumerate() {
            step.project(layer, b)?;
            let mut row = 0;
            for run in &mut *runs {
                let end = row + run.ids.len();
                step.attend(run.rope, &mut run.caches[l], row..end, b)?;
                row = end;
            }
            step.add_attended(layer, b)?;
            step.hidden(layer, b)?;
            step.add_hidden(layer, b)?;
        }
        Ok(())
    }

    /// The logits of the residual streams `rows` of `b.x`, into `b.logits`; of ranks, into rank 0's.
    pub(super) fn logits(self, rows: Range<usize>, b: &mut Buffers) -> Result<(), Error> {
        let Self { model: Model { config, weights, .. }, ctx, activations, params, shares } = self;
        b.profiler.restart();
        let x = &b.x[rows.start * config.width..rows.end * config.width];
        let output = weights.output.matrix();
        let step = Step { ctx, config, activations, params, rows: rows.len(), shares };
        let input = step.normed(&weights.norm, x, &mut b.h, &mut b.int8, [output])?;
        b.profiler.plain(Phase::Norms);
        input.times(&output, &mut b.logits)?;
        if let Some(shares) = shares {
            shares.gather(To::First, &shares.split.logits, &mut b.logits, &mut b.received)?;
        }
        b.profiler.lap(Phase::Logits, || matrix_work(&[output], rows.len()));
        Ok(())
    }
}
