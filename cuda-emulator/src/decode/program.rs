//! A decoded kernel.

use crate::alu::{AluFn, Operands};
use crate::exec::registers::Class;

/// A kernel ready to run.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) instructions: Vec<Instruction>,
    /// Registers of each file.
    pub(crate) words: usize,
    pub(crate) doubles: usize,
    pub(crate) predicates: usize,
    /// Registers that hold the same from a warp's start to its end.
    pub(crate) constants: Vec<Constant>,
    /// What [`Instruction::name`] refers to.
    pub(crate) names: Vec<String>,
    /// Names of the registers that a path from the start may read before it writes them. They share no place.
    pub(crate) tracked: Vec<String>,
}

/// A register with a fixed value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Constant {
    pub(crate) class: Class,
    pub(crate) index: u32,
    pub(crate) value: Value,
}

/// What a constant register holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Value {
    Bits(u64),
    /// The address of the module's variable of that index, plus an offset.
    Variable(usize, i64),
    Special(Special),
}

/// Special registers whose value does not change during a kernel; the axis is 0, 1 or 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    LaneId,
    WarpId,
    WarpCount,
    /// Lanes equal to, up to, below, from, above the own one.
    MaskEq,
    MaskLe,
    MaskLt,
    MaskGe,
    MaskGt,
    DynamicShared,
    TotalShared,
    /// Multiprocessor and grid numbers, of which there is one each.
    Zero,
    One,
}

/// One instruction.
#[derive(Debug)]
pub(crate) struct Instruction {
    pub(crate) op: Op,
    pub(crate) guard: Option<Guard>,
    /// Line of the PTX text.
    pub(crate) line: u32,
    /// File number and line of `.loc`; 0 without.
    pub(crate) source: (u32, u32),
    /// Index of its opcode in [`Program::names`]; `None` for the second and later steps of one PTX instruction.
    pub(crate) name: Option<u32>,
    /// What it has to do with registers that may be undefined.
    pub(crate) uses: Option<Box<Uses>>,
}

/// Indices in [`Program::tracked`] of the registers that an instruction reads or writes.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// The guard's predicate.
    pub(crate) guard: Option<u32>,
    /// Sources; none of a `mov`, which may carry what is undefined along with what is not.
    pub(crate) reads: Vec<u32>,
    pub(crate) writes: Vec<u32>,
}

/// Lanes execute where the predicate is set (or, `negated`, where it is not).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guard {
    pub(crate) predicate: u32,
    pub(crate) negated: bool,
}

/// What an instruction does.
#[derive(Debug)]
pub(crate) enum Op {
    Alu {
        run: AluFn,
        operands: Operands,
    },
    Branch(u32),
    /// `brx.idx`: a word register and the targets.
    BranchTable(u32, Box<[u32]>),
    Exit,
    Trap,
    /// A call of a function that the text does not define.
    Undefined(Box<str>),
    /// `clock`, `clock64`, `globaltimer`: instructions executed so far, to a word or a double.
    Clock {
        result: u32,
        class: Class,
    },
    Nop,
    Load(Box<Access>),
    Store(Box<Access>),
    Atomic(Box<Atomic>),
    Fence,
    Barrier(Box<Barrier>),
    WarpSync(u32),
    Shuffle(Box<Shuffle>),
    Vote(Box<Vote>),
    Match(Box<Match>),
    Reduce(Box<Reduce>),
    Elect {
        result: u32,
        leader: u32,
        members: u32,
    },
    ActiveMask(u32),
    LoadMatrix(Box<LoadMatrix>),
    StoreMatrix(Box<LoadMatrix>),
    TransposeMatrix {
        result: u32,
        source: u32,
    },
    Mma(Box<Mma>),
    CopyAsync(Box<CopyAsync>),
    CommitGroup,
    /// Waits until at most that many of the newest groups are in flight.
    WaitGroup(u32),
    /// Waits for all copies, committed or not.
    WaitAll,
}

/// A state space that an access names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    Generic,
    Global,
    Constant,
    Shared,
    Local,
    Param,
}

/// `[register + offset]`, the register a word or a double.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Address {
    pub(crate) base: u32,
    pub(crate) wide: bool,
    pub(crate) offset: i64,
}

/// A load or a store of one element or a vector.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) space: Space,
    pub(crate) address: Address,
    /// Bytes of an element.
    pub(crate) size: u32,
    /// A loaded element is sign-extended.
    pub(crate) signed: bool,
    /// Volatile, relaxed or stronger: races with other such accesses are no fault.
    pub(crate) strong: bool,
    /// Release or stronger.
    pub(crate) releases: bool,
    /// The registers, elements in order.
    pub(crate) registers: Vec<(Class, u32)>,
}

