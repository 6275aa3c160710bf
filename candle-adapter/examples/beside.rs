//! How long a product takes, by this adapter and by candle's `QMatMul`, on the same Q4_0 blocks, in turns:
//! `RAYON_NUM_THREADS=2 cargo run --release --example beside`. The threads are both sides'.

use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{Device, Module, Result, Tensor};
use halfbyte_candle::{Activations, Kernels, Linear};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Outputs and inputs: a layer of SmolLM2's feed-forward network and one of Llama 3.2 1B's.
const SHAPES: [(usize, usize); 2] = [(1536, 576), (8192, 2048)];
const ROWS: [usize; 2] = [1, 64];
const ROUNDS: usize = 31;
/// What a round of one side takes, at least.
const ROUND: Duration = Duration::from_millis(10);
/// Matrices that are multiplied one after the other, as a model's are: together more than the caches hold.
const BYTES: usize = 64 << 20;

fn main() -> Result<()> {
    let threads = candle_core::utils::get_num_threads();
    let kernels = Kernels::new(threads)?;
    println!("threads {threads}, medians of {ROUNDS} rounds in turns, microseconds a product");
    println!("| outputs x inputs | rows | halfbyte | candle | candle / halfbyte |");
    println!("|---|---|---|---|---|");
    for (outputs, inputs) in SHAPES {
        let count = (BYTES / (outputs * inputs / 32 * 18)).max(1);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let weights = Tensor::rand(-1f32, 1.0, (outputs, inputs), &Device::Cpu)?;
            let weights = Arc::new(QTensor::quantize(&weights, GgmlDType::Q4_0)?);
            ours.push(Linear::new(&weights, &kernels, Activations::Int8)?);
            theirs.push(QMatMul::from_arc(weights)?);
        }
        for rows in ROWS {
            let x = Tensor::rand(-1f32, 1.0, (rows, inputs), &Device::Cpu)?;
            let (mut our, mut their) = (Vec::new(), Vec::new());
            for round in 0..=ROUNDS {
                let times = [time(&ours, &x)?, time(&theirs, &x)?];
                // The first warms up.
                if round > 0 {
                    our.push(times[0]);
                    their.push(times[1]);
                }
            }
            let (our, their) = (median(our), median(their));
            println!("| {outputs} x {inputs} | {rows} | {our:.1} | {their:.1} | {:.2} |", their / our);
        }
    }
    Ok(())
}

/// Microseconds a product, the matrices taken in turn.
fn time<M: Module>(matrices: &[M], x: &Tensor) -> Result<f64> {
    let start = Instant::now();
    let mut products = 0u32;
    for matrix in matrices.iter().cycle() {
        black_box(matrix.forward(black_box(x))?);
        products += 1;
        if start.elapsed() >= ROUND {
            break;
        }
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(products))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
