//! One conversation: the KV caches, the working memory, and the forward pass.

use super::profile::{Phase, Profile};
use super::step::{Buffers, Input, Step, attention_params, embed, matrix_work};
use super::{Error, Model};
use halfbyte_attention::{AttentionParams, KvCache, KvType};
use halfbyte_cpu_kernels::{Context, RopeTable, rms_norm};

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
        let params = attention_params(c)?;
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

    /// Begins to time the phases of forward passes. It makes them a little slower: two clock readings a phase at most.
    pub fn start_profile(&mut self) {
        self.buffers.profiler.start();
    }

    /// Ends that, and gives what was found since [`Session::start_profile`].
    pub fn finish_profile(&mut self) -> Profile {
        self.buffers.profiler.finish()
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
        let first = self.len();
        self.rope.extend_to(first + ids.len());
        self.buffers.profiler.restart();
        self.buffers.x.resize(ids.len() * self.model.config.width, 0.0);
        embed(self.ctx, &weights.embedding.matrix(), ids, &mut self.buffers.x)?;
        self.buffers.profiler.plain(Phase::Embedding);
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
            step.add_attended(layer, &mut self.buffers)?;
            step.hidden(layer, &mut self.buffers)?;
            step.add_hidden(layer, &mut self.buffers)?;
        }
        Ok(())
    }

    /// The logits of rows `first..first + rows` of the last chunk, into the buffer.
    fn logits(&mut self, first: usize, rows: usize) -> Result<(), Error> {
        let (weights, config) = (&self.model.weights, &self.model.config);
        let b = &mut self.buffers;
        b.profiler.restart();
        let x = &b.x[first * config.width..][..rows * config.width];
        b.h.resize(x.len(), 0.0);
        rms_norm(self.ctx, x, &weights.norm, config.norm_eps, &mut b.h)?;
        b.profiler.plain(Phase::Norms);
        let output = weights.output.matrix();
        let input = Input::new(self.ctx, self.options.activations, &b.h, rows, &mut b.int8, [output])?;
        input.times(&output, &mut b.logits)?;
        b.profiler.lap(Phase::Logits, || matrix_work(&[output], rows));
        Ok(())
    }
}
