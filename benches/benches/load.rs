//! What checking a file costs before its first token, and what the rest of loading takes.
//!
//! ```text
//! cargo bench -p halfbyte-benches --bench load
//! ```
//!
//! `floor` opens, maps and closes a GGUF file of 24 bytes, which says nothing: the system's share. `open` does it with the
//! model: all of its metadata and tensor list is read, checked and copied out of the file, and no weight is touched. `model`
//! looks for every tensor that the architecture has and compares its shape; `tokenizer` builds the vocabulary and the merges.
//! `read` is a copy of the whole file into memory, which is not done.
//!
//! The model is SmolLM2-135M-Instruct as Q4_1 (`cargo xtask fetch-model`), or what `HALFBYTE_SMOLLM2` names.

#![allow(missing_docs, reason = "criterion_main! makes a public function")]
#![allow(clippy::unwrap_used, reason = "a bench that can't run has nothing to say")]

use core::hint::black_box;
use criterion::{Criterion, criterion_group, criterion_main};
use halfbyte::model::Transformer;
use halfbyte::source;
use halfbyte_gguf::{Gguf, GgufWriter, Metadata};
use halfbyte_tokenizer::{Tokenizer, TokenizerSpec};
use std::path::PathBuf;
use std::sync::Arc;

fn load(c: &mut Criterion) {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/SmolLM2-135M-Instruct.Q4_1.gguf");
    let path = std::env::var_os("HALFBYTE_SMOLLM2").map_or_else(|| PathBuf::from(default), PathBuf::from);
    if !path.exists() {
        println!("SKIPPED: no model at {} (cargo xtask fetch-model)", path.display());
        return;
    }
    let empty = std::env::temp_dir().join(format!("halfbyte-load-{}.gguf", std::process::id()));
    GgufWriter::create(&empty, &Metadata::new(), &[]).unwrap().commit().unwrap();
    let gguf = Gguf::open(&path).unwrap();
    let file = source::open(&path).unwrap();
    let mut group = c.benchmark_group("load");
    group.bench_function("floor", |b| b.iter(|| black_box(Gguf::open(&empty).unwrap())));
    group.bench_function("open", |b| b.iter(|| black_box(Gguf::open(&path).unwrap())));
    group.bench_function("model", |b| {
        b.iter(|| black_box(Transformer::new(Arc::clone(&file)).unwrap()).description().is_tied())
    });
    let spec = || TokenizerSpec::from_metadata(gguf.metadata()).unwrap();
    group.bench_function("tokenizer", |b| b.iter(|| black_box(Tokenizer::new(&spec()).unwrap())));
    group.sample_size(10);
    group.bench_function("read", |b| b.iter(|| black_box(std::fs::read(&path).unwrap())));
    group.finish();
    std::fs::remove_file(&empty).unwrap();
}

criterion_group!(benches, load);
criterion_main!(benches);
