//! Why a text can't be scored.

use crate::model;
use thiserror::Error;

/// Why a text cannot be cut into windows, or a window cannot be scored.
#[non_exhaustive]
#[derive(Debug, Error)]
pub enum Error {
    /// The windows are too short to score a token.
    #[error("windows of {got} tokens score nothing: at least {least} are needed")]
    Context {
        /// Tokens in a window.
        got: usize,
        /// The fewest that score one.
        least: usize,
    },
    /// With this stride, windows would not advance or would leave tokens out.
    #[error("a stride of {got}: expected 1 to {context}, the tokens in a window")]
    Stride {
        /// The stride.
        got: usize,
        /// Tokens in a window.
        context: usize,
    },
    /// The text is shorter than one window.
    #[error("the text is {got} tokens long, shorter than one window of {context}")]
    TooShort {
        /// Tokens in the text.
        got: usize,
        /// Tokens in a window.
        context: usize,
    },
    /// There is no token to score, or none before it.
    #[error("the first scored token is number {got}: expected at least 1 and fewer than the {tokens} tokens")]
    FirstScored {
        /// Its index.
        got: usize,
        /// Tokens in the window.
        tokens: usize,
    },
    /// The two models have different vocabularies.
    #[error("the base predicts {base} tokens, the other model {got}: expected the same vocabulary")]
    Vocabularies {
        /// Tokens of the base.
        base: usize,
        /// Tokens of the other model.
        got: usize,
    },
    /// Logits are infinite or not numbers, so the loss is not a number.
    #[error("the logits after token {position} of a window give no finite loss: the weights may be broken")]
    NotFinite {
        /// The index in the window of the token that was fed.
        position: usize,
    },
    /// The model refused its tokens.
    #[error(transparent)]
    Model(#[from] model::Error),
}
