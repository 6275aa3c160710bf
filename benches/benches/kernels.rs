//! The CPU kernels on the shapes of real models, on every path of this machine, with the default number of threads.
//!
//! Names are `group/kernel/isa/shape`; a matrix's shape is rows x columns, with x tokens for a prompt:
//!
//! ```text
//! cargo bench -p halfbyte-benches --bench kernels -- decode/q4_0_packed_int8   one kernel
//! cargo bench -p halfbyte-benches --bench kernels -- avx2/576x1536             one path on one shape
//! cargo bench -p halfbyte-benches --bench kernels -- memory                    the yardstick of decode
//! ```
//!
//! `decode` counts the bytes of weights that a second brings: each product reads another copy of the matrix, so
//! that no cache has it, as a model's next token finds it. `memory/read` is what the machine brings when nothing is
//! computed. `prefill` counts multiplications and additions. `packed` weights are a `PackedMatrix`. The shapes are
//! those of SmolLM2-135M and of a Llama of a billion parameters; `HALFBYTE_BENCH_LARGE=1` adds those of eight billion
//! and prompts of 512. The scalar path runs the small shape alone: it takes seconds for one product of the others.

#![allow(missing_docs, reason = "criterion_main! makes a public function")]

use core::hint::black_box;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use half::f16;
use halfbyte_cpu_kernels::{
    Activation, Context, Isa, Matrix, PackedMatrix, RopeOrder, RopeTable, Weights, add_assign, gated,
    gemm_f32, gemm_int8, quantize_activations, rms_norm, rope, softmax,
};
use halfbyte_q4::{BlockQ4_0, BlockQ4_1};
use halfbyte_q8::{Activations, BlockQ8_0};
use halfbyte_threadpool::{ThreadPool, default_threads};
use std::time::Duration;

/// Rows and columns.
const SHAPES: [(usize, usize); 2] = [(576, 1536), (2048, 8192)];
const LARGE_SHAPES: [(usize, usize); 2] = [(4096, 4096), (4096, 14336)];
/// Tokens of a prompt, or of several sequences decoded at once.
const TOKENS: [usize; 2] = [8, 64];
const LARGE_TOKENS: [usize; 1] = [512];
/// Bytes of weights that decode reads before it comes back to the same ones: beyond any cache.
const COLD: usize = 256 << 20;

/// A few bits that differ from element to element; what they are does not change the speed.
fn bits(i: usize) -> u32 {
    (i as u32).wrapping_mul(0x9e37_79b9) >> 7
}

fn floats(n: usize) -> Vec<f32> {
    (0..n).map(|i| (bits(i) % 2048) as f32 / 1024.0 - 1.0).collect()
}

/// Weights that own their memory.
enum Stored {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Q8_0(Vec<BlockQ8_0>),
    Q4_0(Vec<BlockQ4_0>),
    Q4_1(Vec<BlockQ4_1>),
}

/// A matrix and as many copies of it as decode needs to read from memory, packed or not.
enum Copies {
    Stored(Vec<Stored>),
    Packed(Vec<PackedMatrix>),
}

impl Copies {
    fn new(make: impl Fn() -> Stored, shape: (usize, usize), n: usize, pack: Option<Context<'_>>) -> Self {
        let Some(ctx) = pack else { return Self::Stored((0..n).map(|_| make()).collect()) };
        let stored = make();
        let packed = PackedMatrix::pack_all(ctx, &vec![stored.matrix(shape.0, shape.1); n]);
        Self::Packed(packed.expect("formats of int8 products can be packed"))
    }

    /// One after the other, over and over.
    fn matrix(&self, i: usize, (rows, cols): (usize, usize)) -> Matrix<'_> {
        match self {
            Self::Stored(stored) => stored[i % stored.len()].matrix(rows, cols),
            Self::Packed(packed) => packed[i % packed.len()].as_matrix(),
        }
    }
}

/// What makes `n` weights of a format.
type Make = fn(usize) -> Stored;

