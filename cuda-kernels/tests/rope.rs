//! From the projections to attention, through the public launcher: queries, and what is in the cache.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod gpu;

use common::half_bf16_unit;
use gpu::{bf16s, on_gpu};
use half::bf16;
use halfbyte_cuda_driver::{Context, DeviceBuffer, Stream};
use halfbyte_cuda_emulator::EmulatorConfig;
use halfbyte_cuda_kernels::attention::{DeviceKvCache, KvFormat, KvLayout, KvStorage};
use halfbyte_cuda_kernels::{
    DeviceRopeTable, Error, HeadSteps, Kernels, Projections, RopeOrder, reference, rope_kv,
};
use halfbyte_testing::Rng;

const U: f64 = 1.0 / (1 << 24) as f64;

/// A window's shape and steps.
#[derive(Debug, Clone, Copy)]
struct Case {
    rows: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    start: usize,
    joined: bool,
    biases: bool,
    norms: bool,
    rope: Option<RopeOrder>,
    epsilon: f32,
}

/// A cache of poison, to see what was written.
fn cache(context: &Context, layout: KvLayout) -> DeviceKvCache {
    let (elements, scales) = (layout.elements(), layout.scales());
    let storage = match layout.format() {
        KvFormat::Bf16 => KvStorage::Bf16 {
            keys: DeviceBuffer::from_slice(context, &vec![bf16::MAX; elements]).unwrap(),
            values: DeviceBuffer::from_slice(context, &vec![bf16::MAX; elements]).unwrap(),
        },
        KvFormat::Fp8 => KvStorage::Fp8 {
            keys: DeviceBuffer::from_slice(context, &vec![0xff; elements]).unwrap(),
            values: DeviceBuffer::from_slice(context, &vec![0xff; elements]).unwrap(),
            key_scales: DeviceBuffer::from_slice(context, &vec![-7.0; scales]).unwrap(),
            value_scales: DeviceBuffer::from_slice(context, &vec![-7.0; scales]).unwrap(),
        },
    };
    DeviceKvCache::from_storage(layout, storage).unwrap()
}

/// Inputs of a case on the host.
struct Host {
    parts: [Vec<bf16>; 3],
    biases: [Vec<f32>; 3],
    norms: [Vec<f32>; 2],
    frequencies: Vec<f64>,
}

impl Host {
    fn new(random: &mut Rng, case: Case) -> Self {
        let widths = [case.heads, case.kv_heads, case.kv_heads].map(|heads| heads * case.head_dim);
        let mut floats = |n: usize, middle: f32| (0..n).map(|_| middle + random.f32()).collect::<Vec<_>>();
        let (biases, norms) = (widths.map(|n| floats(n, 0.0)), [(); 2].map(|()| floats(case.head_dim, 1.0)));
        let parts = widths.map(|n| bf16s(random, case.rows * n, 1.0));
        Self { parts, biases, norms, frequencies: DeviceRopeTable::frequencies(case.head_dim, 10_000.0) }
    }

    /// A head of part 0 (queries), 1 (keys) or 2 (values) by the formula, and how far f32 may be off.
    fn want(&self, case: Case, part: usize, row: usize, head: usize) -> Vec<(f64, f64)> {
        let d = case.head_dim;
        let heads = if part == 0 { case.heads } else { case.kv_heads };
        let at = (row * heads + head) * d;
        let mut h: Vec<f64> = self.parts[part][at..][..d].iter().map(|v| v.to_f64()).collect();
        let mut bound = vec![0.0; d];
        if case.biases {
            for i in 0..d {
                h[i] += f64::from(self.biases[part][head * d + i]);
                bound[i] = U * h[i].abs();
            }
        }
        if case.norms && part < 2 {
            let w: Vec<f64> = self.norms[part].iter().map(|&w| f64::from(w)).collect();
            // A bias's rounding, relative to each number, comes through the norm twice at most.
            h = reference::rms_norm(&h, &w, f64::from(case.epsilon));
            bound = h.iter().map(|v| 26.0 * U * v.abs()).collect();
        }
        if let Some(order) = case.rope.filter(|_| part < 2) {
            let before = h.clone();
            reference::rotate(&mut h, &self.frequencies, case.start + row, order);
            let partner = |i: usize| match order {
                RopeOrder::Halves => (i + d / 2) % d,
                RopeOrder::Adjacent => i ^ 1,
            };
            bound = (0..d)
                .map(|i| {
                    bound[i] + bound[partner(i)] + 4.0 * U * (before[i].abs() + before[partner(i)].abs())
                })
                .collect();
        }
        h.into_iter().zip(bound).collect()
    }
}

