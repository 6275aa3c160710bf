//! The kernels of recurrent layers on the shapes of Qwen3.5, on every path of this machine, with the default number of
//! threads.
//!
//! ```text
//! cargo bench -p halfbyte-benches --bench recurrent -- decode      a token: bytes of states that a second reads and writes
//! cargo bench -p halfbyte-benches --bench recurrent -- prompt      64 rows: operations a second
//! ```
//!
//! A token goes through the states of eighteen layers, one after the other, as a model's does: they come from memory, or
//! from a large cache. Shapes are key heads x value heads x size.

#![allow(missing_docs, reason = "criterion_main! makes a public function")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use halfbyte_cpu_kernels::{
    Context, DeltaShape, HeadOrder, Isa, causal_convolution, gated_delta, normalize_keys,
};
use halfbyte_threadpool::{ThreadPool, default_threads};

/// Qwen3.5-0.8B's heads, and 4B's.
const HEADS: [(usize, usize); 2] = [(16, 16), (16, 32)];
const LAYERS: usize = 18;
const ROWS: usize = 64;

fn floats(n: usize) -> Vec<f32> {
    (0..n).map(|i| (((i as u32).wrapping_mul(0x9e37_79b9) >> 7) % 2048) as f32 / 1024.0 - 1.0).collect()
}

/// What a call takes beside the state, for `rows` rows.
struct Inputs {
    shape: DeltaShape,
    qkv: Vec<f32>,
    beta: Vec<f32>,
    decay: Vec<f32>,
    o: Vec<f32>,
}

impl Inputs {
    fn new(ctx: Context<'_>, (k_heads, v_heads): (usize, usize), rows: usize) -> Self {
        let shape = DeltaShape { k_heads, v_heads, k_dim: 128, v_dim: 128, order: HeadOrder::Tiled };
        let mut qkv = floats(rows * shape.row());
        normalize_keys(ctx, &shape, &mut qkv, 1e-6).expect("whole rows");
        let gates = rows * v_heads;
        let o = vec![0.0; rows * shape.value_width()];
        Self { shape, qkv, beta: vec![0.5; gates], decay: vec![0.9; gates], o }
    }

    fn run(&mut self, ctx: Context<'_>, state: &mut [f32]) {
        let Self { shape, qkv, beta, decay, o } = self;
        gated_delta(ctx, shape, qkv, beta, decay, state, o).expect("sizes that fit");
    }
}

fn delta(c: &mut Criterion) {
    let threads = default_threads().expect("HALFBYTE_THREADS, where set, is a number of threads");
    let pool = ThreadPool::new(threads.count).expect("threads");
    for isa in Isa::available() {
        let ctx = Context { pool: &pool, isa };
        for heads in HEADS {
            let name = format!("{}x{}x128", heads.0, heads.1);
            let mut token = Inputs::new(ctx, heads, 1);
            let mut states = vec![vec![0.0_f32; token.shape.state_len()]; LAYERS];
            let mut group = c.benchmark_group("decode");
            group.throughput(Throughput::Bytes((2 * LAYERS * size_of_val(&*states[0])) as u64));
            group.bench_function(BenchmarkId::new(format!("gated_delta/{isa}"), &name), |b| {
                b.iter(|| states.iter_mut().for_each(|state| token.run(ctx, state)));
            });
            group.finish();
            let mut prompt = Inputs::new(ctx, heads, ROWS);
            let mut group = c.benchmark_group("prompt");
            group.throughput(Throughput::Elements((7 * ROWS * states[0].len()) as u64));
            group.bench_function(BenchmarkId::new(format!("gated_delta/{isa}"), &name), |b| {
                b.iter(|| prompt.run(ctx, &mut states[0]));
            });
            let channels = prompt.shape.row();
            let (taps, mut tail) = (floats(4 * channels), floats(3 * channels));
            let mut y = vec![0.0; ROWS * channels];
            group.throughput(Throughput::Elements((8 * y.len()) as u64));
            group.bench_function(BenchmarkId::new(format!("causal_convolution/{isa}"), &name), |b| {
                b.iter(|| {
                    causal_convolution(ctx, &prompt.qkv, channels, &taps, &mut tail, &mut y)
                        .expect("sizes that fit");
                });
            });
            group.finish();
        }
    }
}

criterion_group!(benches, delta);
criterion_main!(benches);
