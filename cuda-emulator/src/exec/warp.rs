//! A warp: its registers, where its lanes are, and what they wait for.

use super::registers::{Class, FULL, LANES, Registers, each};
use crate::decode::program::{Address, Constant, Guard, Program, Special, Value};
use crate::memory::POISON;

/// One warp of a running block.
#[derive(Debug, Default)]
pub(crate) struct Warp {
    pub(crate) registers: Registers,
    /// Position of each lane; up to date for lanes that are not in the running group.
    pub(crate) positions: [u32; LANES],
    /// Lanes the warp began with.
    pub(crate) started: u32,
    /// Lanes that have not exited.
    pub(crate) alive: u32,
    /// Lanes waiting at a barrier.
    pub(crate) parked: u32,
    /// Lanes at an instruction that needs others, which are elsewhere.
    pub(crate) held: u32,
    /// Lanes that have written each register of [`Program::tracked`].
    pub(crate) written: Vec<u32>,
    /// Instructions executed.
    pub(crate) executed: u64,
    /// Bytes of local memory, lane after lane, and whether each was written.
    pub(crate) local: Vec<u8>,
    pub(crate) local_written: Vec<bool>,
    pub(crate) copies: super::copy::Copies,
    /// The allocation that the last global access hit.
    pub(crate) hint: usize,
}

/// What constant registers are filled from.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) block: [u32; 3],
    pub(crate) grid: [u32; 3],
    pub(crate) ctaid: [u32; 3],
    pub(crate) dynamic_shared: u32,
    pub(crate) total_shared: u32,
    /// Addresses of the module's variables.
    pub(crate) variables: &'a [u64],
}

impl Place<'_> {
    pub(crate) fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    /// `tid` of a thread by its number in the block.
    pub(crate) fn tid(&self, thread: u32) -> [u32; 3] {
        let [x, y, _] = self.block;
        [thread % x, thread / x % y, thread / (x * y)]
    }
}

/// Lanes at one position, chosen to run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    pub(crate) position: u32,
    pub(crate) lanes: u32,
    /// The next higher position at which other lanes wait to be joined.
    pub(crate) limit: u32,
    /// Whether all lanes are held, so that no other lane can join these.
    pub(crate) stuck: bool,
}

impl Warp {
    /// Resets the warp to the start of a block, as the warp of that number.
    pub(crate) fn reset(&mut self, program: &Program, place: &Place<'_>, number: u32, local_bytes: usize) {
        let threads = (place.threads() - number * 32).min(32);
        self.started = if threads == 32 { FULL } else { (1 << threads) - 1 };
        self.alive = self.started;
        self.positions = [0; LANES];
        self.parked = 0;
        self.held = 0;
        self.executed = 0;
        self.hint = 0;
        self.copies.clear();
        self.local.clear();
        self.local.resize(local_bytes * LANES, POISON);
        self.local_written.clear();
        self.local_written.resize(local_bytes * LANES, false);
        // A register holds an arbitrary value before it is written.
        let poison = u32::from_ne_bytes([POISON; 4]);
        self.written.clear();
        self.written.resize(program.tracked.len(), 0);
        self.registers.words.clear();
        self.registers.words.resize(program.words, [poison; LANES]);
        self.registers.doubles.clear();
        self.registers.doubles.resize(program.doubles, [u64::MAX; LANES]);
        self.registers.predicates.clear();
        self.registers.predicates.resize(program.predicates, FULL);
        for constant in &program.constants {
            self.fill(constant, place, number);
        }
    }

