//! The prompt matrices: their bits against plain Rust, their errors against f64, and what they must not depend on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::prefill::{Format, Inputs, TILES, Weights, position, quantize, run};
use common::{Activations as _, Arg, Device};
use half::bf16;
use halfbyte_testing::Rng;

const FORMATS: [Format; 5] =
    [Format::Affine(32), Format::Affine(64), Format::Affine(128), Format::Q4_0, Format::Q8_0];

/// The int8 formula in the kernels' own roundings, which the integer dot and the fused operations make exact.
fn int8_in_f32(x: &[bf16], m: usize, w: &Weights) -> Vec<bf16> {
    let (k, group) = (w.k, w.format.group());
    let (inputs, _) = quantize(x, m, k, group, m);
    let output = |r: usize, o: usize| {
        let mut y = 0f32;
        for g in 0..k / group {
            let (i, j) = (g * m + r, o * (k / group) + g);
            let dot: i32 = (g * group..(g + 1) * group)
                .map(|c| i32::from(inputs.codes[r * k + position(c)]) * i32::from(w.codes[o * k + c]))
                .sum();
            let offset = inputs.scales[i] * -12_582_912.0;
            let d = (12_582_912 + dot) as f32;
            y = w.scales[j].mul_add(d.mul_add(inputs.scales[i], offset), y);
            if w.format != Format::Q8_0 {
                y = w.biases[j].mul_add(inputs.sums[i], y);
            }
        }
        bf16::from_f32(y)
    };
    (0..m * w.n).map(|i| output(i / w.n, i % w.n)).collect()
}

/// y in f64 and the error that its kernel may make, for one output of row `x`.
fn in_f64(x: &[bf16], w: &Weights, o: usize, int8: bool) -> (f64, f64) {
    const U: f64 = 1.0 / (1 << 24) as f64;
    let (k, group) = (w.k, w.format.group());
    let inputs = quantize(x, 1, k, group, 1).0;
    let (mut y, mut bound) = (0f64, 0f64);
    for g in 0..k / group {
        let j = o * (k / group) + g;
        let (s, b) = (f64::from(w.scales[j]), f64::from(w.biases[j]));
        let columns = g * group..(g + 1) * group;
        let product = |c: usize| {
            let x = if int8 { f64::from(inputs.codes[position(c)]) } else { x[c].to_f64() };
            x * f64::from(w.codes[o * k + c])
        };
        let dot: f64 = columns.clone().map(product).sum();
        if int8 {
            let a = f64::from(inputs.scales[g]);
            y += s * a * dot;
            bound += s.abs() * a * (0.75 + U * dot.abs());
        } else {
            y += s * dot;
            bound += 2.0 * U * s.abs() * group as f64 * columns.map(|c| product(c).abs()).sum::<f64>();
        }
        bound += U * y.abs();
        if w.format != Format::Q8_0 {
            y += b * f64::from(inputs.sums[g]);
            bound += U * y.abs();
        }
    }
    // Half a bf16 unit where y is; the factor covers products of the roundings above.
    (y, bound * 1.0001 + 2f64.powi(y.abs().log2().floor() as i32 - 8))
}

/// Compares some outputs with f64; the largest share of the bound that one used.
fn worst_share(x: &[bf16], w: &Weights, y: &[bf16], int8: bool) -> f64 {
    let mut worst = 0f64;
    for (i, got) in y.iter().enumerate() {
        let (r, o) = (i / w.n, i % w.n);
        let (want, bound) = in_f64(&x[r * w.k..][..w.k], w, o, int8);
        let share = (got.to_f64() - want).abs() / bound;
        assert!(share <= 1.0, "{:?} row {r}, output {o}: {got}, {want} +- {bound}", w.format);
        worst = worst.max(share);
    }
    worst
}

#[test]
fn int8_has_the_bits_of_plain_rust_in_every_format_and_tile() {
    let (device, mut random) = (Device::new(10), Rng(10));
    for format in FORMATS {
        // Ragged both ways; three groups, so that the parameters are not a whole fetch of eight.
        let (m, n, k) = (19, 133, 3 * format.group());
        let w = Weights::random(format, n, k, &mut random);
        let uploaded = w.upload(&device);
        let x = random.activations(m * k);
        let inputs = Inputs::new(&device, &x, m, k, format.group(), m);
        let want = int8_in_f32(&x, m, &w);
        for rows in TILES {
            let got = run(&device, &inputs, &w, &uploaded, true, rows);
            assert_eq!(got, want, "{}", format.entry(true, rows));
        }
        println!("{format:?}: worst share of the bound {:.3}", worst_share(&x, &w, &want, true));
    }
}

