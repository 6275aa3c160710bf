//! The forward pass of some rows through one layer, a half layer at a time.

use std::ops::Range;

use halfbyte_attention::{AttentionParams, KvCache, attention, attention_with_sinks};
use halfbyte_cpu_kernels::{
    Context, Matrix, RopeTable, add_assign, gated, gated_quantize, gemm_f32_each, gemm_f32_grouped,
    gemm_int8_each, gemm_int8_grouped, quantize_activations, rms_norm, rms_norm_quantize, rope, scale,
    sigmoid_gate, soft_cap, split_gated,
};
use halfbyte_q8::Activations;

use super::Error;
use super::description::{
    Attention, Dense, Description, FeedForward, Layer, Linear, Mixer, Norm, Scales, Temperature, VectorId,
};
use super::experts::Routing;
use super::profile::{Phase, Profiler};
use super::ranks::{Shares, To};
use super::session::ActivationType;
use super::state::LayerState;
use super::weights::ModelWeights;

/// The embedding rows of `ids`, which are in the vocabulary, times `factor`, into `x`.
pub(super) fn embed(
    ctx: Context<'_>,
    embedding: &Matrix<'_>,
    factor: f32,
    ids: &[u32],
    x: &mut [f32],
) -> Result<(), Error> {
    for (&id, row) in ids.iter().zip(x.chunks_exact_mut(embedding.cols())) {
        embedding.decode_row(ctx.isa, id as usize, row)?;
    }
    multiply(ctx, x, factor);
    Ok(())
}

/// `x *= factor`, unless that changes nothing.
fn multiply(ctx: Context<'_>, x: &mut [f32], factor: f32) {
    if factor != 1.0 {
        scale(ctx, x, factor);
    }
}

/// Working memory for one chunk of rows, kept from step to step.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// The residual stream.
    pub(super) x: Vec<f32>,
    /// A norm's output, and what a layer adds to the residual stream.
    pub(super) h: Vec<f32>,
    pub(super) q: Vec<f32>,
    pub(super) k: Vec<f32>,
    pub(super) v: Vec<f32>,
    pub(super) attended: Vec<f32>,
    pub(super) gate: Vec<f32>,
    pub(super) up: Vec<f32>,
    pub(super) hidden: Vec<f32>,
    pub(super) logits: Vec<f32>,
    /// What other ranks have sent, and the output of norms that cannot be computed in place.
    pub(super) scratch: Vec<f32>,
    /// What recurrent layers convolve, and what they make of it; queries with their gates.
    pub(super) mixed: Vec<f32>,
    pub(super) convolved: Vec<f32>,
    /// The gates of recurrent layers, one a row and head.
    pub(super) beta: Vec<f32>,
    pub(super) decay: Vec<f32>,
    pub(super) integers: Activations,
    pub(super) routing: Routing,
    pub(super) profiler: Profiler,
}

impl Buffers {
    /// Empty buffers for these activations.
    pub(super) fn new(activations: ActivationType) -> Self {
        let precision = activations.precision().unwrap_or_default();
        let integers = Activations::with_precision(precision);
        Self { routing: Routing::like(&integers), integers, ..Self::default() }
    }

    /// Makes the buffers ready for these activations, if they were for others.
    pub(super) fn prepare(&mut self, activations: ActivationType) {
        if activations.precision().is_some_and(|precision| precision != self.integers.precision()) {
            let profiler = std::mem::take(&mut self.profiler);
            *self = Self { profiler, ..Self::new(activations) };
        }
    }
}

/// Bytes read and operations done when `rows` rows are multiplied by matrices.
pub(super) fn matrix_work(matrices: &[Matrix<'_>], rows: usize) -> (usize, usize) {
    let weights: usize = matrices.iter().map(|m| m.rows() * m.cols()).sum();
    (matrices.iter().map(Matrix::bytes).sum(), 2 * rows * weights)
}

/// What all layers of one forward pass share.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) ctx: Context<'a>,
    pub(super) weights: &'a ModelWeights,
    pub(super) activations: ActivationType,
    pub(super) scales: Scales,
    /// Tokens taken together.
    pub(super) rows: usize,
    /// Where this process has a part of each matrix, the connection to the others.
    pub(super) shares: Option<Shares<'a>>,
}

