//! The measuring process: one contender, one list of cells, samples to standard output.
//!
//! A *cell* is a gap and an amount of work: wait `gap` busily in the calling thread, then run a loop in which each
//! item is `work` microseconds of arithmetic, as counted by [`Work`], and take its time. The same work is timed
//! alone around each cell, so that the loop's time less the work's is what the pool costs.

use crate::contender::{self, Item};
use anyhow::{Context, Result};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// What to measure: gap before each call and work in each item, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) gap: u64,
    pub(crate) work: u64,
}

/// What came out.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    pub(crate) cell: Cell,
    /// Time of an item's work alone in the calling thread, nanoseconds.
    pub(crate) alone: f64,
    /// CPU time of the process a call, without the calling thread's in the gaps, nanoseconds.
    pub(crate) cpu: f64,
    /// Times of the calls, nanoseconds.
    pub(crate) times: Vec<f64>,
}

/// Arithmetic that takes a known time: a chain of dependent multiplications and additions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// Links of the chain a microsecond.
    pub(crate) per_microsecond: f64,
}

impl Work {
    /// The best of many: what the chain takes when nothing disturbs it.
    pub(crate) fn calibrate() -> Self {
        let links = 100_000;
        let best = (0..200).map(|_| time(|| chain(links))).fold(f64::INFINITY, f64::min);
        Self { per_microsecond: f64::from(links) / best * 1e3 }
    }

    fn run(self, microseconds: u64) {
        chain((self.per_microsecond * microseconds as f64) as u32);
    }
}

fn chain(links: u32) {
    let mut x = black_box(1_u64);
    for _ in 0..links {
        x = black_box(x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
    }
    black_box(x);
}

/// Nanoseconds that `f` takes.
fn time(f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_nanos() as f64
}

/// Measures cells, each for about the time beside it (longer, if that is less than a few calls), and prints a line of numbers for
/// each: gap, work, alone, cpu, times.
pub(crate) fn child(name: &str, threads: usize, work: Work, cells: &[(Cell, Duration)]) -> Result<()> {
    contender::with(name, threads, |run| {
        for &(cell, budget) in cells {
            let samples = measure(run, work, budget, cell);
            let mut line = format!("{} {} {} {}", cell.gap, cell.work, samples.alone, samples.cpu);
            for time in &samples.times {
                line.push_str(&format!(" {time}"));
            }
            println!("{line}");
        }
    })
}

/// Reads what [`child`] prints.
pub(crate) fn parse(output: &str) -> Result<Vec<Samples>> {
    output
        .lines()
        .map(|line| {
            let numbers: Vec<f64> =
                line.split(' ').map(str::parse).collect::<Result<_, _>>().context("not a number")?;
            let [gap, work, alone, cpu, times @ ..] = numbers.as_slice() else {
                anyhow::bail!("expected at least four numbers, got {line:?}");
            };
            let cell = Cell { gap: *gap as u64, work: *work as u64 };
            Ok(Samples { cell, alone: *alone, cpu: *cpu, times: times.to_vec() })
        })
        .collect()
}

/// More samples than this a cell are not worth their place.
const MOST: usize = 20_000;
/// Fewer are no median.
const LEAST: usize = 9;

fn measure(run: &mut contender::Loop<'_>, work: Work, budget: Duration, cell: Cell) -> Samples {
    let item: &Item<'_> = &|_| work.run(cell.work);
    let mut alone: Vec<f64> = (0..50).map(|_| time(|| work.run(cell.work))).collect();
    let warm = Instant::now();
    for _ in 0..20 {
        run(item);
        if warm.elapsed() > budget {
            break;
        }
    }

    // Written once, so that no page of it is new to the loop.
    let mut times = vec![0.0; MOST];
    times.clear();
    let start = Instant::now();
    let cpu_start = cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID);
    let mut cpu_in_gaps = 0.0;
    let mut before = Instant::now();
    while times.len() < MOST && (times.len() < LEAST || start.elapsed() < budget) {
        if cell.gap > 0 {
            let cpu = cpu_time(libc::CLOCK_THREAD_CPUTIME_ID);
            let gap = Instant::now();
            while gap.elapsed() < Duration::from_micros(cell.gap) {
                std::hint::spin_loop();
            }
            cpu_in_gaps += cpu_time(libc::CLOCK_THREAD_CPUTIME_ID) - cpu;
            before = Instant::now();
        }
        run(item);
        let after = Instant::now();
        times.push((after - before).as_nanos() as f64);
        before = after;
    }
    let cpu = cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID) - cpu_start - cpu_in_gaps;

    alone.extend((0..50).map(|_| time(|| work.run(cell.work))));
    let alone = if cell.work == 0 { 0.0 } else { crate::report::quantile(&mut alone, 0.5) };
    Samples { cell, alone, cpu: cpu / times.len() as f64, times }
}

/// CPU time by this clock, nanoseconds.
fn cpu_time(clock: libc::clockid_t) -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec that outlives the call.
    let status = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(status, 0, "the clocks of CPU time are there on Linux");
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