/// The formats: name and bytes of 32 weights.
const FORMATS: [(&str, usize, Make); 5] = [
    ("q4_0", 18, |n| {
        let block = |i| BlockQ4_0 { scale: f16::from_f32_const(0.01), codes: [bits(i) as u8; 16] };
        Stored::Q4_0((0..n / 32).map(block).collect())
    }),
    ("q4_1", 20, |n| {
        let (scale, min) = (f16::from_f32_const(0.01), f16::from_f32_const(-0.08));
        Stored::Q4_1((0..n / 32).map(|i| BlockQ4_1 { scale, min, codes: [bits(i) as u8; 16] }).collect())
    }),
    ("q8_0", 34, |n| {
        let block = |i| BlockQ8_0 { scale: f16::from_f32_const(0.001), codes: [bits(i) as i8; 32] };
        Stored::Q8_0((0..n / 32).map(block).collect())
    }),
    ("f16", 64, |n| Stored::F16(floats(n).into_iter().map(f16::from_f32).collect())),
    ("f32", 128, |n| Stored::F32(floats(n))),
];

impl Stored {
    fn matrix(&self, rows: usize, cols: usize) -> Matrix<'_> {
        let weights = match self {
            Self::F32(w) => Weights::F32(w),
            Self::F16(w) => Weights::F16(w),
            Self::Q8_0(w) => Weights::Q8_0(w),
            Self::Q4_0(w) => Weights::Q4_0(w),
            Self::Q4_1(w) => Weights::Q4_1(w),
        };
        Matrix::new(weights, rows, cols).expect("the shape is a whole number of groups")
    }
}

/// Whether a path runs a shape of this many weights.
fn wanted(isa: Isa, weights: usize) -> bool {
    isa != Isa::scalar() || weights <= SHAPES[0].0 * SHAPES[0].1
}

/// `tokens` of f32 activations, in 8 bits too, and the room for their outputs.
struct Operands {
    x: Vec<f32>,
    quantized: Activations,
    y: Vec<f32>,
}

impl Operands {
    fn new(rows: usize, cols: usize, tokens: usize) -> Self {
        let x = floats(tokens * cols);
        let mut quantized = Activations::new();
        quantized.quantize(&x, tokens, cols).expect("whole groups");
        Self { x, quantized, y: vec![0.0; tokens * rows] }
    }
}

/// How a product takes its operands: the end of its name, whether the weights are packed, and whether the
/// activations are in 8 bits.
const FORMS: [(&str, bool, bool); 4] =
    [("packed_int8", true, true), ("int8", false, true), ("packed_f32", true, false), ("f32", false, false)];

fn products(c: &mut Criterion, pool: &ThreadPool) {
    let large = std::env::var_os("HALFBYTE_BENCH_LARGE").is_some();
    let shapes: Vec<_> = SHAPES.into_iter().chain(LARGE_SHAPES.into_iter().filter(|_| large)).collect();
    let tokens: Vec<_> =
        [1].into_iter().chain(TOKENS).chain(LARGE_TOKENS.into_iter().filter(|_| large)).collect();
    for (format, bytes, make) in FORMATS {
        let quantized = !matches!(format, "f16" | "f32");
        for &shape in &shapes {
            let weights = shape.0 * shape.1;
            let bytes = weights / 32 * bytes;
            for &tokens in &tokens {
                for (form, packed, int8) in FORMS {
                    // Packing gains nothing for quantized weights that are widened first.
                    let wanted = if quantized { int8 || !packed } else { !int8 };
                    if wanted {
                        let product = Product { format, form, make, shape, bytes, tokens, packed, int8 };
                        product.bench(c, pool);
                    }
                }
            }
        }
    }
}

/// One kernel on one shape.
struct Product {
    format: &'static str,
    form: &'static str,
    make: Make,
    shape: (usize, usize),
    bytes: usize,
    tokens: usize,
    packed: bool,
    int8: bool,
}

