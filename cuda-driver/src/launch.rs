//! Launching a kernel.

use crate::error::{Error, check};
use crate::function::{Function, FunctionAttribute};
use crate::stream::Stream;
use crate::sys;
use bytemuck::NoUninit;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::null_mut;

/// Arguments that are passed without an allocation.
const FEW: usize = 32;

/// The shape of a launch: blocks, threads of a block, and dynamic shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LaunchConfig {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory a block.
    pub dynamic_shared: u32,
}

impl LaunchConfig {
    /// `blocks` blocks of `threads` threads, in x alone, without dynamic shared memory.
    pub fn linear(blocks: u32, threads: u32) -> LaunchConfig {
        LaunchConfig { grid: [blocks, 1, 1], block: [threads, 1, 1], dynamic_shared: 0 }
    }
}

/// A kernel's argument: a value, by reference until the launch has copied it.
///
/// Numbers, [`DevicePointer`](crate::DevicePointer)s and `#[repr(C)]` structs of them will do.
#[derive(Debug, Clone, Copy)]
pub struct Argument<'a> {
    address: *const c_void,
    size: usize,
    value: PhantomData<&'a ()>,
}

impl<'a> Argument<'a> {
    /// Passes `value`.
    pub fn new<T: NoUninit>(value: &'a T) -> Argument<'a> {
        Argument { address: (&raw const *value).cast(), size: size_of::<T>(), value: PhantomData }
    }
}

impl<'a, T: NoUninit> From<&'a T> for Argument<'a> {
    fn from(value: &'a T) -> Argument<'a> {
        Argument::new(value)
    }
}

/// The bounds that hold for every device that CUDA 12 supports.
const GRID_LIMITS: [(&str, u64); 3] =
    [("the grid's x", i32::MAX as u64), ("the grid's y", 65_535), ("the grid's z", 65_535)];
const BLOCK_LIMITS: [(&str, u64); 3] =
    [("the block's x", 1024), ("the block's y", 1024), ("the block's z", 64)];

impl Function {
    /// Queues the kernel on `stream` and returns at once. The arguments are copied before it returns.
    ///
    /// # Errors
    /// [`Error::LaunchShape`], [`Error::SharedMemory`], [`Error::ArgumentCount`], [`Error::ArgumentSize`] (the
    /// last two
    /// if the driver tells the [`parameters`](Function::parameters)) or [`Error::OtherContext`], all before
    /// anything is queued; [`Error::Call`]
    /// from the driver, also for an earlier launch that failed. A kernel's own failure shows when its stream is
    /// waited for.
    ///
    /// # Safety
    /// The arguments must be the kernel's, in number, size and meaning, and the memory that they name must hold what
    /// the kernel reads, be large enough for what it does, and stay allocated until it has run; no other work that
    /// touches what it writes, or writes what it reads, may be unordered with it.
    pub unsafe fn launch(
        &self,
        config: &LaunchConfig,
        stream: &Stream,
        arguments: &[Argument<'_>],
    ) -> Result<(), Error> {
        self.context().same(stream.context(), "the stream of a launch")?;
        self.check_shape(config)?;
        self.check_arguments(arguments)?;
        self.context().bind()?;
        self.check_shared(config.dynamic_shared)?;

        let mut few = [null_mut::<c_void>(); FEW];
        let mut many = Vec::new();
        let pointers = if arguments.len() <= FEW {
            &mut few[..]
        } else {
            many.resize(arguments.len(), null_mut());
            &mut many[..]
        };
        for (pointer, argument) in pointers.iter_mut().zip(arguments) {
            *pointer = argument.address.cast_mut();
        }
        let ([gx, gy, gz], [bx, by, bz]) = (config.grid, config.block);
        // SAFETY: function and stream are alive; one pointer for each parameter, each to a value of its size, which
        // the driver reads before it returns (the caller's promise where it does not tell the parameters).
        let result = unsafe {
            sys::cuLaunchKernel(
                self.raw(),
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                config.dynamic_shared,
                stream.raw(),
                pointers.as_mut_ptr(),
                null_mut(),
            )
        };
        check("cuLaunchKernel", result)
    }

    fn check_shape(&self, config: &LaunchConfig) -> Result<(), Error> {
        let grid = config.grid.iter().zip(GRID_LIMITS);
        let block = config.block.iter().zip(BLOCK_LIMITS);
        let threads = config.block.iter().map(|&n| u64::from(n)).fold(1, u64::saturating_mul);
        let whole = ("the number of a block's threads", u64::from(self.max_threads_per_block()));
        let extents = grid.chain(block).map(|(&got, limit)| (u64::from(got), limit));
        for (got, (what, limit)) in extents.chain([(threads, whole)]) {
            if got == 0 || got > limit {
                return Err(Error::LaunchShape { kernel: self.name().to_owned(), what, limit, got });
            }
        }
        Ok(())
    }

    fn check_arguments(&self, arguments: &[Argument<'_>]) -> Result<(), Error> {
        let Some(parameters) = self.parameters() else { return Ok(()) };
        if parameters.len() != arguments.len() {
            let (expected, got) = (parameters.len(), arguments.len());
            return Err(Error::ArgumentCount { kernel: self.name().to_owned(), expected, got });
        }
        for (index, (p, a)) in parameters.iter().zip(arguments).enumerate() {
            if p.size != a.size {
                let (expected, got) = (p.size, a.size);
                return Err(Error::ArgumentSize { kernel: self.name().to_owned(), index, expected, got });
            }
        }
        Ok(())
    }

    /// Asks the driver only when the launch wants any.
    fn check_shared(&self, bytes: u32) -> Result<(), Error> {
        if bytes == 0 {
            return Ok(());
        }
        let limit = self.attribute(FunctionAttribute::MAX_DYNAMIC_SHARED_BYTES)?;
        let (limit, got) = (usize::try_from(limit).unwrap_or(0), bytes as usize);
        if got > limit {
            return Err(Error::SharedMemory { kernel: self.name().to_owned(), limit, got });
        }
        Ok(())
    }
}
