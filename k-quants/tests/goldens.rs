//! What the `gguf` Python package and llama.cpp decode random blocks to: `goldens/make_ggml_blocks.py` has the layout of
//! the file.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{f32s, golden, name, number, read, take};
use halfbyte_k_quants::*;
use std::collections::BTreeMap;

/// The blocks of one type and their weights.
struct Record {
    weights: usize,
    bytes: usize,
    blocks: Vec<u8>,
    /// The bits of the weights of the first blocks.
    shown: Vec<u32>,
    /// A hash of the bits of each block's weights.
    hashes: Vec<u64>,
}

fn records() -> BTreeMap<String, Record> {
    let file = golden("ggml_blocks.bin");
    let (mut data, mut records) = (&file[..], BTreeMap::new());
    while !data.is_empty() {
        let name = name(&mut data);
        let [weights, bytes, n, shown] = std::array::from_fn(|_| number(&mut data));
        let blocks = take(&mut data, n * bytes).to_vec();
        let shown = f32s(&mut data, shown * weights);
        let hashes = take(&mut data, n * 8).as_chunks::<8>().0;
        let record = Record {
            weights,
            bytes,
            blocks,
            shown: shown.into_iter().map(f32::to_bits).collect(),
            hashes: hashes.iter().map(|&hash| u64::from_le_bytes(hash)).collect(),
        };
        records.insert(name, record);
    }
    records
}

/// The bits of a weight; all NaNs are alike.
fn bits(w: f32) -> u32 {
    if w.is_nan() { 0x7fc0_0000 } else { w.to_bits() }
}

/// FNV-1a of the bytes of the numbers, the lowest byte first.
fn fnv(numbers: &[u32]) -> u64 {
    numbers
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn check<B: Block>(records: &mut BTreeMap<String, Record>) {
    let record = records.remove(B::NAME).unwrap_or_else(|| panic!("no {}", B::NAME));
    assert_eq!((B::WEIGHTS, size_of::<B>()), (record.weights, record.bytes), "{}", B::NAME);
    let blocks: Vec<B> = read(&record.blocks);
    let mut out = vec![f32::from_bits(0x7fc0_beef); blocks.len() * B::WEIGHTS];
    dequantize_row(&blocks, &mut out).unwrap();
    let out: Vec<u32> = out.into_iter().map(bits).collect();
    for (i, (&got, &want)) in out.iter().zip(&record.shown).enumerate() {
        let (got, want) = (f32::from_bits(got), f32::from_bits(want));
        let (block, at) = (i / B::WEIGHTS, i % B::WEIGHTS);
        assert_eq!(bits(got), bits(want), "{}: weight {at} of block {block} is {got}, not {want}", B::NAME);
    }
    for (block, (weights, &hash)) in out.chunks_exact(B::WEIGHTS).zip(&record.hashes).enumerate() {
        assert_eq!(fnv(weights), hash, "{}: weights of block {block}", B::NAME);
    }
}

/// Calls a generic function with every block of the crate.
macro_rules! each {
    ($function:ident($argument:expr)) => {
        each!($function, $argument, BlockQ5_0, BlockQ5_1, BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K);
        each!($function, $argument, BlockIq4Nl, BlockIq4Xs, BlockMxfp4, BlockNvfp4, BlockIq1S, BlockIq1M);
        each!($function, $argument, BlockIq2Xxs, BlockIq2Xs, BlockIq2S, BlockIq3Xxs, BlockIq3S);
        each!($function, $argument, BlockTq1_0, BlockTq2_0, BlockQ1_0, BlockQ2_0);
    };
    ($function:ident, $argument:expr, $($block:ident),*) => { $($function::<$block>($argument);)* };
}

#[test]
fn blocks_decode_as_those_of_ggml_do() {
    let mut records = records();
    assert_eq!(records.len(), 22);
    each!(check(&mut records));
    assert!(records.is_empty(), "{:?} were not checked", records.keys());
}

/// Decodes blocks of any bytes: there is no panic, and no weight is left out.
fn decode_any<B: Block>(rng: &mut halfbyte_testing::Rng) {
    let bytes: Vec<u8> = (0..2000 * size_of::<B>()).map(|_| rng.byte()).collect();
    let blocks: Vec<B> = read(&bytes);
    let poison = f32::from_bits(0x7fc0_beef);
    let mut out = vec![poison; blocks.len() * B::WEIGHTS];
    dequantize_row(&blocks, &mut out).unwrap();
    assert!(out.iter().all(|w| w.to_bits() != poison.to_bits()), "{}", B::NAME);
    // One weight too few, and nothing is written.
    let end = out.len() - 1;
    out.fill(poison);
    let refused = dequantize_row(&blocks, &mut out[..end]).unwrap_err();
    let (expected, got) = (2000 * B::WEIGHTS, 2000 * B::WEIGHTS - 1);
    assert_eq!(refused, Error::Length { what: "out", expected, got });
    assert!(out.iter().all(|w| w.to_bits() == poison.to_bits()), "{}", B::NAME);
}

#[test]
fn any_bytes_decode() {
    const SEED: u64 = 20_261_201;
    println!("seed {SEED}");
    let mut rng = halfbyte_testing::Rng(SEED);
    each!(decode_any(&mut rng));
}
