//! The machine's memory bandwidth as decode could use it: `bandwidth [MIB]` reads so much memory (1024 by default) in
//! order and adds it up, over and over, with 1 to all threads, on pages of the usual size and on huge ones.
//!
//! Each thread has one contiguous part. Prints one JSON object: for each kind of page and number of threads the bytes a
//! second of the median pass, the slowest and the fastest. Where the system gives no huge pages, both kinds are the same.

use halfbyte_threadpool::ThreadPool;
use memmap2::{Advice, MmapMut};
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

/// Timed passes for each figure.
const PASSES: usize = 11;
/// What a thread takes at a time: large, so that reading is in order.
const PART: usize = 4 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mib = std::env::args().nth(1).map_or(Ok(1024), |arg| arg.parse::<usize>())?;
    let bytes = (mib << 20).next_multiple_of(PART);
    let mut lines = Vec::new();
    for (pages, advice) in [("normal", Advice::NoHugePage), ("huge", Advice::HugePage)] {
        // A part more, so that `bytes` can begin where a huge page does.
        let mut memory = MmapMut::map_anon(bytes + PART)?;
        // Older systems know neither advice: pages are what they are then.
        let _ = memory.advise(advice);
        memory.fill(1);
        let start = memory.as_ptr().align_offset(PART);
        let memory = &memory[start..][..bytes];
        for threads in 1..=std::thread::available_parallelism()?.get() {
            let pool = ThreadPool::new(threads)?;
            let mut rates: Vec<f64> = (0..=PASSES).map(|_| pass(&pool, memory)).collect();
            // The first is for the clock to settle.
            rates.remove(0);
            rates.sort_unstable_by(f64::total_cmp);
            lines.push(format!(
                r#"{{"pages":"{pages}","threads":{threads},"median":{:.0},"min":{:.0},"max":{:.0}}}"#,
                rates[PASSES / 2],
                rates[0],
                rates[PASSES - 1]
            ));
        }
    }
    println!(r#"{{"bytes":{bytes},"read":[{}]}}"#, lines.join(","));
    Ok(())
}

/// Bytes a second of reading `memory` once.
fn pass(pool: &ThreadPool, memory: &[u8]) -> f64 {
    let words: &[u32] = bytemuck::cast_slice(memory);
    let start = Instant::now();
    pool.par_ranges(words.len() * 4 / PART, 0, |parts| {
        black_box(sum(&words[parts.start * PART / 4..parts.end * PART / 4]));
    });
    memory.len() as f64 / start.elapsed().as_secs_f64()
}

/// The sum, which the compiler vectorises.
fn sum(words: &[u32]) -> u32 {
    words.iter().fold(0, |sum, &word| sum.wrapping_add(word))
}
