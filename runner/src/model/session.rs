//! One conversation: the KV caches, the working memory, and the forward pass.

use super::forward::{Forward, Run};
use super::profile::Profile;
use super::ranks::{ModelShare, Ranks, Shares};
use super::step::{Buffers, attention_params};
use super::{Error, Model};
use halfbyte_attention::{KvCache, KvType};
use halfbyte_cpu_kernels::{Context, RopeTable};

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
    forward: Forward<'m>,
    options: SessionOptions,
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
        Self::connected(model, ctx, options, None)
    }

    /// An empty context on one rank's part of a model. All ranks make the same calls with the same tokens, in the same
    /// order, and on rank 0 they give logits; elsewhere the logits are empty.
    ///
    /// # Errors
    /// As [`Self::new`], and [`Error::WrongRank`] if `share` is another rank's.
    pub fn on_share(
        share: &'m ModelShare<'m>,
        ctx: Context<'m>,
        options: SessionOptions,
        ranks: &'m dyn Ranks,
    ) -> Result<Self, Error> {
        let ((expected, expected_count), (got, got_count)) = (share.rank(), (ranks.rank(), ranks.count()));
        if (expected, expected_count) != (got, got_count) {
            return Err(Error::WrongRank { expected, expected_count, got, got_count });
        }
        Self::connected(&share.model, ctx, options, Some(Shares { split: &share.split, ranks }))
    }

    fn connected(
        model: &'m Model<'m>,
        ctx: Context<'m>,
        options: SessionOptions,
        shares: Option<Shares<'m>>,
    ) -> Result<Self, Error> {
        let c = model.config();
        if options.context == 0 || options.context > c.context {
            return Err(Error::Context { wanted: options.context, trained: c.context });
        }
        let options = SessionOptions { chunk: options.chunk.max(1), ..options };
        let params = attention_params(c)?;
        let forward = Forward { model, ctx, activations: options.activations, params, shares };
        let caches = (0..c.n_layers)
            .map(|_| KvCache::new(options.kv_type, c.n_kv_heads, c.head_dim, options.context))
            .collect::<Result<_, _>>()?;
        let rope = c.rope_table();
        Ok(Self { forward, options, caches, rope, buffers: Buffers::default() })
    }

    /// The model.
    pub fn model(&self) -> &'m Model<'m> {
        self.forward.model
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
            self.layers(chunk)?;
            if i + 1 == chunks {
                self.forward.logits(chunk.len() - 1..chunk.len(), &mut self.buffers)?;
            }
        }
        Ok(&mut self.buffers.logits)
    }

    /// Adds `ids` to the context and calls `each(i, logits)` with the logits after every `ids[i]`.
    ///
    /// # Errors
    /// As [`Session::feed`].
    pub fn feed_all(&mut self, ids: &[u32], mut each: impl FnMut(usize, &[f32])) -> Result<(), Error> {
        self.check(ids)?;
        let n_vocab = self.model().config.n_vocab;
        let mut done = 0;
        for chunk in ids.chunks(self.options.chunk) {
            self.layers(chunk)?;
            for row in (0..chunk.len()).step_by(LOGIT_ROWS) {
                let rows = LOGIT_ROWS.min(chunk.len() - row);
                self.forward.logits(row..row + rows, &mut self.buffers)?;
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

    /// Whether `ids` are tokens, and fit.
    pub(super) fn check(&self, ids: &[u32]) -> Result<(), Error> {
        let n_vocab = self.model().config.n_vocab;
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

    /// What computes, and how.
    pub(super) fn forward(&self) -> Forward<'m> {
        self.forward
    }

    /// `ids` after the tokens in the context.
    pub(super) fn run<'a>(&'a mut self, ids: &'a [u32]) -> Run<'a> {
        Run { caches: &mut self.caches, rope: &mut self.rope, ids }
    }

    /// Takes `ids` through all layers; the residual stream of each stays in the buffers.
    fn layers(&mut self, ids: &[u32]) -> Result<(), Error> {
        let run = Run { caches: &mut self.caches, rope: &mut self.rope, ids };
        self.forward.layers(&mut [run], &mut self.buffers)
    }
}
