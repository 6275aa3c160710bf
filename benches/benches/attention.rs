//! Attention over a cache, with the default number of threads: `group/kernel/isa/shape`.
//!
//! ```text
//! cargo bench -p halfbyte-benches --bench attention -- decode_f16     one token
//! cargo bench -p halfbyte-benches --bench attention -- 9h3x64         one model's heads
//! ```
//!
//! A shape is query heads, key heads and their size, then the keys: `9h3x64/4096` is SmolLM2-135M's with 4096 tokens in
//! the cache. `decode` is one query row behind them all and counts the bytes of keys and values; every call has another
//! cache, as many as a model has layers or as it takes that no processor's cache holds them. `prefill` is the last rows of a prompt, as many as a session takes at once,
//! and counts multiplications and additions of the keys that each row sees. The scalar path runs up to 1024 keys.

#![allow(missing_docs, reason = "criterion_main! makes a public function")]

use core::hint::black_box;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use halfbyte_attention::{AttentionParams, KvCache, KvType, attention};
use halfbyte_cpu_kernels::{Context, Isa};
use halfbyte_threadpool::{ThreadPool, default_threads};
use std::time::Duration;

/// Query heads, key heads, numbers a head, layers: SmolLM2-135M, a Llama of one billion, of eight.
const HEADS: [(usize, usize, usize, usize); 3] = [(9, 3, 64, 30), (32, 8, 64, 16), (32, 8, 128, 32)];
const KEYS: [usize; 7] = [128, 256, 512, 1024, 2048, 4096, 8192];
/// Rows of a prompt that go together.
const ROWS: usize = 256;
const SCALAR_KEYS: usize = 1024;
/// Bytes of keys and values beyond any processor's cache.
const COLD: usize = 256 << 20;

fn floats(n: usize) -> Vec<f32> {
    (0..n as u32).map(|i| ((i.wrapping_mul(0x9e37_79b9) >> 8) as f32 / (1 << 23) as f32) - 1.0).collect()
}

fn filled(kind: KvType, (_, kv_heads, head_dim, _): (usize, usize, usize, usize), keys: usize) -> KvCache {
    let mut cache = KvCache::new(kind, kv_heads, head_dim, keys).expect("there is memory for one layer");
    let row = floats(keys * kv_heads * head_dim);
    cache.append(Isa::fastest(), &row, &row, keys).expect("it holds as many");
    cache
}

fn all(c: &mut Criterion) {
    let threads = default_threads().expect("HALFBYTE_THREADS, where set, is a number of threads");
    eprintln!("threads: {} ({})", threads.count, threads.reason);
    let pool = ThreadPool::new(threads.count).expect("the system starts a few threads");
    for (kind, name) in KvType::ALL.map(|kind| (kind, kind.name())) {
        for heads in HEADS {
            for keys in KEYS {
                for (stage, rows) in [("decode", 1), ("prefill", ROWS.min(keys))] {
                    Shape { stage, kind, name, heads, keys, rows }.bench(c, &pool);
                }
            }
        }
    }
}

struct Shape {
    stage: &'static str,
    kind: KvType,
    name: &'static str,
    heads: (usize, usize, usize, usize),
    keys: usize,
    /// The last of the keys' positions are those of the queries.
    rows: usize,
}

impl Shape {
    /// Of all keys and values.
    fn bytes(&self) -> usize {
        let (_, kv_heads, head_dim, _) = self.heads;
        2 * self.keys * kv_heads * self.kind.row_bytes(head_dim)
    }

    fn throughput(&self) -> Throughput {
        let (n_heads, _, head_dim, _) = self.heads;
        let first = self.keys - self.rows;
        if self.rows == 1 {
            return Throughput::Bytes(self.bytes() as u64);
        }
        // Row r sees first + r + 1 keys; a key takes a product for its score and one for its value.
        let seen = self.rows * first + self.rows * (self.rows + 1) / 2;
        Throughput::Elements((4 * n_heads * head_dim * seen) as u64)
    }

    fn bench(&self, c: &mut Criterion, pool: &ThreadPool) {
        let (n_heads, kv_heads, head_dim, layers) = self.heads;
        let scale = 1.0 / (head_dim as f32).sqrt();
        let params = AttentionParams::new(n_heads, kv_heads, head_dim, scale).expect("whole groups of heads");
        // A prompt's rows share what they read; one token finds every layer's keys where the last token left them.
        let copies = if self.rows == 1 { (COLD / self.bytes()).clamp(1, layers) } else { 1 };
        let q = floats(self.rows * n_heads * head_dim);
        let mut out = vec![0.0; q.len()];
        // Made when a filter lets the first bench through, and kept for the other paths.
        let mut caches = Vec::new();
        let mut group = c.benchmark_group(format!("attention/{}_{}", self.stage, self.name));
        group.throughput(self.throughput());
        let wanted = |isa: &Isa| *isa != Isa::scalar() || self.keys <= SCALAR_KEYS;
        for isa in Isa::available().into_iter().filter(wanted) {
            let shape = format!("{n_heads}h{kv_heads}x{head_dim}/{}", self.keys);
            group.bench_function(BenchmarkId::new(isa.name(), shape), |b| {
                if caches.is_empty() {
                    caches.extend((0..copies).map(|_| filled(self.kind, self.heads, self.keys)));
                }
                let mut i = 0;
                b.iter(|| {
                    let cache = &caches[i % copies];
                    i += 1;
                    let ctx = Context { pool, isa };
                    attention(ctx, params, black_box(&q), cache, self.keys - self.rows, &mut out)
                        .expect("the shapes agree");
                });
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600));
    targets = all
}
criterion_main!(benches);