impl Product {
    fn bench(&self, c: &mut Criterion, pool: &ThreadPool) {
        let ((rows, cols), tokens) = (self.shape, self.tokens);
        let (stage, shape, throughput, copies) = match tokens {
            1 => {
                let copies = COLD.div_ceil(self.bytes);
                ("decode", format!("{rows}x{cols}"), Throughput::Bytes(self.bytes as u64), copies)
            }
            _ => {
                let operations = Throughput::Elements((2 * rows * cols * tokens) as u64);
                ("prefill", format!("{rows}x{cols}x{tokens}"), operations, 1)
            }
        };
        // Made when a filter lets the first bench through, and kept for the other paths.
        let mut data = None;
        let mut group = c.benchmark_group(format!("{stage}/{}_{}", self.format, self.form));
        group.throughput(throughput);
        for isa in Isa::available().into_iter().filter(|&isa| wanted(isa, rows * cols)) {
            let ctx = Context { pool, isa };
            group.bench_function(BenchmarkId::new(isa.name(), &shape), |b| {
                let (weights, operands) = data.get_or_insert_with(|| {
                    let make = || (self.make)(rows * cols);
                    let weights = Copies::new(make, self.shape, copies, self.packed.then_some(ctx));
                    (weights, Operands::new(rows, cols, tokens))
                });
                let Operands { x, quantized, y } = operands;
                let mut i = 0;
                b.iter(|| {
                    let w = weights.matrix(i, self.shape);
                    i += 1;
                    let done = if self.int8 {
                        gemm_int8(ctx, &w, black_box(quantized), y)
                    } else {
                        gemm_f32(ctx, &w, black_box(x), tokens, y)
                    };
                    done.expect("the sizes agree");
                });
            });
        }
        group.finish();
    }
}

/// Reading memory in order and adding it up, on 1 to all threads: what decode can reach. The numbers lie in a
/// `PackedMatrix`, on the kind of pages that packed weights have.
fn memory(c: &mut Criterion, threads: usize) {
    const COLS: usize = 4096;
    let rows = COLD / 4 / COLS;
    let mut packed = None;
    let mut group = c.benchmark_group("memory/read");
    group.throughput(Throughput::Bytes(COLD as u64));
    for threads in 1..=threads {
        let pool = ThreadPool::new(threads).expect("the system starts a few threads");
        group.bench_function(BenchmarkId::new("threads", threads), |b| {
            let packed = packed.get_or_insert_with(|| {
                let numbers = vec![1.0; rows * COLS];
                let matrix = Matrix::new(Weights::F32(&numbers), rows, COLS).expect("the sizes agree");
                let ctx = Context { pool: &pool, isa: Isa::fastest() };
                PackedMatrix::new(ctx, &matrix).expect("F32 can be packed")
            });
            let Weights::Packed(panels) = packed.as_matrix().weights() else {
                unreachable!("F32 can be packed")
            };
            let numbers: &[f32] = bytemuck::cast_slice(panels.as_bytes());
            b.iter(|| {
                pool.par_ranges(rows, 0, |range| {
                    black_box(sum(&numbers[range.start * COLS..range.end * COLS]));
                });
            });
        });
    }
    group.finish();
}

/// The sum of the bits, which the compiler vectorises.
fn sum(numbers: &[f32]) -> u32 {
    numbers.iter().fold(0, |sum, x| sum.wrapping_add(x.to_bits()))
}

/// What packing a matrix takes, once for each that a model has.
fn packing(c: &mut Criterion, pool: &ThreadPool) {
    let (rows, cols) = SHAPES[1];
    for (format, bytes, make) in FORMATS.into_iter().filter(|(name, ..)| name.starts_with('q')) {
        let mut group = c.benchmark_group(format!("packing/{format}"));
        group.throughput(Throughput::Bytes((rows * cols / 32 * bytes) as u64));
        let mut stored = None;
        for isa in Isa::available().into_iter().filter(|&isa| isa != Isa::scalar()) {
            group.bench_function(BenchmarkId::new(isa.name(), format!("{rows}x{cols}")), |b| {
                let w = stored.get_or_insert_with(|| make(rows * cols)).matrix(rows, cols);
                b.iter(|| PackedMatrix::new(Context { pool, isa }, black_box(&w)).expect("supported"));
            });
        }
        group.finish();
    }
}

