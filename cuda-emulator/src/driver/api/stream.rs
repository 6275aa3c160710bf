//! Streams.

use super::{driver_function, put};
use crate::driver::handle::Kind;
use crate::driver::machine::{resolve, resolve_stream, usable_context};
use crate::driver::queue::{Goal, Work};
use crate::driver::state::Kind as StreamKind;
use halfbyte_cuda_driver::Status;
use halfbyte_cuda_driver::sys::{CUcontext, CUevent, CUstream};
use std::ffi::{c_int, c_uint};

fn make(out: *mut CUstream, flags: c_uint, priority: c_int) -> Result<(), Status> {
    let (machine, context) = usable_context()?;
    let kind = match flags {
        0 => StreamKind::Blocking,
        1 => StreamKind::NonBlocking,
        _ => return Err(Status::INVALID_VALUE),
    };
    // Out of range priorities become the nearest in range.
    let serial = machine.state().add_stream(context, kind, priority.clamp(-5, 0));
    put!(out, machine.handle(serial, Kind::Stream))
}

driver_function! {
    create(out: *mut CUstream, flags: c_uint) {
        make(out, flags, 0)
    }
    create_with_priority(out: *mut CUstream, flags: c_uint, priority: c_int) {
        make(out, flags, priority)
    }
    priority(stream: CUstream, out: *mut c_int) {
        let (machine, stream, _) = resolve_stream(stream)?;
        let priority = machine.state().streams.get(&stream).map_or(0, |s| s.priority);
        put!(out, priority)
    }
    flags(stream: CUstream, out: *mut c_uint) {
        let (machine, stream, _) = resolve_stream(stream)?;
        let kind = machine.state().streams.get(&stream).map(|s| s.kind);
        put!(out, c_uint::from(kind == Some(StreamKind::NonBlocking)))
    }
    context(stream: CUstream, out: *mut CUcontext) {
        let (machine, _, context) = resolve_stream(stream)?;
        put!(out, machine.handle(context, Kind::Context))
    }
    wait_event(stream: CUstream, event: CUevent, flags: c_uint) {
        if flags != 0 {
            return Err(if flags == 1 { Status::NOT_SUPPORTED } else { Status::INVALID_VALUE });
        }
        let (machine, stream, _) = resolve_stream(stream)?;
        let (owner, event) = resolve(event, Kind::Event)?;
        if owner.id != machine.id {
            return Err(Status::INVALID_HANDLE);
        }
        {
            let mut state = machine.state();
            let recording =
                state.events.get(&event).filter(|e| !e.destroyed).ok_or(Status::INVALID_HANDLE)?.recorded;
            if recording == 0 {
                // The event was never recorded, so there is nothing to wait for.
                return Ok(());
            }
            state.push(stream, Work::Wait { event, recording })?;
        }
        machine.run_ahead();
        Ok(())
    }
    query(stream: CUstream) {
        let (machine, stream, context) = resolve_stream(stream)?;
        let done = machine.poll(Goal::Stream(stream));
        machine.state().lost(context)?;
        if done { Ok(()) } else { Err(Status::NOT_READY) }
    }
    synchronize(stream: CUstream) {
        let (machine, stream, context) = resolve_stream(stream)?;
        machine.reach(Goal::Stream(stream));
        machine.state().lost(context)
    }
    destroy(stream: CUstream) {
        let (machine, serial) = resolve(stream, Kind::Stream)?;
        let mut state = machine.state();
        let it = state.streams.get_mut(&serial).filter(|s| !s.destroyed).ok_or(Status::INVALID_HANDLE)?;
        let context = it.context;
        it.destroyed = true;
        if it.queue.is_empty() {
            state.streams.remove(&serial);
        }
        state.lost(context)
    }
}
