//! A sequence on the CPU: its state, the working memory, and the forward pass.

use std::sync::Arc;

use halfbyte_attention::KvType;
use halfbyte_cpu_kernels::RopeTable;
use halfbyte_q8::Precision;

use super::forward::{Forward, Run};
use super::profile::Profile;
use super::ranks::{ModelShare, RankLink, Ranks};
use super::sequence::{self, Sequence};
use super::state::State;
use super::step::Buffers;
use super::{CannotCut, Compute, Error, SavedState, Transformer};

/// What quantized weights are multiplied by.
///
/// One kind holds for prompt and reply alike, and what a token's activations become depends on that token alone: so a reply
/// does not depend on how its prompt was cut, on the batch, or on what a cache kept. `docs/activations.md` of the repository
/// has what each kind costs in accuracy and in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ActivationType {
    /// Single precision: the weights are dequantized exactly, and nothing else is rounded to fewer bits.
    F32,
    /// 8-bit codes with a scale for every 32. One large input leaves the 31 beside it few bits.
    Int8,
    /// 8-bit codes, and 16 bits for outliers ([`Precision::Auto`]).
    #[default]
    Auto,
    /// 16-bit codes with a scale for every 32 ([`Precision::Int16`]).
    Int16,
}

impl ActivationType {
    /// All of them, from the fastest to the most exact.
    pub const ALL: [Self; 4] = [Self::Int8, Self::Auto, Self::Int16, Self::F32];

    /// The bits of the codes, if these activations are integers.
    #[must_use]
    pub fn precision(self) -> Option<Precision> {
        match self {
            Self::F32 => None,
            Self::Int8 => Some(Precision::Int8),
            Self::Auto => Some(Precision::Auto),
            Self::Int16 => Some(Precision::Int16),
        }
    }

    /// The name, as `--activations` of the program takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Int8 => "int8",
            Self::Auto => "auto",
            Self::Int16 => "int16",
        }
    }

    /// The type of keys and values that is used with these activations unless another is asked for: f16, or f32 beside
    /// activations that are not rounded either.
    #[must_use]
    pub fn default_kv_type(self) -> KvType {
        if self == Self::F32 { KvType::F32 } else { KvType::F16 }
    }
}

/// How a [`CpuSession`] works.
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
    /// The default activations, an f16 KV cache and chunks of 256 rows.
    pub fn new(context: usize) -> Self {
        Self { context, activations: ActivationType::default(), kv_type: KvType::F16, chunk: 256 }
    }
}

/// Rows of logits made at once when all positions are wanted: 16 rows of a large vocabulary are a few MB.
pub(super) const LOGIT_ROWS: usize = 16;

/// A model with tokens in its context, on the CPU. It owns what it needs and can be sent to other threads.
#[derive(Debug)]
pub struct CpuSession {
    forward: Forward,
    options: SessionOptions,
    state: State,
    ropes: Vec<RopeTable>,
    buffers: Buffers,
}

impl CpuSession {
    /// An empty context on `model`.
    ///
    /// # Errors
    /// [`Error::Context`] if the context is 0 or longer than the model's.
    pub fn new(model: &Transformer, compute: &Compute, options: SessionOptions) -> Result<Self, Error> {
        Self::connected(model, compute, options, None)
    }

    /// An empty context on one rank's part of a model. All ranks make the same calls with the same tokens, in the same
    /// order, and on rank 0 they give logits; elsewhere the logits are empty.
    ///
    /// # Errors
    /// As [`Self::new`], and [`Error::WrongRank`] if `share` is another rank's.
    pub fn on_share(
        share: &ModelShare,
        compute: &Compute,
        options: SessionOptions,
        ranks: Arc<dyn Ranks>,
    ) -> Result<Self, Error> {
        let link = RankLink::new(share, ranks)?;
        Self::connected(share.transformer(), compute, options, Some(Arc::new(link)))
    }

    fn connected(
        model: &Transformer,
        compute: &Compute,
        options: SessionOptions,
        link: Option<Arc<RankLink>>,
    ) -> Result<Self, Error> {
        let description = model.description();
        if options.context == 0 || options.context > description.context {
            return Err(Error::Context { wanted: options.context, trained: description.context });
        }
        let options = SessionOptions { chunk: options.chunk.max(1), ..options };
        let state = State::new(description, options.kv_type, options.context)?;
        let ropes = description.ropes.iter().map(|rope| rope.table(options.context)).collect();
        let forward = Forward {
            model: model.clone(),
            compute: compute.clone(),
            activations: options.activations,
            link,
        };
        Ok(Self { forward, options, state, ropes, buffers: Buffers::new(options.activations) })
    }

