//! The loop over instructions.

use super::block::Block;
use super::registers::{Class, LANES};
use super::{Problem, lanes_of};
use crate::decode::program::{Guard, Op, Uses};
use crate::fault::{Fault, FaultKind};

/// The outcome for lanes at an instruction that needs other lanes, too.
pub(super) enum Gathered {
    /// All lanes are here, and the instruction was executed.
    Done,
    /// Some lanes are missing: those that are here wait.
    Missing,
}

impl Block<'_> {
    /// Runs a warp for about `turn` instructions, or until it waits or ends.
    pub(super) fn interpret(&mut self, w: usize, turn: u32) -> Result<(), Box<Fault>> {
        let mut left = turn;
        while left > 0 {
            let Some(group) = self.warps[w].choose() else {
                break;
            };
            left = self.run_group(w, group, left)?;
        }
        let warp = &self.warps[w];
        if warp.executed > self.env.options.warp_budget && warp.alive != 0 {
            let lane = Self::first(warp.alive);
            let detail = format!("warp {w} has executed {} instructions", warp.executed);
            let position = warp.positions[lane];
            return Err(self.fault(w, position, lane, *Problem::new(FaultKind::Watchdog, detail)));
        }
        Ok(())
    }

    /// Runs lanes that are together until they part, meet others, wait, or `left` is used up; returns what is left.
    fn run_group(&mut self, w: usize, group: super::warp::Group, mut left: u32) -> Result<u32, Box<Fault>> {
        let program = &self.env.kernel.program;
        let instructions = program.instructions.as_slice();
        let active = group.lanes;
        let diverged = active != self.warps[w].alive & !self.warps[w].parked;
        let mut at = group.position;
        loop {
            if left == 0 || at >= group.limit {
                self.warps[w].place(active, at);
                return Ok(left);
            }
            let instruction = &instructions[at as usize];
            if let Some(uses) = &instruction.uses {
                self.track(w, at, uses, instruction.guard, active)?;
            }
            let mask = self.warps[w].guarded(instruction.guard, active);
            left -= 1;
            self.warps[w].executed += 1;
            self.counters.executed[at as usize] += 1;
            self.counters.stats.divergent += u64::from(diverged);
            match &instruction.op {
                Op::Alu { run, operands } => {
                    if mask != 0 {
                        run(&mut self.warps[w].registers, operands, mask);
                    }
                }
                Op::Branch(target) => {
                    if mask == active && !diverged {
                        at = *target;
                        continue;
                    }
                    if mask != 0 {
                        self.warps[w].place(active, at + 1);
                        self.warps[w].place(mask, *target);
                        return Ok(left);
                    }
                }
                Op::BranchTable(index, targets) => {
                    self.warps[w].place(active, at + 1);
                    let indices = self.warps[w].registers.words[*index as usize];
                    for lane in lanes_of(mask) {
                        let Some(&target) = targets.get(indices[lane] as usize) else {
                            let detail = format!("branch {} of a table of {}", indices[lane], targets.len());
                            let problem = Problem::new(FaultKind::IllegalInstruction, detail);
                            return Err(self.fault(w, at, lane, *problem));
                        };
                        self.warps[w].positions[lane] = target;
                    }
                    return Ok(left);
                }
                Op::Exit => {
                    if mask != 0 {
                        self.warps[w].place(active, at + 1);
                        self.exit(w, mask);
                        return Ok(left);
                    }
                }
                Op::Trap => {
                    if mask != 0 {
                        let problem = Problem::new(FaultKind::Trap, "the kernel gave up");
                        return Err(self.fault(w, at, Self::first(mask), *problem));
                    }
                }
                Op::Undefined(name) => {
                    if mask != 0 {
                        let problem = match &**name {
                            "__assertfail" => Problem::new(FaultKind::Trap, "an assertion failed"),
                            name => Problem::new(
                                FaultKind::IllegalInstruction,
                                format!("call of `{name}`, which the text does not define"),
                            ),
                        };
                        return Err(self.fault(w, at, Self::first(mask), *problem));
                    }
                }
                Op::Clock { result, class } => {
                    let now = self.warps[w].executed;
                    for lane in lanes_of(mask) {
                        self.warps[w].set((*class, *result), lane, now);
                    }
                }
                Op::Nop => {}
                Op::Load(access) => self.load(w, at, access, mask)?,
                Op::Store(access) => self.store(w, at, access, mask)?,
                Op::Atomic(atomic) => self.atomic(w, at, atomic, mask)?,
                Op::Fence => {
                    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
                    self.release();
                }
                Op::CopyAsync(copy) => self.copy_async(w, at, copy, mask)?,
                Op::CommitGroup => self.commit_group(w, mask),
                Op::WaitGroup(keep) => self.wait_group(w, *keep, mask),
                Op::WaitAll => self.wait_all(w, mask),
                Op::ActiveMask(result) => {
                    let class = (Class::Word, *result);
                    for lane in lanes_of(mask) {
                        self.warps[w].set(class, lane, u64::from(mask));
                    }
                }
                Op::Barrier(barrier) => {
                    if mask != 0 {
                        match self.barrier(w, at, barrier, mask, group.stuck)? {
                            Gathered::Done => self.warps[w].place(active, at + 1),
                            Gathered::Missing => self.hold(w, at, active, mask),
                        }
                        return Ok(left);
                    }
                }
                collective => {
                    if mask != 0
                        && let Gathered::Missing = self.together(w, at, collective, mask, group.stuck)?
                    {
                        self.hold(w, at, active, mask);
                        return Ok(left);
                    }
                }
            }
            at += 1;
        }
    }

    /// Refuses reads of registers that their lanes have not written; notes writes.
    #[cold]
    fn track(
        &mut self,
        w: usize,
        at: u32,
        uses: &Uses,
        guard: Option<Guard>,
        active: u32,
    ) -> Result<(), Box<Fault>> {
        if !self.env.options.checks.registers {
            return Ok(());
        }
        let warp = &mut self.warps[w];
        let unwritten =
            |warp: &super::warp::Warp, tracked: &u32, lanes: u32| lanes & !warp.written[*tracked as usize];
        let by_guard = uses.guard.iter().map(|tracked| (*tracked, unwritten(warp, tracked, active)));
        let mask = warp.guarded(guard, active);
        let by_sources = uses.reads.iter().map(|tracked| (*tracked, unwritten(warp, tracked, mask)));
        if let Some((tracked, lanes)) = by_guard.chain(by_sources).find(|&(_, lanes)| lanes != 0) {
            let name = &self.env.kernel.program.tracked[tracked as usize];
            let problem = Problem::new(FaultKind::UndefinedRegister, format!("`{name}` was never written"));
            return Err(self.fault(w, at, Self::first(lanes), *problem));
        }
        for &tracked in &uses.writes {
            self.warps[w].written[tracked as usize] |= mask;
        }
        Ok(())
    }

    /// Keeps the executing lanes of a group at an instruction, and lets the others go on.
    fn hold(&mut self, w: usize, at: u32, active: u32, mask: u32) {
        // It will be executed later, and is counted then.
        self.counters.executed[at as usize] -= 1;
        let warp = &mut self.warps[w];
        warp.place(active, at + 1);
        warp.place(mask, at);
        warp.held |= mask;
    }

    /// Executes an instruction that needs several lanes, if they are here.
    fn together(
        &mut self,
        w: usize,
        at: u32,
        op: &Op,
        mask: u32,
        stuck: bool,
    ) -> Result<Gathered, Box<Fault>> {
        let members = match op {
            Op::WarpSync(members) | Op::Elect { members, .. } => Some(*members),
            Op::Shuffle(shuffle) => Some(shuffle.members),
            Op::Vote(vote) => Some(vote.members),
            Op::Match(matching) => Some(matching.members),
            Op::Reduce(reduce) => Some(reduce.members),
            _ => None,
        };
        // An instruction without a member mask is for all lanes that have not exited.
        let needed = match members {
            None => u32::MAX,
            Some(register) => {
                let masks = self.warps[w].registers.words[register as usize];
                let members = masks[Self::first(mask)];
                for lane in lanes_of(mask) {
                    if masks[lane] != members || members >> lane & 1 == 0 {
                        let detail = format!(
                            "lane {lane} names members {:#010x}, lane {} names {members:#010x}",
                            masks[lane],
                            Self::first(mask)
                        );
                        return Err(self.fault(w, at, lane, *Problem::new(FaultKind::PartialWarp, detail)));
                    }
                }
                members & self.warps[w].alive
            }
        };
        if mask & needed != needed {
            if !stuck && needed & !self.warps[w].alive == 0 {
                return Ok(Gathered::Missing);
            }
            let detail = format!("needs lanes {needed:#010x}, has {mask:#010x}");
            return Err(self.fault(w, at, Self::first(mask), *Problem::new(FaultKind::PartialWarp, detail)));
        }
        match op {
            Op::WarpSync(_) => {}
            Op::Shuffle(shuffle) => self.shuffle(w, shuffle, mask),
            Op::Vote(vote) => self.vote(w, vote, mask),
            Op::Match(matching) => self.match_values(w, matching, mask),
            Op::Reduce(reduce) => self.reduce(w, reduce, mask),
            Op::Elect { result, leader, .. } => self.elect(w, *result, *leader, mask),
            Op::LoadMatrix(access) => self.load_matrix(w, at, access)?,
            Op::StoreMatrix(access) => self.store_matrix(w, at, access)?,
            Op::TransposeMatrix { result, source } => self.transpose_matrix(w, *result, *source),
            Op::Mma(mma) => super::matrix::multiply(&mut self.warps[w].registers, mma),
            // All other operations are executed by `run_group`.
            _ => {}
        }
        Ok(Gathered::Done)
    }
}

/// All lanes' values of a word register.
pub(super) type Words = [u32; LANES];