impl<'a> Step<'a> {
    pub(super) fn matrix(self, linear: Linear) -> Matrix<'a> {
        self.weights.matrix(linear.matrix)
    }

    /// What the mixer of `layer` makes of the residual stream before it looks at other positions. Of attention: queries,
    /// keys and values without positions, in `b.q`, `b.k` and `b.v`, and gates in `b.gate`.
    pub(super) fn project(self, layer: &Layer, b: &mut Buffers) -> Result<(), Error> {
        let a = match &layer.mixer {
            Mixer::Attention(a) => a,
            Mixer::GatedDelta(d) => return self.project_delta(layer, d, b),
            Mixer::ShortConvolution(c) => return self.project_convolution(layer, c, b),
        };
        let consumers = [a.q, a.k, a.v].map(|linear| self.matrix(linear));
        let input = self.normed(layer.mixer_norm, &b.x, &mut b.h, &mut b.integers, consumers)?;
        b.profiler.plain(Phase::Norms);
        let [q, k, v] = consumers;
        let queries = if a.gated { &mut b.mixed } else { &mut b.q };
        input.times_each([(q, &mut *queries), (k, &mut b.k), (v, &mut b.v)])?;
        for (linear, y) in [(a.q, queries), (a.k, &mut b.k), (a.v, &mut b.v)] {
            self.add_bias(linear, y);
        }
        if a.gated {
            b.q.resize(b.mixed.len() / 2, 0.0);
            b.gate.resize(b.mixed.len() / 2, 0.0);
            split_gated(self.ctx, &b.mixed, a.head_dim, &mut b.q, &mut b.gate)?;
        }
        b.profiler.lap(Phase::Qkv, || matrix_work(&consumers, self.rows));
        if let Some([q_norm, k_norm]) = a.head_norms {
            for (y, norm) in [(&mut b.q, q_norm), (&mut b.k, k_norm)] {
                self.norm_in_place(norm, y, &mut b.scratch)?;
            }
            b.profiler.plain(Phase::Norms);
        }
        b.attended.resize(b.q.len(), 0.0);
        Ok(())
    }

    /// What a session's state of the layer gives to `rows`, which follow its tokens and are added to it first. Of
    /// every mixer: those rows of `b.attended`.
    pub(super) fn mix(
        self,
        layer: &Layer,
        params: Option<AttentionParams>,
        ropes: &[RopeTable],
        state: &mut LayerState,
        rows: Range<usize>,
        b: &mut Buffers,
    ) -> Result<(), Error> {
        match (&layer.mixer, params, state) {
            (Mixer::Attention(a), Some(params), LayerState::Attention(cache)) => {
                self.attend(a, params, ropes, cache, rows, b)
            }
            (Mixer::GatedDelta(d), _, LayerState::Recurrent(state)) => self.recur(d, state, rows, b),
            (Mixer::ShortConvolution(c), _, LayerState::Recurrent(state)) => self.convolve(c, state, rows, b),
            _ => Err(Error::OtherState),
        }
    }

    fn attend(
        self,
        a: &Attention,
        params: AttentionParams,
        ropes: &[RopeTable],
        cache: &mut KvCache,
        rows: Range<usize>,
        b: &mut Buffers,
    ) -> Result<(), Error> {
        let ctx = self.ctx;
        let of = |width: usize| rows.start * width..rows.end * width;
        let (q, k, v) = (&mut b.q[of(a.q_width())], &mut b.k[of(a.kv_width())], &b.v[of(a.kv_width())]);
        let first = cache.len();
        if let Some(id) = a.rope {
            rope(ctx, q, a.n_heads, a.head_dim, &ropes[id.0], first)?;
            rope(ctx, k, a.n_kv_heads, a.head_dim, &ropes[id.0], first)?;
        }
        if let Some(temperature) = a.temperature {
            warm(temperature, q, a.q_width(), first);
        }
        b.profiler.plain(Phase::Rope);
        cache.append(ctx.isa, k, v, rows.len())?;
        b.profiler.plain(Phase::KvWrite);
        let attended = &mut b.attended[of(a.q_width())];
        match a.sinks {
            Some(sinks) => {
                attention_with_sinks(ctx, params, self.weights.vector(sinks), q, cache, first, attended)?;
            }
            None => attention(ctx, params, q, cache, first, attended)?,
        }
        if a.gated {
            sigmoid_gate(ctx, attended, &b.gate[of(a.q_width())])?;
        }
        b.profiler.lap(Phase::Attention, || attention_work(params, a.q_width(), cache, first, rows.len()));
        Ok(())
    }

    /// Adds what [`Self::mix`] found to the residual stream, through the mixer's output matrix.
    pub(super) fn add_mixed(self, layer: &Layer, b: &mut Buffers) -> Result<(), Error> {
        let linear = layer.mixer.output();
        let output = self.matrix(linear);
        if let Some(shares) = self.shares {
            shares.gather(To::All, shares.inputs(linear.matrix), &mut b.attended, &mut b.scratch)?;
        }
        let input =
            Input::new(self.ctx, self.activations, &b.attended, self.rows, &mut b.integers, [output])?;
        input.times(&output, &mut b.h)?;
        self.add(Some(linear), layer.after_mixer, b)?;
        b.profiler.lap(Phase::Output, || matrix_work(&[output], self.rows));
        Ok(())
    }

    /// Adds `b.h`, the outputs of `linear` without its bias if it is given, to the residual stream, after `norm` if there is
    /// one.
    fn add(self, linear: Option<Linear>, norm: Option<Norm>, b: &mut Buffers) -> Result<(), Error> {
        if let Some(linear) = linear {
            self.add_bias(linear, &mut b.h);
        }
        if let Some(shares) = self.shares {
            shares.gather(To::All, &shares.split.width, &mut b.h, &mut b.scratch)?;
        }
        if let Some(norm) = norm {
            self.norm_in_place(norm, &mut b.h, &mut b.scratch)?;
        }
        multiply(self.ctx, &mut b.h, self.scales.residual);
        Ok(add_assign(self.ctx, &mut b.x, &b.h)?)
    }

    /// The hidden layer of the feed-forward network, from the residual stream: `b.hidden`, or `b.integers` where down takes
    /// that.
    pub(super) fn hidden(self, layer: &Layer, b: &mut Buffers) -> Result<(), Error> {
        let d = match &layer.feed_forward {
            FeedForward::Dense(d) => d,
            FeedForward::Experts(e) => return self.hidden_of_experts(layer.feed_forward_norm, e, b),
        };
        let (gate, up) = (self.matrix(d.gate), self.matrix(d.up));
        let input = self.normed(layer.feed_forward_norm, &b.x, &mut b.h, &mut b.integers, [gate, up])?;
        b.profiler.plain(Phase::Norms);
        input.times_each([(gate, &mut b.gate), (up, &mut b.up)])?;
        self.add_bias(d.gate, &mut b.gate);
        self.add_bias(d.up, &mut b.up);
        b.profiler.lap(Phase::GateUp, || matrix_work(&[gate, up], self.rows));
        self.activate(d, self.rows, [&b.gate, &b.up], &mut b.hidden, &mut b.integers)?;
        b.profiler.plain(Phase::Activation);
        Ok(())
    }

    /// The activation of a network's `rows` rows of gate and up: into `hidden`, or into `integers` where down takes that.
    pub(super) fn activate(
        self,
        d: &Dense,
        rows: usize,
        [gate, up]: [&[f32]; 2],
        hidden: &mut Vec<f32>,
        integers: &mut Activations,
    ) -> Result<(), Error> {
        if self.hides_integers(d) {
            return Ok(gated_quantize(self.ctx, d.activation, gate, up, rows, integers)?);
        }
        hidden.resize(gate.len(), 0.0);
        Ok(gated(self.ctx, d.activation, gate, up, hidden)?)
    }

    /// What [`Self::activate`] made of `rows` rows, as the input of down.
    pub(super) fn hidden_input<'b>(
        self,
        d: &Dense,
        rows: usize,
        hidden: &'b [f32],
        integers: &'b mut Activations,
    ) -> Result<Input<'b>, Error>
    where
        Self: 'b,
    {
        if self.hides_integers(d) {
            return Ok(Input { ctx: self.ctx, x: &[], rows, integers: Some(integers) });
        }
        Input::new(self.ctx, self.activations, hidden, rows, integers, [self.matrix(d.down)])
    }

    /// Whether the hidden layer goes to `down` as integers and nothing else; what other ranks have to be sent is f32.
    fn hides_integers(self, d: &Dense) -> bool {
        self.shares.is_none() && self.takes_integers(&[self.matrix(d.down)])
    }

    /// Whether `matrices` take integer activations alone.
    fn takes_integers(self, matrices: &[Matrix<'_>]) -> bool {
        self.activations.precision().is_some() && matrices.iter().all(Matrix::supports_int8)
    }

    /// The norm of the residual stream `x`, or `x` itself where there is none, on its way into `consumers`; in `h` only if
    /// one of them takes f32.
    pub(super) fn normed<'b, const N: usize>(
        self,
        norm: Option<Norm>,
        x: &'b [f32],
        h: &'b mut Vec<f32>,
        integers: &'b mut Activations,
        consumers: [Matrix<'_>; N],
    ) -> Result<Input<'b>, Error>
    where
        Self: 'b,
    {
        let (ctx, rows) = (self.ctx, self.rows);
        let Some(Norm { weight, eps }) = norm else {
            return Input::new(ctx, self.activations, x, rows, integers, consumers);
        };
        let weight = self.weights.vector(weight);
        if self.takes_integers(&consumers) {
            rms_norm_quantize(ctx, x, weight, eps, integers)?;
            return Ok(Input { ctx, x: &[], rows, integers: Some(integers) });
        }
        h.resize(x.len(), 0.0);
        rms_norm(ctx, x, weight, eps, h)?;
        Input::new(ctx, self.activations, h, rows, integers, consumers)
    }

    /// Adds what [`Self::hidden`] found to the residual stream, through the layer's down matrix.
    pub(super) fn add_hidden(self, layer: &Layer, b: &mut Buffers) -> Result<(), Error> {
        let d = match &layer.feed_forward {
            FeedForward::Dense(d) => d,
            FeedForward::Experts(e) => {
                self.outputs_of_experts(e, b)?;
                return self.add(None, layer.after_feed_forward, b);
            }
        };
        let down = self.matrix(d.down);
        if let Some(shares) = self.shares {
            shares.gather(To::All, shares.inputs(d.down.matrix), &mut b.hidden, &mut b.scratch)?;
        }
        let input = self.hidden_input(d, self.rows, &b.hidden, &mut b.integers)?;
        input.times(&down, &mut b.h)?;
        self.add(Some(d.down), layer.after_feed_forward, b)?;
        b.profiler.lap(Phase::Down, || matrix_work(&[down], self.rows));
        Ok(())
    }

    /// The logits of the residual streams `x`: the last norm, the output matrix, the factor and the cap.
    pub(super) fn logits(
        self,
        description: &Description,
        x: &[f32],
        [h, logits]: [&mut Vec<f32>; 2],
        integers: &mut Activations,
        profiler: &mut Profiler,
    ) -> Result<(), Error> {
        let output = self.weights.matrix(description.output);
        let input = self.normed(Some(description.norm), x, h, integers, [output])?;
        profiler.plain(Phase::Norms);
        input.times(&output, logits)?;
        multiply(self.ctx, logits, self.scales.logits);
        if let Some(cap) = self.scales.logit_cap {
            soft_cap(self.ctx, logits, cap)?;
        }
        Ok(())
    }

    fn norm_in_place(
        self,
        Norm { weight, eps }: Norm,
        y: &mut Vec<f32>,
        scratch: &mut Vec<f32>,
    ) -> Result<(), Error> {
        scratch.resize(y.len(), 0.0);
        rms_norm(self.ctx, y, self.weights.vector(weight), eps, scratch)?;
        std::mem::swap(y, scratch);
        Ok(())
    }

    pub(super) fn add_bias(self, linear: Linear, y: &mut [f32]) {
        self.add_to_rows(linear.bias, y);
    }

    /// Adds `bias`, if there is one, to each row of `y`.
    pub(super) fn add_to_rows(self, bias: Option<VectorId>, y: &mut [f32]) {
        let Some(bias) = bias else { return };
        let bias = self.weights.vector(bias);
        for row in y.chunks_exact_mut(bias.len()) {
            for (y, b) in row.iter_mut().zip(bias) {
                *y += b;
            }
        }
    }
}

