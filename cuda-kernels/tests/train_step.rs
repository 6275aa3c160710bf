//! A whole training step: the same gradients on one stream and two in every schedule, the gradients that the loss has, and
//! a loss that falls.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod gpu;
#[path = "../examples/train_step/model.rs"]
mod model;

use gpu::on_gpu;
use half::bf16;
use halfbyte_cuda_driver::{Context, DeviceBuffer};
use halfbyte_cuda_emulator::{EmulatorConfig, Schedule};
use halfbyte_cuda_kernels::Kernels;
use halfbyte_cuda_kernels::training::{AdamW, Streams};
use halfbyte_testing::Rng;
use model::{Model, Shape};

const SHAPE: Shape =
    Shape { vocabulary: 24, width: 32, heads: 2, kv_heads: 1, head_dim: 64, hidden: 40, layers: 2, rows: 16 };

/// A model, and a sequence with its continuation.
fn start(context: &Context, shape: Shape) -> (Model, DeviceBuffer<u32>, DeviceBuffer<u32>) {
    let mut random = Rng(91);
    let model = Model::new(&Kernels::new(context).unwrap(), shape, || random.f32()).unwrap();
    let mut text = vec![1u32];
    for i in 0..shape.rows {
        text.push((text[i] * 5 + i as u32 % 3) % shape.vocabulary as u32);
    }
    let tokens = DeviceBuffer::from_slice(context, &text[..shape.rows]).unwrap();
    let targets = DeviceBuffer::from_slice(context, &text[1..]).unwrap();
    (model, tokens, targets)
}

fn gradients(context: &Context, streams: usize) -> Vec<u32> {
    let (mut model, tokens, targets) = start(context, SHAPE);
    let mut streams = Streams::new(context, streams).unwrap();
    model.forward(streams.current(), &tokens, &targets).unwrap();
    model.backward(&mut streams, &tokens).unwrap();
    let gradients = model.take_gradients(streams.current()).unwrap();
    streams.synchronize().unwrap();
    gradients
}

#[test]
fn gradients_are_the_same_bits_on_one_stream_and_on_two_in_every_schedule() {
    let mut one = None;
    for (seed, schedule) in
        [Schedule::InOrder, Schedule::SideStreamsEarly, Schedule::SideStreamsLate, Schedule::Random]
            .into_iter()
            .enumerate()
    {
        let config = EmulatorConfig { seed: seed as u64, schedule, ..EmulatorConfig::default() };
        on_gpu(config, |context, _| {
            let one = one.get_or_insert_with(|| gradients(context, 1));
            let two = gradients(context, 2);
            let differs = one.iter().zip(&two).position(|(a, b)| a != b);
            assert_eq!(
                differs.map(|at| start(context, SHAPE).0.name_of(at).to_owned()),
                None,
                "{schedule:?}"
            );
            assert!(one.iter().all(|bits| f32::from_bits(*bits).is_finite()));
        });
    }
}

/// Moves one tensor at a time along its gradient, both ways: the loss has to change by the gradient times the way, within a
/// tenth. Forward passes round activations to bf16 (2^-9 each), so the way must be long enough to see the change, and then
/// it sees the curve, too.
#[test]
fn every_tensors_gradient_is_the_losss_difference() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let (mut model, tokens, targets) = start(context, Shape { layers: 1, ..SHAPE });
        let mut streams = Streams::new(context, 1).unwrap();
        model.forward(streams.current(), &tokens, &targets).unwrap();
        model.backward(&mut streams, &tokens).unwrap();
        streams.synchronize().unwrap();
        for i in 0..model.tensors.len() {
            let (weights, gradient) =
                (model.tensors[i].weights.to_vec().unwrap(), model.tensors[i].gradient.to_vec().unwrap());
            let square: f64 = gradient.iter().map(|g| f64::from(*g).powi(2)).sum();
            assert!(square > 0.0, "{}", model.tensors[i].name);
            // A change of the loss of about 0.04 either way.
            let far = 0.04 / square;
            // Norms read the f32 weights, everything else the bf16 copy: what is moved is what is read.
            let norm = model.tensors[i].name.contains("norm");
            let move_by = |model: &mut Model, sign: f64| {
                let moved = weights
                    .iter()
                    .zip(&gradient)
                    .map(|(w, g)| (f64::from(*w) + sign * far * f64::from(*g)) as f32);
                let moved: Vec<f32> =
                    moved.map(|w| if norm { w } else { bf16::from_f32(w).to_f32() }).collect();
                let copy: Vec<bf16> = moved.iter().map(|&w| bf16::from_f32(w)).collect();
                model.tensors[i].weights.copy_from_host(&moved).unwrap();
                model.tensors[i].copy.copy_from_host(&copy).unwrap();
                moved
            };
            let up = move_by(&mut model, 1.0);
            let high = model.forward(streams.current(), &tokens, &targets).unwrap();
            let down = move_by(&mut model, -1.0);
            let low = model.forward(streams.current(), &tokens, &targets).unwrap();
            move_by(&mut model, 0.0);
            let way: f64 = up
                .iter()
                .zip(&down)
                .zip(&gradient)
                .map(|((u, d), g)| (f64::from(*u) - f64::from(*d)) * f64::from(*g))
                .sum();
            let ratio = (high - low) / way;
            println!("{}: {ratio:.3}", model.tensors[i].name);
            assert!((ratio - 1.0).abs() < 0.1, "{}: {ratio}", model.tensors[i].name);
        }
    });
}

#[test]
fn the_loss_falls() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let (mut model, tokens, targets) = start(context, SHAPE);
        let mut streams = Streams::new(context, 2).unwrap();
        let mut losses = Vec::new();
        for step in 1..=6 {
            losses.push(model.forward(streams.current(), &tokens, &targets).unwrap());
            model.backward(&mut streams, &tokens).unwrap();
            let settings = AdamW { rate: 1e-2, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, decay: 0.01, step };
            model.step(streams.current(), &settings).unwrap();
        }
        streams.synchronize().unwrap();
        println!("{losses:.3?}");
        // A guess among 24 tokens costs ln 24 = 3.18.
        assert!((losses[0] - 24f64.ln()).abs() < 1.5 && losses[5] < losses[0] / 3.0, "{losses:?}");
    });
}
