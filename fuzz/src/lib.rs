//! What must hold of any bytes that a stranger may send us, one module for each kind of file.
//!
//! Each `check` takes an input of the fuzzer and panics if a promise is broken; that nothing else goes wrong is for
//! AddressSanitizer, overflow checks and the fuzzer's limits on time and memory to see. Each `seeds` has inputs to begin
//! with, made by the code that the regression tests use.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a finding")]

pub mod blocks;
pub mod checkpoint;
pub mod gguf;
pub mod imatrix;
pub mod quantizers;
pub mod requests;
pub mod template;
pub mod tokenizer;

#[path = "../../tokenizer/tests/words/chat_support.rs"]
mod chat_support;
#[path = "../../gguf/tests/files/support.rs"]
mod gguf_support;
#[path = "../../runner/tests/models/source_support.rs"]
mod source_support;

use halfbyte::source::Source;
use halfbyte_cpu_kernels::{Isa, Matrix, Weights};

/// The inputs to begin with.
pub type Seeds = Vec<Vec<u8>>;

/// What a program that fuzzes has to know.
#[derive(Debug)]
pub struct Target {
    /// What it is called.
    pub name: &'static str,
    /// Panics if an input breaks a promise.
    pub check: fn(&[u8]),
    /// The inputs to begin with.
    pub seeds: fn() -> Seeds,
}

/// All there are.
pub const TARGETS: [Target; 9] = [
    Target { name: "gguf", check: gguf::check, seeds: gguf::seeds },
    Target {
        name: "safetensors",
        check: checkpoint::check_safetensors,
        seeds: checkpoint::safetensors_seeds,
    },
    Target { name: "mlx", check: checkpoint::check_mlx, seeds: checkpoint::mlx_seeds },
    Target { name: "imatrix", check: imatrix::check, seeds: imatrix::seeds },
    Target { name: "tokenizer", check: tokenizer::check, seeds: tokenizer::seeds },
    Target { name: "template", check: template::check, seeds: template::seeds },
    Target { name: "requests", check: requests::check, seeds: requests::seeds },
    Target { name: "blocks", check: blocks::check, seeds: blocks::seeds },
    Target { name: "quantizers", check: quantizers::check, seeds: quantizers::seeds },
];

/// `n` bytes from the front of `data`, and the rest; fewer if there are not so many.
fn take(data: &[u8], n: usize) -> (&[u8], &[u8]) {
    data.split_at(n.min(data.len()))
}

/// A little-endian u16 from the front of `data`, 0 if it is not there, and the rest.
fn take_u16(data: &[u8]) -> (usize, &[u8]) {
    match data.split_first_chunk() {
        Some((n, rest)) => (usize::from(u16::from_le_bytes(*n)), rest),
        None => (0, &[]),
    }
}

/// `data` and `n` zeros behind it. (`Vec::resize` is a loop here, counted and checked a byte at a time.)
fn with_zeros(data: &[u8], n: usize) -> Vec<u8> {
    let mut out = vec![0; data.len() + n];
    out[..data.len()].copy_from_slice(data);
    out
}

/// Decodes the first and the last row of every tensor that there is code for.
fn decode(source: &dyn Source) {
    for info in source.tensors() {
        let Ok(weights) = source.weights(info) else { continue };
        assert!(!matches!(weights, Weights::Packed(_)));
        let cols = info.row_len();
        let Ok(matrix) = Matrix::new(weights, info.n_rows(), cols) else { continue };
        let mut row = vec![0.0; cols];
        for at in [0, info.n_rows() - 1] {
            matrix.decode_row(Isa::fastest(), at, &mut row).unwrap();
            // A row of the file, whatever the order of its heads.
            assert!(source.stored_row(info, at) < info.n_rows().max(info.row_len()));
        }
    }
}
