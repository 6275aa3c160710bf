//! The forward pass of some rows, a half layer at a time.

use super::profile::{Phase, Profiler};
use super::ranks::{Shares, To};
use super::session::ActivationType;
use super::weights::{LayerWeights, Linear};
use super::{Config, Error};
use halfbyte_attention::{AttentionParams, KvCache, attention};
use halfbyte_cpu_kernels::{
    Context, Matrix, RopeTable, add_assign, gemm_f32_each, gemm_int8_each, quantize_activations, rms_norm,
    rms_norm_quantize, rope, swiglu, swiglu_quantize,
};
use halfbyte_q8::Activations;
use std::ops::Range;

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
    /// What other ranks have sent.
    pub(super) received: Vec<f32>,
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
    /// Tokens taken together.
    pub(super) rows: usize,
    /// Where this process has a part of each matrix, the way to the others.
    pub(super) shares: Option<Shares<'a>>,
}

impl Step<'_> {
    /// The queries, keys and values of a layer, without positions: `b.q`, `b.k` and `b.v`, from the residual stream.
    pub(super) fn project(self, w: &LayerWeights<'_>, b: &mut Buffers) -> Result<(), Error> {
        let (ctx, c) = (self.ctx, self.config);
        let consumers = [w.q.weight.matrix(), w.k.weight.matrix(), w.v.weight.matrix()];
        let input = self.normed(&w.attention_norm, &b.x, &mut b.h, &mut b.int8, consumers)?;
        b.profiler.plain(Phase::Norms);
        let [q, k, v] = consumers;
        input.times_each([(q, &mut b.q), (k, &mut b.k), (v, &mut b.v)])?;
        for (linear, y) in [(&w.q, &mut b.q), (&w.k, &mut b.k), (&w.v, &mut b.v)] {
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
        b.attended.resize(b.q.len(), 0.0);
        Ok(())
    }

    /// What a context's keys and values of a layer give to the queries of `rows`, which follow its tokens:
    /// those rows of `b.attended`. Their own keys and values are added first.
    pub(super) fn attend(
        self,
        rope_table: &RopeTable,
        cache: &mut KvCache,
        rows: Range<usize>,
        b: &mut Buffers,
    ) -> Result<(), Error> {
        let (ctx, c) = (self.ctx, self.config);
        let of = |width: usize| rows.start * width..rows.end * width;
        let (q, k, v) = (&mut b.q[of(c.q_width())], &mut b.k[of(c.kv_width())], &b.v[of(c.kv_width())]);
        let first = cache.len();
        rope(ctx, q, c.n_heads, c.head_dim, rope_table, first)?;
        rope(ctx, k, c.n_kv_heads, c.head_dim, rope_table, first)?;
        b.profiler.plain(Phase::Rope);
        cache.append(ctx.isa, k, v, rows.len())?;
        b.profiler.plain(Phase::KvWrite);
        attention(ctx, self.params, q, cache, first, &mut b.attended[of(c.q_width())])?;
        b.profiler.lap(Phase::Attention, || self.attention_work(cache, first, rows.len()));
        Ok(())
    }

    /// Bytes of keys and values that `rows` from position `first` on read, once for all of them, and the operations of
    /// scores and sums.
    fn attention_work(self, cache: &KvCache, first: usize, rows: usize) -> (usize, usize) {
        let seen = (0..rows).map(|row| self.params.visible(first + row, cache.len()).len());
        let keys = self.params.visible(first, cache.len()).start..cache.len();
        let bytes = 2 * keys.len() * cache.n_kv_heads() * cache.kv_type().row_bytes(cache.head_dim());
        (bytes, 4 * self.config.q_width() * seen.sum::<usize>())
    }

    /// Adds what [`Self::attend`] found to the residual stream, through the layer's output matrix.
    pub(super) fn add_attended(self, w: &LayerWeights<'_>, b: &mut Buffers) -> Result<(), Error> {
        let (ctx, output) = (self.ctx, w.attention_output.matrix());
        if let Some(shares) = self.shares {
            shares.gather(To::All, &shares.split.attended, &mut b.attended, &mut b.received)?;
        }
        let input = Input::new(ctx, self.activations, &b.attended, self.rows, &mut b.int8, [output])?;
        input.times(&output, &mut b.h)?;
        self.add(b)?;
        b.profiler.lap(Phase::Output, || matrix_work(&[output], self.rows));
        Ok(())
    }

    /// Adds `b.h`, a layer's outputs, to the residual stream.
    fn add(self, b: &mut Buffers) -> Result<(), Error> {
        if let Some(shares) = self.shares {
            shares.gather(To::All, &shares.split.width, &mut b.h, &mut b.received)?;
        }
        Ok(add_assign(self.ctx, &mut b.x, &b.h)?)
    }

    /// The hidden layer of the feed-forward network, from the residual stream: `b.hidden`, or `b.int8` where down takes
    /// that.
    pub(super) fn hidden(self, w: &LayerWeights<'_>, b: &mut Buffers) -> Result<(), Error> {
        let (ctx, gate, up) = (self.ctx, w.gate.matrix(), w.up.matrix());
        let input = self.normed(&w.feed_forward_norm, &b.x, &mut b.h, &mut b.int8, [gate, up])?;
        b.profiler.plain(Phase::Norms);
        input.times_each([(gate, &mut b.gate), (up, &mut b.up)])?;
        b.profiler.lap(Phase::GateUp, || matrix_work(&[gate, up], self.rows));
        if self.hides_int8(w.down.matrix()) {
            swiglu_quantize(ctx, &b.gate, &b.up, self.rows, &mut b.int8)?;
        } else {
            b.hidden.resize(b.gate.len(), 0.0);
            swiglu(ctx, &b.gate, &b.up, &mut b.hidden)?;
        }
        b.profiler.plain(Phase::Swiglu);
        Ok(())
    }

    /// Whether the hidden layer goes to `down` as int8 and nothing else; what other ranks have to be sent is f32.
    fn hides_int8(self, down: Matrix<'_>) -> bool {
        self.shares.is_none() && self.takes_int8(&[down])
    }

    /// Whether `matrices` take int8 activations alone.
    fn takes_int8(self, matrices: &[Matrix<'_>]) -> bool {
        self.activations == ActivationType::Int8 && matrices.iter().all(Matrix::supports_int8)
    }

    /// The norm of the residual stream `x`, on its way into `consumers`; in `h` only if one of them takes f32.
    pub(super) fn normed<'b, const N: usize>(
        self,
        norm: &[f32],
        x: &[f32],
        h: &'b mut Vec<f32>,
        int8: &'b mut Activations,
        consumers: [Matrix<'_>; N],
    ) -> Result<Input<'b>, Error>
    where
        Self: 'b,
    {
        let (ctx, rows, eps) = (self.ctx, self.rows, self.config.norm_eps);
        if self.takes_int8(&consumers) {
            rms_norm_quantize(ctx, x, norm, eps, int8)?;
            return Ok(Input { ctx, x: &[], rows, int8: Some(int8) });
        }
        h.resize(x.len(), 0.0);
        rms_norm(ctx, x, norm, eps, h)?;
        Input::new(ctx, self.activations, h, rows, int8, consumers)
    }

    /// Adds what [`Self::hidden`] found to the residual stream, through the layer's down matrix.
    pub(super) fn add_hidden(self, w: &LayerWeights<'_>, b: &mut Buffers) -> Result<(), Error> {
        let (ctx, down) = (self.ctx, w.down.matrix());
        if let Some(shares) = self.shares {
            shares.gather(To::All, &shares.split.hidden, &mut b.hidden, &mut b.received)?;
        }
        let input = if self.hides_int8(down) {
            Input { ctx, x: &[], rows: self.rows, int8: Some(&b.int8) }
        } else {
            Input::new(ctx, self.activations, &b.hidden, self.rows, &mut b.int8, [down])?
        };
        input.times(&down, &mut b.h)?;
        self.add(b)?;
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
        self.times_each([(*w, y)])
    }

    /// The same for several matrices, together where they take the same kind of input.
    pub(super) fn times_each<const N: usize>(
        &self,
        mut products: [(Matrix<'_>, &mut Vec<f32>); N],
    ) -> Result<(), Error> {
        for (w, y) in &mut products {
            y.resize(self.rows * w.rows(), 0.0);
        }
        let takes_int8 = products.iter().filter(|(w, _)| w.supports_int8()).count();
        match self.int8 {
            Some(_) if takes_int8 > 0 && takes_int8 < N => {
                products.into_iter().try_for_each(|(w, y)| self.times(&w, y))
            }
            Some(int8) if takes_int8 == N => {
                let products = products.each_mut().map(|(w, y)| (&*w, y.as_mut_slice()));
                Ok(gemm_int8_each(self.ctx, products, int8)?)
            }
            _ => {
                let products = products.each_mut().map(|(w, y)| (&*w, y.as_mut_slice()));
                Ok(gemm_f32_each(self.ctx, products, self.x, self.rows)?)
            }
        }
    }
}
