//! Goldens and plain re-statements of the formats, shared by the tests.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use half::f16;
use halfbyte_q4::{BlockQ4_0, BlockQ4_1};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::Value;

/// A fixed seed, printed so that a failure names it.
pub(crate) fn config(seed: u64, cases: u32) -> ProptestConfig {
    println!("seed {seed:#x}");
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..Default::default() }
}

/// A file of the workspace's `goldens` folder.
pub(crate) fn golden(name: &str) -> Value {
    let path = format!("{}/../goldens/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_reader(std::fs::File::open(path).unwrap()).unwrap()
}

pub(crate) fn f32s(v: &Value) -> Vec<f32> {
    v.as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A block that no quantizer writes, to find unwritten output.
pub(crate) const POISON_0: BlockQ4_0 = BlockQ4_0 { scale: f16::NAN, codes: [0xa5; 16] };
/// The same for Q4_1.
pub(crate) const POISON_1: BlockQ4_1 = BlockQ4_1 { scale: f16::NAN, min: f16::NAN, codes: [0xa5; 16] };

/// Code of weight `i`, from the layout's definition.
fn nibble(codes: &[u8; 16], i: usize) -> f64 {
    f64::from(if i < 16 { codes[i] % 16 } else { codes[i - 16] / 16 })
}

/// The weights of a Q4_0 block in f64.
pub(crate) fn decode_0(block: &BlockQ4_0) -> [f64; 32] {
    std::array::from_fn(|i| block.scale.to_f64() * (nibble(&block.codes, i) - 8.0))
}

/// The weights of a Q4_1 block in f64.
pub(crate) fn decode_1(block: &BlockQ4_1) -> [f64; 32] {
    std::array::from_fn(|i| block.scale.to_f64() * nibble(&block.codes, i) + block.min.to_f64())
}

/// Squared error of decoded weights.
pub(crate) fn sse(x: &[f32], w: &[f64; 32]) -> f64 {
    x.iter().zip(w).map(|(&x, w)| (f64::from(x) - w).powi(2)).sum()
}

/// Groups of shapes dense, one-sided, coarse, sparse and with an outlier, from below the smallest f16 to
/// near the largest.
pub(crate) fn groups() -> impl Strategy<Value = [f32; 32]> {
    groups_at(-40..14)
}

/// The same with magnitudes of about two to the given powers.
pub(crate) fn groups_at(exponents: std::ops::Range<i32>) -> impl Strategy<Value = [f32; 32]> {
    let dense = prop::array::uniform32(-1.0f32..1.0);
    let shape = (dense, 0..5u8, 0..32usize).prop_map(|(mut x, shape, at)| {
        match shape {
            0 => {}
            1 => x = x.map(|v| 3.0 + v),
            2 => x = x.map(|v| (v * 3.0).round() / 3.0),
            3 => x = x.map(|v| if v.abs() < 0.8 { 0.0 } else { v }),
            _ => x[at] = 20.0,
        }
        x
    });
    (shape, exponents).prop_map(|(x, e)| x.map(|v| v * 2f32.powi(e)))
}