    fn fill(&mut self, constant: &Constant, place: &Place<'_>, number: u32) {
        let Constant { class, index, value } = *constant;
        let of_lane = |lane: usize| {
            let lane = lane as u32;
            match value {
                Value::Bits(bits) => bits,
                Value::Variable(index, offset) => place.variables[index].wrapping_add_signed(offset),
                Value::Special(special) => u64::from(match special {
                    Special::Tid(axis) => place.tid(number * 32 + lane)[axis as usize],
                    Special::Ntid(axis) => place.block[axis as usize],
                    Special::Ctaid(axis) => place.ctaid[axis as usize],
                    Special::Nctaid(axis) => place.grid[axis as usize],
                    Special::LaneId => lane,
                    Special::WarpId => number,
                    Special::WarpCount => place.threads().div_ceil(32),
                    Special::MaskEq => 1 << lane,
                    Special::MaskLe => u32::MAX >> (31 - lane),
                    Special::MaskLt => (1 << lane) - 1,
                    Special::MaskGe => u32::MAX << lane,
                    Special::MaskGt => !(u32::MAX >> (31 - lane)),
                    Special::DynamicShared => place.dynamic_shared,
                    Special::TotalShared => place.total_shared,
                    Special::Zero => 0,
                    Special::One => 1,
                }),
            }
        };
        let index = index as usize;
        match class {
            Class::Double => self.registers.doubles[index] = std::array::from_fn(of_lane),
            Class::Word => self.registers.words[index] = std::array::from_fn(|lane| of_lane(lane) as u32),
            Class::Half => {
                self.registers.words[index] = std::array::from_fn(|lane| of_lane(lane) as u32 & 0xffff);
            }
            Class::Predicate => {
                self.registers.predicates[index] = if of_lane(0) & 1 == 1 { FULL } else { 0 };
            }
        }
    }

    /// Whether some lane can go on.
    pub(crate) fn runnable(&self) -> bool {
        let lanes = self.alive & !self.parked;
        // Held lanes may still be joined by parked ones.
        lanes & !self.held != 0 || lanes != 0 && self.parked & self.alive == 0
    }

    /// The lanes to run next: the lowest position of any lane that is not held.
    pub(crate) fn choose(&mut self) -> Option<Group> {
        let lanes = self.alive & !self.parked;
        let free = lanes & !self.held;
        let stuck = free == 0;
        if lanes == 0 || stuck && self.parked & self.alive != 0 {
            return None;
        }
        let candidates = if stuck { lanes } else { free };
        // Most often no lanes have diverged.
        let first = self.positions[candidates.trailing_zeros() as usize];
        if lanes == FULL && self.positions == [first; LANES] {
            self.held = 0;
            return Some(Group { position: first, lanes, limit: u32::MAX, stuck });
        }
        let position = super::lanes_of(candidates).map(|lane| self.positions[lane]).min()?;
        let mut group = 0;
        let mut limit = u32::MAX;
        for lane in super::lanes_of(lanes) {
            let at = self.positions[lane];
            if at == position {
                group |= 1 << lane;
            } else if at > position {
                limit = limit.min(at);
            }
        }
        self.held &= !group;
        Some(Group { position, lanes: group, limit, stuck })
    }

    /// Moves lanes to a position.
    pub(crate) fn place(&mut self, lanes: u32, position: u32) {
        super::registers::blend(&mut self.positions, &[position; LANES], lanes);
    }

    /// The lanes of `active` that a guard lets through.
    #[inline]
    pub(crate) fn guarded(&self, guard: Option<Guard>, active: u32) -> u32 {
        match guard {
            None => active,
            Some(guard) => {
                let set = self.registers.predicates[guard.predicate as usize];
                active & if guard.negated { !set } else { set }
            }
        }
    }

    /// The address of each lane.
    #[inline]
    pub(crate) fn addresses(&self, address: Address) -> [u64; LANES] {
        let Address { base, wide, offset } = address;
        if wide {
            each(&self.registers.doubles[base as usize], |base| base.wrapping_add_signed(offset))
        } else {
            // Addresses of 32 bits are those of shared memory, and wrap as such.
            each(&self.registers.words[base as usize], |base| u64::from(base.wrapping_add(offset as u32)))
        }
    }

    /// The raw bits of a register in a lane.
    #[inline]
    pub(crate) fn get(&self, (class, index): (Class, u32), lane: usize) -> u64 {
        match class {
            Class::Double => self.registers.doubles[index as usize][lane],
            Class::Predicate => u64::from(self.registers.predicates[index as usize] >> lane & 1),
            _ => u64::from(self.registers.words[index as usize][lane]),
        }
    }

    /// Sets the raw bits of a register in a lane.
    #[inline]
    pub(crate) fn set(&mut self, (class, index): (Class, u32), lane: usize, value: u64) {
        match class {
            Class::Double => self.registers.doubles[index as usize][lane] = value,
            Class::Word => self.registers.words[index as usize][lane] = value as u32,
            Class::Half => self.registers.words[index as usize][lane] = value as u32 & 0xffff,
            Class::Predicate => {
                let register = &mut self.registers.predicates[index as usize];
                *register = *register & !(1 << lane) | (value as u32 & 1) << lane;
            }
        }
    }
}
