//! What all blocks have in common.

use crate::error::{Error, check_len};
use bytemuck::Pod;

/// Weights in a super-block.
pub const SUPER: usize = 256;

/// Weights in a block of the simple formats.
pub const GROUP: usize = 32;

/// A block of weights, as a GGUF file stores it.
///
/// Every pattern of bits is a block: codes have no forbidden values, and grids are indexed by as many bits as they have
/// points. So any bytes decode, to NaN or infinities where a scale is one.
///
/// Fields of two bytes are little-endian on disk; a big-endian host has to swap those of type f16.
pub trait Block: Pod + Send + Sync {
    /// ggml's name of the format.
    const NAME: &'static str;

    /// The number of weights of a block.
    const WEIGHTS: usize;

    /// `[f32; WEIGHTS]`.
    type Weights: AsRef<[f32]> + AsMut<[f32]> + Copy;

    /// The weights in f32, in the order of the row.
    ///
    /// Products of scales and codes are exact where they are in f32's range; where the format has a minimum, the
    /// difference rounds once. The bits are those of the `gguf` Python package.
    #[must_use]
    fn dequantize(&self) -> Self::Weights;
}

/// Expands `blocks` into `out`, `B::WEIGHTS * blocks.len()` weights.
///
/// # Errors
///
/// [`Error::Length`] when `out` has another length; nothing is written then.
///
/// ```
/// use halfbyte_k_quants::{BlockQ6K, dequantize_row};
///
/// let block = BlockQ6K { low: [0x11; 128], high: [0xaa; 64], scales: [2; 16], d: half::f16::from_f32(0.5) };
/// let mut out = [0.0; 256];
/// dequantize_row(&[block], &mut out)?;
/// // Codes 0x21 = 33, one above the middle.
/// assert_eq!(out, [1.0; 256]);
/// # Ok::<(), halfbyte_k_quants::Error>(())
/// ```
pub fn dequantize_row<B: Block>(blocks: &[B], out: &mut [f32]) -> Result<(), Error> {
    check_len("out", blocks.len() * B::WEIGHTS, out.len())?;
    for (out, block) in out.chunks_exact_mut(B::WEIGHTS).zip(blocks) {
        out.copy_from_slice(block.dequantize().as_ref());
    }
    Ok(())
}

/// Asserts the size and the alignment of a block, and that it has as many bytes as the file.
macro_rules! layout {
    ($block:ty, $bytes:literal, $align:literal) => {
        const _: () = assert!(size_of::<$block>() == $bytes && align_of::<$block>() == $align);
    };
}
pub(crate) use layout;

/// Bits 2r and 2r + 1 of a byte, where `codes` has four codes a byte: in each half of 128 weights, byte `i` has the
/// codes of weights `i`, `i + 32`, `i + 64` and `i + 96`, the first lowest.
pub(crate) fn two_bits(codes: &[u8; SUPER / 4], n: usize) -> u8 {
    let (half, run, i) = (n / 128, n % 128 / 32, n % 32);
    codes[32 * half + i] >> (2 * run) & 3
}
