//! One conversation: the KV caches, the working memory, and the forward pass.

use super::weights::{LayerWeights, Linear};
use super::{Config, Error, Model};
use halfbyte_attention::{AttentionParams, KvCache, KvType, attention};
use halfbyte_cpu_kernels::{
    Context, Matrix, RopeTable, add_assign, gemm_f32, gemm_int8, quantize_activations, rms_norm, rope, swiglu,
};
use halfbyte_q8::Activations;

/// What quantized weights are multiplied by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ActivationType {
    /// Single precision: the weights are dequantized exactly, and nothing else is rounded to fewer bits.
    F32,
    /// 8-bit codes with a scale for every 32: several times faster, a few thousandths of a nat away.
    #[default]
    Int8,
}

/// How a [`Session`] works.
#[derive(Clone, Copy, Debug)]
pub struct SessionOptions {
    /// Tokens that fit, prompt and reply together.
    pub context: usize,
    /// What quantized weights are multiplied by.
    pub activations: ActivationType,
    /// How keys and values are kept.
    pub kv_type: KvType,
    /// Prompt rows that take the forward pass together; the logits do not depend on it.
    pub chunk: usize,
}

impl SessionOptions {
    /// int8 activations, an f16 KV cache and chunks of 256 rows.
    pub fn new(context: usize) -> Self {
        Self { context, activations: ActivationType::Int8, kv_type: KvType::F16, chunk: 256 }
    }
}

/// Rows of logits made at once when all positions are wanted: 16 rows of a large vocabulary are a few MB.
const LOGIT_ROWS: usize = 16;

/// A model with tokens in its context.
#[derive(Debug)]
pub struct Session<'m> {
    model: &'m Model<'m>,
    ctx: Context<'m>,
    options: SessionOptions,
    params: AttentionParams,
    caches: Vec<KvCache>,
    rope: RopeTable,
    buffers: Buffers,
}

/// Working memory for one chunk of rows, kept from step to step.
#[derive(Debug, Default)]
struct Buffers {
    /// The residual stream.
    x: Vec<f32>,
    /// A norm's output, and what a layer adds to the residual stream.
    h: Vec<f32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    attended: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    logits: Vec<f32>,
    int8: Activations,
}

impl<'m> Session<'m> {
    /// An empty context on `model`.
    ///
    /// # Errors
    /// [`Error::Context`] if the context is 0 or longer than the model's.
    pub fn new(model: &'m Model<'m>, ctx: Context<'m>, options: SessionOptions) -> Result<Self, Error> {
        let c = model.config();
        if options.context == 0 || options.context > c.context {
            return Err(Error::Context { wanted: options.context, trained: c.context });
        }
        let options = SessionOptions { chunk: options.chunk.max(1), ..options };
        let params =
            AttentionParams::new(c.n_heads, c.n_kv_heads, c.head_dim, 1.0 / (c.head_dim as f32).sqrt())?;
        let caches = (0..c.n_layers)
            .map(|_| KvCache::new(options.kv_type, c.n_kv_heads, c.head_dim, options.context))
            .collect::<Result<_, _>>()?;
        let rope = c.rope_table();
        Ok(Self { model, ctx, options, params, caches, rope, buffers: Buffers::default() })
    }

    /// The model.
    pub fn model(&self) -> &'m Model<'m> {
        self.model
    }

    /// The options.
    pub fn options(&self) -> SessionOptions {
        self.options
    }

    /// Tokens in the context.
    pub fn len(&self) -> usize {
        self.caches.first().map_or(0, KvCache::len)
    }

    /// Whether the context is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tokens that still fit.
    pub fn room(&self) -> usize {
        self.options.context - self.len()
    }

    /// Forgets all tokens but the first `len`; more than there are changes nothing.
    pub fn truncate(&mut self, len: usize) {
        for cache in &mut self.caches {
            cache.truncate(len);
        }
    }

    /// Adds `ids` to the context and returns the logits after the last of them.
    ///
    /// # Errors
    /// [`Error::NoTokens`], [`Error::Token`] and [`Error::ContextFull`]; the context is unchanged then.
    pub fn feed(&mut self, ids: &[u32]) -> Result<&mut [f32], Error> {
        self.check(ids)?;
        let chunks = ids.len().div_ceil(self.options.chunk);
        for (i, chunk) in ids.chunks(self.options.chunk).enumerate() {
            self.forward(chunk)?;
            if i + 1 == chunks {
                self.logits(chunk.len() - 1, 1)?;
            }
        }
        Ok(&mut self.buffers.logits)
    }

