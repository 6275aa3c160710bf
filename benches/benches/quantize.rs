//! Quantizers on one core, in weights a second: `quantize/kernel/isa/weights`.
//!
//! `cargo bench -p halfbyte-benches --bench quantize`

#![allow(missing_docs, reason = "criterion's macros make public items")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use halfbyte_cpu_kernels::{Context, Isa, quantize_q4_0_fit};
use halfbyte_q4::{BlockQ4_0, Error, q4_row, q4_row_fit, q4_row_max};
use halfbyte_threadpool::ThreadPool;
use std::hint::black_box;

/// A quarter of a megabyte of weights: the arithmetic is measured, not the memory.
const WEIGHTS: usize = 1 << 16;

type Quantizer = fn(&[f32], &mut [BlockQ4_0]) -> Result<(), Error>;

fn quantizers(c: &mut Criterion) {
    // Sums of uniform numbers, near enough to a normal distribution.
    let uniform = |i: usize| ((i as u32).wrapping_mul(0x9e37_79b9) >> 8) as f32 / (1 << 24) as f32 - 0.5;
    let x: Vec<f32> = (0..WEIGHTS).map(|i| 0.02 * (0..6).map(|j| uniform(6 * i + j)).sum::<f32>()).collect();
    let mut out = vec![BlockQ4_0::ZERO; WEIGHTS / 32];
    let scalar: [(&str, Quantizer); 3] =
        [("q4_row", q4_row), ("q4_row_max", q4_row_max), ("q4_row_fit", q4_row_fit)];
    for (name, quantizer) in scalar {
        let mut group = c.benchmark_group(format!("quantize/{name}"));
        group.throughput(Throughput::Elements(WEIGHTS as u64));
        group.bench_function(BenchmarkId::new("scalar", WEIGHTS), |b| {
            b.iter(|| quantizer(black_box(&x), &mut out).expect("finite weights"));
        });
    }
    let pool = ThreadPool::new(1).expect("one thread");
    let mut group = c.benchmark_group("quantize/q4_0_fit");
    group.throughput(Throughput::Elements(WEIGHTS as u64));
    for isa in Isa::available() {
        let ctx = Context { pool: &pool, isa };
        group.bench_function(BenchmarkId::new(isa.name(), WEIGHTS), |b| {
            b.iter(|| quantize_q4_0_fit(ctx, black_box(&x), &mut out).expect("finite weights"));
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1))
        .sample_size(20);
    targets = quantizers
}
criterion_main!(benches);
