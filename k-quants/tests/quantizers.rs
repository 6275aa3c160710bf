//! The quantizers beside llama.cpp's: `goldens/make_ggml_quantized.py` has the layout of the file.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{decode, f32s, golden, name, number, read, take};
use halfbyte_k_quants::*;
use std::collections::BTreeMap;

/// A row, with the importances of its columns.
struct Row {
    name: String,
    x: Vec<f32>,
    importance: Vec<f32>,
}

/// The bytes of each row, by type and by whether there were importances.
type Quantized = BTreeMap<(String, bool), Vec<Vec<u8>>>;

/// The rows, and by type and by whether there were importances the bytes that llama.cpp writes for each.
fn goldens() -> (Vec<Row>, Quantized) {
    let file = golden("ggml_quantized.bin");
    let mut data = &file[..];
    let (rows, columns) = (number(&mut data), number(&mut data));
    let rows: Vec<Row> = (0..rows)
        .map(|_| Row {
            name: name(&mut data),
            x: f32s(&mut data, columns),
            importance: f32s(&mut data, columns),
        })
        .collect();
    let mut quantized = BTreeMap::new();
    while !data.is_empty() {
        let ty = name(&mut data);
        let (bytes, weighted) = (number(&mut data), number(&mut data) == 1);
        let blocks = rows.iter().map(|_| take(&mut data, bytes).to_vec()).collect();
        quantized.insert((ty, weighted), blocks);
    }
    (rows, quantized)
}

/// `sum(v (x - w)^2)`.
fn error(x: &[f32], w: &[f32], v: impl IntoIterator<Item = f64>) -> f64 {
    x.iter().zip(w).zip(v).map(|((x, w), v)| v * (f64::from(*x) - f64::from(*w)).powi(2)).sum()
}

/// `r + |x|` with `r` the root of the mean square, block by block.
fn prior(x: &[f32], block: usize) -> Vec<f64> {
    let blocks = x.chunks_exact(block).flat_map(|x| {
        let r = (x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / x.len() as f64).sqrt();
        x.iter().map(move |x| r + f64::from(x.abs()))
    });
    blocks.collect()
}

/// Compares the errors of each block of each row, which must not be above llama.cpp's.
fn compare<B: Fit>() {
    let (rows, quantized) = goldens();
    for weighted in [false, true] {
        for (row, theirs) in rows.iter().zip(&quantized[&(B::NAME.to_owned(), weighted)]) {
            let theirs = decode(&read::<B>(theirs));
            let mut blocks = read::<B>(&vec![0xa5; row.x.len() / B::WEIGHTS * size_of::<B>()]);
            let v: Vec<f64> = if weighted {
                let report = quantize_row_weighted(&row.x, &row.importance, &mut blocks).unwrap();
                assert_eq!(report.uniform_blocks, 0);
                row.importance.iter().map(|&v| v.into()).collect()
            } else {
                quantize_row(&row.x, &mut blocks).unwrap();
                prior(&row.x, B::WEIGHTS)
            };
            let ours = decode(&blocks);
            let [ours_all, theirs_all] = [&ours, &theirs].map(|w| error(&row.x, w, v.iter().copied()));
            println!("{} {} weighted {weighted}: {:.4}", B::NAME, row.name, ours_all / theirs_all);
            assert!(ours_all <= theirs_all, "{}, {}: {ours_all} for {theirs_all}", B::NAME, row.name);
        }
    }
}

macro_rules! comparisons {
    ($($test:ident: $block:ident,)*) => { $(#[test] fn $test() { compare::<$block>(); })* };
}

comparisons! {
    q5_0_is_no_worse_than_llama_cpp: BlockQ5_0,
    q5_1_is_no_worse_than_llama_cpp: BlockQ5_1,
    q2_k_is_no_worse_than_llama_cpp: BlockQ2K,
    q3_k_is_no_worse_than_llama_cpp: BlockQ3K,
    q4_k_is_no_worse_than_llama_cpp: BlockQ4K,
    q5_k_is_no_worse_than_llama_cpp: BlockQ5K,
    q6_k_is_no_worse_than_llama_cpp: BlockQ6K,
    iq4_nl_is_no_worse_than_llama_cpp: BlockIq4Nl,
    iq4_xs_is_no_worse_than_llama_cpp: BlockIq4Xs,
    mxfp4_is_no_worse_than_llama_cpp: BlockMxfp4,
}
