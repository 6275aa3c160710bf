//! Attention of a few rows over chunks of the cache: against f64, and the same bits in any window.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod gpu;

use common::attention::{Case, bits, params};
use gpu::on_gpu;
use half::bf16;
use halfbyte_cuda_driver::{DeviceBuffer, Stream};
use halfbyte_cuda_emulator::EmulatorConfig;
use halfbyte_cuda_kernels::attention::{
    AttentionParams, CHUNK, DecodeBuffers, DeviceKvCache, KvFormat, KvLayout, Problem, decode, prefill,
};
use halfbyte_cuda_kernels::{Error, Kernels, Profiler};
use halfbyte_testing::Rng;

use KvFormat::{Bf16, Fp8};

#[test]
fn outputs_are_within_the_bound_of_f64() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let mut random = Rng(80);
        for (format, dim) in [(Bf16, 64), (Fp8, 64), (Bf16, 128), (Fp8, 128), (Bf16, 256), (Fp8, 256)] {
            let mut worst = 0f64;
            for round in 0..4 {
                // Groups of 1 to 8 heads, 1 to 8 rows: both widths of blocks.
                let (group, rows) = (1 + random.below(8), 1 + random.below(8));
                let mut of = params(group, 1, dim);
                let first = CHUNK - 10 + random.below(CHUNK);
                if round == 1 {
                    of.window = Some(1 + random.below(CHUNK) as u32);
                }
                if round == 2 {
                    of.soft_cap = Some(3.0);
                }
                let mut case = Case::random(&mut random, format, of, first, rows);
                if round > 1 {
                    case.sinks = Some((0..of.n_heads).map(|_| random.f32() * 4.0).collect());
                }
                let cache = case.cache(context);
                let out = case.decode(&kernels, &cache);
                worst = worst.max(case.twin().compare(&out, &format!("{format} {dim} {of:?}")));
            }
            println!("{format} {dim}: {worst:.2} of the bound");
        }
    });
}

#[test]
fn a_rows_bits_are_the_same_alone_and_in_any_window() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let mut random = Rng(81);
        for (format, window) in [(Bf16, None), (Fp8, None), (Fp8, Some(200))] {
            // Eight rows on both sides of a chunk's end; five heads a row, so windows of three rows fill one block of 16
            // lines and longer ones take the other kernel.
            let of = AttentionParams { window, ..params(10, 2, 64) };
            let case = Case::random(&mut random, format, of, 2 * CHUNK - 4, 8);
            let cache = case.cache(context);
            let whole = bits(&case.decode(&kernels, &cache));
            for window in [1, 3, 5] {
                for start in 0..=case.rows - window {
                    let part = bits(&case.part(start..start + window).decode(&kernels, &cache));
                    let width = case.params.width();
                    assert_eq!(part, whole[start * width..][..window * width], "{format} {start}+{window}");
                }
            }
            // Positions after a row's own that other rows have written do not matter either.
            let alone = case.part(2..3);
            let earlier = Case { kv_len: alone.first + 1, ..alone.clone() };
            let (a, b) = (alone.decode(&kernels, &cache), earlier.decode(&kernels, &cache));
            assert_eq!(bits(&a), bits(&b));
        }
    });
}

#[test]
fn a_launch_says_its_work() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let case = Case::random(&mut Rng(82), Fp8, params(4, 2, 64), 299, 1);
        let cache = case.cache(context);
        let (profiler, stream) = (Profiler::new(context), Stream::legacy_default(context));
        let q = DeviceBuffer::from_slice(context, &case.q).unwrap();
        let mut out = DeviceBuffer::uninit(context, case.q.len()).unwrap();
        let mut buffers = DecodeBuffers::new(context, &case.params, 1, 300).unwrap();
        let problem = Problem {
            params: case.params,
            sinks: None,
            cache: &cache,
            kv_len: 300,
            first: 299,
            rows: 1,
            q: q.as_slice(),
        };
        decode(&kernels, profiler.queue(&stream), &problem, &mut buffers, &mut out.as_mut_slice()).unwrap();
        let report = profiler.take().unwrap();
        let row = report.rows.iter().find(|r| r.kernel == "attention_decode_fp8_d64_16").unwrap();
        // Two products of 4 heads, 300 positions, 64 numbers; queries and outputs, keys and values of 68 bytes a row.
        assert_eq!(row.shape, "1x300h4/2d64");
        assert_eq!(row.work.operations, 2 * 2 * 4 * 300 * 64);
        assert_eq!(row.work.bytes, 2 * 4 * 64 * 2 + 2 * 2 * 300 * 68);
    });
}