/// New value from the old one, the operand and (for `cas`) the value to store.
pub(crate) type AtomicFn = fn(u64, u64, u64) -> u64;

/// `atom` or `red`.
#[derive(Debug)]
pub(crate) struct Atomic {
    pub(crate) space: Space,
    pub(crate) address: Address,
    pub(crate) size: u32,
    pub(crate) update: AtomicFn,
    /// Takes the old value; `None` for `red`.
    pub(crate) result: Option<(Class, u32)>,
    /// Release or stronger.
    pub(crate) releases: bool,
    /// One operand an element.
    pub(crate) operands: Vec<(Class, u32)>,
    /// The second operand of `cas`.
    pub(crate) second: Option<(Class, u32)>,
}

/// What threads do at a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarrierKind {
    /// Arrive and wait.
    Sync,
    /// Arrive and go on.
    Arrive,
    /// Arrive, wait, and get the number of set predicates.
    Count { result: u32, predicate: u32, negated: bool },
    /// Arrive, wait, and get whether all predicates are set.
    All { result: u32, predicate: u32, negated: bool },
    /// Arrive, wait, and get whether any predicate is set.
    Any { result: u32, predicate: u32, negated: bool },
}

/// `bar`, `barrier`.
#[derive(Debug)]
pub(crate) struct Barrier {
    pub(crate) kind: BarrierKind,
    /// Word register of the barrier's number.
    pub(crate) id: u32,
    /// Word register of the number of threads.
    pub(crate) threads: Option<u32>,
    /// All lanes of the warp must come together.
    pub(crate) aligned: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShuffleMode {
    Up,
    Down,
    Butterfly,
    Index,
}

/// `shfl.sync`; all word registers but `in_range`.
#[derive(Debug)]
pub(crate) struct Shuffle {
    pub(crate) mode: ShuffleMode,
    pub(crate) result: u32,
    /// Predicate: whether the source lane was in range.
    pub(crate) in_range: u32,
    pub(crate) value: u32,
    pub(crate) lane: u32,
    pub(crate) clamp: u32,
    pub(crate) members: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VoteMode {
    All,
    Any,
    Uniform,
    Ballot,
}

/// `vote.sync`.
#[derive(Debug)]
pub(crate) struct Vote {
    pub(crate) mode: VoteMode,
    /// A predicate, or for a ballot a word.
    pub(crate) result: u32,
    pub(crate) predicate: u32,
    pub(crate) negated: bool,
    pub(crate) members: u32,
}

/// `match.sync`.
#[derive(Debug)]
pub(crate) struct Match {
    /// `.all`: the mask is 0 unless all agree, which the predicate tells.
    pub(crate) all: bool,
    pub(crate) result: u32,
    pub(crate) agreed: u32,
    pub(crate) value: (Class, u32),
    pub(crate) members: u32,
}

/// `redux.sync`.
#[derive(Debug)]
pub(crate) struct Reduce {
    pub(crate) combine: fn(u32, u32) -> u32,
    pub(crate) result: u32,
    pub(crate) value: u32,
    pub(crate) members: u32,
}

/// `ldmatrix` or `stmatrix`: a word register an 8 x 8 matrix.
#[derive(Debug)]
pub(crate) struct LoadMatrix {
    pub(crate) address: Address,
    pub(crate) generic: bool,
    pub(crate) transposed: bool,
    pub(crate) registers: Vec<u32>,
}

/// Element types of an `mma` operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    F16,
    Bf16,
    Tf32,
    S8,
    U8,
    S4,
    U4,
}

/// `mma.sync.m16n8k*`: registers of the fragments.
#[derive(Debug)]
pub(crate) struct Mma {
    pub(crate) k: usize,
    pub(crate) a_type: Element,
    pub(crate) b_type: Element,
    /// The accumulator is f16, two a register.
    pub(crate) half_sum: bool,
    /// Integer sums saturate.
    pub(crate) saturate: bool,
    pub(crate) result: Vec<u32>,
    pub(crate) a: Vec<u32>,
    pub(crate) b: Vec<u32>,
    pub(crate) c: Vec<u32>,
}

/// `cp.async`.
#[derive(Debug)]
pub(crate) struct CopyAsync {
    pub(crate) to: Address,
    pub(crate) from: Address,
    pub(crate) size: u32,
    /// Word register of the bytes to read; the rest is zero.
    pub(crate) read: Option<u32>,
    /// Predicate: read nothing.
    pub(crate) ignore: Option<(u32, bool)>,
}

impl Op {
    /// Calls `f(class, index, written)` for each register but those of [`Op::Alu`], whose classes are not kept.
    pub(crate) fn registers(&mut self, f: &mut dyn FnMut(Class, &mut u32, bool)) {
        use Class::{Predicate, Word};
        match self {
            Self::Alu { .. } | Self::Branch(_) | Self::Exit | Self::Trap | Self::Undefined(_) | Self::Nop => {
            }
            Self::Fence | Self::CommitGroup | Self::WaitGroup(_) | Self::WaitAll => {}
            Self::BranchTable(index, _) => f(Word, index, false),
            Self::Clock { result, class } => f(*class, result, true),
            Self::Load(access) => {
                access.address.register(f);
                access.registers.iter_mut().for_each(|(class, index)| f(*class, index, true));
            }
            Self::Store(access) => {
                access.address.register(f);
                access.registers.iter_mut().for_each(|(class, index)| f(*class, index, false));
            }
            Self::Atomic(atomic) => {
                atomic.address.register(f);
                let sources = atomic.operands.iter_mut().chain(&mut atomic.second);
                sources.for_each(|(class, index)| f(*class, index, false));
                atomic.result.iter_mut().for_each(|(class, index)| f(*class, index, true));
            }
            Self::Barrier(barrier) => {
                f(Word, &mut barrier.id, false);
                barrier.threads.iter_mut().for_each(|threads| f(Word, threads, false));
                match &mut barrier.kind {
                    BarrierKind::Sync | BarrierKind::Arrive => {}
                    BarrierKind::Count { result, predicate, .. } => {
                        f(Predicate, predicate, false);
                        f(Word, result, true);
                    }
                    BarrierKind::All { result, predicate, .. }
                    | BarrierKind::Any { result, predicate, .. } => {
                        f(Predicate, predicate, false);
                        f(Predicate, result, true);
                    }
                }
            }
            Self::WarpSync(members) => f(Word, members, false),
            Self::Shuffle(s) => {
                let sources = [&mut s.value, &mut s.lane, &mut s.clamp, &mut s.members];
                sources.into_iter().for_each(|index| f(Word, index, false));
                f(Word, &mut s.result, true);
                f(Predicate, &mut s.in_range, true);
            }
            Self::Vote(vote) => {
                f(Predicate, &mut vote.predicate, false);
                f(Word, &mut vote.members, false);
                let class = if vote.mode == VoteMode::Ballot { Word } else { Predicate };
                f(class, &mut vote.result, true);
            }
            Self::Match(matching) => {
                f(matching.value.0, &mut matching.value.1, false);
                f(Word, &mut matching.members, false);
                f(Word, &mut matching.result, true);
                f(Predicate, &mut matching.agreed, true);
            }
            Self::Reduce(reduce) => {
                f(Word, &mut reduce.value, false);
                f(Word, &mut reduce.members, false);
                f(Word, &mut reduce.result, true);
            }
            Self::Elect { result, leader, members } => {
                f(Word, members, false);
                f(Word, result, true);
                f(Predicate, leader, true);
            }
            Self::ActiveMask(result) => f(Word, result, true),
            Self::LoadMatrix(access) => {
                access.address.register(f);
                access.registers.iter_mut().for_each(|index| f(Word, index, true));
            }
            Self::StoreMatrix(access) => {
                access.address.register(f);
                access.registers.iter_mut().for_each(|index| f(Word, index, false));
            }
            Self::TransposeMatrix { result, source } => {
                f(Word, source, false);
                f(Word, result, true);
            }
            Self::Mma(mma) => {
                let sources = mma.a.iter_mut().chain(&mut mma.b).chain(&mut mma.c);
                sources.for_each(|index| f(Word, index, false));
                mma.result.iter_mut().for_each(|index| f(Word, index, true));
            }
            Self::CopyAsync(copy) => {
                copy.to.register(f);
                copy.from.register(f);
                copy.read.iter_mut().for_each(|index| f(Word, index, false));
                copy.ignore.iter_mut().for_each(|(index, _)| f(Predicate, index, false));
            }
        }
    }
}

impl Address {
    fn register(&mut self, f: &mut dyn FnMut(Class, &mut u32, bool)) {
        f(if self.wide { Class::Double } else { Class::Word }, &mut self.base, false);
    }
}
