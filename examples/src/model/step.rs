//! The forward pass of some rows, a half layer at a time.

use super::profile::{Phase, Profiler};
use super::session::ActivationType;
use super::weights::{LayerWeights, Linear};
use super::{Config, Error};
use halfbyte_attention::{AttentionParams, KvCache, attention};
use halfbyte_cpu_kernels::{
    Context, Matrix, RopeTable, add_assign, gemm_f32, gemm_int8, quantize_activations, rms_norm, rope, swiglu,
};
use halfbyte_q8::Activations;

/// The heads of `config`, scores scaled by the root of their size.
pub(super) fn attention_params(c: &Config) -> Result<AttentionParams, Error> {
    let scale = 1.0 / (c.head_dim as f32).sqrt();
    Ok(AttentionParams::new(c.n_heads, c.n_kv_heads, c.head_dim, scale)?)
}

/// The embedding rows of `ids`, which are in the vocabulary, into `x`.
pub(super) fn embed(
    ctx: Context<'_>,
    embedding: &Matrix<'_>,
    ids: &[u32],
    x: &mut [f32],
) -> Result<(), Error> {
    for (&id, row) in ids.iter().zip(x.chunks_exact_mut(embedding.cols())) {
        embedding.decode_row(ctx.isa, id as usize, row)?;
    }
    Ok(())
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
    pub(super) int8: Activations,
    pub(super) profiler: Profiler,
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
    pub(super) config: &'a Config,
    pub(super) activations: ActivationType,
    pub(super) params: AttentionParams,
    pub(super) rope: &'a RopeTable,
    /// Tokens taken together.
    pub(super) rows: usize,
    /// The position of the first of them.
    pub(super) first: usize,
}

