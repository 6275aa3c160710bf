//! The gradients of a stack of MLP layers on one stream and on two: the same bits, as long as every wait is in its place.

mod common;
mod gpu;

use gpu::{bf16s, on_gpu};
use half::bf16;
use halfbyte_cuda_driver::{Context, DeviceBuffer};
use halfbyte_cuda_emulator::{EmulatorConfig, Schedule};
use halfbyte_cuda_kernels::training::{Mark, Streams, swiglu_backward};
use halfbyte_cuda_kernels::{Kernels, Layout, MatmulOutput, add, matmul, swiglu};
use halfbyte_testing::Rng;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Rows, width, width of gate and of up, layers.
const M: usize = 24;
const D: usize = 32;
const F: usize = 40;
const LAYERS: usize = 3;

/// A place where one stream waits for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dependency {
    /// The side stream, before it reads the gradient that the main one has just added to.
    ForkAtTheOutput,
    /// The main stream, before it overwrites the gradient of gate and up that the side one reads.
    GateUpRead,
    /// The side stream, before it reads the gradient of gate and up.
    ForkAtTheActivation,
    /// The main stream, before it adds to the gradient that the side one reads.
    OutputRead,
    /// The main stream, before the gradients are read.
    Join,
}

const ALL: [Dependency; 5] = [
    Dependency::ForkAtTheOutput,
    Dependency::GateUpRead,
    Dependency::ForkAtTheActivation,
    Dependency::OutputRead,
    Dependency::Join,
];

/// A layer, `y = x + swiglu(x W13^T) W2^T`, and what its forward pass kept.
struct Layer {
    w13: DeviceBuffer<bf16>,
    w2: DeviceBuffer<bf16>,
    x: DeviceBuffer<bf16>,
    gate_up: DeviceBuffer<bf16>,
    h: DeviceBuffer<bf16>,
    dw13: DeviceBuffer<f32>,
    dw2: DeviceBuffer<f32>,
}

/// Host copies of the weights of all layers, the first layer's input, and the last one's gradient.
struct Problem {
    weights: Vec<[Vec<bf16>; 2]>,
    x: Vec<bf16>,
    dy: Vec<bf16>,
}

fn problem(seed: u64) -> Problem {
    let mut random = Rng(seed);
    let weights =
        (0..LAYERS).map(|_| [bf16s(&mut random, 2 * F * D, 0.2), bf16s(&mut random, D * F, 0.2)]).collect();
    Problem { weights, x: bf16s(&mut random, M * D, 1.0), dy: bf16s(&mut random, M * D, 1.0) }
}

/// Runs forward and backward and returns all gradients of weights, and of the input.
fn gradients(
    context: &Context,
    problem: &Problem,
    streams: usize,
    left_out: Option<Dependency>,
) -> Result<Vec<f32>> {
    let kernels = Kernels::new(context)?;
    let mut streams = Streams::new(context, streams)?;
    let mut x = DeviceBuffer::from_slice(context, &problem.x)?;
    let mut layers = Vec::new();
    for [w13, w2] in &problem.weights {
        let mut layer = Layer {
            w13: DeviceBuffer::from_slice(context, w13)?,
            w2: DeviceBuffer::from_slice(context, w2)?,
            x,
            gate_up: DeviceBuffer::uninit(context, M * 2 * F)?,
            h: DeviceBuffer::uninit(context, M * F)?,
            dw13: DeviceBuffer::zeroed(context, 2 * F * D)?,
            dw2: DeviceBuffer::zeroed(context, D * F)?,
        };
        x = forward(context, &kernels, &streams, &mut layer)?;
        layers.push(layer);
    }
    streams.synchronize()?;
    // It lives until the gradients have been read: freeing it would wait for all streams, and hide a missing join.
    let mut scratch = Scratch::new(context, &problem.dy)?;
    backward(&kernels, &mut streams, &mut layers, &mut scratch, left_out)?;

    // On the main stream, which knows of the side stream's work by the join.
    let mut all = Vec::new();
    for layer in &layers {
        for gradient in [&layer.dw13, &layer.dw2] {
            let mut host = vec![0.0; gradient.len()];
            gradient.as_slice().copy_to_host(&mut host, streams.current())?;
            all.extend(host);
        }
    }
    all.extend(scratch.dy.to_vec()?.into_iter().map(bf16::to_f32));
    streams.synchronize()?;
    Ok(all)
}

fn forward(
    context: &Context,
    kernels: &Kernels,
    streams: &Streams,
    layer: &mut Layer,
) -> Result<DeviceBuffer<bf16>> {
    let on = streams.current();
    let (x, w13, w2) = (layer.x.as_slice(), layer.w13.as_slice(), layer.w2.as_slice());
    let gate_up = layer.gate_up.as_mut_slice();
    matmul(kernels, on, Layout::Nt, [M, 2 * F, D], x, w13, &mut MatmulOutput::Bf16(gate_up))?;
    swiglu(kernels, on, [M, F], layer.gate_up.as_slice(), &mut layer.h.as_mut_slice(), None)?;
    let mut mlp = DeviceBuffer::uninit(context, M * D)?;
    matmul(
        kernels,
        on,
        Layout::Nt,
        [M, D, F],
        layer.h.as_slice(),
        w2,
        &mut MatmulOutput::Bf16(mlp.as_mut_slice()),
    )?;
    let mut y = DeviceBuffer::uninit(context, M * D)?;
    add(kernels, on, x, mlp.as_slice(), &mut y.as_mut_slice())?;
    Ok(y)
}

