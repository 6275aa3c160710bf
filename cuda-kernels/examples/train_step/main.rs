//! One micro-batch and one optimizer step of a small transformer, on a GPU if there is one, else on the emulator.
//!
//! ```text
//! cargo run -p halfbyte-cuda-kernels --example train_step -- [--streams 1|2] [--steps N] [--check N] [--seed S]
//! ```
//!
//! `--check N` makes the gradients of one micro-batch N times more, on one stream and on two in turns, and compares all of
//! them bit for bit with the first. Then come the steps, on the same sequence: the loss falls.

mod model;

use halfbyte_cuda_driver::{Context, DeviceBuffer, Driver};
use halfbyte_cuda_emulator::Emulator;
use halfbyte_cuda_kernels::Kernels;
use halfbyte_cuda_kernels::training::{AdamW, Streams};
use model::{Model, Shape};
use std::error::Error;
use std::time::Instant;

const SHAPE: Shape = Shape {
    vocabulary: 96,
    width: 128,
    heads: 4,
    kv_heads: 2,
    head_dim: 64,
    hidden: 256,
    layers: 2,
    rows: 64,
};

/// What the command line says.
struct Options {
    streams: usize,
    steps: u64,
    check: usize,
    seed: u64,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut options = Self { streams: 2, steps: 1, check: 0, seed: 1 };
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name}: a number is missing"))?;
            match name.as_str() {
                "--streams" => options.streams = value.parse()?,
                "--steps" => options.steps = value.parse()?,
                "--check" => options.check = value.parse()?,
                "--seed" => options.seed = value.parse()?,
                _ => return Err(format!("{name}: expected --streams, --steps, --check or --seed").into()),
            }
        }
        Ok(options)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse(std::env::args().skip(1))?;
    if let Ok(driver) = Driver::load()
        && let Ok(device) = driver.device(0)
    {
        println!("on {}", device.name()?);
        return train(&Context::primary(device)?, &options);
    }
    let emulator = Emulator::new(Default::default())?;
    let _entered = emulator.enter();
    println!("on {}", emulator.config().name);
    train(&Context::primary(Driver::load()?.device(0)?)?, &options)
}

fn train(context: &Context, options: &Options) -> Result<(), Box<dyn Error>> {
    let kernels = Kernels::new(context)?;
    let mut state = options.seed;
    let mut model = Model::new(&kernels, SHAPE, || uniform(&mut state))?;
    // A sequence with something to learn: a token is followed by one that depends on it.
    let mut text: Vec<u32> = vec![1];
    for i in 0..SHAPE.rows as u32 {
        text.push((text[i as usize] * 5 + i % 3) % SHAPE.vocabulary as u32);
    }
    let tokens = DeviceBuffer::from_slice(context, &text[..SHAPE.rows])?;
    let targets = DeviceBuffer::from_slice(context, &text[1..])?;

    if options.check > 0 {
        let mut first: Option<Vec<u32>> = None;
        for run in 0..=options.check {
            let mut streams = Streams::new(context, 1 + run % 2)?;
            model.forward(streams.current(), &tokens, &targets)?;
            model.backward(&mut streams, &tokens)?;
            let gradients = model.take_gradients(streams.current())?;
            streams.synchronize()?;
            let first = first.get_or_insert_with(|| gradients.clone());
            let differ = first.iter().zip(&gradients).enumerate().filter(|(_, (a, b))| a != b);
            let (count, at) = (differ.clone().count(), differ.map(|(at, _)| at).next());
            println!("gradients {run}, {} streams: {count} of {} differ", streams.count(), gradients.len());
            if let Some(at) = at {
                return Err(format!("the gradients of {} depend on the run", model.name_of(at)).into());
            }
        }
    }

    let mut streams = Streams::new(context, options.streams)?;
    for step in 1..=options.steps {
        let start = Instant::now();
        let loss = model.forward(streams.current(), &tokens, &targets)?;
        model.backward(&mut streams, &tokens)?;
        let settings = AdamW { rate: 3e-3, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, decay: 0.1, step };
        model.step(streams.current(), &settings)?;
        streams.synchronize()?;
        println!("step {step}: loss {loss:.4}, {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(())
}

/// From -1 to 1: SplitMix64.
fn uniform(state: &mut u64) -> f32 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    (z >> 40) as f32 / 8_388_608.0 - 1.0
}
