//! What the tests share: the goldens' numbers, and blocks from bytes.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use halfbyte_k_quants::Block;

/// A file of the workspace's `goldens` folder.
pub(crate) fn golden(name: &str) -> Vec<u8> {
    std::fs::read(halfbyte_testing::workspace().join("goldens").join(name)).unwrap()
}

/// Takes `n` bytes off the front.
pub(crate) fn take<'a>(data: &mut &'a [u8], n: usize) -> &'a [u8] {
    let (front, rest) = data.split_at(n);
    *data = rest;
    front
}

/// Takes a number of 32 bits off the front.
pub(crate) fn number(data: &mut &[u8]) -> usize {
    u32::from_le_bytes(take(data, 4).try_into().unwrap()) as usize
}

/// Takes a name of 16 bytes off the front.
pub(crate) fn name(data: &mut &[u8]) -> String {
    let name = String::from_utf8(take(data, 16).to_vec()).unwrap();
    name.trim_end_matches('\0').to_owned()
}

/// Takes `n` f32 off the front.
pub(crate) fn f32s(data: &mut &[u8], n: usize) -> Vec<f32> {
    take(data, 4 * n).as_chunks::<4>().0.iter().map(|&word| f32::from_le_bytes(word)).collect()
}

/// The blocks of `bytes`, which may lie anywhere.
pub(crate) fn read<B: Block>(bytes: &[u8]) -> Vec<B> {
    bytes.chunks_exact(size_of::<B>()).map(bytemuck::pod_read_unaligned).collect()
}

/// The weights of blocks.
pub(crate) fn decode<B: Block>(blocks: &[B]) -> Vec<f32> {
    let mut out = vec![f32::NAN; blocks.len() * B::WEIGHTS];
    halfbyte_k_quants::dequantize_row(blocks, &mut out).unwrap();
    out
}
