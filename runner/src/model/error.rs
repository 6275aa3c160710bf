//! Why a model can't be loaded or run.

use halfbyte_gguf as gguf;
use thiserror::Error;

/// What is wrong with a model file, or with what a session was asked for.
#[non_exhaustive]
#[derive(Debug, Error)]
pub enum Error {
    /// The file's metadata or one of its tensors can't be read.
    #[error(transparent)]
    Gguf(#[from] gguf::Error),
    /// The weights of a tensor can't be used.
    #[error(transparent)]
    Weights(#[from] crate::weight_types::Error),
    /// An architecture that there is no code for.
    #[error("architecture {got:?} is not supported; supported: {supported}")]
    Architecture {
        /// `general.architecture`.
        got: String,
        /// Those that there is code for.
        supported: String,
    },
    /// The threads or the instruction set that were asked for can't be had.
    #[error(transparent)]
    Threads(#[from] halfbyte_threadpool::Error),
    /// A state can't be cut back.
    #[error(transparent)]
    CannotCut(#[from] super::CannotCut),
    /// A copy of a state was to be restored into another kind of session.
    #[error("the copy of a state is of another model or of another kind of session")]
    OtherState,
    /// A sequence was asked for on a device that the model's weights are not on.
    #[error("the options are for a device that the model's weights are not on")]
    OtherDevice,
    /// A state that several processes have parts of was to be copied.
    #[error("the state of a model on several ranks can't be copied")]
    Unsaved,
    /// A feature of a supported architecture that there is no code for.
    #[error("{key} = {got} is not supported; supported: {supported}")]
    Feature {
        /// The metadata key.
        key: String,
        /// Its value.
        got: String,
        /// What there is.
        supported: &'static str,
    },
    /// A hyperparameter makes no sense.
    #[error("{key} = {got}: expected {expected}")]
    Hyperparameter {
        /// The metadata key.
        key: String,
        /// Its value.
        got: String,
        /// What it must be.
        expected: String,
    },
    /// A tensor has another shape than the hyperparameters ask for.
    #[error("tensor {tensor}: expected shape {expected:?} (inputs first), got {got:?}")]
    TensorShape {
        /// Its name.
        tensor: String,
        /// The shape it must have.
        expected: Vec<usize>,
        /// The shape it has.
        got: Vec<usize>,
    },
    /// A tensor that the architecture does not use: the model would not be the one that the file means.
    #[error("tensor {tensor} is not part of architecture {architecture} as supported here")]
    ExtraTensor {
        /// Its name.
        tensor: String,
        /// The file's architecture.
        architecture: &'static str,
    },
    /// A norm or bias in a type other than F32, F16 or BF16.
    #[error("tensor {tensor} has type {got}; supported for norms and biases: F32, F16, BF16")]
    VectorType {
        /// Its name.
        tensor: String,
        /// Its type.
        got: &'static str,
    },
    /// A token id that the vocabulary does not have.
    #[error("token id {id} is outside the vocabulary of {n_vocab}")]
    Token {
        /// The id.
        id: u32,
        /// Tokens in the vocabulary.
        n_vocab: usize,
    },
    /// The tokens do not fit in the context.
    #[error("{wanted} tokens do not fit in a context of {context} ({used} are used)")]
    ContextFull {
        /// Tokens in the context already.
        used: usize,
        /// Tokens to be added.
        wanted: usize,
        /// What the session was made for.
        context: usize,
    },
    /// A session was asked for a context longer than the model's.
    #[error("a context of {wanted} was asked for; the model is trained for up to {trained}, the least is 1")]
    Context {
        /// What was asked for.
        wanted: usize,
        /// The model's context length.
        trained: usize,
    },
    /// No tokens were given.
    #[error("no tokens to feed: at least 1 is needed")]
    NoTokens,
    /// More ranks than a model can be split among.
    #[error("{ranks} ranks can't share {most} {what}: expected 1 to {most} ranks")]
    TooManyRanks {
        /// The ranks.
        ranks: usize,
        /// The most that there can be.
        most: usize,
        /// What is to be split.
        what: &'static str,
    },
    /// A model has layers that can't be split among ranks.
    #[error("ranks can't share a model with {part}: expected attention without gates in all layers")]
    Unshared {
        /// What its layers have.
        part: &'static str,
    },
    /// A model was to be shared after it was packed.
    #[error("a packed model can't be shared among ranks: expected one that is not packed yet")]
    SharePacked,
    /// A session on a share was to be connected as another rank than the share's.
    #[error("rank {got} of {got_count} was given the share of rank {expected} of {expected_count}")]
    WrongRank {
        /// The share's rank.
        expected: usize,
        /// The ranks that the model was shared among.
        expected_count: usize,
        /// The rank.
        got: usize,
        /// The ranks there are.
        got_count: usize,
    },
    /// Another rank can't do its part.
    #[error("rank {rank}: {why}")]
    Rank {
        /// Its number.
        rank: usize,
        /// What it said.
        why: String,
    },
    /// The other ranks can't be reached, or they sent what makes no sense.
    #[error("the connection to the other ranks: {why}")]
    Link {
        /// What happened.
        why: String,
    },
    /// A device refused, or failed.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] super::cuda::CudaError),
    /// A kernel refused its arguments.
    #[error(transparent)]
    Kernel(#[from] halfbyte_cpu_kernels::Error),
    /// The attention refused its arguments.
    #[error(transparent)]
    Attention(#[from] halfbyte_attention::Error),
}
