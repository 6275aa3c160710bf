//! Layers that fold all positions into a state of fixed size: the gated delta rule and what stands around it.
//!
//! ```text
//! p = W x                        rows of q | k | v, `DeltaShape::row` wide
//! c = silu(convolution(p))       `causal_convolution`: each channel sees its last few rows
//! q, k = q / |q| / sqrt(n), k / |k|         `normalize_keys`
//! beta = sigmoid(b), decay = exp(rate * softplus(a + bias))      `delta_gates`
//! S = decay * S;  d = beta * (v - S k);  S = S + d k';  o = S q  `gated_delta`
//! y = rms_norm(o) * silu(z)      `rms_norm_gated`
//! ```
//!
//! A short convolution keeps its last few rows alone: `y = c * convolution(b * x)`, by `multiply_assign` and
//! `causal_convolution_linear`.
//!
//! The rule is applied row after row, in prompts as in replies. The form that takes rows in chunks (Yang et al., 2024,
//! arXiv 2412.06464) has the same value in exact arithmetic and another in f32, so that a reply would depend on how its
//! prompt was cut.

mod convolution;
mod delta;
mod gates;

pub use convolution::{causal_convolution, causal_convolution_linear};
pub use delta::{DeltaShape, HeadOrder, gated_delta, normalize_keys};
pub use gates::{delta_gates, rms_norm_gated, sigmoid_gate, split_gated};
