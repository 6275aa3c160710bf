//! The kernels of a context: PTX that the driver compiles when a kernel is first used.

use crate::Error;
use crate::profiler::{Queue, Work};
use crate::ptx::{self, Block};
use halfbyte_cuda_driver::{Argument, Attribute, Context, Function, LaunchConfig, Module};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The kernels, in one context. Clones share what was compiled.
///
/// Everything that launches takes buffers of this context. A launch returns when it is queued: a buffer may be dropped
/// after that, since freeing waits for queued work, and what a kernel wrote may be used by later work on the same
/// stream, or on another that waits for an event.
#[derive(Debug, Clone)]
pub struct Kernels {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    context: Context,
    multiprocessors: u32,
    loaded: Mutex<Loaded>,
}

#[derive(Debug, Default)]
struct Loaded {
    modules: HashMap<&'static str, Module>,
    kernels: HashMap<&'static str, Arc<Kernel>>,
}

/// A kernel that is ready to be launched.
#[derive(Debug)]
pub(crate) struct Kernel {
    function: Function,
    block: Block,
    /// Blocks that a multiprocessor holds, at least one.
    blocks_per_sm: u32,
}

impl Kernels {
    /// The kernels of a context, whose device is checked. Nothing is compiled yet.
    ///
    /// # Errors
    /// [`Error::Device`] for a GPU before compute capability 8.0; [`Error::Driver`].
    pub fn new(context: &Context) -> Result<Self, Error> {
        let device = context.device();
        let found = device.compute_capability()?;
        if found.major < 8 {
            return Err(Error::Device { device: device.name()?, found: found.to_string() });
        }
        let multiprocessors = device.attribute(Attribute::MULTIPROCESSOR_COUNT)?.unsigned_abs();
        let shared = Shared { context: context.clone(), multiprocessors, loaded: Mutex::default() };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The context.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.shared.context
    }

    /// Multiprocessors of the device.
    #[must_use]
    pub fn multiprocessors(&self) -> u32 {
        self.shared.multiprocessors
    }

    /// The kernel of this entry point.
    pub(crate) fn kernel(&self, entry: &'static str) -> Result<Arc<Kernel>, Error> {
        let mut loaded = self.shared.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = loaded.kernels.get(entry) {
            return Ok(kernel.clone());
        }
        let source = ptx::of_entry(entry).and_then(|source| Some((source, source.block(entry)?)));
        let (source, block) = source.unwrap_or_else(|| panic!("no PTX text has an entry point {entry}"));
        let module = match loaded.modules.get(source.name) {
            Some(module) => module.clone(),
            None => {
                let module = Module::from_ptx(&self.shared.context, source.sm_80)?;
                loaded.modules.insert(source.name, module.clone());
                module
            }
        };
        let function = module.function(entry)?;
        // The dynamic shared memory that every kernel may use without raising its limit.
        const FREE: u32 = 48 << 10;
        if block.shared_bytes > FREE {
            function.set_max_dynamic_shared(block.shared_bytes as usize)?;
        }
        let held = function.blocks_per_multiprocessor(block.threads, block.shared_bytes as usize)?;
        let kernel = Arc::new(Kernel { function, block, blocks_per_sm: held.max(1) });
        loaded.kernels.insert(entry, kernel.clone());
        Ok(kernel)
    }
}

impl Kernel {
    /// Blocks that a multiprocessor holds, at least one.
    pub(crate) fn blocks_per_sm(&self) -> u32 {
        self.blocks_per_sm
    }

    /// Threads of a block.
    pub(crate) fn threads(&self) -> u32 {
        self.block.threads
    }

    /// Queues a launch of `grid` blocks.
    ///
    /// # Safety
    /// As for [`Function::launch`]: the arguments are the entry point's, and every buffer holds what the kernel reads and
    /// has room for what it writes.
    #[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
    pub(crate) unsafe fn launch(
        &self,
        queue: Queue<'_>,
        grid: [u32; 3],
        arguments: &[Argument<'_>],
        describe: impl FnOnce() -> (String, Work),
    ) -> Result<(), Error> {
        let Block { threads, shared_bytes } = self.block;
        let config = LaunchConfig { grid, block: [threads, 1, 1], dynamic_shared: shared_bytes };
        queue.timed(self.function.name(), describe, || {
            // SAFETY: the caller's promise.
            Ok(unsafe { self.function.launch(&config, queue.stream(), arguments) }?)
        })
    }
}
