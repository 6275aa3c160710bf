//! The forward pass of some rows through a mixture of experts.
//!
//! Rows are sorted by the expert that they go through, so that each expert's weights are read once for all rows. What a row
//! takes of its experts is added in the order of their numbers: its bits do not depend on the rows beside it.

use std::ops::Range;

use halfbyte_cpu_kernels::{
    Chosen, Context, Isa, Matrix, Weights, add_chosen, gemm_f32, rms_norm, sigmoid_gate, softmax,
};
use halfbyte_q8::Activations;

use super::Error;
use super::description::{Dense, Experts, Gating, Linear, Norm, SharedExpert};
use super::profile::Phase;
use super::ranks::To;
use super::step::{Buffers, Input, Step, matrix_work};

/// What is added to the sum of the chosen sigmoids before they are divided by it, as in transformers' `Lfm2MoeSparseMoeBlock`.
const ADDED_TO_SUM: f32 = 1e-6;

/// Which experts the rows of a chunk go through, and what the shared expert gives.
#[derive(Debug, Default)]
pub(super) struct Routing {
    logits: Vec<f32>,
    /// The sigmoids of the logits, where shares are made of them.
    sigmoids: Vec<f32>,
    /// What each row takes, `chosen` of each layer's experts: rows of the experts' outputs.
    chosen: Vec<Chosen>,
    /// Rows of the residual stream, expert after expert.
    rows: Vec<usize>,
    /// The experts that have rows, and which part of `rows` each has.
    groups: Vec<(usize, Range<usize>)>,
    /// The numbers of all rows of `rows`: what the experts' last matrices read.
    own: Vec<usize>,
    /// The experts' outputs.
    outputs: Vec<f32>,
    /// The shared expert's hidden layer, and what it adds.
    has_shared: bool,
    shared_hidden: Vec<f32>,
    shared_integers: Activations,
    shared: Vec<f32>,
    shares: Vec<f32>,
}

impl Routing {
    /// Routing whose activations have the precision of `integers`.
    pub(super) fn like(integers: &Activations) -> Self {
        let shared_integers = Activations::with_precision(integers.precision());
        Self { shared_integers, ..Self::default() }
    }

    /// The experts that have rows, with the rows of the residual stream that each has, and their place among all rows of
    /// experts.
    pub(super) fn groups(&self) -> impl Iterator<Item = (usize, &[usize], Range<usize>)> {
        self.groups.iter().map(|(expert, range)| (*expert, &self.rows[range.clone()], range.clone()))
    }

    /// Rows of all experts together.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The shared expert's hidden layer, if the layer has such an expert.
    pub(super) fn shared_hidden(&self) -> Option<&[f32]> {
        self.has_shared.then_some(&self.shared_hidden)
    }

    /// The logits' sigmoids, and scores in the place of the logits: the sigmoids with `bias` added.
    fn squash(&mut self, ctx: Context<'_>, bias: Option<&[f32]>) -> Result<(), Error> {
        self.sigmoids.clear();
        self.sigmoids.resize(self.logits.len(), 1.0);
        sigmoid_gate(ctx, &mut self.sigmoids, &self.logits)?;
        self.logits.clone_from(&self.sigmoids);
        if let Some(bias) = bias {
            for scores in self.logits.chunks_exact_mut(bias.len()) {
                scores.iter_mut().zip(bias).for_each(|(score, bias)| *score += bias);
            }
        }
        Ok(())
    }

