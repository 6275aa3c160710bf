//! What the tests share: a seeded problem and ways to run it.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use core::num::NonZero;
use halfbyte_attention::{AttentionParams, KvCache, KvType, attention, attention_with_sinks};
use halfbyte_cpu_kernels::{Context, Isa};
pub use halfbyte_testing::Rng;
use halfbyte_threadpool::ThreadPool;

/// Queries for the last `rows` of `positions` positions.
#[derive(Debug)]
pub struct Problem {
    pub params: AttentionParams,
    /// One for each query head, or none at all.
    pub sinks: Vec<f32>,
    pub q: Vec<f32>,
    pub k: Vec<f32>,
    pub v: Vec<f32>,
    pub rows: usize,
    pub positions: usize,
}

impl Problem {
    pub fn random(rng: &mut Rng, heads: (usize, usize), dim: usize, rows: usize, positions: usize) -> Self {
        let params = AttentionParams::new(heads.0, heads.1, dim, 1.0 / (dim as f32).sqrt()).unwrap();
        let size = [0.1, 1.0, 4.0][rng.below(3)];
        Self {
            params,
            sinks: Vec::new(),
            q: rng.f32s(rows * heads.0 * dim, size),
            k: rng.f32s(positions * heads.1 * dim, size),
            v: rng.f32s(positions * heads.1 * dim, 3.0),
            rows,
            positions,
        }
    }

    /// The same with a window, a soft cap, sinks and keys ahead, each as chance has it.
    pub fn with_variations(mut self, rng: &mut Rng) -> Self {
        if rng.below(2) == 0 {
            self.params = self.params.with_window(NonZero::new(1 + rng.below(self.positions + 10)));
        }
        if rng.below(2) == 0 {
            self.params = self.params.with_soft_cap(Some([0.5, 5.0, 50.0][rng.below(3)])).unwrap();
        }
        if rng.below(2) == 0 {
            self.sinks = rng.f32s(self.params.n_heads(), 4.0);
        }
        self.params = self.params.with_causal(rng.below(3) > 0);
        self
    }

    pub fn first(&self) -> usize {
        self.positions - self.rows
    }

    /// A cache with all positions, and some garbage behind them.
    pub fn cache(&self, isa: Isa, kind: KvType) -> KvCache {
        let width = self.params.n_kv_heads() * self.params.head_dim();
        let mut cache =
            KvCache::new(kind, self.params.n_kv_heads(), self.params.head_dim(), self.positions + 7).unwrap();
        let garbage = vec![f32::NAN; width * cache.capacity()];
        cache.append(isa, &garbage, &garbage, cache.capacity()).unwrap();
        cache.truncate(0);
        // In pieces, as prompts come.
        let mut at = 0;
        for piece in (1..).map(|i| 3 * i) {
            let n = piece.min(self.positions - at);
            cache
                .append(isa, &self.k[at * width..][..n * width], &self.v[at * width..][..n * width], n)
                .unwrap();
            at += n;
            if at == self.positions {
                return cache;
            }
        }
        unreachable!()
    }

    /// The output bits, all rows in one call, into memory poisoned with NaN.
    pub fn run(&self, isa: Isa, threads: usize, cache: &KvCache) -> Vec<u32> {
        self.run_in(isa, threads, cache, self.rows)
    }

    /// The output bits, `chunk` rows a call.
    pub fn run_in(&self, isa: Isa, threads: usize, cache: &KvCache, chunk: usize) -> Vec<u32> {
        let pool = ThreadPool::new(threads).unwrap();
        let ctx = Context { pool: &pool, isa };
        let width = self.params.n_heads() * self.params.head_dim();
        // A NaN that no kernel returns.
        let mut out = vec![f32::from_bits(0x7fc0_dead); self.q.len()];
        let chunks = self.q.chunks(chunk * width).zip(out.chunks_mut(chunk * width));
        for (i, (q, out)) in chunks.enumerate() {
            let first = self.first() + i * chunk;
            if self.sinks.is_empty() {
                attention(ctx, self.params, q, cache, first, out).unwrap();
            } else {
                attention_with_sinks(ctx, self.params, &self.sinks, q, cache, first, out).unwrap();
            }
        }
        out.iter().map(|x| x.to_bits()).collect()
    }
}

/// A problem of one head and one query row at the last position, on every ISA, from an f32 cache: the output.
pub fn one_query(q: &[f32], k: &[f32], v: &[f32], scale: f32) -> Vec<f32> {
    let params = AttentionParams::new(1, 1, q.len(), scale).unwrap();
    let positions = k.len() / q.len();
    let problem = Problem {
        params,
        sinks: Vec::new(),
        q: q.to_vec(),
        k: k.to_vec(),
        v: v.to_vec(),
        rows: 1,
        positions,
    };
    let mut outputs = Isa::available().into_iter().map(|isa| {
        let cache = problem.cache(isa, KvType::F32);
        problem.run(isa, 1, &cache)
    });
    let first = outputs.next().unwrap();
    assert!(outputs.all(|other| other == first), "ISA paths disagree");
    first.into_iter().map(f32::from_bits).collect()
}
