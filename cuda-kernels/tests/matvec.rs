//! Windows of 1 to 32 rows through the public launcher: against f64, and what a row's bits must not depend on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod gpu;
#[path = "common/matrices.rs"]
mod matrices;

use common::half_bf16_unit;
use gpu::{bf16s, on_gpu};
use half::bf16;
use halfbyte_cuda_driver::{Context, DeviceBuffer, Stream};
use halfbyte_cuda_emulator::EmulatorConfig;
use halfbyte_cuda_kernels::{DeviceWeights, Error, Kernels, MAX_WINDOW, WindowOutput, matvec, swiglu};
use halfbyte_testing::Rng;
use matrices::every_format;

/// f32's unit.
const U: f64 = 1.0 / (1 << 24) as f64;

/// `y = x W^T` in f32.
fn product(context: &Context, kernels: &Kernels, x: &[bf16], weights: &DeviceWeights) -> Vec<f32> {
    let rows = x.len() / weights.inputs();
    let stream = Stream::legacy_default(context);
    let x = DeviceBuffer::from_slice(context, x).unwrap();
    let mut y = DeviceBuffer::uninit(context, rows * weights.outputs()).unwrap();
    let out = &mut WindowOutput::F32(y.as_mut_slice());
    matvec(kernels, &stream, rows, x.as_slice(), weights, out).unwrap();
    y.to_vec().unwrap()
}

fn bits(y: &[f32]) -> Vec<u32> {
    y.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn every_format_is_within_its_bound_of_f64_on_ragged_shapes() {
    let config = EmulatorConfig { seed: 31, ..EmulatorConfig::default() };
    on_gpu(config, |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let mut random = Rng(31);
        let mut worst = 0f64;
        // Less than a tile, less than a step, tiles and steps with a rest; more steps than warps; no multiple of 32.
        for (rows, n, k) in
            [(1, 5, 32), (3, 40, 384), (11, 33, 1184), (1, 16, 2304), (20, 17, 128), (2, 7, 232)]
        {
            let x = bf16s(&mut random, rows * k, 1.0);
            for matrix in every_format(&kernels, n, k, &mut random) {
                let y = product(context, &kernels, &x, &matrix.weights);
                let group = matrix.weights.format().group().weights().min(k) as f64;
                for (i, got) in y.iter().enumerate() {
                    let (row, o) = (&x[i / n * k..][..k], i % n * k);
                    let products = || row.iter().zip(&matrix.values[o..]).map(|(x, w)| x.to_f64() * w);
                    let terms =
                        row.iter().zip(&matrix.terms[o..]).map(|(x, t)| x.to_f64().abs() * t).sum::<f64>();
                    // Sums within the tensor cores, then 2 k / group + 8 of partial sums no larger than `terms`. bf16
                    // weights: a slice is one such sum.
                    let inside = if matrix.weights.format().to_string() == "bf16" { k as f64 } else { group };
                    let bound = (2.0 * inside + 2.0 * k as f64 / group + 8.0) * U * terms;
                    let want: f64 = products().sum();
                    let error = (f64::from(*got) - want).abs();
                    worst = worst.max(error / bound);
                    assert!(error <= bound, "{} {rows}x{n}x{k} {i}: {got} {want}", matrix.weights.format());
                }
            }
        }
        eprintln!("largest share of the bound: {worst:.3}");
        assert!(worst > 1e-4, "no rounding at all: the products were not computed as the test thinks");
    });
}

#[test]
fn a_rows_bits_are_the_same_at_every_width_and_beside_any_rows() {
    for seed in 0..2 {
        let config = EmulatorConfig { seed, ..EmulatorConfig::default() };
        on_gpu(config, |context, _| {
            let kernels = Kernels::new(context).unwrap();
            let mut random = Rng(seed);
            let (n, k) = (35, 1408);
            let x = bf16s(&mut random, MAX_WINDOW * k, 1.0);
            for matrix in every_format(&kernels, n, k, &mut random) {
                let name = matrix.weights.format().to_string();
                let whole = bits(&product(context, &kernels, &x, &matrix.weights));
                for rows in [1, 5, 8, 9, 16, 17] {
                    // The last rows, so that a row sits at another place of the tile.
                    let y = bits(&product(context, &kernels, &x[(MAX_WINDOW - rows) * k..], &matrix.weights));
                    assert_eq!(y, whole[(MAX_WINDOW - rows) * n..], "{name}, {rows} rows");
                }
                // A row that is not finite is nobody else's concern, and shows.
                let mut broken = x[..9 * k].to_vec();
                broken[4 * k + 77] = bf16::NAN;
                broken[7 * k + 3] = bf16::INFINITY;
                let y = product(context, &kernels, &broken, &matrix.weights);
                for r in 0..9 {
                    let row = &y[r * n..][..n];
                    if r == 4 || r == 7 {
                        assert!(row.iter().all(|v| !v.is_finite()), "{name}, row {r}: {row:?}");
                    } else {
                        assert_eq!(bits(row), whole[r * n..][..n], "{name}, row {r}");
                    }
                }
            }
        });
    }
}

