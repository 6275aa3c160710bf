//! The situations, and the processes that measure in them.

use crate::contender::{self, Contender};
use crate::measure::{self, Cell, Samples, Work};
use crate::others::Others;
use crate::report::Results;
use anyhow::{Context, Result, ensure};
use std::process::{Child, Command, Stdio};

/// Times that each contender's turn comes.
const ROUNDS: usize = 2;

/// A turn in which other programs took more of a CPU than this is measured again, ...
const MOST_NOISE: f64 = 0.05;
/// ... at most so often. Then the quietest one counts.
const TRIES: usize = 6;

/// A situation in which the contenders are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// As many threads as CPUs, and nothing else running.
    Quiet,
    /// Four times as many threads as CPUs.
    Crowded,
    /// As many threads as CPUs, and another program busy on one of them.
    Busy,
    /// Two processes, each with as many threads as CPUs.
    Two,
}

impl Scenario {
    pub(crate) const ALL: [Self; 4] = [Self::Quiet, Self::Crowded, Self::Busy, Self::Two];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Crowded => "crowded",
            Self::Busy => "busy",
            Self::Two => "two",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Quiet => {
                "A quiet machine\n\nTime of a call less the work of one thread: median (99th percentile). CPU burnt: CPU \
                 time of the process a call,\nbeyond the work and the calling thread's own gap, for a call without work."
            }
            Self::Crowded => {
                "Four times as many threads as CPUs\n\nTime of a call, an item of work a thread: median, mean (99th \
                 percentile). Four times the work is the least possible."
            }
            Self::Busy => {
                "As many threads as CPUs, beside a program that is always busy on one CPU\n\nTime of a call: median, \
                 mean (99th percentile)."
            }
            Self::Two => {
                "Two processes at once, each with as many threads as CPUs\n\nTime of a call: median, mean (99th \
                 percentile)."
            }
        }
    }

    pub(crate) fn cells(self) -> Vec<Cell> {
        let (gaps, works): (&[u64], &[u64]) = match self {
            Self::Quiet => (&[0, 20, 200, 5000], &[0, 1, 3, 10, 100]),
            _ => (&[0, 200], &[10, 100]),
        };
        gaps.iter().flat_map(|&gap| works.iter().map(move |&work| Cell { gap, work })).collect()
    }

    fn threads(self, cpus: usize) -> usize {
        if self == Self::Crowded { 4 * cpus } else { cpus }
    }

    /// Milliseconds a cell and round.
    fn budget(self, cell_gap: u64) -> u64 {
        match (self, cell_gap) {
            (Self::Quiet, 5000) => 300,
            (Self::Quiet, _) => 40,
            _ => 120,
        }
    }

    /// All contenders' samples, and the most of a CPU that other programs took in a turn. Rounds go through all contenders in turn, so that a drift of the machine meets all.
    pub(crate) fn measure(self, cpus: usize) -> Result<(Results, f64)> {
        let work = Work::calibrate();
        let mut all: Vec<_> = contender::ALL.iter().map(|&c| (c, Vec::<Samples>::new())).collect();
        let mut loudest: f64 = 0.0;
        for round in 0..ROUNDS {
            for (contender, samples) in &mut all {
                eprintln!("{} {}/{}: {}", self.name(), round + 1, ROUNDS, contender.title);
                let (noise, new) = self.quiet_round(*contender, cpus, work)?;
                loudest = loudest.max(noise);
                for new in new {
                    merge(samples, new);
                }
            }
        }
        Ok((all, loudest))
    }

    /// A turn with as little noise from other programs as there is to be had, and how much that was.
    fn quiet_round(self, contender: Contender, cpus: usize, work: Work) -> Result<(f64, Vec<Samples>)> {
        let mut best = (f64::INFINITY, Vec::new());
        for _ in 0..TRIES {
            let others = Others::watch()?;
            let samples = self.one_round(contender, cpus, work)?;
            let noise = others.share()?;
            if noise < best.0 {
                best = (noise, samples);
            }
            if best.0 <= MOST_NOISE {
                break;
            }
            eprintln!("  other programs took {:.0}% of a CPU", noise * 100.0);
        }
        Ok(best)
    }

    fn one_round(self, contender: Contender, cpus: usize, work: Work) -> Result<Vec<Samples>> {
        let _neighbour = (self == Self::Busy).then(|| spin_on(cpus - 1)).transpose()?;
        let processes = if self == Self::Two { 2 } else { 1 };
        let children: Vec<Child> =
            (0..processes).map(|_| self.start(contender, cpus, work)).collect::<Result<_>>()?;
        let mut samples = Vec::new();
        for child in children {
            let output = child.wait_with_output()?;
            ensure!(output.status.success(), "{}: {}", contender.name, output.status);
            samples.extend(measure::parse(std::str::from_utf8(&output.stdout)?)?);
        }
        Ok(samples)
    }

    fn start(self, contender: Contender, cpus: usize, work: Work) -> Result<Child> {
        let threads = self.threads(cpus).to_string();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["child", contender.name, &threads, &work.per_microsecond.to_string()]);
        for cell in self.cells() {
            command.arg(format!("{},{},{}", cell.gap, cell.work, self.budget(cell.gap)));
        }
        command
            .env("CANDLE_NUM_THREADS", &threads)
            .env("OMP_NUM_THREADS", &threads)
            .envs(contender.environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .context("the measuring process can't be started")
    }
}

/// Adds samples of a cell to those of earlier rounds.
fn merge(all: &mut Vec<Samples>, new: Samples) {
    match all.iter_mut().find(|samples| samples.cell == new.cell) {
        Some(old) => {
            let (a, b) = (old.times.len() as f64, new.times.len() as f64);
            old.cpu = (old.cpu * a + new.cpu * b) / (a + b);
            old.alone = old.alone.min(new.alone);
            old.times.extend(new.times);
        }
        None => all.push(new),
    }
}

/// A process that is busy on one CPU until this is dropped.
struct Neighbour(Child);

impl Drop for Neighbour {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spin_on(cpu: usize) -> Result<Neighbour> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["spin", &cpu.to_string()]);
    Ok(Neighbour(command.spawn().context("the busy neighbour can't be started")?))
}

/// The neighbour's own work: pins itself and never ends.
pub(crate) fn spin(cpu: usize) -> Result<()> {
    let mut set = std::mem::MaybeUninit::<libc::cpu_set_t>::zeroed();
    ensure!(cpu < libc::CPU_SETSIZE as usize, "CPU {cpu} is beyond what the system's mask holds");
    // SAFETY: a CPU set of zeros is the empty set.
    let set = unsafe {
        let set = set.assume_init_mut();
        libc::CPU_SET(cpu, set);
        *set
    };
    // SAFETY: the set outlives the call and has the size given.
    let status = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
    ensure!(status == 0, "pinning to CPU {cpu}: {}", std::io::Error::last_os_error());
    loop {
        std::hint::black_box(());
    }
}
