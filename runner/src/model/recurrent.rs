//! Layers with the gated delta rule: what a session keeps of them, and their part of the forward pass.

use std::ops::Range;

use halfbyte_cpu_kernels::{
    Context, DeltaShape, causal_convolution, delta_gates, gated_delta, normalize_keys, rms_norm_gated,
};

use super::Error;
use super::description::{GatedDelta, Layer};
use super::profile::Phase;
use super::step::{Buffers, Step, matrix_work};

/// What a recurrent layer keeps of all positions: as much after a million of them as after one.
#[derive(Debug)]
pub(super) struct RecurrentState {
    shape: DeltaShape,
    len: usize,
    /// The last rows of queries, keys and values before the convolution.
    tail: Vec<f32>,
    /// A matrix for each value head, as [`gated_delta`] has it.
    heads: Vec<f32>,
    /// What the last positions can be taken back with.
    held: Option<Held>,
}

/// An earlier state, and what the positions since then were computed from: it costs little to go through some of them
/// again, and gives the same bits.
#[derive(Debug, Default)]
struct Held {
    /// Positions in the earlier state.
    start: usize,
    tail: Vec<f32>,
    heads: Vec<f32>,
    /// Rows before the convolution, and normalised behind it.
    mixed: Vec<f32>,
    convolved: Vec<f32>,
    beta: Vec<f32>,
    decay: Vec<f32>,
}

/// The most positions that can be taken back: more than any draft has.
const MOST_HELD: usize = 64;

impl RecurrentState {
    /// The state before the first position.
    pub(super) fn new(d: &GatedDelta) -> Self {
        let tail = vec![0.0; (d.taps - 1) * d.shape.row()];
        Self { shape: d.shape, len: 0, tail, heads: vec![0.0; d.shape.state_len()], held: None }
    }

    /// A copy, from which nothing can be taken back.
    pub(super) fn copy(&self) -> Self {
        let Self { shape, len, tail, heads, .. } = self;
        Self { shape: *shape, len: *len, tail: tail.clone(), heads: heads.clone(), held: None }
    }

    /// Lets the positions that follow be taken back, up to 64 of them.
    pub(super) fn hold(&mut self) {
        let held = self.held.get_or_insert_default();
        held.start = self.len;
        held.tail.clone_from(&self.tail);
        held.heads.clone_from(&self.heads);
        held.truncate(&self.shape, 0);
    }

    /// The fewest positions that it can be cut back to.
    pub(super) fn least(&self) -> usize {
        self.held.as_ref().map_or(self.len, |held| held.start)
    }

    /// Cuts back to `len` positions, at least [`Self::least`] and fewer than there are.
    pub(super) fn cut(&mut self, ctx: Context<'_>, len: usize) {
        let Some(held) = &mut self.held else { return };
        let rows = len - held.start;
        held.truncate(&self.shape, rows);
        self.heads.copy_from_slice(&held.heads);
        let mut o = vec![0.0; rows * self.shape.value_width()];
        let Held { convolved, beta, decay, .. } = &*held;
        let again = gated_delta(ctx, &self.shape, convolved, beta, decay, &mut self.heads, &mut o);
        debug_assert!(again.is_ok(), "the same rows and state were taken before: {again:?}");
        let kept = self.tail.len();
        let all = held.tail.iter().chain(&held.mixed);
        self.tail.clear();
        self.tail.extend(all.skip(held.mixed.len()).take(kept));
        self.len = len;
    }

    /// Positions in it.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Forgets all positions.
    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.tail.fill(0.0);
        self.heads.fill(0.0);
        self.held = None;
    }

    /// Whether a state is of a layer of the same sizes.
    pub(super) fn fits(&self, other: &Self) -> bool {
        (other.tail.len(), other.heads.len()) == (self.tail.len(), self.heads.len())
    }

    /// Takes over a copy that [fits](Self::fits).
    pub(super) fn restore(&mut self, saved: &Self) {
        self.len = saved.len;
        self.held = None;
        self.tail.copy_from_slice(&saved.tail);
        self.heads.copy_from_slice(&saved.heads);
    }

    /// Bytes of it.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.tail) + size_of_val(&*self.heads)
    }
}

