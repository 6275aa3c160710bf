//! The errors of this crate.

use thiserror::Error;

/// Errors of this crate: what was expected, and what came. Nothing has been queued when a launcher returns one that is
/// not [`Error::Driver`].
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver refused something, or an earlier kernel failed.
    #[error(transparent)]
    Driver(#[from] halfbyte_cuda_driver::Error),

    /// A buffer is not as long as the shape says.
    #[error("{what}: expected {expected} elements, got {got}")]
    Length {
        /// The buffer.
        what: &'static str,
        /// Elements that the shape asks for.
        expected: usize,
        /// Elements it has.
        got: usize,
    },

    /// A number of inputs that a kernel can't take.
    #[error("{kernel} takes a number of inputs that is a multiple of {multiple}, got {got}")]
    Inputs {
        /// The kernel.
        kernel: &'static str,
        /// What the number has to be a multiple of.
        multiple: usize,
        /// The number.
        got: usize,
    },

    /// A number of outputs that a kernel can't make.
    #[error("{kernel} takes a number of outputs that is a multiple of {multiple}, got {got}")]
    Outputs {
        /// The kernel.
        kernel: &'static str,
        /// What the number has to be a multiple of.
        multiple: usize,
        /// The number.
        got: usize,
    },

    /// A width of weights that a kernel does not support.
    #[error("{kernel} takes weights of {expected}, got {got}")]
    Weights {
        /// The kernel.
        kernel: &'static str,
        /// What it takes.
        expected: &'static str,
        /// What came.
        got: String,
    },

    /// Two operands that have to have the same extent.
    #[error("{what}: expected {expected}, got {got}")]
    Mismatch {
        /// The extent.
        what: &'static str,
        /// By one operand.
        expected: usize,
        /// By the other.
        got: usize,
    },

    /// A chunk without rows, or with more than the buffers were made for.
    #[error("a prompt chunk has 1 to {limit} rows, got {got}")]
    ChunkRows {
        /// The most.
        limit: usize,
        /// The number.
        got: usize,
    },

    /// A window without rows, or with more than the kernels take.
    #[error("a window has 1 to {limit} rows, got {got}")]
    WindowRows {
        /// The most.
        limit: usize,
        /// The number.
        got: usize,
    },

    /// A setting of a draw out of its range.
    #[error("a draw's {what} is {expected}, got {got}")]
    Draw {
        /// The setting.
        what: &'static str,
        /// Its range.
        expected: &'static str,
        /// What came.
        got: String,
    },

    /// Positions that a cache or a table does not have.
    #[error("{what} ends at position {end}, {rows} rows begin at {start}")]
    Position {
        /// The cache or table.
        what: &'static str,
        /// Its first missing position.
        end: usize,
        /// The first row's position.
        start: usize,
        /// Rows.
        rows: usize,
    },

    /// A size that a kernel's 32-bit arguments can't hold.
    #[error("{what} is at most {limit}, got {got}")]
    TooLarge {
        /// The size.
        what: &'static str,
        /// The most.
        limit: usize,
        /// The number.
        got: usize,
    },

    /// An address that a kernel's wide loads can't take.
    #[error("{what} must start at a multiple of {expected} bytes, is {got} bytes past one")]
    Alignment {
        /// The buffer.
        what: &'static str,
        /// The alignment in bytes.
        expected: usize,
        /// Bytes past it.
        got: usize,
    },

    /// A buffer of another context than the kernels'.
    #[error("{what} belongs to another context than the kernels")]
    OtherContext {
        /// The buffer.
        what: &'static str,
    },

    /// There is no tile to choose from.
    #[error("no tile for a product of {rows} x {cols} outputs")]
    NoTile {
        /// Rows of the product.
        rows: u32,
        /// Its columns.
        cols: u32,
    },

    /// A number of streams that is neither one nor two.
    #[error("work runs on 1 or 2 streams, got {got}")]
    StreamCount {
        /// The number.
        got: usize,
    },

    /// A precision that does not exist.
    #[error("a prompt's precision is bf16 or int8, got {got:?}")]
    UnknownPrecision {
        /// What came.
        got: String,
    },

    /// A width of attention heads that no kernel was made for.
    #[error("attention kernels take a head_dim of {expected}, got {got}")]
    HeadDim {
        /// The widths.
        expected: &'static str,
        /// The width.
        got: usize,
    },

    /// Query heads that can't be shared out evenly.
    #[error("{n_heads} query heads are no multiple of {n_kv_heads} key/value heads, or none")]
    HeadGroups {
        /// Query heads.
        n_heads: usize,
        /// Key/value heads.
        n_kv_heads: usize,
    },

    /// A parameter of attention that makes no sense.
    #[error("attention's {what} is {expected}, got {got}")]
    Parameter {
        /// The parameter.
        what: &'static str,
        /// What it has to be.
        expected: &'static str,
        /// What came.
        got: String,
    },

    /// A KV cache format that does not exist.
    #[error("a KV cache on a GPU is bf16 or fp8, got {got:?}")]
    UnknownKvFormat {
        /// What came.
        got: String,
    },

    /// A GPU that is too old for the kernels.
    #[error("these kernels need a GPU of compute capability 8.0 or later, {device} has {found}")]
    Device {
        /// The GPU's name.
        device: String,
        /// Its compute capability.
        found: String,
    },
}
