//! Kernels: their properties, and how many blocks of them a multiprocessor holds.

use crate::context::Context;
use crate::device::Attribute;
use crate::error::{Error, check};
use crate::module::{Module, c_text};
use crate::sys::{self, CUfunction};
use std::ptr::null_mut;

/// A property of a kernel, by the driver's number (`CUfunction_attribute`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FunctionAttribute(pub i32);

impl FunctionAttribute {
    /// Threads in a block, at most: of the device and of the kernel's registers.
    pub const MAX_THREADS_PER_BLOCK: FunctionAttribute = FunctionAttribute(0);
    /// Bytes of shared memory that the kernel declares.
    pub const STATIC_SHARED_BYTES: FunctionAttribute = FunctionAttribute(1);
    /// Bytes of local memory a thread: spilled registers and arrays.
    pub const LOCAL_BYTES: FunctionAttribute = FunctionAttribute(3);
    /// Registers a thread.
    pub const REGISTERS: FunctionAttribute = FunctionAttribute(4);
    /// The PTX version it was compiled from, 10 times the compute capability.
    pub const PTX_VERSION: FunctionAttribute = FunctionAttribute(5);
    /// The machine code's version, 10 times the compute capability.
    pub const BINARY_VERSION: FunctionAttribute = FunctionAttribute(6);
    /// Bytes of dynamic shared memory, at most.
    pub const MAX_DYNAMIC_SHARED_BYTES: FunctionAttribute = FunctionAttribute(8);
}

/// One of a kernel's parameters, as the driver reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parameter {
    /// Its position in the parameter block in bytes.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
}

/// A kernel. It keeps its module loaded.
#[derive(Debug, Clone)]
pub struct Function {
    raw: CUfunction,
    module: Module,
    name: String,
    max_threads: u32,
    parameters: Option<Vec<Parameter>>,
}

// SAFETY: the handle is a number to the driver, whose functions may be called from any thread; the module is alive.
unsafe impl Send for Function {}
// SAFETY: as above; nothing here changes after it is made.
unsafe impl Sync for Function {}

impl Function {
    pub(crate) fn new(module: &Module, name: &str) -> Result<Function, Error> {
        let c_name = c_text("a kernel's name", name)?;
        module.context().bind()?;
        let mut raw = null_mut();
        // SAFETY: `raw` is writable, the name ends in a zero, the module is alive.
        let result = unsafe { sys::cuModuleGetFunction(&raw mut raw, module.raw(), c_name.as_ptr()) };
        check("cuModuleGetFunction", result)?;
        let mut function = Function {
            raw,
            module: module.clone(),
            name: name.to_owned(),
            max_threads: 0,
            parameters: read_parameters(raw),
        };
        function.max_threads = function.attribute(FunctionAttribute::MAX_THREADS_PER_BLOCK)?.unsigned_abs();
        Ok(function)
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUfunction {
        self.raw
    }

    /// The context it is loaded in.
    pub fn context(&self) -> &Context {
        self.module.context()
    }

    /// Threads in a block, at most.
    pub fn max_threads_per_block(&self) -> u32 {
        self.max_threads
    }

    /// The parameters, if the driver tells them (from CUDA 12.4 on). Launches are checked against them.
    pub fn parameters(&self) -> Option<&[Parameter]> {
        self.parameters.as_deref()
    }

    /// A property.
    ///
    /// # Errors
    /// [`Error::Call`] if the driver does not know it.
    pub fn attribute(&self, attribute: FunctionAttribute) -> Result<i32, Error> {
        self.context().bind()?;
        let mut value = 0;
        // SAFETY: `value` is writable, the function's module is alive.
        let result = unsafe { sys::cuFuncGetAttribute(&raw mut value, attribute.0, self.raw) };
        check("cuFuncGetAttribute", result)?;
        Ok(value)
    }

    /// Lets launches ask for up to `bytes` of dynamic shared memory, where the default is what 48 KiB leave. It holds
    /// for the function in its module, not for this handle alone.
    ///
    /// # Errors
    /// [`Error::SharedMemory`] if the device has less for a block.
    pub fn set_max_dynamic_shared(&self, bytes: usize) -> Result<(), Error> {
        let device = self.context().device();
        let most = device.attribute(Attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let fixed = self.attribute(FunctionAttribute::STATIC_SHARED_BYTES)?;
        let limit = usize::try_from(most.saturating_sub(fixed)).unwrap_or(0);
        let value = match i32::try_from(bytes) {
            Ok(value) if bytes <= limit => value,
            _ => return Err(Error::SharedMemory { kernel: self.name.clone(), limit, got: bytes }),
        };
        let attribute = FunctionAttribute::MAX_DYNAMIC_SHARED_BYTES;
        // SAFETY: the function's module is alive.
        let result = unsafe { sys::cuFuncSetAttribute(self.raw, attribute.0, value) };
        check("cuFuncSetAttribute", result)
    }

    /// How many blocks of `threads` threads and `dynamic_shared` bytes a multiprocessor holds at once; 0 if none
    /// fits.
    ///
    /// # Errors
    /// [`Error::Call`] if the driver refuses the numbers.
    pub fn blocks_per_multiprocessor(&self, threads: u32, dynamic_shared: usize) -> Result<u32, Error> {
        self.context().bind()?;
        let threads = i32::try_from(threads).unwrap_or(i32::MAX);
        let mut blocks = 0;
        // SAFETY: `blocks` is writable, the function's module is alive.
        let result = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &raw mut blocks,
                self.raw,
                threads,
                dynamic_shared,
            )
        };
        check("cuOccupancyMaxActiveBlocksPerMultiprocessor", result)?;
        Ok(blocks.max(0).unsigned_abs())
    }
}

/// All parameters of a function, or `None` if the driver has no function for it.
fn read_parameters(function: CUfunction) -> Option<Vec<Parameter>> {
    crate::slots::slot::cuFuncGetParamInfo.is_filled().then(|| {
        let mut parameters = Vec::new();
        loop {
            let mut p = Parameter { offset: 0, size: 0 };
            let index = parameters.len();
            // SAFETY: both are writable, the function is alive. An index past the last is an error, and the end.
            let result =
                unsafe { sys::cuFuncGetParamInfo(function, index, &raw mut p.offset, &raw mut p.size) };
            if result != 0 {
                return parameters;
            }
            parameters.push(p);
        }
    })
}
