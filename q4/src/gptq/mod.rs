//! Error-compensated rounding: codes that keep the products `W x` close, rather than `W` itself.
//!
//! Let `X` be inputs of a matrix, recorded from a text, and `H = X^T X` their second moments. If a row `w` becomes `q`,
//! the squared error of its outputs is `(w - q)^T H (w - q)`. Rounding every weight to its nearest level
//! ignores that the errors of correlated columns add up. The method known as GPTQ (Frantar et al.,
//! 2022) rounds one column after the other and changes the columns still to come so that they compensate for
//! the errors made so far. Written with the Cholesky factor `H = L L^T` the squared output error is
//!
//! ```text
//! |L^T e|^2 = sum over j of ( L_jj e_j + sum over k > j of L_kj e_k )^2        e = w - q
//! ```
//!
//! Columns are taken from the last of the factor to the first. When column `j` is reached, the second sum is
//! known, and the level nearest to `w_j + sum(L_kj e_k) / L_jj` minimises the term. This gives the same codes as the
//! published method, which uses the inverse of `H`, without inverting it.
//!
//! A group's scale is chosen when the group is reached, for its weights as changed so far, see [`Scales`].
//! The results are ordinary Q4_0, Q4_1 or MLX affine blocks.
//!
//! ```
//! use halfbyte_q4::gptq::{Factor, Options, Order, Scales, q4_0_rows};
//! use halfbyte_q4::{BlockQ4_0, GROUP};
//! // Two inputs are always equal, the others are independent: the errors of those two columns can cancel.
//! let mut h = vec![0.0; GROUP * GROUP];
//! (0..GROUP).for_each(|i| h[i * GROUP + i] = 1.0);
//! (h[1], h[GROUP]) = (1.0, 1.0);
//! let factor = Factor::new(&h, GROUP, GROUP, Options { damping: 0.01, order: Order::Activation })?;
//! let w: Vec<f32> = (0..GROUP).map(|i| (i as f32).sin()).collect();
//! let mut out = [BlockQ4_0::ZERO];
//! q4_0_rows(&factor, &w, Scales::Compensated, &mut out)?;
//! let q = out[0].dequantize();
//! assert!((w[0] + w[1] - q[0] - q[1]).abs() < 0.04);
//! # Ok::<(), halfbyte_q4::Error>(())
//! ```
//!
//! Sums are f64, in an order that the sizes alone decide. The bytes do not depend on how rows are distributed over calls
//! or threads, nor on the machine's instruction set.

mod cholesky;
mod factor;
mod grid;
mod group;
mod product;
mod rows;

pub use factor::{Factor, Options, Order};
pub use rows::{Report, Scales, affine_rows, q4_0_rows, q4_1_rows};
