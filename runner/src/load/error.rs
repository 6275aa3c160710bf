//! Why a model can't be loaded, or a prompt can't be made for it.

use halfbyte_tokenizer::TokenizerError;
use halfbyte_tokenizer::chat::ChatError;

use crate::sampler::SamplerError;
use crate::{model, source};

/// Why a model can't be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file or directory can't be used.
    #[error(transparent)]
    Source(#[from] source::Error),
    /// The model in it can't be used.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// Its tokenizer can't be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A Hugging Face or MLX directory has no tokenizer.
    #[error("expected tokenizer.json beside config.json")]
    NoTokenizer,
    /// The tokenizer and the model have different vocabularies.
    #[error("the tokenizer has {tokens} tokens, the model {rows}: expected the same number")]
    Vocabularies {
        /// Tokens that the tokenizer knows.
        tokens: usize,
        /// Tokens that the model can choose.
        rows: usize,
    },
    /// The device has no KV cache of the type that was asked for.
    #[error("a KV cache of type {got}: on a CUDA device expected {expected}")]
    KvType {
        /// The types that the device has.
        expected: &'static str,
        /// The type that was asked for.
        got: &'static str,
    },
    /// Several processes were to share a model on a device.
    #[error("ranks compute on the CPU: expected no other device")]
    RanksOnDevice,
    /// The model can't be fetched from the hub.
    #[cfg(feature = "hub")]
    #[error(transparent)]
    Hub(#[from] crate::hub::Error),
    /// The weights can't be converted to the type that was asked for.
    #[cfg(feature = "quantize")]
    #[error(transparent)]
    Requantize(#[from] crate::requantize::Error),
}

/// Why a prompt can't be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PromptError {
    /// The model has no chat template, or one that can't be used.
    #[error("the chat template: {why}")]
    Template {
        /// What is wrong with it.
        why: String,
    },
    /// The chat template refuses the messages.
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// The text can't be encoded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A sampler can't be made.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
}
