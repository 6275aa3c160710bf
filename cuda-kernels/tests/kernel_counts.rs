//! What the kernels between the prompt's products and attention execute and move, beside the least possible: the numbers of
//! docs/performance.md, and bounds on them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod gpu;
#[allow(dead_code, reason = "the values of the weights do not matter here")]
#[path = "common/matrices.rs"]
mod matrices;

use gpu::{bf16s, on_gpu};
use half::bf16;
use halfbyte_cuda_driver::{Context, DeviceBuffer, Stream};
use halfbyte_cuda_emulator::{EmulatorConfig, LaunchRecord};
use halfbyte_cuda_kernels::attention::{DeviceKvCache, KvFormat, KvLayout};
use halfbyte_cuda_kernels::profiler::Report;
use halfbyte_cuda_kernels::{
    DeviceRopeTable, DeviceSampler, Draw, HeadSteps, Kernels, Profiler, Projections, Queue, RmsNorm,
    RopeOrder, Sums, WindowOutput, add_rms_norm, embed, matvec, rms_norm, rope_kv, swiglu,
};
use halfbyte_q4::affine::GroupSize;
use halfbyte_testing::Rng;
use matrices::every_format;

/// A model's sizes.
struct Shape {
    width: usize,
    feed_forward: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    outputs: usize,
    vocabulary: usize,
}

/// Llama 3 8B's, but for the matrix, which is square.
const LARGE: Shape = Shape {
    width: 4096,
    feed_forward: 14_336,
    heads: 32,
    kv_heads: 8,
    head_dim: 128,
    outputs: 4096,
    vocabulary: 128_256,
};

/// Enough to be bound by the same.
const SMALL: Shape = Shape {
    width: 1536,
    feed_forward: 2048,
    heads: 8,
    kv_heads: 2,
    head_dim: 64,
    outputs: 64,
    vocabulary: 10_000,
};

/// A GPU as published.
struct Gpu {
    /// Bytes of memory a second.
    bandwidth: f64,
    /// Instructions of warps a second: four a clock and multiprocessor, at the clock that the published bf16 rate asks for.
    issue: f64,
}

/// An RTX 5090 (170 multiprocessors, 2.41 GHz) and an H200 (132, 1.83).
const GPUS: [Gpu; 2] = [
    Gpu { bandwidth: 1.79e12, issue: 170.0 * 4.0 * 2.41e9 },
    Gpu { bandwidth: 4.8e12, issue: 132.0 * 4.0 * 1.83e9 },
];

/// One kernel on one shape.
struct Count {
    kernel: String,
    shape: String,
    launch: LaunchRecord,
    /// Each byte once.
    least: u64,
}

impl Count {
    fn bytes(&self) -> u64 {
        self.launch.stats.global_loaded + self.launch.stats.global_stored
    }

    /// Of the least.
    fn share(&self) -> f64 {
        self.bytes() as f64 / self.least as f64
    }

    fn row(&self) -> String {
        let stats = &self.launch.stats;
        let times = GPUS.map(|gpu| {
            let (memory, issue) =
                (self.least as f64 / gpu.bandwidth, stats.warp_instructions as f64 / gpu.issue);
            format!("{:.2} | {:.2}", 1e6 * memory, 1e6 * issue)
        });
        format!(
            "| `{}` | {} | {:.3} | {:.2} | {} | {} | {} | {} |",
            self.kernel,
            self.shape,
            self.bytes() as f64 / 1e6,
            self.share(),
            stats.warp_instructions,
            stats.bank_conflicts,
            times[0],
            times[1],
        )
    }
}

