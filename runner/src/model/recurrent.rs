//! Layers that convolve their last few rows: what a session keeps of them, and those with the gated delta rule in the forward
//! pass.

use std::ops::Range;

use halfbyte_cpu_kernels::{
    Context, DeltaShape, causal_convolution, delta_gates, gated_delta, normalize_keys, rms_norm_gated,
};

use super::Error;
use super::description::{GatedDelta, Layer, ShortConvolution};
use super::profile::Phase;
use super::step::{Buffers, Step, matrix_work};

/// What a layer with a convolution keeps of all positions: as much after a million of them as after one.
#[derive(Debug)]
pub(super) struct RecurrentState {
    /// Numbers in a row of what is convolved.
    channels: usize,
    /// The heads of the gated delta rule; `None` for a layer that is a convolution and nothing else.
    shape: Option<DeltaShape>,
    len: usize,
    /// The last rows before the convolution.
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
    /// Rows before the convolution.
    mixed: Vec<f32>,
    /// What the gated delta rule took of them: rows normalised behind the convolution, and gates.
    convolved: Vec<f32>,
    beta: Vec<f32>,
    decay: Vec<f32>,
}

/// The most positions that can be taken back: more than any draft has.
const MOST_HELD: usize = 64;

impl RecurrentState {
    /// The state before the first position of a layer with the gated delta rule.
    pub(super) fn of_delta(d: &GatedDelta) -> Self {
        Self {
            shape: Some(d.shape),
            heads: vec![0.0; d.shape.state_len()],
            ..Self::of_taps(d.taps, d.shape.row())
        }
    }

    /// The state before the first position of a layer that is a convolution.
    pub(super) fn of_convolution(c: &ShortConvolution) -> Self {
        Self::of_taps(c.taps, c.channels)
    }

    fn of_taps(taps: usize, channels: usize) -> Self {
        let tail = vec![0.0; (taps - 1) * channels];
        Self { channels, shape: None, len: 0, tail, heads: Vec::new(), held: None }
    }

    /// A copy, from which nothing can be taken back.
    pub(super) fn copy(&self) -> Self {
        let Self { channels, shape, len, tail, heads, .. } = self;
        Self {
            channels: *channels,
            shape: *shape,
            len: *len,
            tail: tail.clone(),
            heads: heads.clone(),
            held: None,
        }
    }

    /// Lets the positions that follow be taken back, up to 64 of them.
    pub(super) fn hold(&mut self) {
        let held = self.held.get_or_insert_default();
        held.start = self.len;
        held.tail.clone_from(&self.tail);
        held.heads.clone_from(&self.heads);
        held.truncate(0, self.channels, self.shape.as_ref());
    }

    /// The fewest positions that it can be cut back to.
    pub(super) fn least(&self) -> usize {
        self.held.as_ref().map_or(self.len, |held| held.start)
    }

    /// Cuts back to `len` positions, at least [`Self::least`] and fewer than there are.
    pub(super) fn cut(&mut self, ctx: Context<'_>, len: usize) {
        let Some(held) = &mut self.held else { return };
        let rows = len - held.start;
        held.truncate(rows, self.channels, self.shape.as_ref());
        if let Some(shape) = &self.shape {
            self.heads.copy_from_slice(&held.heads);
            let mut o = vec![0.0; rows * shape.value_width()];
            let Held { convolved, beta, decay, .. } = &*held;
            let again = gated_delta(ctx, shape, convolved, beta, decay, &mut self.heads, &mut o);
            debug_assert!(again.is_ok(), "the same rows and state were taken before: {again:?}");
        }
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

    /// The rows that the next convolution needs of those before.
    pub(super) fn tail_mut(&mut self) -> &mut [f32] {
        &mut self.tail
    }

    /// Counts the positions of `mixed`, which the convolution has taken, and keeps those rows if they may be taken back.
    /// Returns what else has to be kept for that.
    fn count(&mut self, mixed: &[f32]) -> Option<&mut Held> {
        self.len += mixed.len() / self.channels;
        if self.held.as_ref().is_some_and(|held| self.len - held.start > MOST_HELD) {
            self.held = None;
        }
        let held = self.held.as_mut()?;
        held.mixed.extend_from_slice(mixed);
        Some(held)
    }

    /// The same for a layer that is a convolution.
    pub(super) fn count_convolved(&mut self, mixed: &[f32]) {
        self.count(mixed);
    }
}

impl Held {
    /// Keeps what `rows` rows were computed from.
    fn truncate(&mut self, rows: usize, channels: usize, shape: Option<&DeltaShape>) {
        let heads = shape.map_or(0, |shape| shape.v_heads);
        self.mixed.truncate(rows * channels);
        self.convolved.truncate(rows * channels);
        self.beta.truncate(rows * heads);
        self.decay.truncate(rows * heads);
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
        if let Some(held) = state.count(mixed) {
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
