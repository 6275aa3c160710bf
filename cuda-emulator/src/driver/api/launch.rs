//! Kernels: their attributes, launches, and occupancy.

use super::{driver_function, put};
use crate::driver::handle::Kind;
use crate::driver::machine::{Machine, resolve, resolve_stream};
use crate::driver::occupancy;
use crate::driver::queue::{HostAddress, Launch, Work};
use crate::driver::state::FunctionState;
use crate::{Kernel, LoadedModule};
use halfbyte_cuda_driver::Status;
use halfbyte_cuda_driver::sys::{CUfunction, CUhostFn, CUmodule, CUoccupancyB2DSize, CUstream};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

/// A kernel that a handle names, in a context that is not lost.
struct Named {
    machine: Arc<Machine>,
    serial: u64,
    function: FunctionState,
    loaded: Arc<LoadedModule>,
    context: u64,
}

impl Named {
    fn find(raw: CUfunction) -> Result<Named, Status> {
        let (machine, serial) = resolve(raw, Kind::Function)?;
        let (function, loaded, context) = {
            let state = machine.state();
            let function = state.functions.get(&serial).ok_or(Status::INVALID_HANDLE)?.clone();
            let module = state.modules.get(&function.module).ok_or(Status::INVALID_HANDLE)?;
            state.lost(module.context)?;
            (function, module.loaded.clone(), module.context)
        };
        Ok(Named { machine, serial, function, loaded, context })
    }

    fn kernel(&self) -> Result<&Kernel, Status> {
        self.loaded.module().kernel(&self.function.kernel).ok_or(Status::INVALID_HANDLE)
    }

    /// Blocks that a multiprocessor holds.
    fn blocks(&self, threads: c_int, dynamic_shared: usize) -> Result<c_int, Status> {
        let threads = u32::try_from(threads).ok().filter(|&t| t > 0).ok_or(Status::INVALID_VALUE)?;
        let fixed = self.kernel()?.static_shared;
        let shared = u32::try_from(dynamic_shared).ok().and_then(|d| d.checked_add(fixed));
        let shared = shared.filter(|&s| s <= self.machine.limits.shared).ok_or(Status::INVALID_VALUE)?;
        if threads > self.function.max_threads {
            return Ok(0);
        }
        let blocks = occupancy::blocks(&self.machine.limits, threads, self.function.registers, shared);
        Ok(blocks.cast_signed())
    }
}

fn signed(value: u32) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

/// Gathers the parameters' bytes from the pointers to them.
///
/// # Safety
/// `pointers` must lead to a pointer for each parameter, and each to a value of the parameter's size.
unsafe fn gather(kernel: &Kernel, pointers: *mut *mut c_void) -> Result<Vec<u8>, Status> {
    let mut bytes = vec![0u8; kernel.parameter_bytes as usize];
    if kernel.parameters.is_empty() {
        return Ok(bytes);
    }
    if pointers.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    let pointers = unsafe { std::slice::from_raw_parts(pointers, kernel.parameters.len()) };
    for (parameter, &from) in kernel.parameters.iter().zip(pointers) {
        if from.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        let (offset, size) = (parameter.offset as usize, parameter.size as usize);
        let to = bytes.get_mut(offset..offset + size).ok_or(Status::INVALID_VALUE)?;
        // SAFETY: the caller's promise; `to` has `size` bytes.
        unsafe { from.cast::<u8>().copy_to_nonoverlapping(to.as_mut_ptr(), size) };
    }
    Ok(bytes)
}