/// Multiplies rows of queries of `width` numbers, the first of which is at position `first`, by the factors of their
/// positions.
fn warm(temperature: Temperature, q: &mut [f32], width: usize, first: usize) {
    for (row, position) in q.chunks_exact_mut(width).zip(first..) {
        let factor = temperature.factor(position);
        if factor != 1.0 {
            row.iter_mut().for_each(|x| *x *= factor);
        }
    }
}

/// Bytes of keys and values that `rows` rows from position `first` on read, once for all of them, and the operations of
/// scores and sums.
fn attention_work(
    params: AttentionParams,
    q_width: usize,
    cache: &KvCache,
    first: usize,
    rows: usize,
) -> (usize, usize) {
    let seen = (0..rows).map(|row| params.visible(first + row, cache.len()).len());
    let keys = params.visible(first, cache.len()).start..cache.len();
    let bytes = 2 * keys.len() * cache.n_kv_heads() * cache.kv_type().row_bytes(cache.head_dim());
    (bytes, 4 * q_width * seen.sum::<usize>())
}

/// Some rows that matrices read: as f32 and, if any of the matrices takes them, as integers, quantized once.
pub(super) struct Input<'a> {
    ctx: Context<'a>,
    x: &'a [f32],
    rows: usize,
    integers: Option<&'a Activations>,
}

