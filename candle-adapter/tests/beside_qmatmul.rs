//! The adapter beside candle's own product, on the same blocks.

use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{DType, Device, Module, Tensor};
use halfbyte_candle::{Activations, Kernels, Linear};
use std::sync::Arc;

const SEED: u64 = 23;
const INPUTS: usize = 96;
const OUTPUTS: usize = 37;

fn random(n: usize, mut state: u64) -> Vec<f32> {
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn tensor(values: &[f32], shape: impl candle_core::shape::ShapeWithOneHole) -> Tensor {
    Tensor::from_slice(values, shape, &Device::Cpu).unwrap()
}

fn weights(ty: GgmlDType) -> Arc<QTensor> {
    println!("seed {SEED}");
    Arc::new(QTensor::quantize(&tensor(&random(OUTPUTS * INPUTS, SEED), (OUTPUTS, INPUTS)), ty).unwrap())
}

/// Every output within what rounding the inputs to 8 bits can do, for us and for candle; within f32's own rounding
/// with f32 activations.
#[test]
fn products_are_those_of_qmatmul() {
    for ty in [GgmlDType::Q4_0, GgmlDType::Q4_1, GgmlDType::Q8_0] {
        let weights = weights(ty);
        let w = weights.dequantize(&Device::Cpu).unwrap().to_vec2::<f32>().unwrap();
        for rows in [1, 2, 19] {
            let x = random(rows * INPUTS, SEED + rows as u64);
            let input = tensor(&x, (rows, INPUTS));
            let product = |op: &dyn Module| op.forward(&input).unwrap().to_vec2::<f32>().unwrap();
            let theirs = product(&QMatMul::from_arc(Arc::clone(&weights)).unwrap());
            for threads in [1, 2] {
                let kernels = Kernels::new(threads).unwrap();
                let ours = |activations| product(&Linear::new(&weights, &kernels, activations).unwrap());
                let (int8, f32) = (ours(Activations::Int8), ours(Activations::F32));
                for (r, x) in x.chunks_exact(INPUTS).enumerate() {
                    for (o, w) in w.iter().enumerate() {
                        let terms = || x.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w));
                        let exact: f64 = terms().sum();
                        let size: f64 = terms().map(f64::abs).sum();
                        // Half a step of each group's codes, and f16's rounding of the step, which candle has.
                        let rounding: f64 = x
                            .chunks_exact(32)
                            .zip(w.chunks_exact(32))
                            .map(|(x, w)| {
                                let step = f64::from(x.iter().fold(0f32, |m, x| m.max(x.abs()))) / 127.0;
                                let sum: f64 = w.iter().map(|&w| f64::from(w.abs())).sum();
                                step * (0.5 + 127.0 / 2048.0) * sum
                            })
                            .sum();
                        let what = format!("{ty:?}, {rows} rows, {threads} threads, row {r}, output {o}");
                        let off = |y: f32| (f64::from(y) - exact).abs();
                        assert!(
                            off(int8[r][o]) <= rounding + 1e-5 * size,
                            "{what}: {} of {exact}",
                            int8[r][o]
                        );
                        assert!(off(theirs[r][o]) <= rounding + 1e-5 * size, "{what}: {}", theirs[r][o]);
                        assert!(off(f32[r][o]) <= 1e-5 * size, "{what}: {} of {exact}", f32[r][o]);
                    }
                }
            }
        }
    }
}

/// The operation gives the kernels' bits, wherever its input lies and however it is shaped.
#[test]
fn shapes_and_offsets_change_no_bit() {
    let kernels = Kernels::new(2).unwrap();
    let weights = weights(GgmlDType::Q4_0);
    for activations in [Activations::Int8, Activations::F32] {
        let linear = Linear::new(&weights, &kernels, activations).unwrap();
        let x = tensor(&random(6 * INPUTS, SEED), (2, 3, INPUTS));
        let y = linear.forward(&x).unwrap();
        assert_eq!(y.dims(), [2, 3, OUTPUTS]);
        let rows: Vec<Vec<f32>> = y.flatten_to(1).unwrap().to_vec2().unwrap();
        for (i, row) in rows.iter().enumerate() {
            let one = x.flatten_to(1).unwrap().narrow(0, i, 1).unwrap();
            assert_eq!(&linear.forward(&one).unwrap().to_vec2::<f32>().unwrap()[0], row);
            let flat = one.flatten_all().unwrap();
            assert_eq!(&linear.forward(&flat).unwrap().to_vec1::<f32>().unwrap(), row);
        }
        let none = linear.forward(&tensor(&[], (0, INPUTS))).unwrap();
        assert_eq!(none.dims(), [0, OUTPUTS]);
    }
}

#[test]
fn what_it_can_not_do_is_named() {
    let kernels = Kernels::new(1).unwrap();
    let of = |ty| Linear::new(&weights(ty), &kernels, Activations::Int8);
    // Candle writes a backtrace behind it where `RUST_BACKTRACE` asks for one.
    let message = |error: candle_core::Error| error.to_string().lines().next().unwrap().to_owned();
    let unknown = message(of(GgmlDType::Q5_0).unwrap_err());
    assert_eq!(unknown, "weights of type Q5_0: expected Q4_0, Q4_1 or Q8_0");
    let linear = of(GgmlDType::Q4_0).unwrap();
    let refused = |x: &Tensor| message(linear.forward(x).unwrap_err());
    let square = tensor(&random(INPUTS * INPUTS, SEED), (INPUTS, INPUTS));
    assert!(refused(&square.t().unwrap()).contains("is not contiguous: expected rows one after the other"));
    let narrow = tensor(&random(64, SEED), (2, 32));
    assert_eq!(refused(&narrow), "halfbyte-linear: inputs of shape [2, 32]: expected a last dimension of 96");
    let half = square.to_dtype(DType::F16).unwrap();
    assert!(refused(&half).contains("unexpected dtype, expected: F32, got: F16"), "{}", refused(&half));
}
