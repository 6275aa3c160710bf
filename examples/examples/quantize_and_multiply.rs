//! Quantizes a matrix to Q4_0 and multiplies it by int8 activations, with one dependency:
//! `cargo run --release -p halfbyte-examples --example quantize_and_multiply`.

use halfbyte_cpu_kernels::{
    Activations, BlockQ4_0, Context, Matrix, ThreadPool, Weights, gemm_int8, quantize_activations,
    quantize_q4_0_fit,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (rows, cols) = (64, 256);
    let weights: Vec<f32> = (0..rows * cols).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
    let x: Vec<f32> = (0..cols).map(|i| ((i * 13 % 29) as f32 - 14.0) / 14.0).collect();
    let pool = ThreadPool::new(2)?;
    let ctx = Context::new(&pool)?;
    let mut blocks = vec![BlockQ4_0::ZERO; rows * cols / 32];
    quantize_q4_0_fit(ctx, &weights, &mut blocks)?;
    let mut activations = Activations::new();
    quantize_activations(ctx, &x, 1, cols, &mut activations)?;
    let mut y = vec![0.0; rows];
    gemm_int8(ctx, &Matrix::new(Weights::Q4_0(&blocks), rows, cols)?, &activations, &mut y)?;
    let exact: f32 = weights[..cols].iter().zip(&x).map(|(w, x)| w * x).sum();
    println!("first output {}, in f32 {exact}", y[0]);
    Ok(())
}
