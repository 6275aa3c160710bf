//! Events.

use super::{Answer, driver_function, put};
use crate::driver::handle::Kind;
use crate::driver::machine::{Machine, resolve, resolve_stream, usable_context};
use crate::driver::queue::{Goal, Work};
use crate::driver::state::EventState;
use halfbyte_cuda_driver::Status;
use halfbyte_cuda_driver::sys::{CUevent, CUstream};
use std::collections::BTreeSet;
use std::ffi::c_uint;
use std::sync::Arc;

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: c_uint = 2;

/// The machine of an event, its serial, its context's and how often it was recorded.
fn live(event: CUevent) -> Result<(Arc<Machine>, u64, u64, u64), Status> {
    let (machine, serial) = resolve(event, Kind::Event)?;
    let (context, recorded) = {
        let state = machine.state();
        let event = state.events.get(&serial).filter(|e| !e.destroyed).ok_or(Status::INVALID_HANDLE)?;
        state.lost(event.context)?;
        (event.context, event.recorded)
    };
    Ok((machine, serial, context, recorded))
}

fn put_in_stream(event: CUevent, stream: CUstream) -> Answer {
    let (machine, event, context, _) = live(event)?;
    let (owner, stream, stream_context) = resolve_stream(stream)?;
    if owner.id != machine.id || stream_context != context {
        return Err(Status::INVALID_HANDLE);
    }
    {
        let mut state = machine.state();
        let it = state.events.get_mut(&event).ok_or(Status::INVALID_HANDLE)?;
        it.recorded += 1;
        let recording = it.recorded;
        it.pending.insert(recording);
        state.push(stream, Work::Record { event, recording })?;
    }
    machine.run_ahead();
    Ok(())
}

driver_function! {
    create(out: *mut CUevent, flags: c_uint) {
        let (machine, context) = usable_context()?;
        if flags & !7 != 0 {
            return Err(Status::INVALID_VALUE);
        }
        let serial = {
            let mut state = machine.state();
            let serial = state.new_serial();
            let timing = flags & DISABLE_TIMING == 0;
            let event = EventState { context, timing, recorded: 0, pending: BTreeSet::new(), time: 0, destroyed: false };
            state.events.insert(serial, event);
            serial
        };
        put!(out, machine.handle(serial, Kind::Event))
    }
    record(event: CUevent, stream: CUstream) {
        put_in_stream(event, stream)
    }
    record_with_flags(event: CUevent, stream: CUstream, flags: c_uint) {
        if flags != 0 {
            return Err(Status::NOT_SUPPORTED);
        }
        put_in_stream(event, stream)
    }
    query(event: CUevent) {
        let (machine, event, context, recording) = live(event)?;
        let done = machine.poll(Goal::Event { event, recording });
        machine.state().lost(context)?;
        if done { Ok(()) } else { Err(Status::NOT_READY) }
    }
    synchronize(event: CUevent) {
        let (machine, event, context, recording) = live(event)?;
        machine.reach(Goal::Event { event, recording });
        machine.state().lost(context)
    }
    destroy(event: CUevent) {
        let (machine, serial) = resolve(event, Kind::Event)?;
        let mut state = machine.state();
        let it = state.events.get_mut(&serial).filter(|e| !e.destroyed).ok_or(Status::INVALID_HANDLE)?;
        it.destroyed = true;
        let context = it.context;
        if it.pending.is_empty() {
            state.events.remove(&serial);
        }
        state.lost(context)
    }
    elapsed(milliseconds: *mut f32, start: CUevent, end: CUevent) {
        let (machine, start, ..) = live(start)?;
        let (owner, end, ..) = live(end)?;
        let state = machine.state();
        let (Some(start), Some(end)) = (state.events.get(&start), state.events.get(&end)) else {
            return Err(Status::INVALID_HANDLE);
        };
        let usable = |e: &EventState| e.timing && e.recorded > 0;
        if owner.id != machine.id || !usable(start) || !usable(end) {
            return Err(Status::INVALID_HANDLE);
        }
        if !start.is_done() || !end.is_done() {
            return Err(Status::NOT_READY);
        }
        let nanoseconds = end.time as f64 - start.time as f64;
        put!(milliseconds, (nanoseconds * 1e-6) as f32)
    }
}
