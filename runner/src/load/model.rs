//! A model with its tokenizer and its chat template.

use std::path::Path;
use std::sync::Arc;

use halfbyte_tokenizer::chat::{ChatError, ChatOptions, ChatTemplate, Message};
use halfbyte_tokenizer::{Special, Tokenizer};

use super::{Engine, LoadError, LoadOptions, PromptError};
use crate::generate::{Beginning, CachedSession, Request};
use crate::model::{self, Compute, Sequence, Transformer};
use crate::sampler::{Sampler, SamplerConfig};

/// A loaded model with its tokenizer and its threads. A clone shares them.
#[derive(Clone, Debug)]
pub struct Model(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    engine: Engine,
    tokenizer: Arc<Tokenizer>,
    template: Result<ChatTemplate, ChatError>,
}

impl Model {
    /// Loads the model at `path` for this CPU, as [`LoadOptions::load`] does.
    ///
    /// # Errors
    /// As there.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, LoadError> {
        Self::options().load(path)
    }

    /// Options of loading: all threads that this process may use well, activations of type [`ActivationType::Auto`](crate::model::ActivationType::Auto), an f16 KV cache, packed weights.
    pub fn options() -> LoadOptions {
        LoadOptions::new()
    }

    pub(super) fn new(engine: Engine, tokenizer: Tokenizer) -> Self {
        let template = ChatTemplate::new(&tokenizer);
        Self(Arc::new(Inner { engine, tokenizer: Arc::new(tokenizer), template }))
    }

    /// The weights on their device.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// The layers and weights.
    pub fn transformer(&self) -> &Transformer {
        self.0.engine.transformer()
    }

    /// The threads and the instruction set.
    pub fn compute(&self) -> &Compute {
        self.0.engine.compute()
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.0.tokenizer
    }

    /// The chat template.
    ///
    /// # Errors
    /// That the model has none, or that it can't be used.
    pub fn template(&self) -> Result<&ChatTemplate, &ChatError> {
        self.0.template.as_ref()
    }

    /// A request for the next turn of a conversation, by the model's chat template. It samples as [`SamplerConfig`] does by
    /// default; [`Request`] has what can be changed.
    ///
    /// # Errors
    /// [`PromptError::Template`], [`PromptError::Chat`].
    pub fn chat(&self, messages: &[Message]) -> Result<Request, PromptError> {
        let template = self.template().map_err(|error| PromptError::Template { why: error.to_string() })?;
        let prompt = template.prompt(self.tokenizer(), messages, &ChatOptions::default())?;
        let sampler = Sampler::new(SamplerConfig::default())?;
        Ok(Request { beginning: Beginning::Turn, ..Request::new(prompt.ids, sampler) })
    }

    /// A request for more of `text`, in which nothing is read as a control token.
    ///
    /// # Errors
    /// [`PromptError::Tokenizer`].
    pub fn continuation(&self, text: &str) -> Result<Request, PromptError> {
        let ids = self.tokenizer().encode_prompt(text, Special::Off)?;
        Ok(Request::new(ids, Sampler::new(SamplerConfig::default())?))
    }

    /// An empty sequence on the model's device; see [`Engine::sequence`].
    ///
    /// # Errors
    /// As there.
    pub fn sequence(&self) -> Result<Box<dyn Sequence>, model::Error> {
        self.0.engine.sequence()
    }

    /// As [`Self::sequence`], for [`generate`](crate::generate::generate) and schedulers; see
    /// [`Engine::cached_session`].
    ///
    /// # Errors
    /// As there.
    pub fn cached_session(&self) -> Result<CachedSession, model::Error> {
        self.0.engine.cached_session()
    }
}