#[test]
fn bf16_is_within_its_bound_in_every_format_and_the_same_in_every_tile() {
    let (device, mut random) = (Device::new(11), Rng(11));
    for format in FORMATS {
        let (m, n, k) = (18, 130, 3 * format.group());
        let w = Weights::random(format, n, k, &mut random);
        let uploaded = w.upload(&device);
        let x = random.activations(m * k);
        let inputs = Inputs::new(&device, &x, m, k, format.group(), m);
        let first = run(&device, &inputs, &w, &uploaded, false, TILES[0]);
        println!("{format:?}: worst share of the bound {:.3}", worst_share(&x, &w, &first, false));
        for rows in &TILES[1..] {
            assert_eq!(
                run(&device, &inputs, &w, &uploaded, false, *rows),
                first,
                "{}",
                format.entry(false, *rows)
            );
        }
    }
}

#[test]
fn longer_sums_stay_within_the_bound() {
    let (device, mut random) = (Device::new(12), Rng(12));
    for (format, k) in
        [(Format::Affine(64), 1088), (Format::Affine(64), 1024), (Format::Q4_0, 544), (Format::Q8_0, 512)]
    {
        let (m, n) = (16, 64);
        let w = Weights::random(format, n, k, &mut random);
        let uploaded = w.upload(&device);
        let x = random.activations(m * k);
        let inputs = Inputs::new(&device, &x, m, k, format.group(), m);
        for int8 in [true, false] {
            let y = run(&device, &inputs, &w, &uploaded, int8, 16);
            println!("{format:?}, k {k}, int8 {int8}: worst share {:.3}", worst_share(&x, &w, &y, int8));
        }
    }
}

#[test]
fn a_row_has_the_same_bits_alone_in_any_chunk_and_beside_anything() {
    let (device, mut random) = (Device::new(13), Rng(13));
    let format = Format::Affine(64);
    let (m, n, k) = (70, 72, 192);
    let w = Weights::random(format, n, k, &mut random);
    let uploaded = w.upload(&device);
    let x = random.activations(m * k);
    // Rows of other magnitudes and a NaN beside the ones compared.
    let mut other = x.clone();
    for (i, v) in other.iter_mut().enumerate() {
        if i / k % 2 == 1 {
            *v = if i == k + 5 { bf16::NAN } else { bf16::from_f32(random.f32() * 1e4) };
        }
    }
    for int8 in [true, false] {
        let all = run(&device, &Inputs::new(&device, &x, m, k, 64, m), &w, &uploaded, int8, 64);
        for (first, rows, tile) in [(0, 1, 16), (69, 1, 128), (3, 40, 32), (43, 27, 64)] {
            let part = &x[first * k..][..rows * k];
            let got = run(&device, &Inputs::new(&device, part, rows, k, 64, rows), &w, &uploaded, int8, tile);
            assert_eq!(got, all[first * n..][..rows * n], "rows {first}.. of {rows}");
        }
        let beside = run(&device, &Inputs::new(&device, &other, m, k, 64, m), &w, &uploaded, int8, 128);
        for r in (0..m).step_by(2) {
            assert_eq!(beside[r * n..][..n], all[r * n..][..n], "row {r}");
        }
        assert!(beside[n..2 * n].iter().all(|v| v.is_nan()), "a NaN reaches every output of its row");
    }
}

/// The integer dots, all their bits: with scale 1, `a` 1 and one group, y is the dot rounded to bf16. Biases take what is
/// known off, until the rest is exact.
#[test]
fn integer_dots_are_exact_to_the_last_bit() {
    let (device, mut random) = (Device::new(14), Rng(14));
    for group in [32, 64, 128] {
        // One group holds the dot, the other two have codes 0 and pay for what is known of it.
        let (n, k) = (40, 3 * group);
        // 127 makes the scale 1; the last input makes each group's sum 1.
        let mut x: Vec<i32> = (0..k).map(|_| random.below(255) as i32 - 127).collect();
        for g in x.chunks_mut(group) {
            for i in (2..group).step_by(2) {
                g[i + 1] = -g[i];
            }
            (g[0], g[1]) = (127, -126);
        }
        let rows = x.iter().map(|&v| bf16::from_f32(v as f32)).collect::<Vec<_>>();
        let mut w = Weights::random(Format::Affine(group), n, k, &mut random);
        w.scales.fill(1.0);
        w.biases.fill(0.0);
        for o in 0..n {
            w.codes[o * k + group..][..2 * group].fill(0);
            if o == 0 {
                // The largest there is with these inputs: 15 wherever they are positive.
                for (code, x) in w.codes.iter_mut().zip(&x[..group]) {
                    *code = if *x > 0 { 15 } else { 0 };
                }
            }
        }
        let inputs = Inputs::new(&device, &rows, 1, k, group, 1);
        let mut dots = vec![0f32; n];
        for pass in 0..3 {
            let y = run(&device, &inputs, &w, &w.upload(&device), true, 16);
            for o in 0..n {
                dots[o] += y[o].to_f32();
                if pass < 2 {
                    w.biases[o * 3 + 1 + pass] = -y[o].to_f32();
                }
            }
        }
        for (o, dot) in dots.iter().enumerate() {
            let want: i32 = (0..group).map(|c| x[c] * i32::from(w.codes[o * k + c])).sum();
            assert_eq!(*dot, want as f32, "group {group}, output {o}");
        }
        println!("group {group}: largest dot {}", dots[0]);
    }
}

