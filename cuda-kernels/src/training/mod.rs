//! What a training step needs beyond the forward pass.
//!
//! - [`attention`]: the gradients of a prompt's attention.
//! - [`rms_norm_backward`], [`swiglu_backward`], [`rope_backward`], [`embed_backward`]: the gradients of the small kernels.
//! - [`cross_entropy`]: the loss and the gradient of the logits.
//! - [`AdamW`]: the optimizer, over the f32 weights and means of an [`AdamState`].
//! - [`Streams`]: a second stream, on which the gradients of the weights run beside those of the activations.
//!
//! The gradients of the matrices are products, which [`matmul`](crate::matmul) computes. No kernel uses atomics, so a step
//! gives the same bits every time. `examples/train_step` puts a whole step together.

mod adamw;
pub mod attention;
mod gradients;
mod loss;
mod streams;

pub use adamw::{AdamState, AdamW};
pub use gradients::{NormGradients, embed_backward, rms_norm_backward, rope_backward, swiglu_backward};
pub use loss::cross_entropy;
pub use streams::{Mark, Streams};
