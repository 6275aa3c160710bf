//! Allocations: on devices, and pinned ones on the host.

use super::{driver_function, put};
use crate::driver::handle::Kind;
use crate::driver::machine::{Machine, resolve_stream, usable_context};
use crate::driver::queue::{Goal, Work};
use crate::driver::state::HostMemory;
use crate::{GlobalMemory, MemoryError};
use halfbyte_cuda_driver::Status;
use halfbyte_cuda_driver::sys::{CUdeviceptr, CUstream};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

/// Pinned memory starts at a page, as the driver's does.
const PAGE: usize = 4096;

fn memory_of(machine: &Machine, context: u64) -> Result<Arc<GlobalMemory>, Status> {
    let state = machine.state();
    let context = state.contexts.get(&context).ok_or(Status::INVALID_CONTEXT)?;
    Ok(machine.memories[context.device].clone())
}

fn allocate(machine: &Machine, context: u64, bytes: usize) -> Result<CUdeviceptr, Status> {
    let address = memory_of(machine, context)?.alloc(bytes as u64).map_err(|e| match e {
        MemoryError::OutOfMemory { .. } => Status::OUT_OF_MEMORY,
        _ => Status::INVALID_VALUE,
    })?;
    machine.state().device_memory.insert((context, address), bytes);
    Ok(address)
}

fn allocate_host(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) -> Result<(), Status> {
    let (machine, context) = usable_context()?;
    let layout = Layout::from_size_align(bytes, PAGE).map_err(|_| Status::OUT_OF_MEMORY)?;
    if bytes == 0 || pointer.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: the layout is not empty.
    let address = unsafe { alloc_zeroed(layout) };
    if address.is_null() {
        return Err(Status::OUT_OF_MEMORY);
    }
    machine.state().host_memory.insert(address.addr(), HostMemory { bytes, flags, context });
    put!(pointer, address.cast())
}

/// The pinned allocation that holds an address: its start and what is known of it.
pub(super) fn pinned(machine: &Machine, address: usize) -> Option<(usize, HostMemory)> {
    let state = machine.state();
    let (&start, &memory) = state.host_memory.range(..=address).next_back()?;
    (address - start < memory.bytes).then_some((start, memory))
}

/// `CU_MEMORYTYPE_HOST` and `CU_MEMORYTYPE_DEVICE`.
const HOST: c_uint = 1;
const DEVICE: c_uint = 2;

driver_function! {
    info(free: *mut usize, total: *mut usize) {
        let (machine, context) = usable_context()?;
        let memory = memory_of(&machine, context)?;
        put!(free, (memory.capacity() - memory.used()) as usize)?;
        put!(total, memory.capacity() as usize)
    }
    alloc(pointer: *mut CUdeviceptr, bytes: usize) {
        let (machine, context) = usable_context()?;
        put!(pointer, allocate(&machine, context, bytes)?)
    }
    free(pointer: CUdeviceptr) {
        if pointer == 0 {
            return Ok(());
        }
        let (machine, context) = crate::driver::machine::current_context()?;
        // As on a device: what is queued and may use the memory runs first.
        machine.reach(Goal::Context(context));
        let known = machine.state().device_memory.remove(&(context, pointer));
        known.ok_or(Status::INVALID_VALUE)?;
        memory_of(&machine, context)?.free(pointer).map_err(|_| Status::INVALID_VALUE)?;
        machine.state().lost(context)
    }
    alloc_async(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream) {
        let (machine, _, context) = resolve_stream(stream)?;
        put!(pointer, allocate(&machine, context, bytes)?)
    }
    free_async(pointer: CUdeviceptr, stream: CUstream) {
        if pointer == 0 {
            return Ok(());
        }
        let (machine, stream, context) = resolve_stream(stream)?;
        {
            let mut state = machine.state();
            state.device_memory.remove(&(context, pointer)).ok_or(Status::INVALID_VALUE)?;
            state.push(stream, Work::Free { address: pointer })?;
        }
        machine.run_ahead();
        Ok(())
    }
    range(base: *mut CUdeviceptr, size: *mut usize, pointer: CUdeviceptr) {
        let (machine, context) = usable_context()?;
        let found = memory_of(&machine, context)?.allocation_of(pointer).ok_or(Status::NOT_FOUND)?;
        if !base.is_null() {
            put!(base, found.0)?;
        }
        if size.is_null() { Ok(()) } else { put!(size, found.1 as usize) }
    }
    pointer_attribute(data: *mut c_void, attribute: c_int, pointer: CUdeviceptr) {
        let (machine, context) = usable_context()?;
        let on_device = memory_of(&machine, context)?.allocation_of(pointer);
        let on_host = pinned(&machine, pointer as usize);
        if on_device.is_none() && on_host.is_none() {
            return Err(Status::INVALID_VALUE);
        }
        let (start, bytes) = match (on_device, on_host) {
            (Some((start, bytes)), _) => (start, bytes as usize),
            (_, Some((start, memory))) => (start as u64, memory.bytes),
            (None, None) => return Err(Status::INVALID_VALUE),
        };
        let owner = on_host.map_or(context, |(_, memory)| memory.context);
        match attribute {
            1 => put!(data.cast(), machine.handle::<c_void>(owner, Kind::Context)),
            2 => put!(data.cast(), if on_device.is_some() { DEVICE } else { HOST }),
            3 if on_device.is_some() => put!(data.cast(), pointer),
            4 if on_host.is_some() => put!(data.cast(), pointer),
            // Managed, mapped for the host: neither.
            8 | 13 => put!(data.cast(), false),
            9 => {
                let device = machine.state().contexts.get(&owner).map_or(0, |c| c.device);
                put!(data.cast(), c_int::try_from(device).unwrap_or(0))
            }
            11 => put!(data.cast(), start),
            12 => put!(data.cast(), bytes),
            3 | 4 => Err(Status::INVALID_VALUE),
            _ => Err(Status::NOT_SUPPORTED),
        }
    }
    alloc_host(pointer: *mut *mut c_void, bytes: usize) {
        allocate_host(pointer, bytes, 0)
    }
    alloc_host_with_flags(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) {
        if flags & !7 != 0 {
            return Err(Status::INVALID_VALUE);
        }
        allocate_host(pointer, bytes, flags)
    }
    free_host(pointer: *mut c_void) {
        let (machine, context) = crate::driver::machine::current_context()?;
        machine.reach(Goal::Context(context));
        let memory = machine.state().host_memory.remove(&pointer.addr()).ok_or(Status::INVALID_VALUE)?;
        let layout = Layout::from_size_align(memory.bytes, PAGE).map_err(|_| Status::INVALID_VALUE)?;
        // SAFETY: from `allocate_host`, with its layout; taken out of the list, so it is freed once.
        unsafe { dealloc(pointer.cast(), layout) };
        machine.state().lost(context)
    }
    host_flags(flags: *mut c_uint, pointer: *mut c_void) {
        let (machine, _) = usable_context()?;
        let (_, memory) = pinned(&machine, pointer.addr()).ok_or(Status::INVALID_VALUE)?;
        put!(flags, memory.flags)
    }
}