/// Runs the case; the queries, and the cache.
fn run(
    context: &Context,
    kernels: &Kernels,
    case: Case,
    host: &Host,
    format: KvFormat,
) -> (Vec<bf16>, DeviceKvCache) {
    let Case { rows, heads, kv_heads, head_dim, start, .. } = case;
    let stream = Stream::legacy_default(context);
    let layout = KvLayout::new(format, kv_heads, head_dim, start + rows).unwrap();
    let mut cache = cache(context, layout);
    let parts = host.parts.each_ref().map(|part| DeviceBuffer::from_slice(context, part).unwrap());
    let row = |r: usize| {
        host.parts.iter().flat_map(move |part| &part[r * part.len() / rows..][..part.len() / rows])
    };
    let joined: Vec<bf16> = (0..rows).flat_map(row).copied().collect();
    let joined = DeviceBuffer::from_slice(context, &joined).unwrap();
    let biases = host.biases.each_ref().map(|bias| DeviceBuffer::from_slice(context, bias).unwrap());
    let norms = host.norms.each_ref().map(|norm| DeviceBuffer::from_slice(context, norm).unwrap());
    let table = DeviceRopeTable::new(kernels, &host.frequencies, 1.0, start + rows).unwrap();
    let steps = HeadSteps {
        biases: case.biases.then(|| biases.each_ref().map(|b| b.as_slice())),
        norms: case.norms.then(|| norms.each_ref().map(|n| n.as_slice())),
        epsilon: case.epsilon,
        rope: case.rope.map(|order| (&table, order)),
    };
    let projections = if case.joined {
        Projections::Joined(joined.as_slice())
    } else {
        let [queries, keys, values] = parts.each_ref().map(|part| part.as_slice());
        Projections::Separate { queries, keys, values }
    };
    let mut queries = DeviceBuffer::<bf16>::uninit(context, rows * heads * head_dim).unwrap();
    let out = &mut queries.as_mut_slice();
    rope_kv(kernels, &stream, [rows, heads], start, projections, &steps, out, &mut cache).unwrap();
    (queries.to_vec().unwrap(), cache)
}

fn cases() -> Vec<Case> {
    let plain = Case {
        rows: 3,
        heads: 6,
        kv_heads: 2,
        head_dim: 64,
        start: 61,
        joined: false,
        biases: false,
        norms: false,
        rope: Some(RopeOrder::Halves),
        epsilon: 1e-6,
    };
    vec![
        plain,
        Case { rope: Some(RopeOrder::Adjacent), joined: true, ..plain },
        Case { biases: true, rows: 1, start: 0, heads: 9, kv_heads: 3, ..plain },
        Case { norms: true, head_dim: 128, joined: true, start: 4000, rows: 2, ..plain },
        Case { norms: true, biases: true, head_dim: 256, rope: Some(RopeOrder::Adjacent), rows: 2, ..plain },
        Case { rope: None, joined: true, ..plain },
    ]
}

#[test]
fn queries_and_a_bf16_cache_are_within_a_rounding_of_f64_and_nothing_else_is_written() {
    let config = EmulatorConfig { seed: 51, ..EmulatorConfig::default() };
    on_gpu(config, |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let mut random = Rng(51);
        let mut worst = 0f64;
        for case in cases() {
            let host = Host::new(&mut random, case);
            let d = case.head_dim;
            let (queries, cache) = run(context, &kernels, case, &host, KvFormat::Bf16);
            let layout = *cache.layout();
            let KvStorage::Bf16 { keys, values } = cache.storage() else { panic!() };
            let written = [queries, keys.to_vec().unwrap(), values.to_vec().unwrap()];
            for (part, written) in written.iter().enumerate() {
                let heads = if part == 0 { case.heads } else { case.kv_heads };
                for (row, head) in (0..case.rows).flat_map(|r| (0..heads).map(move |h| (r, h))) {
                    let at = if part == 0 { row * heads + head } else { layout.row(head, case.start + row) };
                    for (got, (want, bound)) in written[at * d..].iter().zip(host.want(case, part, row, head))
                    {
                        // The rounding is of a number that f32 has moved.
                        let bound = 1.001 * bound + half_bf16_unit(want.abs() + bound);
                        let error = (got.to_f64() - want).abs();
                        worst = worst.max(error / bound);
                        assert!(
                            error <= bound,
                            "{case:?}, part {part}, row {row}, head {head}: {got} {want}"
                        );
                    }
                }
            }
            for cached in &written[1..] {
                let untouched = cached.iter().filter(|v| **v == bf16::MAX).count();
                assert_eq!(untouched, cached.len() - case.rows * case.kv_heads * d, "{case:?}");
            }
        }
        eprintln!("largest share of the bound: {worst:.3}");
    });
}