/// All kernels with `rows` rows of a model.
fn counts(shape: &Shape, rows: usize) -> Vec<Count> {
    let mut counts = Vec::new();
    on_gpu(EmulatorConfig::default(), |context, emulator| {
        let emulator = emulator.unwrap_or_else(|| panic!("counts are the emulator's"));
        let kernels = Kernels::new(context).unwrap();
        // What is uploaded first runs kernels, too.
        let mut take = |report: Report| {
            let seen: Vec<_> = emulator.take_launches();
            for row in report.rows {
                let launch = seen.iter().find(|launch| launch.kernel == row.kernel).unwrap().clone();
                assert_eq!(row.calls, 1, "{}", row.kernel);
                counts.push(Count { kernel: row.kernel, shape: row.shape, launch, least: row.work.bytes });
            }
        };
        norms(context, &kernels, shape, rows, &mut take);
        heads(context, &kernels, shape, rows, &mut take);
        if rows <= 32 {
            products(context, &kernels, shape, rows, &mut take);
            samples(context, &kernels, shape, rows, &mut take);
        }
    });
    counts
}

/// Runs `work` on a queue whose launches are timed, and passes the report to `take`.
fn timed(context: &Context, take: &mut impl FnMut(Report), work: impl FnOnce(Queue<'_>)) {
    let stream = Stream::legacy_default(context);
    let profiler = Profiler::new(context);
    work(profiler.queue(&stream));
    take(profiler.take().unwrap());
}

/// The norm with the residual sum and the group sums of a prompt, or the plain one; and SwiGLU alike.
fn norms(context: &Context, kernels: &Kernels, shape: &Shape, rows: usize, take: &mut impl FnMut(Report)) {
    let mut random = Rng(120);
    let prompt = rows > 32;
    let n = rows * shape.width;
    let mut x = DeviceBuffer::from_slice(context, &bf16s(&mut random, n, 1.0)).unwrap();
    let delta = DeviceBuffer::from_slice(context, &bf16s(&mut random, n, 1.0)).unwrap();
    let weights = DeviceBuffer::from_slice(context, &vec![1.0_f32; shape.width]).unwrap();
    let mut y = DeviceBuffer::<bf16>::uninit(context, n).unwrap();
    let elements = Sums::elements(rows, shape.feed_forward, GroupSize::G32);
    let mut sums = DeviceBuffer::<f32>::uninit(context, elements).unwrap();
    let norm = RmsNorm { rows, width: shape.width, epsilon: 1e-5 };
    timed(context, take, |queue| {
        let (weights, y) = (weights.as_slice(), &mut y.as_mut_slice());
        if prompt {
            let to = sums.slice_mut(0..Sums::elements(rows, shape.width, GroupSize::G32)).unwrap();
            let sums = &mut Sums { group: GroupSize::G32, to };
            let x = &mut x.as_mut_slice();
            add_rms_norm(kernels, queue, norm, x, delta.as_slice(), weights, y, Some(sums)).unwrap();
        } else {
            rms_norm(kernels, queue, norm, x.as_slice(), weights, y, None).unwrap();
        }
    });
    let n = rows * shape.feed_forward;
    let gate_up = DeviceBuffer::from_slice(context, &bf16s(&mut random, 2 * n, 1.0)).unwrap();
    let mut hidden = DeviceBuffer::<bf16>::uninit(context, n).unwrap();
    timed(context, take, |queue| {
        let mut sums = Sums { group: GroupSize::G32, to: sums.as_mut_slice() };
        let (size, hidden) = ([rows, shape.feed_forward], &mut hidden.as_mut_slice());
        swiglu(kernels, queue, size, gate_up.as_slice(), hidden, prompt.then_some(&mut sums)).unwrap();
    });
}

/// Rotary positions and the write into both caches.
fn heads(context: &Context, kernels: &Kernels, shape: &Shape, rows: usize, take: &mut impl FnMut(Report)) {
    let mut random = Rng(121);
    let (q_width, kv_width) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    let joined = bf16s(&mut random, rows * (q_width + 2 * kv_width), 1.0);
    let joined = DeviceBuffer::from_slice(context, &joined).unwrap();
    let mut queries = DeviceBuffer::<bf16>::uninit(context, rows * q_width).unwrap();
    let frequencies = DeviceRopeTable::frequencies(shape.head_dim, 10_000.0);
    let table = DeviceRopeTable::new(kernels, &frequencies, 1.0, rows).unwrap();
    for format in [KvFormat::Bf16, KvFormat::Fp8] {
        let layout = KvLayout::new(format, shape.kv_heads, shape.head_dim, rows).unwrap();
        let mut cache = DeviceKvCache::new(context, layout).unwrap();
        let steps =
            HeadSteps { biases: None, norms: None, epsilon: 0.0, rope: Some((&table, RopeOrder::Halves)) };
        timed(context, take, |queue| {
            let projections = Projections::Joined(joined.as_slice());
            let out = &mut queries.as_mut_slice();
            rope_kv(kernels, queue, [rows, shape.heads], 0, projections, &steps, out, &mut cache).unwrap();
        });
    }
}

/// A window's product by a matrix of every format; and, of one row, its embedding in it.
fn products(context: &Context, kernels: &Kernels, shape: &Shape, rows: usize, take: &mut impl FnMut(Report)) {
    let mut random = Rng(122);
    let x = DeviceBuffer::from_slice(context, &bf16s(&mut random, rows * shape.width, 1.0)).unwrap();
    let mut y = DeviceBuffer::<bf16>::uninit(context, rows * shape.outputs).unwrap();
    let mut embedded = DeviceBuffer::<bf16>::uninit(context, rows * shape.width).unwrap();
    let tokens: Vec<u32> = (0..rows as u32).collect();
    let tokens = DeviceBuffer::from_slice(context, &tokens).unwrap();
    for matrix in every_format(kernels, shape.outputs, shape.width, &mut random) {
        timed(context, take, |queue| {
            let out = &mut WindowOutput::Bf16(y.as_mut_slice());
            matvec(kernels, queue, rows, x.as_slice(), &matrix.weights, out).unwrap();
            let out = &mut embedded.as_mut_slice();
            embed(kernels, queue, &matrix.weights, tokens.as_slice(), out).unwrap();
        });
    }
}

/// The likeliest tokens, a draw of all tokens and one of the best 32.
fn samples(context: &Context, kernels: &Kernels, shape: &Shape, rows: usize, take: &mut impl FnMut(Report)) {
    let mut random = Rng(123);
    let logits: Vec<f32> = (0..rows * shape.vocabulary).map(|_| random.f32() * 12.0).collect();
    let logits = DeviceBuffer::from_slice(context, &logits).unwrap();
    let mut tokens = DeviceBuffer::<u32>::uninit(context, rows).unwrap();
    let mut sampler = DeviceSampler::new(kernels, shape.vocabulary).unwrap();
    for (temperature, top_k) in [(0.0, 0), (1.0, 0), (1.0, 32)] {
        let draws = vec![Draw { temperature, top_k, seed: 1, position: 2 }; rows];
        timed(context, take, |queue| {
            sampler.sample(queue, &draws, logits.as_slice(), &mut tokens.as_mut_slice()).unwrap();
        });
    }
}

#[test]
fn no_kernel_moves_much_more_than_it_has_to() {
    for rows in [1, 9, 40] {
        let counts = counts(&SMALL, rows);
        assert_eq!(counts.len(), if rows <= 32 { 4 + 12 + 6 } else { 4 });
        for count in &counts {
            println!("{}", count.row());
            assert!(count.share() >= 1.0, "{} moves less than it has to", count.kernel);
            assert!(count.share() < 2.0, "{} {} moves too much", count.kernel, count.shape);
        }
    }
}

#[test]
#[ignore = "prints a table, a minute"]
fn table() {
    println!(
        "| kernel | shape | MB moved | of the least | instructions | bank conflicts | 5090 memory, us | issue | H200 memory, us | issue |"
    );
    for rows in [1, 8, 512] {
        for count in counts(&LARGE, rows) {
            println!("{}", count.row());
        }
    }
}
