//! A model's weights on the device that computes with them.

use std::sync::Arc;

use halfbyte_tokenizer::Tokenizer;

use super::{LoadError, SequenceOptions, load_tokenizer, require_same_size};
use crate::generate::CachedSession;
#[cfg(feature = "cuda")]
use crate::model::cuda::{CudaModel, CudaSession};
use crate::model::{
    self, Compute, CpuSession, Leader, ModelShare, Ranks, Sequence, SessionOptions, Transformer,
};
use crate::speculate::Speculation;

/// A model's weights on the device that computes with them. It makes sequences, and needs no tokenizer. A clone shares
/// the weights and the threads.
#[derive(Clone, Debug)]
pub struct Engine(Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) transformer: Transformer,
    pub(super) compute: Compute,
    pub(super) options: SequenceOptions,
    /// Where drafts come from.
    pub(super) drafting: Drafting,
    /// This process's part of the model, if several share it.
    pub(super) share: Option<Share>,
    #[cfg(feature = "cuda")]
    pub(super) cuda: Option<CudaModel>,
}

/// One rank's part of a model.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) model: ModelShare,
    pub(super) ranks: Arc<dyn Ranks>,
    pub(super) mark: String,
}

/// Where the drafts of speculative decoding come from.
#[derive(Clone, Debug, Default)]
pub struct Drafting {
    source: DraftSource,
    fixed: Option<usize>,
}

#[derive(Clone, Debug, Default)]
enum DraftSource {
    #[default]
    None,
    Context,
    Model(Engine),
}

impl Drafting {
    /// No drafts: each forward pass of a reply feeds one token.
    pub fn off() -> Self {
        Self::default()
    }

    /// Drafts copied from the context.
    pub fn copied() -> Self {
        Self { source: DraftSource::Context, fixed: None }
    }

    /// Drafts that a small model of the same vocabulary makes.
    pub fn by_model(engine: Engine) -> Self {
        Self { source: DraftSource::Model(engine), fixed: None }
    }

    /// Drafts of `n` tokens each, whether they pay or not, in place of as many as pay; see
    /// [`Speculation::with_fixed`].
    #[must_use]
    pub fn with_fixed(self, n: usize) -> Self {
        Self { fixed: Some(n), ..self }
    }

    /// What makes these drafts in a context of `context` tokens, with the threads of `compute`.
    fn speculation(&self, compute: &Compute, context: usize) -> Result<Option<Speculation>, model::Error> {
        let speculation = match &self.source {
            DraftSource::None => return Ok(None),
            DraftSource::Context => Speculation::copied(),
            DraftSource::Model(engine) => {
                // Beyond the end of a shorter context there are no drafts.
                let context = context.min(engine.transformer().description().context);
                let sequence = engine.sequence_with(compute, engine.options().with_context(context))?;
                Speculation::by_model(CachedSession::from_box(sequence))
            }
        };
        Ok(Some(match self.fixed {
            Some(n) => speculation.with_fixed(n),
            None => speculation,
        }))
    }
}

impl Engine {
    pub(super) fn new(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }

    /// The layers, and the weights where the file or the CPU's packed copy has them.
    pub fn transformer(&self) -> &Transformer {
        &self.0.transformer
    }

    /// The threads and the instruction set.
    pub fn compute(&self) -> &Compute {
        &self.0.compute
    }

    /// How its sequences compute, unless they are told otherwise.
    pub fn options(&self) -> SequenceOptions {
        self.0.options
    }

    /// The weights on a CUDA device; `None` on the CPU.
    #[cfg(feature = "cuda")]
    pub fn cuda(&self) -> Option<&CudaModel> {
        self.0.cuda.as_ref()
    }

    /// This rank's part of the model, if several processes share it.
    pub fn share(&self) -> Option<&ModelShare> {
        self.0.share.as_ref().map(|share| &share.model)
    }

    /// A text that is the same on all ranks if they have the same model and the same options; empty without ranks. See
    /// [`model::agree`].
    pub fn mark(&self) -> &str {
        self.0.share.as_ref().map_or("", |share| &share.mark)
    }

    /// Builds the tokenizer that the model's file describes.
    ///
    /// # Errors
    /// [`LoadError::Tokenizer`], [`LoadError::NoTokenizer`], and [`LoadError::Vocabularies`] if the model has more or
    /// fewer tokens.
    pub fn tokenizer(&self) -> Result<Tokenizer, LoadError> {
        let tokenizer = load_tokenizer(self.transformer().file())?;
        require_same_size(&tokenizer, self.transformer())?;
        Ok(tokenizer)
    }

    /// An empty sequence on the engine's device, with the engine's options. On rank 0 of several it has the other ranks,
    /// which [`model::follow`], do their part.
    ///
    /// # Errors
    /// [`model::Error::Context`] for a context longer than the model's, and those of a device.
    pub fn sequence(&self) -> Result<Box<dyn Sequence>, model::Error> {
        self.sequence_with(&self.0.compute, self.0.options)
    }

    /// As [`Self::sequence`], with the threads of `compute` if it is on the CPU, and with other options.
    ///
    /// # Errors
    /// As there, and [`model::Error::OtherDevice`] if `options` are for a device without this model's weights.
    pub fn sequence_with(
        &self,
        compute: &Compute,
        options: SequenceOptions,
    ) -> Result<Box<dyn Sequence>, model::Error> {
        #[cfg(feature = "cuda")]
        if let Some(options) = options.cuda() {
            let model = self.0.cuda.as_ref().ok_or(model::Error::OtherDevice)?;
            return Ok(Box::new(CudaSession::new(model, options)?));
        }
        let options = options.cpu().ok_or(model::Error::OtherDevice)?;
        let session = self.cpu_session(compute, options)?;
        Ok(match &self.0.share {
            Some(share) if share.ranks.rank() == 0 => {
                Box::new(Leader::new(session, Arc::clone(&share.ranks)))
            }
            _ => Box::new(session),
        })
    }

    /// An empty sequence on the CPU. Of a model on several ranks it is this rank's part: every rank has to make the same
    /// calls.
    ///
    /// # Errors
    /// [`model::Error::Context`].
    pub fn cpu_session(
        &self,
        compute: &Compute,
        options: SessionOptions,
    ) -> Result<CpuSession, model::Error> {
        match &self.0.share {
            Some(share) => CpuSession::on_share(&share.model, compute, options, Arc::clone(&share.ranks)),
            None => CpuSession::new(&self.0.transformer, compute, options),
        }
    }

    /// As [`Self::sequence`], for [`generate`](crate::generate::generate) and schedulers: with the drafts that
    /// [`LoadOptions::drafting`](super::LoadOptions::drafting) asked for.
    ///
    /// # Errors
    /// As there, and those of the model that makes the drafts.
    pub fn cached_session(&self) -> Result<CachedSession, model::Error> {
        self.cached_session_with(&self.0.drafting)
    }

    /// As [`Self::cached_session`], with other drafts.
    ///
    /// # Errors
    /// As there.
    pub fn cached_session_with(&self, drafting: &Drafting) -> Result<CachedSession, model::Error> {
        let cache = CachedSession::from_box(self.sequence()?);
        Ok(match drafting.speculation(&self.0.compute, self.0.options.context())? {
            Some(speculation) => cache.with_speculation(speculation),
            None => cache,
        })
    }
}
