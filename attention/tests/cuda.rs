//! The GPU's kernels, on the emulator, beside this crate's f64 twin: one `AttentionParams` means the same on both.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use core::num::NonZero;
use half::bf16;
use halfbyte_attention::cuda::{
    self, DecodeBuffers, DeviceKvCache, KvFormat, KvLayout, KvStorage, Problem, decode, prefill,
};
use halfbyte_attention::{AttentionParams, reference};
use halfbyte_cuda_driver::{Context, DeviceBuffer, Driver, Stream};
use halfbyte_cuda_emulator::Emulator;
use halfbyte_cuda_kernels::Kernels;
use halfbyte_testing::Rng;

/// AttentionParams of 64 numbers, two of queries on each of two of keys and values.
const DIM: usize = 64;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const CAPACITY: usize = 128;

/// Numbers in -1..1 that bf16 holds exactly, from a seed.
fn numbers(seed: u64, count: usize) -> Vec<bf16> {
    let mut rng = Rng(seed);
    (0..count).map(|_| bf16::from_f32(rng.coarse())).collect()
}

fn wide(x: &[bf16]) -> Vec<f32> {
    x.iter().map(|x| x.to_f32()).collect()
}

#[test]
fn one_definition_on_both_sides() {
    let plain = AttentionParams::new(HEADS, KV_HEADS, DIM, 0.125).unwrap();
    let window = NonZero::new(7);
    let (first, rows) = (80, 20);
    let positions = first + rows;
    let q = numbers(1, rows * HEADS * DIM);
    // Rows of all heads, as the twin takes them, and head after head, as a cache holds them.
    let (k, v) = (numbers(2, positions * KV_HEADS * DIM), numbers(3, positions * KV_HEADS * DIM));
    let by_head = |x: &[bf16]| -> Vec<bf16> {
        let mut cache = vec![bf16::NAN; KV_HEADS * CAPACITY * DIM];
        for (i, x) in x.chunks_exact(DIM).enumerate() {
            cache[(i % KV_HEADS * CAPACITY + i / KV_HEADS) * DIM..][..DIM].copy_from_slice(x);
        }
        cache
    };
    let sinks = [0.5, -1.0, 3.0, f32::NEG_INFINITY];

    let emulator = Emulator::new(halfbyte_cuda_emulator::EmulatorConfig::default()).unwrap();
    let entered = emulator.enter();
    let context = Context::primary(Driver::load().unwrap().device(0).unwrap()).unwrap();
    let (kernels, stream) = (Kernels::new(&context).unwrap(), Stream::legacy_default(&context));
    let upload = |x: &[bf16]| DeviceBuffer::from_slice(&context, x).unwrap();
    let storage = KvStorage::Bf16 { keys: upload(&by_head(&k)), values: upload(&by_head(&v)) };
    let layout = KvLayout::new(KvFormat::Bf16, KV_HEADS, DIM, CAPACITY).unwrap();
    let cache = DeviceKvCache::from_storage(layout, storage).unwrap();
    let (queries, on_device) = (upload(&q), DeviceBuffer::from_slice(&context, &sinks).unwrap());
    for (name, params, sinks) in [
        ("causal", plain, None),
        ("window", plain.with_window(window), None),
        ("soft cap", plain.with_soft_cap(Some(0.5)).unwrap(), None),
        ("not causal", plain.with_causal(false), None),
        ("window on both sides, sinks", plain.with_causal(false).with_window(window), Some(&sinks)),
    ] {
        let on_gpu = cuda::AttentionParams::from(params);
        let problem = Problem {
            params: on_gpu,
            sinks: sinks.map(|_| on_device.as_slice()),
            cache: &cache,
            kv_len: positions,
            first,
            rows,
            q: queries.as_slice(),
        };
        let [mut prompt, mut step] =
            [(); 2].map(|()| DeviceBuffer::<bf16>::uninit(&context, q.len()).unwrap());
        prefill(&kernels, &stream, &problem, &mut prompt.as_mut_slice(), None).unwrap();
        let mut buffers = DecodeBuffers::new(&context, &on_gpu, rows, positions).unwrap();
        decode(&kernels, &stream, &problem, &mut buffers, &mut step.as_mut_slice()).unwrap();
        let (q, k, v) = (wide(&q), wide(&k), wide(&v));
        let want = match sinks {
            None => reference::attention(&params, &q, &k, &v, first),
            Some(sinks) => reference::attention_with_sinks(&params, sinks, &q, &k, &v, first),
        };
        for (kernel, got) in [("prefill", prompt.to_vec().unwrap()), ("decode", step.to_vec().unwrap())] {
            let mut worst = 0f64;
            for (got, want) in got.iter().zip(&want) {
                worst = worst.max((got.to_f64() - want).abs());
            }
            println!("{name}, {kernel}: within {worst:.4}");
            // Values are below 1: bf16 rounds weights and outputs by 2^-8 of at most that.
            assert!(worst <= 2.0 / 256.0, "{name}, {kernel}: {worst}");
            // And the test can tell the problems apart.
            let plainly = reference::attention(&plain, &q, &k, &v, first);
            let far = want.iter().zip(&plainly).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(name == "causal" || far > 4.0 / 256.0, "{name} is {far} from causal");
        }
    }
    assert!(emulator.faults().is_empty());
    drop(entered);
}