/// Benches `kernel` as `rows/name/isa/shape` on every path; throughput in elements.
fn on_every_path(
    c: &mut Criterion,
    pool: &ThreadPool,
    name: &str,
    shape: &str,
    elements: usize,
    mut kernel: impl FnMut(Context<'_>),
) {
    let mut group: BenchmarkGroup<'_, WallTime> = c.benchmark_group(format!("rows/{name}"));
    group.throughput(Throughput::Elements(elements as u64));
    for isa in Isa::available() {
        group.bench_function(BenchmarkId::new(isa.name(), shape), |b| {
            b.iter(|| kernel(Context { pool, isa }))
        });
    }
    group.finish();
}

/// Everything between the products, for one token and for a prompt of 64, `n` wide.
fn rows(c: &mut Criterion, pool: &ThreadPool) {
    const HEAD: usize = 64;
    for n in [576, 2048] {
        for tokens in [1, 64] {
            let (shape, elements) = (format!("{tokens}x{n}"), tokens * n);
            let (x, weight, mut y) = (floats(elements), floats(n), vec![0.0; elements]);
            on_every_path(c, pool, "rms_norm", &shape, elements, |ctx| {
                rms_norm(ctx, black_box(&x), &weight, 1e-5, &mut y).expect("the sizes agree");
            });
            on_every_path(c, pool, "swiglu", &shape, elements, |ctx| {
                gated(ctx, Activation::Silu, black_box(&x), &x, &mut y).expect("the sizes agree");
            });
            on_every_path(c, pool, "add_assign", &shape, elements, |ctx| {
                add_assign(ctx, black_box(&mut y), &x).expect("the sizes agree");
            });
            let mut quantized = Activations::new();
            on_every_path(c, pool, "quantize_activations", &shape, elements, |ctx| {
                quantize_activations(ctx, black_box(&x), tokens, n, &mut quantized).expect("whole groups");
            });
            for (name, order) in [("rope_adjacent", RopeOrder::Adjacent), ("rope_halves", RopeOrder::Halves)]
            {
                let mut table = RopeTable::new(RopeTable::plain_frequencies(10_000.0, HEAD), order);
                table.extend_to(tokens);
                on_every_path(c, pool, name, &shape, elements, |ctx| {
                    rope(ctx, black_box(&mut y), n / HEAD, HEAD, &table, 0).expect("the table reaches");
                });
            }
        }
        let x = floats(n);
        let mut y = x.clone();
        on_every_path(c, pool, "softmax", &n.to_string(), n, |ctx| {
            y.copy_from_slice(&x);
            softmax(ctx.isa, black_box(&mut y));
        });
    }
}

/// What handing work over costs: items that do nothing.
fn par_for(c: &mut Criterion, pool: &ThreadPool) {
    let mut group = c.benchmark_group("pool/par_for");
    for items in [1, 16, 1024] {
        let id = BenchmarkId::new(format!("{}-threads", pool.threads()), items);
        group.bench_function(id, |b| {
            b.iter(|| {
                pool.par_for(items, 0, |i| {
                    black_box(i);
                });
            });
        });
    }
    group.finish();
}

fn all(c: &mut Criterion) {
    let threads = default_threads().expect("HALFBYTE_THREADS, where set, is a number of threads");
    eprintln!("threads: {} ({})", threads.count, threads.reason);
    let pool = ThreadPool::new(threads.count).expect("the system starts a few threads");
    memory(c, threads.count);
    products(c, &pool);
    packing(c, &pool);
    rows(c, &pool);
    par_for(c, &pool);
}

criterion_group! {
    name = kernels;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = all
}
criterion_main!(kernels);
