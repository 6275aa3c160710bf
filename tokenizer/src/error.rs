//! Everything that can be wrong with a tokenizer description or a request to one.

use super::{SUPPORTED_MODELS, supported_pre};

/// Why a tokenizer could not be built, or a text or id not be converted.
///
/// Token texts in messages are quoted and escaped, so that printing an error
/// never sends a file's control characters to a terminal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A metadata key is missing or has the wrong type.
    #[error(transparent)]
    Metadata(#[from] halfbyte_gguf::Error),
    /// A tokenizer family this crate does not have.
    #[error("tokenizer model {got:?} is not supported: expected one of {}", SUPPORTED_MODELS.join(", "))]
    UnsupportedModel {
        /// The value of `tokenizer.ggml.model`.
        got: String,
    },
    /// A pre-tokenizer this crate does not have.
    #[error(
        "pre-tokenizer {got:?} is not supported: expected one of {}",
        supported_pre().collect::<Vec<_>>().join(", ")
    )]
    UnsupportedPre {
        /// The value of `tokenizer.ggml.pre`.
        got: String,
    },
    /// A vocabulary with no tokens, or with more than fit an id.
    #[error("the vocabulary has {got} tokens: expected 1 to {limit}")]
    VocabularySize {
        /// The number of tokens.
        got: usize,
        /// The most that is accepted.
        limit: usize,
    },
    /// A table that does not have one entry for each token.
    #[error("{table} has {got} entries: expected {expected}, one for each token")]
    TableLength {
        /// The table.
        table: &'static str,
        /// The number of tokens.
        expected: usize,
        /// The number of entries.
        got: usize,
    },
    /// A token type outside of the format's list.
    #[error("token {id} has type {got}: expected 0 to 6")]
    TokenType {
        /// The token.
        id: u32,
        /// The type found.
        got: i32,
    },
    /// A score that cannot be ordered.
    #[error("token {id} has score {got}: expected a number")]
    Score {
        /// The token.
        id: u32,
        /// The score found.
        got: f32,
    },
    /// A byte token whose text is not `<0x00>` to `<0xFF>`.
    #[error("byte token {id} is {got:?}: expected <0x00> to <0xFF>")]
    ByteToken {
        /// The token.
        id: u32,
        /// Its text.
        got: String,
    },
    /// A special id that no token has.
    #[error("{key} is {got}: expected less than {n_vocab}, the number of tokens")]
    SpecialId {
        /// The metadata key, without its prefix.
        key: &'static str,
        /// The id found.
        got: u32,
        /// The number of tokens.
        n_vocab: usize,
    },
    /// The model needs a token and does not say which one it is.
    #[error("the model needs the {what} token but names none: expected {what}_token_id")]
    NoSpecialId {
        /// `bos`, `eos`, `seperator` or `unknown`.
        what: &'static str,
    },
    /// A merge that is not two tokens with a space between.
    #[error("merge {index} is {got:?}: expected two tokens with a space between")]
    MergeSyntax {
        /// Its place in the list.
        index: usize,
        /// The merge as stored.
        got: String,
    },
    /// A merge of, or into, something that is not a token.
    #[error("merge {index} needs the token {token:?}, which the vocabulary does not have")]
    MergeToken {
        /// Its place in the list.
        index: usize,
        /// The missing token.
        token: String,
    },
    /// A character that has no token, no byte tokens and no unknown token to stand for it.
    #[error("the vocabulary has no token for {got:?}, no byte tokens for it and no unknown token")]
    Unencodable {
        /// The character.
        got: char,
    },
    /// An id that no token has.
    #[error("token id {got}: expected less than {n_vocab}, the number of tokens")]
    IdOutOfRange {
        /// The id.
        got: u32,
        /// The number of tokens.
        n_vocab: usize,
    },
    /// A `tokenizer.json` that the `tokenizers` crate cannot run.
    #[error("tokenizer.json: {message}")]
    HuggingFace {
        /// What it said.
        message: String,
    },
    /// The BPE library refused the vocabulary or a text; the checks before it should have.
    #[error("BPE: {message}")]
    Bpe {
        /// What it said.
        message: String,
    },
}