impl Step<'_> {
    /// What the keys and values of a layer give to its queries: `b.attended`, from the residual stream `b.x`.
    pub(super) fn attend(
        self,
        w: &LayerWeights<'_>,
        cache: &mut KvCache,
        b: &mut Buffers,
    ) -> Result<(), Error> {
        let (ctx, c) = (self.ctx, self.config);
        b.h.resize(b.x.len(), 0.0);
        rms_norm(ctx, &b.x, &w.attention_norm, c.norm_eps, &mut b.h)?;
        b.profiler.plain(Phase::Norms);
        let consumers = [w.q.weight.matrix(), w.k.weight.matrix(), w.v.weight.matrix()];
        let input = Input::new(ctx, self.activations, &b.h, self.rows, &mut b.int8, consumers)?;
        for (linear, y) in [(&w.q, &mut b.q), (&w.k, &mut b.k), (&w.v, &mut b.v)] {
            input.times(&linear.weight.matrix(), y)?;
            add_bias(linear, y);
        }
        b.profiler.lap(Phase::Qkv, || matrix_work(&consumers, self.rows));
        if let Some([q_norm, k_norm]) = &w.head_norms {
            for (y, norm) in [(&mut b.q, q_norm), (&mut b.k, k_norm)] {
                // The buffer of the attention's output is free until then.
                b.attended.resize(y.len(), 0.0);
                rms_norm(ctx, y, norm, c.norm_eps, &mut b.attended)?;
                std::mem::swap(y, &mut b.attended);
            }
            b.profiler.plain(Phase::Norms);
        }
        rope(ctx, &mut b.q, c.n_heads, c.head_dim, self.rope, self.first)?;
        rope(ctx, &mut b.k, c.n_kv_heads, c.head_dim, self.rope, self.first)?;
        b.profiler.plain(Phase::Rope);
        cache.append(ctx.isa, &b.k, &b.v, self.rows)?;
        b.profiler.plain(Phase::KvWrite);
        b.attended.resize(b.q.len(), 0.0);
        attention(ctx, self.params, &b.q, cache, self.first, &mut b.attended)?;
        b.profiler.lap(Phase::Attention, || self.attention_work(cache));
        Ok(())
    }

    /// Bytes of keys and values that the rows read, once for all of them, and the operations of scores and sums.
    fn attention_work(self, cache: &KvCache) -> (usize, usize) {
        let seen = (0..self.rows).map(|row| self.params.visible(self.first + row, cache.len()).len());
        let keys = self.params.visible(self.first, cache.len()).start..cache.len();
        let bytes = 2 * keys.len() * cache.n_kv_heads() * cache.kv_type().row_bytes(cache.head_dim());
        (bytes, 4 * self.config.q_width() * seen.sum::<usize>())
    }

    /// Adds what [`Self::attend`] found to the residual stream, through the layer's output matrix.
    pub(super) fn add_attended(self, w: &LayerWeights<'_>, b: &mut Buffers) -> Result<(), Error> {
        let (ctx, output) = (self.ctx, w.attention_output.matrix());
        let input = Input::new(ctx, self.activations, &b.attended, self.rows, &mut b.int8, [output])?;
        input.times(&output, &mut b.h)?;
        add_assign(ctx, &mut b.x, &b.h)?;
        b.profiler.lap(Phase::Output, || matrix_work(&[output], self.rows));
        Ok(())
    }

    /// The hidden layer of the feed-forward network: `b.hidden`, from the residual stream.
    pub(super) fn hidden(self, w: &LayerWeights<'_>, b: &mut Buffers) -> Result<(), Error> {
        let (ctx, gate, up) = (self.ctx, w.gate.matrix(), w.up.matrix());
        b.h.resize(b.x.len(), 0.0);
        rms_norm(ctx, &b.x, &w.feed_forward_norm, self.config.norm_eps, &mut b.h)?;
        b.profiler.plain(Phase::Norms);
        let input = Input::new(ctx, self.activations, &b.h, self.rows, &mut b.int8, [gate, up])?;
        input.times(&gate, &mut b.gate)?;
        input.times(&up, &mut b.up)?;
        b.profiler.lap(Phase::GateUp, || matrix_work(&[gate, up], self.rows));
        b.hidden.resize(b.gate.len(), 0.0);
        swiglu(ctx, &b.gate, &b.up, &mut b.hidden)?;
        b.profiler.plain(Phase::Swiglu);
        Ok(())
    }

    /// Adds what [`Self::hidden`] found to the residual stream, through the layer's down matrix.
    pub(super) fn add_hidden(self, w: &LayerWeights<'_>, b: &mut Buffers) -> Result<(), Error> {
        let (ctx, down) = (self.ctx, w.down.matrix());
        let input = Input::new(ctx, self.activations, &b.hidden, self.rows, &mut b.int8, [down])?;
        input.times(&down, &mut b.h)?;
        add_assign(ctx, &mut b.x, &b.h)?;
        b.profiler.lap(Phase::Down, || matrix_work(&[down], self.rows));
        Ok(())
    }
}

fn add_bias(linear: &Linear<'_>, y: &mut [f32]) {
    if let Some(bias) = &linear.bias {
        for row in y.chunks_exact_mut(bias.len()) {
            for (y, b) in row.iter_mut().zip(bias) {
                *y += b;
            }
        }
    }
}

/// Some rows on their way into matrices: as f32 and, if any of the matrices takes them so, as int8, made once.
pub(super) struct Input<'a> {
    ctx: Context<'a>,
    x: &'a [f32],
    rows: usize,
    int8: Option<&'a Activations>,
}

impl<'a> Input<'a> {
    pub(super) fn new<const N: usize>(
        ctx: Context<'a>,
        activations: ActivationType,
        x: &'a [f32],
        rows: usize,
        int8: &'a mut Activations,
        consumers: [Matrix<'_>; N],
    ) -> Result<Self, Error> {
        let wanted = activations == ActivationType::Int8 && consumers.iter().any(Matrix::supports_int8);
        let int8 = if wanted {
            quantize_activations(ctx, x, rows, x.len() / rows, int8)?;
            Some(&*int8)
        } else {
            None
        };
        Ok(Self { ctx, x, rows, int8 })
    }

    /// `y = W x` for all rows; `y` takes the size.
    pub(super) fn times(&self, w: &Matrix<'_>, y: &mut Vec<f32>) -> Result<(), Error> {
        y.resize(self.rows * w.rows(), 0.0);
        match self.int8 {
            Some(int8) if w.supports_int8() => Ok(gemm_int8(self.ctx, w, int8, y)?),
            _ => Ok(gemm_f32(self.ctx, w, self.x, self.rows, y)?),
        }
    }
}
