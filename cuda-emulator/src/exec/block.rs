//! Runs the warps of a block in turns until all have ended.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

use super::barrier::Barriers;
use super::global_race::{Conflict, Party};
use super::shared::Shared;
use super::stats::Counters;
use super::warp::{Place, Warp};
use super::{GlobalView, Problem, lanes_of};
use crate::fault::{Fault, FaultKind};
use crate::launch::{LaunchConfig, Options};
use crate::memory::Allocation;
use crate::module::Kernel;

/// The shortest turn of a warp, in instructions; a random part is added.
const TURN: u32 = 256;

/// What all blocks of a launch share.
#[derive(Debug)]
pub(crate) struct Env<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) config: &'a LaunchConfig<'a>,
    pub(crate) options: &'a Options,
    pub(crate) global: GlobalView<'a>,
    /// Addresses of the module's variables.
    pub(crate) variables: &'a [u64],
}

impl Env<'_> {
    pub(crate) fn traffic(&self) -> bool {
        self.options.checks.traffic
    }
}

/// What a host thread needs to run blocks, one after another.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    pub(crate) env: &'a Env<'a>,
    pub(crate) place: Place<'a>,
    pub(crate) warps: Vec<Warp>,
    pub(crate) shared: Shared,
    pub(crate) barriers: Barriers,
    pub(crate) counters: Counters,
    /// The number of the block that runs.
    number: u64,
    /// Whether the block has read something that another block may have released.
    pub(crate) acquired: bool,
}

impl<'a> Block<'a> {
    pub(crate) fn new(env: &'a Env<'a>) -> Self {
        let (kernel, config) = (env.kernel, env.config);
        let place = Place {
            block: config.block,
            grid: config.grid,
            ctaid: [0; 3],
            dynamic_shared: config.dynamic_shared,
            total_shared: shared_bytes(kernel, config) as u32,
            variables: env.variables,
        };
        let warps = place.threads().div_ceil(32) as usize;
        Self {
            env,
            place,
            warps: std::iter::repeat_with(Warp::default).take(warps).collect(),
            shared: Shared::default(),
            barriers: Barriers::default(),
            counters: Counters::new(&kernel.program),
            number: 0,
            acquired: false,
        }
    }

    /// Runs the block of that number to its end.
    pub(crate) fn run(&mut self, number: u64) -> Result<(), Box<Fault>> {
        let [x, y, _] = self.place.grid.map(u64::from);
        self.place.ctaid = [number % x, number / x % y, number / (x * y)].map(|i| i as u32);
        (self.number, self.acquired) = (number, false);
        let (kernel, checks) = (self.env.kernel, &self.env.options.checks);
        for (w, warp) in self.warps.iter_mut().enumerate() {
            warp.reset(&kernel.program, &self.place, w as u32, kernel.local_bytes as usize);
        }
        let bytes = self.place.total_shared as usize;
        self.shared.reset(bytes, self.warps.len(), checks.uninitialised, checks.shared_races);
        self.barriers = Barriers::default();
        let mut random =
            Pcg32::new(self.env.options.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number);
        let mut ready = Vec::with_capacity(self.warps.len());
        loop {
            ready.clear();
            ready.extend((0..self.warps.len()).filter(|&w| self.warps[w].runnable()));
            if ready.is_empty() {
                return self.finish();
            }
            let w = ready[random.next_u32() as usize % ready.len()];
            let turn = TURN + random.next_u32() % TURN;
            self.interpret(w, turn)?;
        }
    }

    /// Handles the state in which no warp can go on: either all are done, or those that are left wait forever.
    fn finish(&self) -> Result<(), Box<Fault>> {
        let Some(w) = self.warps.iter().position(|warp| warp.alive != 0) else {
            return Ok(());
        };
        let waiting: Vec<String> = self
            .warps
            .iter()
            .enumerate()
            .filter(|(_, warp)| warp.alive != 0)
            .map(|(w, warp)| {
                let lane = warp.alive.trailing_zeros() as usize;
                // A parked lane stands behind its barrier.
                let at = warp.positions[lane].saturating_sub(1) as usize;
                format!("warp {w} at PTX line {}", self.env.kernel.program.instructions[at].line)
            })
            .collect();
        let exited = self.warps.iter().filter(|warp| warp.alive == 0).count();
        let detail = format!("{} wait for ever; {exited} warps have exited", waiting.join(", "));
        let lane = self.warps[w].alive.trailing_zeros() as usize;
        let position = self.warps[w].positions[lane].saturating_sub(1);
        Err(self.fault(w, position, lane, *Problem::new(FaultKind::Deadlock, detail)))
    }

