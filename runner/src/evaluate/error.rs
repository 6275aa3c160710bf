//! Why a text can't be scored.

use crate::model;
use thiserror::Error;

/// What is wrong with windows, or with what a model made of them.
#[non_exhaustive]
#[derive(Debug, Error)]
pub enum Error {
    /// Windows too short to score a token.
    #[error("windows of {got} tokens score nothing: at least {least} are needed")]
    Context {
        /// Tokens in a window.
        got: usize,
        /// The fewest that score one.
        least: usize,
    },
    /// Windows that would not advance, or that would leave tokens out.
    #[error("a stride of {got}: expected 1 to {context}, the tokens in a window")]
    Stride {
        /// The stride.
        got: usize,
        /// Tokens in a window.
        context: usize,
    },
    /// A text shorter than one window.
    #[error("the text is {got} tokens long, shorter than one window of {context}")]
    TooShort {
        /// Tokens in the text.
        got: usize,
        /// Tokens in a window.
        context: usize,
    },
    /// No token to score, or none before it.
    #[error("the first scored token is number {got}: expected at least 1 and fewer than the {tokens} tokens")]
    FirstScored {
        /// Its index.
        got: usize,
        /// Tokens in the window.
        tokens: usize,
    },
    /// Models that do not predict the same tokens.
    #[error("the base predicts {base} tokens, the other model {got}: expected the same vocabulary")]
    Vocabularies {
        /// Tokens of the base.
        base: usize,
        /// Tokens of the other model.
        got: usize,
    },
    /// Logits that are infinite or not numbers, so that a figure could not be one either.
    #[error("the logits after token {position} of a window give no finite loss: the weights may be broken")]
    NotFinite {
        /// The index in the window of the token that was fed.
        position: usize,
    },
    /// The model refused its tokens.
    #[error(transparent)]
    Model(#[from] model::Error),
}