    /// Chooses `k` of `n` experts for each row of logits, or of scores in their place.
    fn choose(&mut self, isa: Isa, n: usize, k: usize, gating: Gating) {
        self.chosen.clear();
        self.rows.clear();
        self.groups.clear();
        let mut counts = vec![0; n];
        let mut best: Vec<usize> = Vec::with_capacity(n);
        let mut experts = Vec::with_capacity(self.logits.len() / n * k);
        let mut weights = Vec::with_capacity(n);
        for (row, logits) in self.logits.chunks_exact(n).enumerate() {
            best.clear();
            best.extend(0..n);
            // A total order, so that there is one answer.
            let order = |a: &usize, b: &usize| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b));
            if k < n {
                best.select_nth_unstable_by(k, order);
                best.truncate(k);
            }
            best.sort_unstable();
            weights.clear();
            match gating {
                Gating::Softmax => {
                    weights.extend_from_slice(logits);
                    softmax(isa, &mut weights);
                    // The chosen ones move to the front. Their numbers grow, so that none is overwritten before it is read.
                    for (i, &e) in best.iter().enumerate() {
                        weights[i] = weights[e];
                    }
                }
                Gating::SoftmaxOfChosen => {
                    weights.extend(best.iter().map(|&e| logits[e]));
                    softmax(isa, &mut weights);
                }
                Gating::Sigmoid { normalised, .. } => {
                    weights.extend(best.iter().map(|&e| self.sigmoids[row * n + e]));
                    if normalised {
                        let sum = weights.iter().sum::<f32>() + ADDED_TO_SUM;
                        weights.iter_mut().for_each(|weight| *weight /= sum);
                    }
                }
            }
            for (&weight, &e) in weights.iter().zip(&best) {
                self.chosen.push(Chosen { row: counts[e], weight });
                counts[e] += 1;
            }
            experts.extend_from_slice(&best);
        }
        let mut start = 0;
        let mut starts = vec![0; n];
        for (e, &count) in counts.iter().enumerate() {
            starts[e] = start;
            if count > 0 {
                self.groups.push((e, start..start + count));
            }
            start += count;
        }
        self.rows.resize(start, 0);
        for (i, (chosen, e)) in self.chosen.iter_mut().zip(experts).enumerate() {
            chosen.row += starts[e];
            self.rows[chosen.row] = i / k;
        }
        self.own.clear();
        self.own.extend(0..start);
    }

    /// The part `linear` of each expert that has rows, with the rows that it reads, out of `rows`.
    fn products<'a>(
        &'a self,
        step: Step<'a>,
        experts: &[Dense],
        rows: &'a [usize],
        linear: impl Fn(&Dense) -> Linear,
    ) -> Vec<(Matrix<'a>, &'a [usize])> {
        let product =
            |(e, range): &(usize, Range<usize>)| (step.matrix(linear(&experts[*e])), &rows[range.clone()]);
        self.groups.iter().map(product).collect()
    }

    /// Adds each expert's bias to its rows of `y`.
    fn add_biases(
        &self,
        step: Step<'_>,
        experts: &[Dense],
        y: &mut [f32],
        linear: impl Fn(&Dense) -> Linear,
    ) {
        let width = y.len() / self.rows.len();
        for (e, range) in &self.groups {
            step.add_bias(linear(&experts[*e]), &mut y[range.start * width..range.end * width]);
        }
    }
}