    /// The model.
    pub fn model(&self) -> &Transformer {
        &self.forward.model
    }

    /// The options.
    pub fn options(&self) -> SessionOptions {
        self.options
    }

    /// Tokens in the context.
    pub fn len(&self) -> usize {
        self.state.len()
    }

    /// Whether the context is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tokens that still fit.
    pub fn room(&self) -> usize {
        self.options.context - self.len()
    }

    /// Bytes reserved for the state of all layers.
    pub fn state_bytes(&self) -> usize {
        self.state.bytes()
    }

    /// Forgets all tokens but the first `len`; more than there are changes nothing. 0 always works.
    ///
    /// # Errors
    /// [`CannotCut`], and nothing is changed.
    pub fn cut(&mut self, len: usize) -> Result<(), CannotCut> {
        self.state.cut(self.forward.compute.context(), len)
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
    /// As [`CpuSession::feed`].
    pub fn feed_all(&mut self, ids: &[u32], mut each: impl FnMut(usize, &mut [f32])) -> Result<(), Error> {
        self.check(ids)?;
        let n_vocab = self.model().description().n_vocab;
        let mut done = 0;
        for chunk in ids.chunks(self.options.chunk) {
            self.layers(chunk)?;
            for row in (0..chunk.len()).step_by(LOGIT_ROWS) {
                let rows = LOGIT_ROWS.min(chunk.len() - row);
                self.forward.logits(row..row + rows, &mut self.buffers)?;
                for (r, logits) in self.buffers.logits.chunks_exact_mut(n_vocab).enumerate() {
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

    /// Ends that, and gives what was found since [`CpuSession::start_profile`].
    pub fn finish_profile(&mut self) -> Profile {
        self.buffers.profiler.finish()
    }

    /// Whether `ids` are tokens, and fit.
    pub(super) fn check(&self, ids: &[u32]) -> Result<(), Error> {
        sequence::check(ids, self.model().description().n_vocab, self.len(), self.options.context)
    }

    /// What computes, and how.
    pub(super) fn forward(&self) -> &Forward {
        &self.forward
    }

    /// `ids` after the tokens in the context.
    pub(super) fn run<'a>(&'a mut self, ids: &'a [u32]) -> Run<'a> {
        Run { state: &mut self.state, ropes: &mut self.ropes, ids }
    }

    /// Takes `ids` through all layers; the residual stream of each stays in the buffers.
    fn layers(&mut self, ids: &[u32]) -> Result<(), Error> {
        let run = Run { state: &mut self.state, ropes: &mut self.ropes, ids };
        self.forward.layers(&mut [run], &mut self.buffers)
    }
}

impl Sequence for CpuSession {
    fn context(&self) -> usize {
        self.options.context
    }

    fn chunk(&self) -> usize {
        self.options.chunk
    }

    fn n_vocab(&self) -> usize {
        self.model().description().n_vocab
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn cut(&mut self, len: usize) -> Result<(), CannotCut> {
        self.cut(len)
    }

    fn can_cut(&self) -> bool {
        self.state.can_cut()
    }

    fn save(&self) -> Result<SavedState, Error> {
        if self.forward.link.is_some() {
            return Err(Error::Unsaved);
        }
        Ok(self.state.save())
    }

    fn restore(&mut self, saved: &SavedState) -> Result<(), Error> {
        self.state.restore(saved)
    }

    fn hold(&mut self) -> bool {
        self.state.hold();
        true
    }

    fn mark(&self) -> Result<SavedState, Error> {
        if self.forward.link.is_some() {
            return Err(Error::Unsaved);
        }
        Ok(self.state.mark())
    }

    fn rewind(&mut self, mark: &SavedState) -> Result<(), Error> {
        self.state.rewind(mark)
    }

    fn prompt(&mut self, ids: &[u32]) -> Result<&mut [f32], Error> {
        self.feed(ids)
    }

    fn window(&mut self, ids: &[u32], each: &mut dyn FnMut(usize, &mut [f32])) -> Result<(), Error> {
        self.feed_all(ids, each)
    }

    fn as_cpu(&mut self) -> Option<&mut CpuSession> {
        Some(self)
    }
}
