//! What the tokenizer tests share.
#![allow(dead_code, reason = "each test that includes this uses a part of it")]

use std::path::Path;

/// The text in `goldens/NAME`.
pub(crate) fn golden_text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../goldens").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The 64-bit FNV-1a hash of the ids' little-endian bytes, in hex: stands for 50,000 recorded ids.
pub(crate) fn fnv1a(ids: &[u32]) -> String {
    let step = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
    let hash = ids.iter().flat_map(|id| id.to_le_bytes()).fold(0xcbf2_9ce4_8422_2325, step);
    format!("{hash:016x}")
}
