//! Output bits do not depend on chunks, neighbours, threads, or what is cached behind a row.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Problem, Rng};
use halfbyte_attention::KvType;
use halfbyte_cpu_kernels::Isa;
use std::num::NonZero;

fn windowed(mut p: Problem, window: usize) -> Problem {
    p.params = p.params.with_window(NonZero::new(window)).with_soft_cap(Some(3.0)).unwrap();
    p.sinks = vec![0.5; p.params.n_heads()];
    p
}

/// Large enough to be shared among threads, with tiles and quads that end raggedly.
fn problems() -> Vec<Problem> {
    let seed = 0x1234;
    println!("seed {seed:#x}");
    let mut rng = Rng(seed);
    vec![
        Problem::random(&mut rng, (9, 3), 64, 75, 75),
        Problem::random(&mut rng, (8, 1), 128, 21, 300),
        Problem::random(&mut rng, (2, 2), 20, 97, 161),
        Problem::random(&mut rng, (9, 3), 64, 1, 700),
        // Few queries and several chunks of keys, which threads share; the window leaves a chunk out.
        Problem::random(&mut rng, (4, 1), 64, 5, 1700),
        windowed(Problem::random(&mut rng, (4, 2), 20, 6, 1700), 530),
    ]
}

#[test]
fn any_chunks_give_the_bits_of_the_whole() {
    let isa = Isa::fastest();
    for p in problems() {
        for kind in KvType::ALL {
            let cache = p.cache(isa, kind);
            let whole = p.run(isa, 1, &cache);
            for chunk in [1, 2, 3, 5, 16, 64] {
                assert!(
                    p.run_in(isa, 1, &cache, chunk) == whole,
                    "chunks of {chunk}, {:?} {kind:?}",
                    p.params
                );
            }
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for p in problems() {
        for isa in Isa::available() {
            let cache = p.cache(isa, KvType::F16);
            let one = p.run(isa, 1, &cache);
            for threads in [2, 3] {
                assert!(p.run(isa, threads, &cache) == one, "{threads} threads on {isa}, {:?}", p.params);
            }
        }
    }
}

#[test]
fn a_prompt_fed_in_turns_with_the_cache_equals_the_prompt_fed_whole() {
    use halfbyte_attention::{KvCache, attention};
    use halfbyte_cpu_kernels::Context;
    use halfbyte_threadpool::ThreadPool;

    let mut rng = Rng(0x77);
    let p = Problem::random(&mut rng, (6, 2), 64, 150, 150);
    let isa = Isa::fastest();
    let whole = p.run(isa, 1, &p.cache(isa, KvType::F16));
    let pool = ThreadPool::new(1).unwrap();
    let (width, kv_width) = (6 * 64, 2 * 64);
    for chunk in [1, 7, 64, 149] {
        let mut cache = KvCache::new(KvType::F16, 2, 64, 150).unwrap();
        let mut out = vec![f32::NAN; p.q.len()];
        for first in (0..150).step_by(chunk) {
            let n = chunk.min(150 - first);
            let rows = first * kv_width..(first + n) * kv_width;
            cache.append(isa, &p.k[rows.clone()], &p.v[rows], n).unwrap();
            let rows = first * width..(first + n) * width;
            let ctx = Context { pool: &pool, isa };
            attention(ctx, p.params, &p.q[rows.clone()], &cache, first, &mut out[rows]).unwrap();
        }
        assert!(out.iter().map(|x| x.to_bits()).eq(whole.iter().copied()), "chunks of {chunk}");
    }
}

#[test]
fn a_head_is_the_same_alone() {
    let mut rng = Rng(0x88);
    let p = Problem::random(&mut rng, (6, 2), 80, 9, 90);
    let isa = Isa::fastest();
    let whole = p.run(isa, 1, &p.cache(isa, KvType::F32));
    let pick = |x: &[f32], heads: usize, head: usize| -> Vec<f32> {
        x.chunks_exact(80).skip(head).step_by(heads).flatten().copied().collect()
    };
    for head in 0..6 {
        let alone = Problem {
            sinks: Vec::new(),
            params: halfbyte_attention::AttentionParams::new(1, 1, 80, p.params.scale()).unwrap(),
            q: pick(&p.q, 6, head),
            k: pick(&p.k, 2, head / 3),
            v: pick(&p.v, 2, head / 3),
            rows: 9,
            positions: 90,
        };
        let got = alone.run(isa, 1, &alone.cache(isa, KvType::F32));
        let want: Vec<u32> = whole.chunks_exact(80).skip(head).step_by(6).flatten().copied().collect();
        assert_eq!(got, want, "head {head}");
    }
}