#[test]
fn an_fp8_cache_holds_the_codes_of_the_f32_rows() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let mut random = Rng(52);
        for case in cases() {
            let mut host = Host::new(&mut random, case);
            let d = case.head_dim;
            // Values over many binades, with a row of zeros, one of the smallest numbers, and one not finite.
            for (i, v) in host.parts[2].iter_mut().enumerate() {
                let scale = 2f32.powi(random.below(24) as i32 - 16);
                *v = bf16::from_f32(if i / d == 1 { 0.0 } else { v.to_f32() * scale });
            }
            if case.rows * case.kv_heads > 3 {
                host.parts[2][2 * d..][..d].fill(bf16::from_bits(1));
                host.parts[2][3 * d + 7] = bf16::NEG_INFINITY;
            }
            let (queries, cache) = run(context, &kernels, case, &host, KvFormat::Fp8);
            let (others, _) = run(context, &kernels, case, &host, KvFormat::Bf16);
            assert_eq!(queries, others, "queries do not depend on the cache");
            let layout = *cache.layout();
            let KvStorage::Fp8 { keys, values, key_scales, value_scales } = cache.storage() else { panic!() };
            let codes = [keys.to_vec().unwrap(), values.to_vec().unwrap()];
            let scales = [key_scales.to_vec().unwrap(), value_scales.to_vec().unwrap()];
            for (row, head) in (0..case.rows).flat_map(|r| (0..case.kv_heads).map(move |h| (r, h))) {
                let at = layout.row(head, case.start + row);
                // Values without a bias come in exactly: the bits are the twin's.
                let (got, scale) = (&codes[1][at * d..][..d], scales[1][at]);
                if !case.biases {
                    let from = (row * case.kv_heads + head) * d;
                    let exact: Vec<f32> = host.parts[2][from..][..d].iter().map(|v| v.to_f32()).collect();
                    let (want, want_scale) = reference::e4m3_row(&exact);
                    assert_eq!(got, want, "{case:?}, row {row}, head {head}");
                    assert!(scale == want_scale || scale.is_nan() && want_scale.is_nan());
                }
                // Keys: half a step of e4m3 at the number's size, or half the subnormals' step of the row.
                let (got, scale) = (&codes[0][at * d..][..d], f64::from(scales[0][at]));
                for (code, (want, bound)) in got.iter().zip(host.want(case, 1, row, head)) {
                    let number = reference::e4m3(*code) * scale;
                    let step = (want.abs() / 16.0).max(scale * 2f64.powi(-10)) * 1.0001 + 2.0 * bound;
                    assert!((number - want).abs() <= step, "{case:?}: {number} {want}");
                }
            }
            let untouched = scales[0].iter().filter(|s| **s == -7.0).count();
            assert_eq!(untouched, layout.scales() - case.rows * case.kv_heads);
        }
    });
}

#[test]
fn a_rows_bits_do_not_depend_on_its_window() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let mut random = Rng(53);
        let case = Case { norms: true, biases: true, rows: 5, ..cases()[0] };
        let host = Host::new(&mut random, case);
        let (whole, _) = run(context, &kernels, case, &host, KvFormat::Fp8);
        let last = Case { rows: 1, start: case.start + 4, ..case };
        let tail = |part: &Vec<bf16>| part[part.len() / 5 * 4..].to_vec();
        let host = Host { parts: host.parts.each_ref().map(tail), ..host };
        let (alone, _) = run(context, &kernels, last, &host, KvFormat::Fp8);
        assert_eq!(alone, whole[whole.len() / 5 * 4..]);
    });
}

#[test]
fn positions_and_shapes_that_do_not_fit_are_refused() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let stream = Stream::legacy_default(context);
        let layout = KvLayout::new(KvFormat::Bf16, 1, 64, 64).unwrap();
        let mut cache = cache(context, layout);
        let rows = DeviceBuffer::from_slice(context, &[bf16::ONE; 2 * 4 * 64]).unwrap();
        let mut queries = DeviceBuffer::<bf16>::uninit(context, 2 * 2 * 64).unwrap();
        let table = DeviceRopeTable::new(&kernels, &DeviceRopeTable::frequencies(64, 1e4), 1.0, 50).unwrap();
        let other = DeviceRopeTable::new(&kernels, &DeviceRopeTable::frequencies(128, 1e4), 1.0, 64).unwrap();
        let mut run = |start: usize, numbers: usize, table: Option<&DeviceRopeTable>| {
            let steps = HeadSteps { rope: table.map(|t| (t, RopeOrder::Halves)), ..HeadSteps::default() };
            let from = Projections::Joined(rows.slice(0..numbers).unwrap());
            let out = &mut queries.as_mut_slice();
            rope_kv(&kernels, &stream, [2, 2], start, from, &steps, out, &mut cache)
        };
        let position = |what, end, start| Err(Error::Position { what, end, start, rows: 2 });
        assert_eq!(run(63, 512, None), position("the cache", 64, 63));
        assert_eq!(run(usize::MAX, 512, None), position("the cache", 64, usize::MAX));
        assert_eq!(run(49, 512, Some(&table)), position("the rotary table", 50, 49));
        let what = "the head_dim of a rotary table";
        assert_eq!(run(0, 512, Some(&other)), Err(Error::Mismatch { what, expected: 64, got: 128 }));
        assert_eq!(
            run(0, 511, None),
            Err(Error::Length { what: "the projections", expected: 512, got: 511 })
        );
        let KvStorage::Bf16 { keys, .. } = cache.storage() else { panic!() };
        assert!(keys.to_vec().unwrap().iter().all(|v| *v == bf16::MAX));
        assert!(matches!(
            DeviceRopeTable::new(&kernels, &[1.0; 40], 1.0, 4),
            Err(Error::HeadDim { got: 80, .. })
        ));
    });
}