#[test]
fn extreme_codes_stay_exact() {
    let device = Device::new(15);
    for format in FORMATS {
        let group = format.group();
        let (n, k) = (8, 2 * group);
        let mut w = Weights::random(format, n, k, &mut Rng(15));
        w.codes.fill(if format == Format::Q8_0 { -128 } else { 15 });
        for sign in [1.0, -1.0] {
            let x = vec![bf16::from_f32(sign * 3.25); k];
            let inputs = Inputs::new(&device, &x, 1, k, group, 1);
            let got = run(&device, &inputs, &w, &w.upload(&device), true, 16);
            assert_eq!(got, int8_in_f32(&x, 1, &w), "{format:?}");
        }
    }
}

#[test]
fn no_bank_conflicts_and_no_conversions_of_integers() {
    let device = Device::new(16);
    let mut random = Rng(16);
    let (m, n, k) = (128, 128, 512);
    let x = random.activations(m * k);
    for (format, int8) in [(Format::Affine(64), true), (Format::Affine(64), false), (Format::Q8_0, true)] {
        let w = Weights::random(format, n, k, &mut random);
        let uploaded = w.upload(&device);
        let inputs = Inputs::new(&device, &x, m, k, format.group(), m);
        let y = device.reserve::<bf16>(m * n);
        let mut args = if int8 { vec![inputs.codes, inputs.scales] } else { vec![inputs.x] };
        if format != Format::Q8_0 {
            args.push(inputs.sums);
        }
        args.extend(&uploaded);
        args.extend([y, Arg::U32(m), Arg::U32(n), Arg::U32(k)]);
        let stats = device.run(&format.entry(int8, 128), [1, 1], &args);
        let mma_bytes = if int8 { 32 } else { 16 };
        assert_eq!(stats.mma, (m / 16 * n / 8 * k / mma_bytes) as u64);
        let shared =
            |op: &str| stats.histogram.iter().filter(|(k, _)| k.contains(op)).map(|(_, v)| v).sum::<u64>();
        println!(
            "{}: {} warp instructions, {} mma, {} bank conflicts in {} ldmatrix, {} ld.shared, {} st.shared",
            format.entry(int8, 128),
            stats.warp_instructions,
            stats.mma,
            stats.bank_conflicts,
            shared("ldmatrix"),
            shared("ld.shared"),
            shared("st.shared"),
        );
        assert_eq!((stats.bank_conflicts, shared("cvt.rn.f32.s32")), (0, 0));
    }
}

/// The projections of a 27B model (5,120 wide, feed-forward 17,408) at their full widths, one output in 97 compared:
/// `cargo test --release -p halfbyte-cuda-kernels --test kernels_prefill -- --ignored --nocapture`.
#[test]
#[ignore = "a minute on the emulator"]
fn the_projections_of_a_27b_model_at_full_width() {
    let (device, mut random) = (Device::new(15), Rng(15));
    for (n, k) in [(34_816, 5120), (5120, 17_408), (8192, 5120), (5120, 6144)] {
        let m = 33;
        let w = Weights::random(Format::Affine(64), n, k, &mut random);
        let uploaded = w.upload(&device);
        let x = random.activations(m * k);
        let inputs = Inputs::new(&device, &x, m, k, 64, m);
        for int8 in [true, false] {
            let y = run(&device, &inputs, &w, &uploaded, int8, 64);
            let mut worst = 0f64;
            for (i, got) in y.iter().enumerate().step_by(97) {
                let (want, bound) = in_f64(&x[i / n * k..][..k], &w, i % n, int8);
                let share = (got.to_f64() - want).abs() / bound;
                assert!(share <= 1.0, "{n}x{k}, output {i}: {got}, {want} +- {bound}");
                worst = worst.max(share);
            }
            println!("{m}x{n}x{k}, int8 {int8}: worst share of the bound {worst:.3}");
        }
    }
}