driver_function! {
    get_attribute(out: *mut c_int, attribute: c_int, function: CUfunction) {
        let named = Named::find(function)?;
        let (kernel, function) = (named.kernel()?, &named.function);
        let capability = named.machine.config.compute_capability;
        let value = match attribute {
            0 => signed(function.max_threads),
            1 => signed(kernel.static_shared),
            2 => 0,
            3 => signed(kernel.local_bytes),
            4 => signed(function.registers),
            5 => function.ptx_version,
            6 => signed(capability.major * 10 + capability.minor),
            7 => 0,
            8 => signed(function.max_dynamic_shared),
            // The driver's own choice.
            9 => -1,
            _ => return Err(Status::INVALID_VALUE),
        };
        put!(out, value)
    }
    set_attribute(function: CUfunction, attribute: c_int, value: c_int) {
        let named = Named::find(function)?;
        match attribute {
            8 => {
                let value = u32::try_from(value).map_err(|_| Status::INVALID_VALUE)?;
                let most = named.machine.limits.shared_block_optin() - named.kernel()?.static_shared;
                if value > most {
                    return Err(Status::INVALID_VALUE);
                }
                let mut state = named.machine.state();
                let function = state.functions.get_mut(&named.serial).ok_or(Status::INVALID_HANDLE)?;
                function.max_dynamic_shared = value;
                Ok(())
            }
            // A preference, in per cent.
            9 if (-1..=100).contains(&value) => Ok(()),
            _ => Err(Status::INVALID_VALUE),
        }
    }
    set_cache_config(function: CUfunction, config: c_int) {
        Named::find(function)?;
        if (0..=3).contains(&config) { Ok(()) } else { Err(Status::INVALID_VALUE) }
    }
    set_shared_config(function: CUfunction, config: c_int) {
        Named::find(function)?;
        if (0..=2).contains(&config) { Ok(()) } else { Err(Status::INVALID_VALUE) }
    }
    module_of(out: *mut CUmodule, function: CUfunction) {
        let named = Named::find(function)?;
        put!(out, named.machine.handle(named.function.module, Kind::Module))
    }
    parameter(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize) {
        let named = Named::find(function)?;
        let parameter = named.kernel()?.parameters.get(index).ok_or(Status::INVALID_VALUE)?;
        put!(offset, parameter.offset as usize)?;
        if size.is_null() { Ok(()) } else { put!(size, parameter.size as usize) }
    }
    launch(
        function: CUfunction,
        gx: c_uint,
        gy: c_uint,
        gz: c_uint,
        bx: c_uint,
        by: c_uint,
        bz: c_uint,
        dynamic_shared: c_uint,
        stream: CUstream,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        let named = Named::find(function)?;
        let (machine, stream, context) = resolve_stream(stream)?;
        if machine.id != named.machine.id || context != named.context {
            return Err(Status::INVALID_HANDLE);
        }
        if !extra.is_null() {
            return Err(Status::NOT_SUPPORTED);
        }
        let (grid, block) = ([gx, gy, gz], [bx, by, bz]);
        let threads = block.iter().map(|&n| u64::from(n)).product::<u64>();
        let in_range = grid.iter().zip([i32::MAX.unsigned_abs(), 65_535, 65_535]).all(|(&n, most)| (1..=most).contains(&n))
            && block.iter().zip([1024, 1024, 64]).all(|(&n, most)| (1..=most).contains(&n));
        if !in_range || dynamic_shared > named.function.max_dynamic_shared {
            return Err(Status::INVALID_VALUE);
        }
        if threads > u64::from(named.function.max_threads) {
            return Err(Status::INVALID_VALUE);
        }
        let kernel = named.kernel()?;
        if kernel.required_threads.is_some_and(|required| required != block) {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the caller promises a pointer for each of the kernel's parameters.
        let parameters = unsafe { gather(kernel, parameters)? };
        let launch = Launch {
            module: named.loaded.clone(),
            kernel: named.function.kernel.clone(),
            grid,
            block,
            dynamic_shared,
            parameters,
        };
        machine.state().push(stream, Work::Launch(Box::new(launch)))?;
        machine.run_ahead();
        Ok(())
    }
    call_host(stream: CUstream, function: CUhostFn, data: *mut c_void) {
        let (machine, stream, _) = resolve_stream(stream)?;
        let function = function.ok_or(Status::INVALID_VALUE)?;
        machine.state().push(stream, Work::Call { function, data: HostAddress(data) })?;
        machine.run_ahead();
        Ok(())
    }
    active_blocks(out: *mut c_int, function: CUfunction, threads: c_int, dynamic_shared: usize) {
        put!(out, Named::find(function)?.blocks(threads, dynamic_shared)?)
    }
    active_blocks_with_flags(
        out: *mut c_int,
        function: CUfunction,
        threads: c_int,
        dynamic_shared: usize,
        flags: c_uint,
    ) {
        if flags > 1 {
            return Err(Status::INVALID_VALUE);
        }
        put!(out, Named::find(function)?.blocks(threads, dynamic_shared)?)
    }
    potential_block_size(
        min_grid: *mut c_int,
        block: *mut c_int,
        function: CUfunction,
        shared_of_block: CUoccupancyB2DSize,
        dynamic_shared: usize,
        block_limit: c_int,
    ) {
        let named = Named::find(function)?;
        let most = signed(named.function.max_threads);
        let most = if block_limit > 0 { most.min(block_limit) } else { most };
        let (mut best, mut best_block, mut best_threads) = (0, 0, 0);
        // Whole warps, the largest first, so that among equals the largest block stays.
        for threads in (1..=most).rev().filter(|&t| t % 32 == 0 || t == most) {
            let shared = match shared_of_block {
                // SAFETY: the caller gave the function for this.
                Some(shared_of_block) => unsafe { shared_of_block(threads) },
                None => dynamic_shared,
            };
            let blocks = named.blocks(threads, shared).unwrap_or(0);
            if blocks * threads > best_threads {
                (best, best_block, best_threads) = (blocks, threads, blocks * threads);
            }
        }
        if best == 0 {
            return Err(Status::INVALID_VALUE);
        }
        put!(block, best_block)?;
        put!(min_grid, best * signed(named.machine.config.multiprocessors))
    }
    available_dynamic_shared(out: *mut usize, function: CUfunction, blocks: c_int, threads: c_int) {
        let named = Named::find(function)?;
        let count = u32::try_from(blocks).ok().filter(|&b| b > 0).ok_or(Status::INVALID_VALUE)?;
        if named.blocks(threads, 0)? < blocks {
            return Err(Status::INVALID_VALUE);
        }
        let fixed = named.kernel()?.static_shared;
        let most = occupancy::dynamic_shared(&named.machine.limits, count, fixed);
        put!(out, most.min(named.machine.limits.shared_block_optin() - fixed) as usize)
    }
}