#[test]
fn what_does_not_fit_is_refused_before_work() {
    on_gpu(EmulatorConfig::default(), |context, emulator| {
        let kernels = Kernels::new(context).unwrap();
        let stream = Stream::legacy_default(context);
        let of = params(4, 2, 64);
        let cache = DeviceKvCache::new(context, KvLayout::new(Bf16, 2, 64, 100).unwrap()).unwrap();
        let q = DeviceBuffer::<bf16>::zeroed(context, 2 * of.width()).unwrap();
        let mut out = DeviceBuffer::<bf16>::zeroed(context, 2 * of.width() + 8).unwrap();
        let mut buffers = DecodeBuffers::new(context, &of, 2, 100).unwrap();
        let good = Problem {
            params: of,
            sinks: None,
            cache: &cache,
            kv_len: 50,
            first: 48,
            rows: 2,
            q: q.as_slice(),
        };
        let mut refused = |problem: Problem<'_>, outputs: std::ops::Range<usize>| {
            let mut out = out.slice_mut(outputs).unwrap();
            let error = prefill(&kernels, &stream, &problem, &mut out, None).unwrap_err();
            assert_eq!(decode(&kernels, &stream, &problem, &mut buffers, &mut out), Err(error.clone()));
            error
        };
        let all = 0..2 * of.width();
        let with = |change: &dyn Fn(&mut AttentionParams)| {
            let mut problem = good;
            change(&mut problem.params);
            problem
        };
        let e = refused(with(&|h| h.head_dim = 80), all.clone());
        assert_eq!(e, Error::HeadDim { expected: "64, 128 or 256", got: 80 });
        let e = refused(with(&|h| h.n_heads = 5), all.clone());
        assert_eq!(e, Error::HeadGroups { n_heads: 5, n_kv_heads: 2 });
        let e = refused(with(&|h| h.n_kv_heads = 4), all.clone());
        assert_eq!(e, Error::Mismatch { what: "the cache's key/value heads", expected: 4, got: 2 });
        for change in [
            (&|h: &mut AttentionParams| h.scale = f32::NAN) as &dyn Fn(&mut AttentionParams),
            &|h| h.soft_cap = Some(0.0),
            &|h| h.window = Some(0),
        ] {
            assert!(matches!(refused(with(change), all.clone()), Error::Parameter { .. }));
        }
        let e = refused(Problem { kv_len: 129, ..good }, all.clone());
        assert_eq!(e, Error::TooLarge { what: "positions in use of a cache", limit: 128, got: 129 });
        let e = refused(Problem { rows: 1, ..good }, all.clone());
        assert_eq!(e, Error::Length { what: "queries", expected: 256, got: 512 });
        let e = refused(good, 0..8);
        assert_eq!(e, Error::Length { what: "attention's output", expected: 512, got: 8 });
        let e = refused(good, 4..4 + 512);
        assert_eq!(e, Error::Alignment { what: "attention's output", expected: 16, got: 8 });
        let three = DeviceBuffer::<f32>::zeroed(context, 3).unwrap();
        let e = refused(Problem { sinks: Some(three.as_slice()), ..good }, all.clone());
        assert_eq!(e, Error::Length { what: "sinks", expected: 4, got: 3 });

        // Buffers for fewer rows, and for other heads.
        let mut small = DecodeBuffers::new(context, &of, 1, 100).unwrap();
        let mut out = out.slice_mut(all).unwrap();
        let e = decode(&kernels, &stream, &good, &mut small, &mut out).unwrap_err();
        let what = "rows, query heads and chunks in attention's buffers";
        assert_eq!(e, Error::TooLarge { what, limit: 4, got: 8 });
        let mut other = DecodeBuffers::new(context, &params(8, 2, 64), 2, 100).unwrap();
        let e = decode(&kernels, &stream, &good, &mut other, &mut out).unwrap_err();
        assert_eq!(
            e,
            Error::Mismatch { what: "the query heads of attention's buffers", expected: 4, got: 8 }
        );
        if let Some(emulator) = emulator {
            assert!(emulator.launches().is_empty());
        }
    });
}