impl Step<'_> {
    /// The hidden layers of the experts that rows go through, an expert's rows after the other's: `b.hidden`, or
    /// `b.integers` where their last matrices take that. The shared expert's output stays in `b.routing`.
    pub(super) fn hidden_of_experts(
        self,
        norm: Option<Norm>,
        e: &Experts,
        b: &mut Buffers,
    ) -> Result<(), Error> {
        let (ctx, rows) = (self.ctx, self.rows);
        if let Some(Norm { weight, eps }) = norm {
            b.h.resize(b.x.len(), 0.0);
            rms_norm(ctx, &b.x, self.weights.vector(weight), eps, &mut b.h)?;
        } else {
            b.h.clone_from(&b.x);
        }
        b.profiler.plain(Phase::Norms);
        // Which experts are chosen is decided without rounding activations.
        let router = self.matrix(e.router);
        b.routing.logits.resize(rows * e.experts.len(), 0.0);
        gemm_f32(ctx, &router, &b.h, rows, &mut b.routing.logits)?;
        self.add_bias(e.router, &mut b.routing.logits);
        b.routing.has_shared = e.shared.is_some();
        if let Gating::Sigmoid { bias, .. } = e.gating {
            b.routing.squash(ctx, bias.map(|bias| self.weights.vector(bias)))?;
        }
        b.routing.choose(ctx.isa, e.experts.len(), e.chosen, e.gating);
        let dense = e.shared.as_ref().map_or(&e.experts[0], |shared| &shared.dense);
        let consumers = [&e.experts[0], dense].map(|dense| [self.matrix(dense.gate), self.matrix(dense.up)]);
        let [[gate, up], [shared_gate, shared_up]] = consumers;
        let consumers = [gate, up, shared_gate, shared_up];
        let input = Input::new(ctx, self.activations, &b.h, rows, &mut b.integers, consumers)?;
        if e.shared.is_some() {
            input.times_each([(shared_gate, &mut b.gate), (shared_up, &mut b.up)])?;
            self.add_bias(dense.gate, &mut b.gate);
            self.add_bias(dense.up, &mut b.up);
            // The experts' own input is still needed: this hidden layer has integers of its own.
            let integers = &mut b.routing.shared_integers;
            let hidden = &mut b.routing.shared_hidden;
            self.activate(dense, rows, [&b.gate, &b.up], hidden, integers)?;
            let down = self.matrix(dense.down);
            if let Some(shares) = self.shares {
                shares.gather(To::All, shares.inputs(dense.down.matrix), hidden, &mut b.scratch)?;
            }
            let hidden = self.hidden_input(dense, rows, hidden, integers)?;
            hidden.times(&down, &mut b.routing.shared)?;
            self.add_bias(dense.down, &mut b.routing.shared);
        }
        for (linear, y) in [(gate_of as fn(&Dense) -> Linear, &mut b.gate), (up_of, &mut b.up)] {
            let products = b.routing.products(self, &e.experts, &b.routing.rows, linear);
            input.times_groups(&products, y)?;
            b.routing.add_biases(self, &e.experts, y, linear);
        }
        b.profiler.lap(Phase::GateUp, || self.work_of_experts(e, &b.routing, [gate_of, up_of]));
        self.activate(&e.experts[0], b.routing.rows.len(), [&b.gate, &b.up], &mut b.hidden, &mut b.integers)?;
        b.profiler.plain(Phase::Activation);
        Ok(())
    }

    /// What the chosen experts add to the residual stream, from [`Self::hidden_of_experts`], into `b.h`, and the shared
    /// expert's part.
    pub(super) fn outputs_of_experts(self, e: &Experts, b: &mut Buffers) -> Result<(), Error> {
        let first = &e.experts[0];
        if let Some(shares) = self.shares {
            shares.gather(To::All, shares.inputs(first.down.matrix), &mut b.hidden, &mut b.scratch)?;
        }
        let n = b.routing.rows.len();
        let input = self.hidden_input(first, n, &b.hidden, &mut b.integers)?;
        let mut outputs = std::mem::take(&mut b.routing.outputs);
        let products = b.routing.products(self, &e.experts, &b.routing.own, |dense| dense.down);
        input.times_groups(&products, &mut outputs)?;
        b.routing.add_biases(self, &e.experts, &mut outputs, |dense| dense.down);
        let width = outputs.len() / n;
        match &e.shared {
            Some(shared) => self.scale_shared(shared, b)?,
            None => {
                b.h.clear();
                b.h.resize(self.rows * width, 0.0);
            }
        }
        add_chosen(self.ctx, &b.routing.chosen, e.chosen, &outputs, width, &mut b.h)?;
        b.routing.outputs = outputs;
        b.profiler.lap(Phase::Down, || self.work_of_experts(e, &b.routing, [|dense: &Dense| dense.down]));
        Ok(())
    }

    /// The shared expert's output into `b.h`, which is the input of the experts until then, times the sigmoid of its gate.
    fn scale_shared(self, shared: &SharedExpert, b: &mut Buffers) -> Result<(), Error> {
        let Some(gate) = shared.gate else {
            std::mem::swap(&mut b.h, &mut b.routing.shared);
            return Ok(());
        };
        let gate = self.weights.vector(gate);
        let shares = &mut b.routing.shares;
        shares.resize(self.rows, 0.0);
        gemm_f32(self.ctx, &Matrix::new(Weights::F32(gate), 1, gate.len())?, &b.h, self.rows, shares)?;
        let chosen = shares.iter().enumerate().map(|(row, &logit)| {
            // The softmax of the logit and 0 begins with the logit's sigmoid.
            let mut both = [logit, 0.0];
            softmax(self.ctx.isa, &mut both);
            Chosen { row, weight: both[0] }
        });
        let chosen: Vec<_> = chosen.collect();
        let width = b.routing.shared.len() / self.rows;
        b.h.clear();
        b.h.resize(b.routing.shared.len(), 0.0);
        Ok(add_chosen(self.ctx, &chosen, 1, &b.routing.shared, width, &mut b.h)?)
    }

    /// Bytes read and operations done by some matrices of all experts that have rows.
    fn work_of_experts<const N: usize>(
        self,
        e: &Experts,
        routing: &Routing,
        parts: [fn(&Dense) -> Linear; N],
    ) -> (usize, usize) {
        let work = routing.groups.iter().flat_map(|(expert, rows)| {
            let dense = &e.experts[*expert];
            parts.map(|part| matrix_work(&[self.matrix(part(dense))], rows.len()))
        });
        work.fold((0, 0), |(bytes, operations), (b, o)| (bytes + b, operations + o))
    }
}

fn gate_of(dense: &Dense) -> Linear {
    dense.gate
}

fn up_of(dense: &Dense) -> Linear {
    dense.up
}