    /// Adds `ids` to the context and calls `each(i, logits)` with the logits after every `ids[i]`.
    ///
    /// # Errors
    /// As [`Session::feed`].
    pub fn feed_all(&mut self, ids: &[u32], each: impl FnMut(usize, &[f32])) -> Result<(), Error> {
        self.feed_from(ids, 0, each)
    }

    /// Adds `ids` to the context and calls `each(i, logits)` with the logits after `ids[i]`, for `i` from `first` on;
    /// for none if there are no more than `first` ids. What is not wanted is not computed.
    ///
    /// # Errors
    /// As [`Session::feed`].
    pub fn feed_from(
        &mut self,
        ids: &[u32],
        first: usize,
        mut each: impl FnMut(usize, &[f32]),
    ) -> Result<(), Error> {
        self.check(ids)?;
        let n_vocab = self.model.config.n_vocab;
        let mut done = 0;
        for chunk in ids.chunks(self.options.chunk) {
            self.forward(chunk)?;
            let wanted = first.saturating_sub(done).min(chunk.len());
            for row in (wanted..chunk.len()).step_by(LOGIT_ROWS) {
                let rows = LOGIT_ROWS.min(chunk.len() - row);
                self.logits(row, rows)?;
                for (r, logits) in self.buffers.logits.chunks_exact(n_vocab).enumerate() {
                    each(done + row + r, logits);
                }
            }
            done += chunk.len();
        }
        Ok(())
    }

    fn check(&self, ids: &[u32]) -> Result<(), Error> {
        let n_vocab = self.model.config.n_vocab;
        if ids.is_empty() {
            return Err(Error::NoTokens);
        }
        if let Some(&id) = ids.iter().find(|&&id| id as usize >= n_vocab) {
            return Err(Error::Token { id, n_vocab });
        }
        if ids.len() > self.room() {
            let (used, context) = (self.len(), self.options.context);
            return Err(Error::ContextFull { used, wanted: ids.len(), context });
        }
        Ok(())
    }

    /// Takes `ids` through all layers; the residual stream of each stays in the buffers.
    fn forward(&mut self, ids: &[u32]) -> Result<(), Error> {
        let weights = &self.model.weights;
        let width = self.model.config.width;
        let first = self.len();
        self.rope.extend_to(first + ids.len());
        self.buffers.x.resize(ids.len() * width, 0.0);
        for (&id, row) in ids.iter().zip(self.buffers.x.chunks_exact_mut(width)) {
            weights.embedding.decode_row(self.ctx.isa, id as usize, row)?;
        }
        let step = Step {
            ctx: self.ctx,
            config: &self.model.config,
            activations: self.options.activations,
            params: self.params,
            rope: &self.rope,
            rows: ids.len(),
            first,
        };
        for (layer, cache) in weights.layers.iter().zip(&mut self.caches) {
            step.attend(layer, cache, &mut self.buffers)?;
            step.feed_forward(layer, &mut self.buffers)?;
        }
        Ok(())
    }

    /// The logits of rows `first..first + rows` of the last chunk, into the buffer.
    fn logits(&mut self, first: usize, rows: usize) -> Result<(), Error> {
        let (weights, config) = (&self.model.weights, &self.model.config);
        let b = &mut self.buffers;
        let x = &b.x[first * config.width..][..rows * config.width];
        b.h.resize(x.len(), 0.0);
        rms_norm(self.ctx, x, &weights.norm, config.norm_eps, &mut b.h)?;
        let input =
            Input::new(self.ctx, self.options.activations, &b.h, rows, &mut b.int8, [&weights.output])?;
        input.times(&weights.output, &mut b.logits)
    }
}

/// What all layers of one forward pass share.
#[derive(Clone, Copy)]
struct Step<'a> {
    ctx: Context<'a>,
    config: &'a Config,
    activations: ActivationType,
    params: AttentionParams,
    rope: &'a RopeTable,
    /// Tokens taken together.
    rows: usize,
    /// The position of the first of them.
    first: usize,
}

