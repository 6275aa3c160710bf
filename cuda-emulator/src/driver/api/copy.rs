//! Copies and fills. What returns when is as the driver's reference says (*API synchronization behavior*), in its
//! weakest reading: a copy from ordinary host memory takes its bytes when it is called and writes them when its turn
//! comes, a copy to it waits, and pinned memory is read and written when the copy's turn comes.

use super::memory::pinned;
use super::{Answer, driver_function};
use crate::driver::machine::{Machine, resolve_stream};
use crate::driver::queue::{Goal, HostAddress, Work};
use halfbyte_cuda_driver::Status;
use halfbyte_cuda_driver::sys::{CUdeviceptr, CUstream};
use std::ffi::{c_uchar, c_uint, c_ushort, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// Checks that `bytes` bytes at each device address lie in an allocation.
fn check(machine: &Machine, context: u64, addresses: &[CUdeviceptr], bytes: usize) -> Answer {
    let device = machine.state().contexts.get(&context).ok_or(Status::INVALID_CONTEXT)?.device;
    let inside = |&address: &CUdeviceptr| {
        let found = machine.memories[device].allocation_of(address);
        found.is_some_and(|(start, size)| bytes as u64 <= size - (address - start))
    };
    if addresses.iter().all(inside) { Ok(()) } else { Err(Status::INVALID_VALUE) }
}

/// Queues `work` and lets run what the schedule lets run.
fn queue(machine: &Machine, stream: u64, work: Work) -> Answer {
    machine.state().push(stream, work)?;
    machine.run_ahead();
    Ok(())
}

/// Runs a stream's work and gives the context's state.
fn wait(machine: &Arc<Machine>, stream: u64, context: u64) -> Answer {
    machine.reach(Goal::Stream(stream));
    machine.state().lost(context)
}

fn write(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream, waits: bool) -> Answer {
    let (machine, stream, context) = resolve_stream(stream)?;
    if bytes == 0 {
        return Ok(());
    }
    check(&machine, context, &[to], bytes)?;
    if from.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    if pinned(&machine, from.addr()).is_some() {
        let from = HostAddress(from.cast_mut());
        queue(&machine, stream, Work::WritePinned { to, from, bytes })?;
        return if waits { wait(&machine, stream, context) } else { Ok(()) };
    }
    if waits {
        // The stream is waited for before such a copy, not after it.
        wait(&machine, stream, context)?;
    }
    let mut data = vec![0u8; bytes];
    // SAFETY: the caller promises `bytes` readable bytes.
    unsafe { from.cast::<u8>().copy_to_nonoverlapping(data.as_mut_ptr(), bytes) };
    queue(&machine, stream, Work::WriteSnapshot { to, bytes: data })
}

fn read(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream, waits: bool) -> Answer {
    let (machine, stream, context) = resolve_stream(stream)?;
    if bytes == 0 {
        return Ok(());
    }
    check(&machine, context, &[from], bytes)?;
    if to.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    let waits = waits || pinned(&machine, to.addr()).is_none();
    queue(&machine, stream, Work::Read { from, to: HostAddress(to), bytes })?;
    if waits { wait(&machine, stream, context) } else { Ok(()) }
}

fn copy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> Answer {
    let (machine, stream, context) = resolve_stream(stream)?;
    if bytes == 0 {
        return Ok(());
    }
    check(&machine, context, &[from, to], bytes)?;
    queue(&machine, stream, Work::Copy { from, to, bytes })
}

fn fill(to: CUdeviceptr, pattern: &[u8], count: usize, stream: CUstream) -> Answer {
    let (machine, stream, context) = resolve_stream(stream)?;
    let bytes = count.checked_mul(pattern.len()).ok_or(Status::INVALID_VALUE)?;
    if bytes == 0 {
        return Ok(());
    }
    if !to.is_multiple_of(pattern.len() as u64) {
        return Err(Status::INVALID_VALUE);
    }
    check(&machine, context, &[to], bytes)?;
    queue(&machine, stream, Work::Fill { to, pattern: pattern.to_vec(), bytes })
}

/// A copy between addresses of which each may be on the device or on the host.
fn either(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream, waits: bool) -> Answer {
    let (machine, _, context) = resolve_stream(stream)?;
    let on_device = |address| check(&machine, context, &[address], 1).is_ok();
    let host = |address: CUdeviceptr| std::ptr::with_exposed_provenance_mut::<c_void>(address as usize);
    match (on_device(to), on_device(from)) {
        (true, true) => copy(to, from, bytes, stream),
        (true, false) => write(to, host(from), bytes, stream, waits),
        (false, true) => read(host(to), from, bytes, stream, waits),
        (false, false) => Err(Status::NOT_SUPPORTED),
    }
}

driver_function! {
    to_device(dst: CUdeviceptr, src: *const c_void, bytes: usize) {
        write(dst, src, bytes, null_mut(), true)
    }
    to_device_async(dst: CUdeviceptr, src: *const c_void, bytes: usize, stream: CUstream) {
        write(dst, src, bytes, stream, false)
    }
    to_host(dst: *mut c_void, src: CUdeviceptr, bytes: usize) {
        read(dst, src, bytes, null_mut(), true)
    }
    to_host_async(dst: *mut c_void, src: CUdeviceptr, bytes: usize, stream: CUstream) {
        read(dst, src, bytes, stream, false)
    }
    within(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) {
        copy(dst, src, bytes, null_mut())
    }
    within_async(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream) {
        copy(dst, src, bytes, stream)
    }
    unified(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) {
        either(dst, src, bytes, null_mut(), true)
    }
    unified_async(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream) {
        either(dst, src, bytes, stream, false)
    }
    fill8(dst: CUdeviceptr, value: c_uchar, count: usize) {
        fill(dst, &[value], count, null_mut())
    }
    fill16(dst: CUdeviceptr, value: c_ushort, count: usize) {
        fill(dst, &value.to_le_bytes(), count, null_mut())
    }
    fill32(dst: CUdeviceptr, value: c_uint, count: usize) {
        fill(dst, &value.to_le_bytes(), count, null_mut())
    }
    fill8_async(dst: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream) {
        fill(dst, &[value], count, stream)
    }
    fill16_async(dst: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream) {
        fill(dst, &value.to_le_bytes(), count, stream)
    }
    fill32_async(dst: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) {
        fill(dst, &value.to_le_bytes(), count, stream)
    }
}
