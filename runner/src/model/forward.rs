//! The forward pass of tokens through all layers, for one session or for several together.

use std::ops::Range;
use std::sync::Arc;

use halfbyte_cpu_kernels::RopeTable;

use super::profile::Phase;
use super::ranks::{RankLink, Shares, To};
use super::session::ActivationType;
use super::state::State;
use super::step::{Buffers, Step, embed, matrix_work};
use super::{Compute, Error, Transformer};

/// Tokens that follow those of one session.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) state: &'a mut State,
    pub(super) ropes: &'a mut [RopeTable],
    pub(super) ids: &'a [u32],
}

/// A model with the threads, the instruction set and the activations that compute it.
#[derive(Clone, Debug)]
pub(super) struct Forward {
    pub(super) model: Transformer,
    pub(super) compute: Compute,
    pub(super) activations: ActivationType,
    /// Where `model` is one rank's part, the connection to the others.
    pub(super) link: Option<Arc<RankLink>>,
}

impl Forward {
    /// Whether sessions that compute by these two can be fed together.
    pub(super) fn is_with(&self, other: &Self) -> bool {
        self.model.is_same(&other.model)
            && self.compute.is_same(&other.compute)
            && self.activations == other.activations
    }

    fn step(&self, rows: usize) -> Step<'_> {
        Step {
            ctx: self.compute.context(),
            weights: self.model.weights(),
            activations: self.activations,
            scales: self.model.description().scales,
            rows,
            shares: self.link.as_deref().map(Shares::new),
        }
    }

    /// Takes the tokens of all `runs` through all layers, each weight being read once; the residual stream of
    /// each token stays in `b.x`, run after run.
    pub(super) fn layers(&self, runs: &mut [Run<'_>], b: &mut Buffers) -> Result<(), Error> {
        let description = self.model.description();
        let width = description.width;
        let rows = runs.iter().map(|run| run.ids.len()).sum();
        let step = self.step(rows);
        // Working memory for several sessions does not know their activations until they come.
        b.prepare(self.activations);
        b.profiler.restart();
        b.x.resize(rows * width, 0.0);
        let mut x = b.x.as_mut_slice();
        let embedding = self.model.matrix(description.embedding);
        for run in &mut *runs {
            let end = run.state.len() + run.ids.len();
            run.ropes.iter_mut().for_each(|table| table.extend_to(end));
            let (own, others) = x.split_at_mut(run.ids.len() * width);
            embed(step.ctx, &embedding, description.scales.embedding, run.ids, own)?;
            x = others;
        }
        b.profiler.plain(Phase::Embedding);
        let layers = description.layers.iter().zip(self.model.attention());
        for (l, (layer, &params)) in layers.enumerate() {
            step.project(layer, b)?;
            let mut row = 0;
            for run in &mut *runs {
                let end = row + run.ids.len();
                step.mix(layer, params, run.ropes, &mut run.state.layers[l], row..end, b)?;
                row = end;
            }
            step.add_mixed(layer, b)?;
            step.hidden(layer, b)?;
            step.add_hidden(layer, b)?;
        }
        Ok(())
    }

    /// The logits of the residual streams `rows` of `b.x`, into `b.logits`; of ranks, into rank 0's.
    pub(super) fn logits(&self, rows: Range<usize>, b: &mut Buffers) -> Result<(), Error> {
        let description = self.model.description();
        let width = description.width;
        b.profiler.restart();
        let n = rows.len();
        let step = self.step(n);
        let x = &b.x[rows.start * width..rows.end * width];
        let output = [&mut b.h, &mut b.logits];
        step.logits(description, x, output, &mut b.integers, &mut b.profiler)?;
        if let Some(shares) = step.shares {
            shares.gather(To::First, &shares.split.logits, &mut b.logits, &mut b.scratch)?;
        }
        b.profiler.lap(Phase::Logits, || matrix_work(&[self.model.matrix(description.output)], n));
        Ok(())
    }
}
