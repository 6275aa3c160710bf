//! Faults: reports of what a kernel did wrong.

use std::fmt;

/// A report of something that a kernel did wrong, whether a GPU would stop at it or pass it over in silence.
///
/// The report gives the place: the line of the PTX, the line of the `.cu` file when the PTX has `-lineinfo`, the block and the
/// thread. With several faults in a grid it is the one of the lowest block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct Fault {
    /// What went wrong.
    pub kind: FaultKind,
    /// The kernel's name.
    pub kernel: String,
    /// Line of the PTX text, from 1; 0 when no instruction is to blame.
    pub ptx_line: u32,
    /// File and line of the source, from `.loc`.
    pub source_line: Option<(String, u32)>,
    /// `ctaid` of the block.
    pub block: [u32; 3],
    /// `tid` of the (first) thread.
    pub thread: [u32; 3],
    /// What was expected and what happened: addresses, sizes, the other thread.
    pub detail: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} in kernel {}", self.kind, self.detail, self.kernel)?;
        if self.ptx_line != 0 {
            write!(f, ", PTX line {}", self.ptx_line)?;
        }
        if let Some((file, line)) = &self.source_line {
            write!(f, " ({file}:{line})")?;
        }
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        write!(f, ", block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz})")
    }
}

/// The kinds of [`Fault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// The launch itself is impossible: sizes, parameters, an unknown kernel.
    InvalidLaunch,
    /// An access outside every allocation, the block's shared memory, the thread's local memory or the parameters.
    OutOfBounds,
    /// An access to memory that was freed.
    UseAfterFree,
    /// An address that is not a multiple of the access's size.
    Misaligned,
    /// A read of memory that was not written.
    Uninitialised,
    /// A read or write of shared memory that a `cp.async` not yet waited for will deliver.
    PendingAsyncCopy,
    /// Two warps touch a byte of shared memory with no barrier between, and one of them writes.
    SharedRace,
    /// Two blocks, or two warps of a block, touch a byte of global memory with nothing that orders them, and one
    /// of them writes.
    GlobalRace,
    /// A read of a register that was not written.
    UndefinedRegister,
    /// A write to constant memory or to the parameters.
    ReadOnly,
    /// A `bar.sync` that only part of a warp's threads reached.
    DivergentBarrier,
    /// Threads wait for others that can never arrive.
    Deadlock,
    /// A warp-wide instruction reached by part of the warp it names.
    PartialWarp,
    /// The instruction budget ran out: an endless loop, most likely.
    Watchdog,
    /// The kernel executed `trap`.
    Trap,
    /// A call, a jump or an operand the instruction does not define.
    IllegalInstruction,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidLaunch => "invalid launch",
            Self::OutOfBounds => "out of bounds",
            Self::UseAfterFree => "use after free",
            Self::Misaligned => "misaligned access",
            Self::Uninitialised => "uninitialised read",
            Self::PendingAsyncCopy => "asynchronous copy not waited for",
            Self::SharedRace => "race on shared memory",
            Self::GlobalRace => "race on global memory",
            Self::UndefinedRegister => "undefined register",
            Self::ReadOnly => "write to read-only memory",
            Self::DivergentBarrier => "divergent barrier",
            Self::Deadlock => "deadlock",
            Self::PartialWarp => "partial warp",
            Self::Watchdog => "instruction budget used up",
            Self::Trap => "trap",
            Self::IllegalInstruction => "illegal instruction",
        })
    }
}