impl<'a> Input<'a> {
    pub(super) fn new<const N: usize>(
        ctx: Context<'a>,
        activations: ActivationType,
        x: &'a [f32],
        rows: usize,
        integers: &'a mut Activations,
        consumers: [Matrix<'_>; N],
    ) -> Result<Self, Error> {
        let wanted = activations.precision().is_some() && consumers.iter().any(Matrix::supports_int8);
        let integers = if wanted {
            quantize_activations(ctx, x, rows, x.len() / rows, integers)?;
            Some(&*integers)
        } else {
            None
        };
        Ok(Self { ctx, x, rows, integers })
    }

    /// `y = W x` for all rows; `y` takes the size.
    pub(super) fn times(&self, w: &Matrix<'_>, y: &mut Vec<f32>) -> Result<(), Error> {
        self.times_each([(*w, y)])
    }

    /// The same for groups of rows, each with a matrix of its own; matrices are alike in rows and columns.
    pub(super) fn times_groups(
        &self,
        groups: &[(Matrix<'_>, &[usize])],
        y: &mut Vec<f32>,
    ) -> Result<(), Error> {
        let outputs = groups.first().map_or(0, |(w, _)| w.rows());
        y.resize(groups.iter().map(|(_, rows)| rows.len()).sum::<usize>() * outputs, 0.0);
        match self.integers {
            Some(integers) if groups.iter().all(|(w, _)| w.supports_int8()) => {
                Ok(gemm_int8_grouped(self.ctx, groups, integers, y)?)
            }
            _ => Ok(gemm_f32_grouped(self.ctx, groups, self.x, self.rows, y)?),
        }
    }

    /// The same for several matrices, together where they take the same kind of input.
    pub(super) fn times_each<const N: usize>(
        &self,
        mut products: [(Matrix<'_>, &mut Vec<f32>); N],
    ) -> Result<(), Error> {
        for (w, y) in &mut products {
            y.resize(self.rows * w.rows(), 0.0);
        }
        let takes_integers = products.iter().filter(|(w, _)| w.supports_int8()).count();
        match self.integers {
            Some(_) if takes_integers > 0 && takes_integers < N => {
                products.into_iter().try_for_each(|(w, y)| self.times(&w, y))
            }
            Some(integers) if takes_integers == N => {
                let products = products.each_mut().map(|(w, y)| (&*w, y.as_mut_slice()));
                Ok(gemm_int8_each(self.ctx, products, integers)?)
            }
            _ => {
                let products = products.each_mut().map(|(w, y)| (&*w, y.as_mut_slice()));
                Ok(gemm_f32_each(self.ctx, products, self.x, self.rows)?)
            }
        }
    }
}