impl Step<'_> {
    /// The first half of a layer: attention, added to the residual stream.
    fn attend(self, w: &LayerWeights<'_>, cache: &mut KvCache, b: &mut Buffers) -> Result<(), Error> {
        let (ctx, c) = (self.ctx, self.config);
        b.h.resize(b.x.len(), 0.0);
        rms_norm(ctx, &b.x, &w.attention_norm, c.norm_eps, &mut b.h)?;
        let consumers = [&w.q.weight, &w.k.weight, &w.v.weight];
        let input = Input::new(ctx, self.activations, &b.h, self.rows, &mut b.int8, consumers)?;
        for (linear, y) in [(&w.q, &mut b.q), (&w.k, &mut b.k), (&w.v, &mut b.v)] {
            input.times(&linear.weight, y)?;
            add_bias(linear, y);
        }
        if let Some([q_norm, k_norm]) = &w.head_norms {
            for (y, norm) in [(&mut b.q, q_norm), (&mut b.k, k_norm)] {
                // The buffer of the attention's output is free until then.
                b.attended.resize(y.len(), 0.0);
                rms_norm(ctx, y, norm, c.norm_eps, &mut b.attended)?;
                std::mem::swap(y, &mut b.attended);
            }
        }
        rope(ctx, &mut b.q, c.n_heads, c.head_dim, self.rope, self.first)?;
        rope(ctx, &mut b.k, c.n_kv_heads, c.head_dim, self.rope, self.first)?;
        cache.append(ctx.isa, &b.k, &b.v, self.rows)?;
        b.attended.resize(b.q.len(), 0.0);
        attention(ctx, self.params, &b.q, cache, self.first, &mut b.attended)?;
        let input =
            Input::new(ctx, self.activations, &b.attended, self.rows, &mut b.int8, [&w.attention_output])?;
        input.times(&w.attention_output, &mut b.h)?;
        Ok(add_assign(ctx, &mut b.x, &b.h)?)
    }

    /// The second half of a layer: the feed-forward network, added to the residual stream.
    fn feed_forward(self, w: &LayerWeights<'_>, b: &mut Buffers) -> Result<(), Error> {
        let ctx = self.ctx;
        rms_norm(ctx, &b.x, &w.feed_forward_norm, self.config.norm_eps, &mut b.h)?;
        let input = Input::new(ctx, self.activations, &b.h, self.rows, &mut b.int8, [&w.gate, &w.up])?;
        input.times(&w.gate, &mut b.gate)?;
        input.times(&w.up, &mut b.up)?;
        // `q` is as free as `attended` was: the product goes where the attention's input was.
        b.q.resize(b.gate.len(), 0.0);
        swiglu(ctx, &b.gate, &b.up, &mut b.q)?;
        let input = Input::new(ctx, self.activations, &b.q, self.rows, &mut b.int8, [&w.down])?;
        input.times(&w.down, &mut b.h)?;
        Ok(add_assign(ctx, &mut b.x, &b.h)?)
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
struct Input<'a> {
    ctx: Context<'a>,
    x: &'a [f32],
    rows: usize,
    int8: Option<&'a Activations>,
}

impl<'a> Input<'a> {
    fn new<const N: usize>(
        ctx: Context<'a>,
        activations: ActivationType,
        x: &'a [f32],
        rows: usize,
        int8: &'a mut Activations,
        consumers: [&Matrix<'_>; N],
    ) -> Result<Self, Error> {
        let wanted = activations == ActivationType::Int8 && consumers.iter().any(|m| m.supports_int8());
        let int8 = if wanted {
            quantize_activations(ctx, x, rows, x.len() / rows, int8)?;
            Some(&*int8)
        } else {
            None
        };
        Ok(Self { ctx, x, rows, int8 })
    }

    /// `y = W x` for all rows; `y` takes the size.
    fn times(&self, w: &Matrix<'_>, y: &mut Vec<f32>) -> Result<(), Error> {
        y.resize(self.rows * w.rows(), 0.0);
        match self.int8 {
            Some(int8) if w.supports_int8() => Ok(gemm_int8(self.ctx, w, int8, y)?),
            _ => Ok(gemm_f32(self.ctx, w, self.x, self.rows, y)?),
        }
    }
}
