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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlockQ4_0;

    #[test]
    fn blocks_are_those_of_another_linear_algebra() {
        // Recorded with the factorisation and the products of the crate faer 0.24, for the same inputs.
        let recorded =
            [(Scales::Nearest, 0x2fe2_89fc_ab1b_09b9_u64), (Scales::Compensated, 0xccba_165e_8360_995b)];
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        println!("seed {state:#x}");
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
        };
        // Two panels of the factorisation and a half, and several batches of rows.
        let (n, rows) = (320, 256);
        let mut moments = vec![0.0; n * n];
        for i in 0..n {
            (0..i).for_each(|j| moments[i * n + j] = random());
            moments[i * n + i] = 2.0 * (n as f64).sqrt() + 2.0 + random();
        }
        let weights: Vec<f32> = (0..rows * n).map(|_| random() as f32).collect();
        let factor = Factor::new(&moments, n, 32, Options::DEFAULT).unwrap();
        for (scales, expected) in recorded {
            let mut blocks = vec![BlockQ4_0::ZERO; rows * n / 32];
            q4_0_rows(&factor, &weights, scales, &mut blocks).unwrap();
            let numbers = blocks
                .iter()
                .flat_map(|b| std::iter::once(u64::from(b.scale.to_bits())).chain(b.codes.map(u64::from)));
            let hash = numbers.fold(0_u64, |hash, number| hash.wrapping_mul(31).wrapping_add(number));
            assert_eq!(hash, expected, "{scales:?}: {hash:#x}, not {expected:#x}");
        }
    }
}
