//! `w4a8_quantize` and `group_sums` against plain Rust, bit for bit.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::prefill::{Inputs, exact_sum, position, quantize};
use common::{Activations as _, Arg, Device, pad4};
use half::bf16;
use halfbyte_testing::Rng;

const GROUPS: [usize; 3] = [32, 64, 128];

/// Quantizes on the device and in plain Rust; codes, scales, sums and marks have to have the same bits.
fn compare(device: &Device, x: &[bf16], m: usize, k: usize, group: usize, chunk: usize) {
    let got = Inputs::new(device, x, m, k, group, chunk);
    let (want, marks) = quantize(x, m, k, group, chunk);
    assert_eq!(device.download_written::<i8>(got.codes, m * k), want.codes, "codes, group {group}");
    assert_eq!(got.marks, marks, "marks, group {group}");
    let groups = k / group;
    let padded = group_sums(device, x, m, k, group);
    for (what, got, want) in [
        ("scale", device.download::<f32>(got.scales, groups * pad4(m)), &want.scales),
        ("sum", device.download::<f32>(got.sums, groups * pad4(m)), &want.sums),
        ("group_sums", padded, &want.sums),
    ] {
        for g in 0..groups {
            for r in 0..m {
                let (got, want) = (got[g * pad4(m) + r], want[g * m + r]);
                assert_eq!(
                    got.to_bits(),
                    want.to_bits(),
                    "{what} of row {r}, group {g} of {group}: {got} {want}"
                );
            }
        }
    }
}

fn group_sums(device: &Device, x: &[bf16], m: usize, k: usize, group: usize) -> Vec<f32> {
    let sums = device.reserve::<f32>(k / group * pad4(m));
    let args = [device.upload(x), sums, Arg::U32(m), Arg::U32(k)];
    device.run(&format!("group_sums_g{group}"), [m, k.div_ceil(1024)], &args);
    device.download(sums, k / group * pad4(m))
}

#[test]
fn random_rows_have_the_bits_of_plain_rust() {
    let (device, mut random) = (Device::new(1), Rng(1));
    for group in GROUPS {
        // Whole and partial blocks of 1,024 inputs, rows that are no multiple of 4.
        for (m, k) in [(1, group), (3, 5 * group), (5, 1024 + group), (6, 2176)] {
            compare(&device, &random.activations(m * k), m, k, group, 2);
        }
    }
}

#[test]
fn groups_of_any_magnitude_and_spread_have_the_bits_of_plain_rust() {
    let (device, mut random) = (Device::new(2), Rng(2));
    for group in GROUPS {
        // Exponents of a row's numbers within 47 binades below its top, over the whole range of bf16.
        let (m, k) = (64, group);
        let x: Vec<bf16> = (0..m)
            .flat_map(|row| {
                let top = (row * 3 + 4).min(245);
                (0..k).map(|_| random_bf16(&mut random, top, 47)).collect::<Vec<_>>()
            })
            .collect();
        compare(&device, &x, m, k, group, 7);
    }
}

/// Any sign and significand, the exponent field at most `spread` below `top`, sometimes 0.
fn random_bf16(random: &mut Rng, top: usize, spread: usize) -> bf16 {
    let field = top - random.below(top.min(spread) + 1);
    bf16::from_bits((random.below(2) << 15 | field << 7 | random.below(128)) as u16)
}

#[test]
fn the_rule_is_the_one_of_halfbyte_q8() {
    let (device, mut random) = (Device::new(3), Rng(3));
    let (m, k) = (4, 256);
    let x = random.activations(m * k);
    let got = Inputs::new(&device, &x, m, k, 32, m);
    let (codes, scales) =
        (device.download::<i8>(got.codes, m * k), device.download::<f32>(got.scales, k / 32 * m));
    for (i, group) in x.chunks(32).enumerate() {
        let (r, g) = (i / (k / 32), i % (k / 32));
        let values: [f32; 32] = std::array::from_fn(|j| group[j].to_f32());
        let halfbyte_q8::Group { codes: want, scale } = halfbyte_q8::quantize_group(&values, f32::INFINITY);
        let found: Vec<i16> = (0..32).map(|j| codes[r * k + position(g * 32 + j)].into()).collect();
        assert_eq!((found.as_slice(), scales[g * m + r]), (want.as_slice(), scale));
    }
}

#[test]
fn ties_round_to_even_and_minus_128_never_comes() {
    let device = Device::new(4);
    // A largest magnitude of 254 makes the scale 2: odd numbers are ties.
    let mut x = [0.0f32; 64];
    x[..8].copy_from_slice(&[-254.0, 1.0, 3.0, 5.0, -1.0, -3.0, -5.0, 253.0]);
    let x: Vec<bf16> = x.into_iter().map(bf16::from_f32).collect();
    let got = Inputs::new(&device, &x, 1, 64, 64, 1);
    let codes = device.download::<i8>(got.codes, 64);
    let found: Vec<i8> = (0..8).map(|c| codes[position(c)]).collect();
    assert_eq!(found, [-127, 0, 2, 2, 0, -2, -2, 126]);
}

#[test]
fn wide_spreads_lose_less_than_the_documented_part_of_the_sum() {
    let (device, mut random) = (Device::new(5), Rng(5));
    let (m, k, group) = (40, 128, 128);
    let x: Vec<bf16> = (0..m * k).map(|_| random_bf16(&mut random, 200, 85)).collect();
    let sums = group_sums(&device, &x, m, k, group);
    let mut inexact = 0;
    for (r, row) in x.chunks(k).enumerate() {
        let (got, want) = (f64::from(sums[r]), f64::from(exact_sum(row)));
        let amax = row.iter().map(|v| f64::from(v.to_f32().abs())).fold(0.0, f64::max);
        // What is cut off, and one rounding of the result on each side.
        let bound = 128.0 * amax * 2f64.powi(-47) + want.abs() * 2f64.powi(-23);
        assert!((got - want).abs() <= bound, "row {r}: {got} {want}");
        inexact += u32::from(got != want);
    }
    println!("{inexact} of {m} sums were not correctly rounded");
}

#[test]
fn non_finite_and_huge_inputs_mark_their_chunk_only() {
    let device = Device::new(6);
    let (m, k) = (12, 256);
    for group in GROUPS {
        for (value, mark) in [
            (f32::NAN, 1),
            (f32::INFINITY, 1),
            (f32::NEG_INFINITY, 1),
            (3.5e33, 2),
            (-3.3e38, 2),
            (3.3e33, 0),
            (1e-38, 0),
        ] {
            let mut x: Vec<bf16> = Rng(7).activations(m * k);
            x[7 * k + 130] = bf16::from_f32(value);
            compare(&device, &x, m, k, group, 4);
            assert_eq!(Inputs::new(&device, &x, m, k, group, 4).marks, [0, mark, 0], "{value}");
        }
    }
}

#[test]
fn zeros_and_the_smallest_numbers_have_scale_zero_and_an_exact_sum() {
    let device = Device::new(8);
    let mut x = vec![bf16::ZERO; 2 * 64];
    for v in &mut x[64..] {
        *v = bf16::from_bits(1);
    }
    let got = Inputs::new(&device, &x, 2, 64, 64, 2);
    assert_eq!(device.download::<i8>(got.codes, 128), [0; 128]);
    assert_eq!(device.download::<f32>(got.scales, 4)[..2], [0.0, 0.0]);
    assert_eq!(device.download::<f32>(got.sums, 4)[..2], [0.0, 64.0 * 2f64.powi(-133) as f32]);
    assert_eq!(got.marks, [0]);
}
