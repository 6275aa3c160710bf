//! Contexts: primary ones, which are counted, and created ones; the threads' current ones.

use super::device::numbered;
use super::{driver_function, put};
use crate::driver::handle::Kind;
use crate::driver::machine::{self, Machine, current_context, resolve, usable_context};
use crate::driver::queue::Goal;
use halfbyte_cuda_driver::Status;
use halfbyte_cuda_driver::sys::{CUcontext, CUdevice};
use std::ffi::{c_int, c_uint};

/// Runs what is queued in a context and forgets it.
fn remove(machine: &Machine, serial: u64) {
    machine.reach(Goal::Context(serial));
    let mut state = machine.state();
    if let Some(device) = state.contexts.get(&serial).map(|c| c.device) {
        state.remove_context(serial, &machine.memories[device]);
    }
}

/// The values that `CUlimit` names until they are set.
fn default_limit(limit: c_int) -> Option<usize> {
    match limit {
        0 => Some(1 << 10),
        1 => Some(1 << 20),
        2 => Some(8 << 20),
        3 => Some(2),
        4 => Some(2048),
        5 => Some(64),
        6 => Some(0),
        _ => None,
    }
}

driver_function! {
    primary_retain(out: *mut CUcontext, raw: CUdevice) {
        let (machine, number) = numbered(raw)?;
        let serial = {
            let mut state = machine.state();
            match state.primaries[number] {
                Some((serial, count)) => {
                    state.primaries[number] = Some((serial, count + 1));
                    serial
                }
                None => {
                    let flags = state.primary_flags[number];
                    let serial = state.add_context(number, flags, true);
                    state.primaries[number] = Some((serial, 1));
                    serial
                }
            }
        };
        put!(out, machine.handle(serial, Kind::Context))
    }
    primary_release(raw: CUdevice) {
        let (machine, number) = numbered(raw)?;
        let last = {
            let mut state = machine.state();
            match state.primaries[number] {
                None => return Err(Status::INVALID_CONTEXT),
                Some((serial, 1)) => {
                    state.primaries[number] = None;
                    Some(serial)
                }
                Some((serial, count)) => {
                    state.primaries[number] = Some((serial, count - 1));
                    None
                }
            }
        };
        if let Some(serial) = last {
            remove(&machine, serial);
        }
        Ok(())
    }
    primary_set_flags(raw: CUdevice, flags: c_uint) {
        let (machine, number) = numbered(raw)?;
        machine.state().primary_flags[number] = flags;
        Ok(())
    }
    primary_state(raw: CUdevice, flags: *mut c_uint, active: *mut c_int) {
        let (machine, number) = numbered(raw)?;
        let state = machine.state();
        put!(flags, state.primary_flags[number])?;
        put!(active, c_int::from(state.primaries[number].is_some()))
    }
    primary_reset(raw: CUdevice) {
        let (machine, number) = numbered(raw)?;
        let serial = machine.state().primaries[number].take();
        if let Some((serial, _)) = serial {
            remove(&machine, serial);
        }
        Ok(())
    }
    create(out: *mut CUcontext, flags: c_uint, raw: CUdevice) {
        let (machine, number) = numbered(raw)?;
        let serial = machine.state().add_context(number, flags, false);
        let handle = machine.handle(serial, Kind::Context);
        put!(out, handle)?;
        machine::push_current(handle);
        Ok(())
    }
    destroy(context: CUcontext) {
        let (machine, serial) = resolve(context, Kind::Context).map_err(|_| Status::INVALID_CONTEXT)?;
        let primary = machine.state().contexts.get(&serial).map(|c| c.primary);
        match primary {
            None => return Err(Status::INVALID_CONTEXT),
            Some(true) => return Err(Status::INVALID_CONTEXT),
            Some(false) => remove(&machine, serial),
        }
        if machine::current() == context {
            machine::pop_current();
        }
        Ok(())
    }
    push(context: CUcontext) {
        resolve(context, Kind::Context).map_err(|_| Status::INVALID_CONTEXT)?;
        machine::push_current(context);
        Ok(())
    }
    pop(out: *mut CUcontext) {
        let top = machine::pop_current().ok_or(Status::INVALID_CONTEXT)?;
        if out.is_null() { Ok(()) } else { put!(out, top) }
    }
    set_current(context: CUcontext) {
        if !context.is_null() {
            let (machine, serial) = resolve(context, Kind::Context).map_err(|_| Status::INVALID_CONTEXT)?;
            if !machine.state().contexts.contains_key(&serial) {
                return Err(Status::CONTEXT_IS_DESTROYED);
            }
        }
        machine::set_current(context);
        Ok(())
    }
    get_current(out: *mut CUcontext) {
        put!(out, machine::current())
    }
    device(out: *mut CUdevice) {
        let (machine, serial) = current_context()?;
        let device = machine.state().contexts.get(&serial).map_or(0, |c| c.device);
        put!(out, CUdevice::try_from(device).unwrap_or(0))
    }
    flags(out: *mut c_uint) {
        let (machine, serial) = current_context()?;
        let flags = machine.state().contexts.get(&serial).map_or(0, |c| c.flags);
        put!(out, flags)
    }
    synchronize() {
        let (machine, serial) = usable_context()?;
        machine.reach(Goal::Context(serial));
        machine.state().lost(serial)
    }
    set_limit(limit: c_int, value: usize) {
        let (machine, serial) = usable_context()?;
        default_limit(limit).ok_or(Status::INVALID_VALUE)?;
        let mut state = machine.state();
        let context = state.contexts.get_mut(&serial).ok_or(Status::INVALID_CONTEXT)?;
        context.limits.insert(limit, value);
        Ok(())
    }
    get_limit(out: *mut usize, limit: c_int) {
        let (machine, serial) = usable_context()?;
        let default = default_limit(limit).ok_or(Status::INVALID_VALUE)?;
        let state = machine.state();
        let context = state.contexts.get(&serial).ok_or(Status::INVALID_CONTEXT)?;
        put!(out, context.limits.get(&limit).copied().unwrap_or(default))
    }
    get_cache_config(out: *mut c_int) {
        let (machine, serial) = usable_context()?;
        let config = machine.state().contexts.get(&serial).map_or(0, |c| c.cache_config);
        put!(out, config)
    }
    set_cache_config(config: c_int) {
        let (machine, serial) = usable_context()?;
        let mut state = machine.state();
        state.contexts.get_mut(&serial).ok_or(Status::INVALID_CONTEXT)?.cache_config = config;
        Ok(())
    }
    get_shared_config(out: *mut c_int) {
        let (machine, serial) = usable_context()?;
        let config = machine.state().contexts.get(&serial).map_or(0, |c| c.shared_config);
        put!(out, config)
    }
    set_shared_config(config: c_int) {
        let (machine, serial) = usable_context()?;
        let mut state = machine.state();
        state.contexts.get_mut(&serial).ok_or(Status::INVALID_CONTEXT)?.shared_config = config;
        Ok(())
    }
    api_version(context: CUcontext, version: *mut c_uint) {
        if !context.is_null() {
            resolve(context, Kind::Context).map_err(|_| Status::INVALID_CONTEXT)?;
        }
        put!(version, 3020)
    }
    stream_priorities(least: *mut c_int, greatest: *mut c_int) {
        usable_context()?;
        for (out, value) in [(least, 0), (greatest, -5)] {
            if !out.is_null() {
                put!(out, value)?;
            }
        }
        Ok(())
    }
}