    /// Makes the fault of a problem: adds the kernel, the line, the block and the thread.
    #[cold]
    pub(crate) fn fault(&self, w: usize, position: u32, lane: usize, problem: Problem) -> Box<Fault> {
        let kernel = self.env.kernel;
        let instruction = &kernel.program.instructions[position as usize];
        let (file, line) = instruction.source;
        let source_line =
            kernel.files.iter().find(|(number, _)| *number == file).map(|(_, path)| (path.clone(), line));
        Box::new(Fault {
            kind: problem.kind,
            kernel: kernel.name.clone(),
            ptx_line: instruction.line,
            source_line,
            block: self.place.ctaid,
            thread: self.place.tid(w as u32 * 32 + lane as u32),
            detail: problem.detail,
        })
    }

    /// Checks a plain access to global memory, in the allocation that warp `w` hit last, against those of others.
    /// A write comes with its allocation and its bytes, since writing the value that is there already is no race.
    #[inline(always)]
    pub(crate) fn note_global<const N: usize>(
        &self,
        w: usize,
        offset: u64,
        written: Option<(&Allocation, &[u8; N])>,
    ) -> Result<(), Box<Problem>> {
        let Some(races) = &self.env.global.races else {
            return Ok(());
        };
        let order = &self.shared.order;
        let party = Party { block: self.number, warp: w, order, acquired: self.acquired };
        match races.access(self.warps[w].hint, offset, N, party, written.is_some()) {
            Err(_) if written.is_some_and(|(allocation, bytes)| allocation.bytes(offset) == *bytes) => Ok(()),
            Err(conflict) => Err(self.race(w, offset, N, written.is_some(), conflict)),
            Ok(()) => Ok(()),
        }
    }

    #[cold]
    fn race(&self, w: usize, offset: u64, size: usize, writes: bool, other: Conflict) -> Box<Problem> {
        let verb = if writes { "writes" } else { "reads" };
        let party = match (other.block, other.warp) {
            (None, _) => "other blocks".to_owned(),
            (Some(block), _) if block != self.number => format!("block number {block}"),
            (_, None) => "other warps of its block".to_owned(),
            (_, Some(warp)) => format!("warp {warp} of its block"),
        };
        let did = if other.wrote { "wrote" } else { "read" };
        let detail = format!(
            "warp {w} of block number {} {verb} {size} bytes at offset {offset} of an allocation of {}, some of \
             which {party} {did}, with nothing that puts them in order",
            self.number,
            self.env.global.size(self.warps[w].hint)
        );
        Problem::new(FaultKind::GlobalRace, detail)
    }

    /// Notes a release: what the block did so far comes before what other blocks do after they have acquired it.
    pub(crate) fn release(&self) {
        if let Some(races) = &self.env.global.races {
            races.release(self.number);
        }
    }

    /// Ends lanes, which may complete a barrier that waits for the rest.
    pub(crate) fn exit(&mut self, w: usize, lanes: u32) {
        self.warps[w].alive &= !lanes;
        self.complete_barriers();
    }

    /// The first lane of a mask that is not empty.
    pub(crate) fn first(mask: u32) -> usize {
        lanes_of(mask).next().unwrap_or(0)
    }
}

/// Bytes of a block's shared memory.
pub(crate) fn shared_bytes(kernel: &Kernel, config: &LaunchConfig<'_>) -> u64 {
    match config.dynamic_shared {
        0 => u64::from(kernel.static_shared),
        dynamic => u64::from(kernel.dynamic_offset) + u64::from(dynamic),
    }
}
