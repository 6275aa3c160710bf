//! The driver, its errors' names, and devices.

use super::{driver_function, put};
use crate::driver::config::SHARED_BLOCK_DEFAULT;
use crate::driver::machine::Machine;
use halfbyte_cuda_driver::sys::{CUdevice, CUresult, CUuuid};
use halfbyte_cuda_driver::{Attribute, Status};
use std::ffi::{c_char, c_int, c_uint};
use std::sync::Arc;

/// The started machine and the device's number, if there is one.
pub(super) fn numbered(raw: CUdevice) -> Result<(Arc<Machine>, usize), Status> {
    let machine = Machine::started()?;
    let number = usize::try_from(raw).map_err(|_| Status::INVALID_DEVICE)?;
    if number >= machine.config.devices {
        return Err(Status::INVALID_DEVICE);
    }
    Ok((machine, number))
}

/// A property, 0 for a feature that the emulator lacks. Numbers as in `CUdevice_attribute`.
fn value(machine: &Machine, attribute: c_int) -> Result<u32, Status> {
    let (config, limits) = (&machine.config, &machine.limits);
    let value = match Attribute(attribute) {
        Attribute::MAX_THREADS_PER_BLOCK => 1024,
        Attribute(2 | 3) => 1024,
        Attribute(4) => 64,
        Attribute(5) => i32::MAX.unsigned_abs(),
        Attribute(6 | 7) => 65_535,
        Attribute::MAX_SHARED_MEMORY_PER_BLOCK => SHARED_BLOCK_DEFAULT,
        Attribute(9) => 64 << 10,
        Attribute::WARP_SIZE => 32,
        Attribute::MAX_REGISTERS_PER_BLOCK | Attribute::MAX_REGISTERS_PER_MULTIPROCESSOR => limits.registers,
        Attribute::CLOCK_RATE => 1_500_000,
        Attribute::MULTIPROCESSOR_COUNT => config.multiprocessors,
        Attribute::MEMORY_CLOCK_RATE => 8_000_000,
        Attribute::GLOBAL_MEMORY_BUS_WIDTH => 256,
        Attribute::L2_CACHE_SIZE => 6 << 20,
        Attribute::MAX_THREADS_PER_MULTIPROCESSOR => limits.threads,
        // Concurrent kernels, unified addressing, stream priorities.
        Attribute(31 | 41 | 78) => 1,
        Attribute::COMPUTE_CAPABILITY_MAJOR => config.compute_capability.major,
        Attribute::COMPUTE_CAPABILITY_MINOR => config.compute_capability.minor,
        Attribute::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => limits.shared,
        Attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => limits.shared_block_optin(),
        Attribute::MAX_BLOCKS_PER_MULTIPROCESSOR => limits.blocks,
        Attribute::RESERVED_SHARED_MEMORY_PER_BLOCK => limits.reserved_shared,
        // Engines for copies, and memory pools (for allocation in a stream's order).
        Attribute(40 | 115) => 1,
        Attribute(1..=119) => 0,
        _ => return Err(Status::INVALID_VALUE),
    };
    Ok(value)
}

driver_function! {
    init(flags: c_uint) {
        if flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        let machine = Machine::of_thread()?;
        if machine.config.devices == 0 {
            return Err(Status::NO_DEVICE);
        }
        machine.state().initialised = true;
        Ok(())
    }
    driver_version(version: *mut c_int) {
        let v = Machine::of_thread()?.config.driver_version;
        put!(version, (v.major * 1000 + v.minor * 10).cast_signed())
    }
    error_name(error: CUresult, text: *mut *const c_char) {
        put!(text, Status(error).name().as_ptr())
    }
    error_string(error: CUresult, text: *mut *const c_char) {
        put!(text, Status(error).description().as_ptr())
    }
    get(out: *mut CUdevice, ordinal: c_int) {
        numbered(ordinal)?;
        put!(out, ordinal)
    }
    count(out: *mut c_int) {
        let count = Machine::started()?.config.devices;
        put!(out, c_int::try_from(count).unwrap_or(c_int::MAX))
    }
    name(out: *mut c_char, len: c_int, raw: CUdevice) {
        let (machine, _) = numbered(raw)?;
        let room = usize::try_from(len).ok().filter(|&n| n > 0).ok_or(Status::INVALID_VALUE)?;
        let mut text: Vec<u8> = machine.config.name.bytes().filter(|&b| b != 0).take(room - 1).collect();
        text.push(0);
        if out.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the caller promises `len` writable bytes, and these are no more.
        unsafe { out.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len()) };
        Ok(())
    }
    total_memory(bytes: *mut usize, raw: CUdevice) {
        let (machine, _) = numbered(raw)?;
        put!(bytes, machine.config.memory as usize)
    }
    attribute(out: *mut c_int, attribute: c_int, raw: CUdevice) {
        let (machine, _) = numbered(raw)?;
        put!(out, value(&machine, attribute)?.cast_signed())
    }
    uuid(out: *mut CUuuid, raw: CUdevice) {
        let (_, number) = numbered(raw)?;
        let mut bytes = *b"halfbyte-emu-000";
        bytes[15] = b'0' + (number % 10) as u8;
        put!(out, CUuuid { bytes: bytes.map(|b| b as c_char) })
    }
    compute_capability(major: *mut c_int, minor: *mut c_int, raw: CUdevice) {
        let (machine, _) = numbered(raw)?;
        put!(major, machine.config.compute_capability.major.cast_signed())?;
        put!(minor, machine.config.compute_capability.minor.cast_signed())
    }
}
