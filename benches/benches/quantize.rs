//! Quantizers on one core, in weights a second: `quantize/kernel/isa/weights`.
//!
//! `cargo bench -p halfbyte-benches --bench quantize`

#![allow(missing_docs, reason = "criterion's macros make public items")]

use bytemuck::Zeroable;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use halfbyte_cpu_kernels::{Context, Isa, quantize_q4_0_fit};
use halfbyte_q4::{BlockQ4_0, q4_1_row, q4_row, q4_row_fit, q4_row_max, q4_row_optimal};
use halfbyte_q8::{quantize_row, quantize_row_fit};
use halfbyte_threadpool::ThreadPool;
use std::error::Error;
use std::hint::black_box;

/// A quarter of a megabyte of weights: the arithmetic is measured, not the memory.
const WEIGHTS: usize = 1 << 16;

/// A quantizer of rows that has no other path.
fn scalar<B: Zeroable, E: Error>(
    c: &mut Criterion,
    name: &str,
    x: &[f32],
    quantizer: impl Fn(&[f32], &mut [B]) -> Result<(), E>,
) {
    let mut out: Vec<B> = (0..x.len() / 32).map(|_| B::zeroed()).collect();
    let mut group = c.benchmark_group(format!("quantize/{name}"));
    group.throughput(Throughput::Elements(x.len() as u64));
    group.bench_function(BenchmarkId::new("scalar", x.len()), |b| {
        b.iter(|| quantizer(black_box(x), &mut out).expect("finite weights"));
    });
    group.finish();
}

fn quantizers(c: &mut Criterion) {
    // Sums of uniform numbers, near enough to a normal distribution.
    let uniform = |i: usize| ((i as u32).wrapping_mul(0x9e37_79b9) >> 8) as f32 / (1 << 24) as f32 - 0.5;
    let x: Vec<f32> = (0..WEIGHTS).map(|i| 0.02 * (0..6).map(|j| uniform(6 * i + j)).sum::<f32>()).collect();
    scalar(c, "q4_row", &x, q4_row);
    scalar(c, "q4_row_max", &x, q4_row_max);
    scalar(c, "q4_row_fit", &x, q4_row_fit);
    scalar(c, "q4_row_optimal", &x, q4_row_optimal);
    scalar(c, "q4_1_row", &x, q4_1_row);
    scalar(c, "q8_0_row", &x, quantize_row);
    scalar(c, "q8_0_row_fit", &x, quantize_row_fit);
    let mut out = vec![BlockQ4_0::ZERO; WEIGHTS / 32];
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
