//! Layers that are a short gated convolution, in the forward pass.

use std::ops::Range;

use halfbyte_cpu_kernels::{causal_convolution_linear, multiply_assign};

use super::Error;
use super::description::{Layer, ShortConvolution};
use super::profile::Phase;
use super::recurrent::RecurrentState;
use super::step::{Buffers, Step, matrix_work};

impl Step<'_> {
    /// What is convolved, times its gate, in `b.mixed`, and what the convolution is multiplied by in `b.gate`.
    pub(super) fn project_convolution(
        self,
        layer: &Layer,
        c: &ShortConvolution,
        b: &mut Buffers,
    ) -> Result<(), Error> {
        let linears = c.inputs();
        let consumers = linears.map(|linear| self.matrix(linear));
        let input = self.normed(layer.mixer_norm, &b.x, &mut b.h, &mut b.integers, consumers)?;
        b.profiler.plain(Phase::Norms);
        let [input_gate, output_gate, values] = consumers;
        input.times_each([(input_gate, &mut b.mixed), (output_gate, &mut b.gate), (values, &mut b.v)])?;
        for (linear, y) in linears.into_iter().zip([&mut b.mixed, &mut b.gate, &mut b.v]) {
            self.add_bias(linear, y);
        }
        b.profiler.lap(Phase::Qkv, || matrix_work(&consumers, self.rows));
        multiply_assign(self.ctx, &mut b.mixed, &b.v)?;
        b.attended.resize(b.mixed.len(), 0.0);
        b.profiler.plain(Phase::Recurrence);
        Ok(())
    }

    /// The convolution of `rows` and of the last few before them, times its gate: those rows of `b.attended`.
    pub(super) fn convolve(
        self,
        c: &ShortConvolution,
        state: &mut RecurrentState,
        rows: Range<usize>,
        b: &mut Buffers,
    ) -> Result<(), Error> {
        let of = rows.start * c.channels..rows.end * c.channels;
        let (mixed, out) = (&b.mixed[of.clone()], &mut b.attended[of.clone()]);
        let taps = self.weights.vector(c.convolution);
        causal_convolution_linear(self.ctx, mixed, c.channels, taps, state.tail_mut(), out)?;
        state.count_convolved(mixed);
        self.add_to_rows(c.bias, out);
        multiply_assign(self.ctx, out, &b.gate[of])?;
        b.profiler.lap(Phase::Recurrence, || (3 * size_of_val(out), (2 * c.taps + 1) * out.len()));
        Ok(())
    }
}