/// Memory that the layers share in the backward pass.
struct Scratch {
    dy: DeviceBuffer<bf16>,
    sum: DeviceBuffer<bf16>,
    dh: DeviceBuffer<bf16>,
    d_gate_up: DeviceBuffer<bf16>,
    dx: DeviceBuffer<bf16>,
    output_read: Mark,
    gate_up_read: Mark,
}

impl Scratch {
    fn new(context: &Context, dy: &[bf16]) -> Result<Self> {
        Ok(Self {
            dy: DeviceBuffer::from_slice(context, dy)?,
            sum: DeviceBuffer::uninit(context, M * D)?,
            dh: DeviceBuffer::uninit(context, M * F)?,
            d_gate_up: DeviceBuffer::uninit(context, M * 2 * F)?,
            dx: DeviceBuffer::uninit(context, M * D)?,
            output_read: Mark::new(context)?,
            gate_up_read: Mark::new(context)?,
        })
    }
}

/// Leaves the gradient of the first layer's input in `scratch.dy`.
fn backward(
    kernels: &Kernels,
    streams: &mut Streams,
    layers: &mut [Layer],
    scratch: &mut Scratch,
    left_out: Option<Dependency>,
) -> Result<()> {
    let keep = |dependency| left_out != Some(dependency);
    let Scratch { dy, sum, dh, d_gate_up, dx, output_read, gate_up_read } = scratch;
    for layer in layers.iter_mut().rev() {
        if keep(Dependency::ForkAtTheOutput) {
            streams.fork()?;
        }
        let dh_out = &mut MatmulOutput::Bf16(dh.as_mut_slice());
        matmul(
            kernels,
            streams.current(),
            Layout::Nn,
            [M, F, D],
            dy.as_slice(),
            layer.w2.as_slice(),
            dh_out,
        )?;
        streams.on2();
        let dw2 = &mut MatmulOutput::AddF32(layer.dw2.as_mut_slice());
        matmul(kernels, streams.current(), Layout::Tn, [D, F, M], dy.as_slice(), layer.h.as_slice(), dw2)?;
        streams.back(output_read)?;

        if keep(Dependency::GateUpRead) {
            streams.waitfor(gate_up_read)?;
        }
        d_gate_up.as_mut_slice().copy_from_device_async(&layer.gate_up.as_slice(), streams.current())?;
        swiglu_backward(kernels, streams.current(), [M, F], &mut d_gate_up.as_mut_slice(), dh.as_slice())?;

        if keep(Dependency::ForkAtTheActivation) {
            streams.fork()?;
        }
        let (d, dx_out) = (d_gate_up.as_slice(), &mut MatmulOutput::Bf16(dx.as_mut_slice()));
        matmul(kernels, streams.current(), Layout::Nn, [M, D, 2 * F], d, layer.w13.as_slice(), dx_out)?;
        streams.on2();
        let dw13 = &mut MatmulOutput::AddF32(layer.dw13.as_mut_slice());
        matmul(kernels, streams.current(), Layout::Tn, [2 * F, D, M], d, layer.x.as_slice(), dw13)?;
        streams.back(gate_up_read)?;

        add(kernels, streams.current(), dy.as_slice(), dx.as_slice(), &mut sum.as_mut_slice())?;
        if keep(Dependency::OutputRead) {
            streams.waitfor(output_read)?;
        }
        dy.as_mut_slice().copy_from_device_async(&sum.as_slice(), streams.current())?;
    }
    if keep(Dependency::Join) {
        streams.join()?;
    }
    Ok(())
}

/// The gradients on an emulated machine, or what the emulator found wrong.
fn emulated(
    problem: &Problem,
    schedule: Schedule,
    seed: u64,
    left_out: Option<Dependency>,
) -> Option<Vec<u32>> {
    use halfbyte_cuda_driver::Driver;
    use halfbyte_cuda_emulator::Emulator;
    let config = EmulatorConfig { schedule, seed, ..EmulatorConfig::default() };
    let emulator = Emulator::new(config).ok()?;
    let _entered = emulator.enter();
    let context = Context::primary(Driver::load().ok()?.device(0).ok()?).ok()?;
    let gradients = gradients(&context, problem, 2, left_out).ok()?;
    Some(gradients.into_iter().map(f32::to_bits).collect())
}

const SCHEDULES: [Schedule; 4] =
    [Schedule::InOrder, Schedule::Random, Schedule::SideStreamsEarly, Schedule::SideStreamsLate];