impl Held {
    /// Keeps what `rows` rows were computed from.
    fn truncate(&mut self, shape: &DeltaShape, rows: usize) {
        self.mixed.truncate(rows * shape.row());
        self.convolved.truncate(rows * shape.row());
        self.beta.truncate(rows * shape.v_heads);
        self.decay.truncate(rows * shape.v_heads);
    }
}

impl Step<'_> {
    /// Queries, keys and values before the convolution in `b.mixed`, what gates the output in `b.gate`, and the gates of
    /// the state in `b.beta` and `b.decay`.
    pub(super) fn project_delta(self, layer: &Layer, d: &GatedDelta, b: &mut Buffers) -> Result<(), Error> {
        let linears = d.inputs();
        let consumers = linears.map(|linear| self.matrix(linear));
        let input = self.normed(layer.mixer_norm, &b.x, &mut b.h, &mut b.integers, consumers)?;
        b.profiler.plain(Phase::Norms);
        let [qkv, gate, beta, decay] = consumers;
        input.times_each([
            (qkv, &mut b.mixed),
            (gate, &mut b.gate),
            (beta, &mut b.beta),
            (decay, &mut b.decay),
        ])?;
        for (linear, y) in linears.into_iter().zip([&mut b.mixed, &mut b.gate, &mut b.beta, &mut b.decay]) {
            self.add_bias(linear, y);
        }
        b.profiler.lap(Phase::Qkv, || matrix_work(&consumers, self.rows));
        let (rate, bias) = (self.weights.vector(d.rate), self.weights.vector(d.bias));
        delta_gates(self.ctx.isa, &mut b.beta, &mut b.decay, rate, bias)?;
        b.attended.resize(self.rows * d.shape.value_width(), 0.0);
        b.profiler.plain(Phase::Recurrence);
        Ok(())
    }

    /// What the state gives to `rows`, each of which it takes in first: those rows of `b.attended`, normalised and gated.
    pub(super) fn recur(
        self,
        d: &GatedDelta,
        state: &mut RecurrentState,
        rows: Range<usize>,
        b: &mut Buffers,
    ) -> Result<(), Error> {
        let (ctx, shape) = (self.ctx, &d.shape);
        let of = |width: usize| rows.start * width..rows.end * width;
        let mixed = &b.mixed[of(shape.row())];
        b.convolved.resize(mixed.len(), 0.0);
        let taps = self.weights.vector(d.convolution);
        causal_convolution(ctx, mixed, shape.row(), taps, &mut state.tail, &mut b.convolved)?;
        normalize_keys(ctx, shape, &mut b.convolved, d.key_eps)?;
        let (beta, decay) = (&b.beta[of(shape.v_heads)], &b.decay[of(shape.v_heads)]);
        let out = &mut b.attended[of(shape.value_width())];
        gated_delta(ctx, shape, &b.convolved, beta, decay, &mut state.heads, out)?;
        state.len += rows.len();
        if state.held.as_ref().is_some_and(|held| state.len - held.start > MOST_HELD) {
            state.held = None;
        }
        if let Some(held) = &mut state.held {
            held.mixed.extend_from_slice(mixed);
            held.convolved.extend_from_slice(&b.convolved);
            held.beta.extend_from_slice(beta);
            held.decay.extend_from_slice(decay);
        }
        rms_norm_gated(
            ctx,
            out,
            self.weights.vector(d.norm.weight),
            d.norm.eps,
            &b.gate[of(shape.value_width())],
        )?;
        b.profiler.lap(Phase::Recurrence, || {
            // The state is read and written once, and each row has four operations an element of it.
            let elements = shape.v_heads * shape.k_dim * shape.v_dim;
            (2 * size_of_val(&*state.heads), 7 * rows.len() * elements)
        });
        Ok(())
    }
}