#[test]
fn outputs_are_rounded_once_or_added_to_what_is_there() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let stream = Stream::legacy_default(context);
        let mut random = Rng(33);
        let (rows, n, k) = (3, 21, 160);
        let host = bf16s(&mut random, rows * k, 1.0);
        let x = DeviceBuffer::from_slice(context, &host).unwrap();
        let residual = bf16s(&mut random, rows * n, 1.0);
        for matrix in every_format(&kernels, n, k, &mut random) {
            let wide = product(context, &kernels, &host, &matrix.weights);
            let mut y = DeviceBuffer::from_slice(context, &residual).unwrap();
            let out = &mut WindowOutput::AddBf16(y.as_mut_slice());
            matvec(&kernels, &stream, rows, x.as_slice(), &matrix.weights, out).unwrap();
            let want: Vec<bf16> =
                residual.iter().zip(&wide).map(|(r, y)| bf16::from_f32(r.to_f32() + y)).collect();
            assert_eq!(y.to_vec().unwrap(), want);
            let out = &mut WindowOutput::Bf16(y.as_mut_slice());
            matvec(&kernels, &stream, rows, x.as_slice(), &matrix.weights, out).unwrap();
            let want: Vec<bf16> = wide.iter().map(|&y| bf16::from_f32(y)).collect();
            assert_eq!(y.to_vec().unwrap(), want);
            assert!(
                want.iter()
                    .zip(&wide)
                    .all(|(a, b)| { (a.to_f64() - f64::from(*b)).abs() <= half_bf16_unit(f64::from(*b)) })
            );
        }
    });
}

#[test]
fn swiglu_behind_a_product_has_the_bits_of_the_kernel_after_it() {
    on_gpu(EmulatorConfig { seed: 34, ..EmulatorConfig::default() }, |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let stream = Stream::legacy_default(context);
        let mut random = Rng(34);
        // Half a block of 32 outputs, several blocks; a row that leaves no finite number.
        for (width, k) in [(16, 1152), (48, 384), (80, 128)] {
            let mut host = bf16s(&mut random, MAX_WINDOW * k, 1.0);
            host[2 * k + 9] = bf16::INFINITY;
            let x = DeviceBuffer::from_slice(context, &host).unwrap();
            for matrix in every_format(&kernels, 2 * width, k, &mut random) {
                for rows in [1, 3, 8, 9, 17, 32] {
                    let x = || x.slice(0..rows * k).unwrap();
                    let mut both = DeviceBuffer::<bf16>::uninit(context, rows * 2 * width).unwrap();
                    let out = &mut WindowOutput::Bf16(both.as_mut_slice());
                    matvec(&kernels, &stream, rows, x(), &matrix.weights, out).unwrap();
                    let mut want = DeviceBuffer::<bf16>::uninit(context, rows * width).unwrap();
                    let out = &mut want.as_mut_slice();
                    swiglu(&kernels, &stream, [rows, width], both.as_slice(), out, None).unwrap();
                    let mut got = DeviceBuffer::<bf16>::uninit(context, rows * width).unwrap();
                    let out = &mut WindowOutput::Swiglu(got.as_mut_slice());
                    matvec(&kernels, &stream, rows, x(), &matrix.weights, out).unwrap();
                    let bits = |h: DeviceBuffer<bf16>| -> Vec<u16> {
                        h.to_vec().unwrap().into_iter().map(bf16::to_bits).collect()
                    };
                    let name = matrix.weights.format();
                    assert_eq!(bits(got), bits(want), "{name}, {rows} x 2 * {width} x {k}");
                }
            }
        }
    });
}

#[test]
fn wrong_windows_are_refused_before_anything_is_queued() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let stream = Stream::legacy_default(context);
        let weights = DeviceWeights::from_bf16(&kernels, 8, 64, &[bf16::ONE; 512]).unwrap();
        let x = DeviceBuffer::from_slice(context, &vec![bf16::ONE; 33 * 64 + 8]).unwrap();
        let poison = vec![7.0f32; 33 * 8];
        let mut y = DeviceBuffer::from_slice(context, &poison).unwrap();
        let mut run = |rows: usize, x_at: usize, inputs: usize, outputs: usize| {
            let x = x.slice(x_at..x_at + inputs).unwrap();
            let y = y.slice_mut(0..outputs).unwrap();
            matvec(&kernels, &stream, rows, x, &weights, &mut WindowOutput::F32(y))
        };
        for rows in [0, 33] {
            assert_eq!(run(rows, 0, rows * 64, rows * 8), Err(Error::WindowRows { limit: 32, got: rows }));
        }
        let error = run(2, 0, 127, 16).unwrap_err();
        assert_eq!(error, Error::Length { what: "a window", expected: 128, got: 127 });
        let error = run(2, 0, 128, 15).unwrap_err();
        assert_eq!(error, Error::Length { what: "a window's outputs", expected: 16, got: 15 });
        let error = run(2, 1, 128, 16).unwrap_err();
        assert_eq!(error, Error::Alignment { what: "a window", expected: 16, got: 2 });
        assert_eq!(y.to_vec().unwrap(), poison);
        // Gates and ups are told apart in blocks of 16 outputs and of 32.
        let mut halves = DeviceBuffer::from_slice(context, &[bf16::NAN; 4]).unwrap();
        let mut out = WindowOutput::Swiglu(halves.as_mut_slice());
        let error = matvec(&kernels, &stream, 1, x.slice(0..64).unwrap(), &weights, &mut out).unwrap_err();
        assert_eq!(error, Error::Outputs { kernel: "a product with SwiGLU", multiple: 32, got: 8 });
        let weights = DeviceWeights::from_bf16(&kernels, 32, 64, &[bf16::ONE; 2048]).unwrap();
        let error = matvec(&kernels, &stream, 1, x.slice(0..64).unwrap(), &weights, &mut out).unwrap_err();
        assert_eq!(error, Error::Length { what: "a window's outputs", expected: 16, got: 4 });
        assert!(halves.to_vec().unwrap().iter().all(|h| h.is_nan()));

        assert!(matches!(
            DeviceWeights::from_bf16(&kernels, 8, 60, &[bf16::ONE; 480]),
            Err(Error::Inputs { .. })
        ));
        assert!(matches!(
            DeviceWeights::from_bf16(&kernels, 8, 64, &[bf16::ONE; 480]),
            Err(Error::Length { .. })
        ));
    });
}