#[test]
fn two_streams_give_the_bits_of_one_in_every_order() {
    let problem = problem(11);
    let mut one = Vec::new();
    on_gpu(EmulatorConfig::default(), |context, _| {
        one = gradients(context, &problem, 1, None).expect("one stream runs");
    });
    for schedule in SCHEDULES {
        for seed in 0..2 {
            let config = EmulatorConfig { schedule, seed, ..EmulatorConfig::default() };
            on_gpu(config, |context, _| {
                let two = gradients(context, &problem, 2, None).expect("two streams run");
                let differ = one.iter().zip(&two).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
                assert_eq!(differ, 0, "of {} gradients, {schedule:?}, seed {seed}", one.len());
            });
        }
    }
}

#[test]
fn the_gradients_are_those_of_float64() {
    let problem = problem(12);
    on_gpu(EmulatorConfig::default(), |context, _| {
        let got = gradients(context, &problem, 2, None).expect("two streams run");
        let expected = reference(&problem);
        assert_eq!(got.len(), expected.len());
        let largest = expected.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        let worst = got.iter().zip(&expected).map(|(g, e)| (f64::from(*g) - e).abs()).fold(0.0, f64::max);
        // Five roundings to bf16 (2^-9 each) between neighbouring layers.
        assert!(worst < 0.02 * largest, "{worst} of {largest}");
    });
}

#[test]
fn a_dependency_left_out_shows_in_some_order() {
    let problem = problem(13);
    if halfbyte_cuda_emulator::Emulator::new(EmulatorConfig::default()).is_err() {
        eprintln!("skipped: the driver is a real one, and on a GPU a race need not show");
        return;
    }
    let right =
        emulated(&problem, Schedule::InOrder, 0, None).expect("nothing is wrong with all dependencies");
    for dependency in ALL {
        let shown = SCHEDULES.into_iter().any(|schedule| {
            (0..4).any(|seed| emulated(&problem, schedule, seed, Some(dependency)).as_ref() != Some(&right))
        });
        assert!(shown, "nothing went wrong without {dependency:?}");
    }
}

/// The same in float64, without a rounding in between.
fn reference(problem: &Problem) -> Vec<f64> {
    let wide = |numbers: &[bf16]| numbers.iter().map(|v| v.to_f64()).collect::<Vec<f64>>();
    let product =
        |m: usize, n: usize, k: usize, a: &dyn Fn(usize, usize) -> f64, b: &dyn Fn(usize, usize) -> f64| {
            (0..m * n).map(|i| (0..k).map(|t| a(i / n, t) * b(t, i % n)).sum::<f64>()).collect::<Vec<_>>()
        };
    let sigma = |v: f64| 1.0 / (1.0 + (-v).exp());
    let mut x = wide(&problem.x);
    let mut kept = Vec::new();
    for [w13, w2] in &problem.weights {
        let (w13, w2) = (wide(w13), wide(w2));
        let gate_up = product(M, 2 * F, D, &|r, t| x[r * D + t], &|t, c| w13[c * D + t]);
        let h: Vec<f64> = (0..M * F)
            .map(|i| {
                let (gate, up) = (gate_up[i / F * 2 * F + i % F], gate_up[i / F * 2 * F + F + i % F]);
                gate * sigma(gate) * up
            })
            .collect();
        let mlp = product(M, D, F, &|r, t| h[r * F + t], &|t, c| w2[c * F + t]);
        let y = x.iter().zip(mlp).map(|(a, b)| a + b).collect();
        kept.push((w13, w2, std::mem::replace(&mut x, y), gate_up, h));
    }
    let mut dy = wide(&problem.dy);
    let mut gradients = Vec::new();
    for (w13, w2, x, gate_up, h) in kept.iter().rev() {
        let dh = product(M, F, D, &|r, t| dy[r * D + t], &|t, c| w2[t * F + c]);
        let dw2 = product(D, F, M, &|r, t| dy[t * D + r], &|t, c| h[t * F + c]);
        let d: Vec<f64> = (0..M * 2 * F)
            .map(|i| {
                let (row, column) = (i / (2 * F), i % (2 * F));
                let at = |c: usize| gate_up[row * 2 * F + c];
                let (gate, up, dh) = (at(column % F), at(F + column % F), dh[row * F + column % F]);
                let s = sigma(gate);
                if column < F { dh * up * s * (1.0 + gate * (1.0 - s)) } else { dh * gate * s }
            })
            .collect();
        let dx = product(M, D, 2 * F, &|r, t| d[r * 2 * F + t], &|t, c| w13[t * D + c]);
        let dw13 = product(2 * F, D, M, &|r, t| d[t * 2 * F + r], &|t, c| x[t * D + c]);
        gradients.push([dw13, dw2]);
        dy.iter_mut().zip(dx).for_each(|(a, b)| *a += b);
    }
    gradients.into_iter().rev().flatten().flatten().chain(dy).collect()
}
