//! Events: marks in streams that a program can wait for, and between which it can measure time.

use crate::context::Context;
use crate::error::{Error, check};
use crate::status::Status;
use crate::stream::Stream;
use crate::sys::{self, CUevent};
use std::ptr::null_mut;

/// Whether an event records the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Timing {
    /// The event records the time.
    On,
    /// The event does not record the time, which is cheaper.
    Off,
}

/// A mark in a stream.
#[derive(Debug)]
pub struct Event {
    raw: CUevent,
    context: Context,
}

// SAFETY: the handle is a number to the driver, whose functions may be called from any thread.
unsafe impl Send for Event {}
// SAFETY: as above; the driver puts what comes from several threads in some order.
unsafe impl Sync for Event {}

impl Event {
    /// A new event, not recorded yet.
    ///
    /// # Errors
    /// [`Error::Call`] if the driver has no room for it.
    pub fn new(context: &Context, timing: Timing) -> Result<Event, Error> {
        context.bind()?;
        let flags = match timing {
            Timing::On => 0,
            Timing::Off => 2,
        };
        let mut raw = null_mut();
        // SAFETY: `raw` is writable, the context is current.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut raw, flags) })?;
        Ok(Event { raw, context: context.clone() })
    }

    /// Records the event: places it after everything queued on `stream` so far. An earlier recording is forgotten.
    ///
    /// # Errors
    /// [`Error::OtherContext`] or [`Error::Call`].
    pub fn record(&self, stream: &Stream) -> Result<(), Error> {
        self.context.same(stream.context(), "the stream to record on")?;
        self.context.bind()?;
        // SAFETY: event and stream are alive.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.raw, stream.raw()) })
    }

    /// Whether everything before the mark has run; true if it was never recorded.
    ///
    /// # Errors
    /// [`Error::Call`], also for work that failed.
    pub fn is_done(&self) -> Result<bool, Error> {
        self.context.bind()?;
        // SAFETY: the event is alive.
        match unsafe { sys::cuEventQuery(self.raw) } {
            result if Status(result) == Status::NOT_READY => Ok(false),
            result => check("cuEventQuery", result).map(|()| true),
        }
    }

    /// Waits until everything before the mark has run; at once if it was never recorded.
    ///
    /// # Errors
    /// [`Error::Call`], also for work that failed.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.context.bind()?;
        // SAFETY: the event is alive.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.raw) })
    }

    /// Milliseconds from `start` to this event on the device, to about half a microsecond. Both must have been
    /// recorded, with
    /// [`Timing::On`], and have happened.
    ///
    /// # Errors
    /// [`Error::Call`] with [`Status::INVALID_HANDLE`] if one was not, with [`Status::NOT_READY`] if one has not
    /// happened.
    pub fn milliseconds_since(&self, start: &Event) -> Result<f32, Error> {
        self.context.same(&start.context, "the event to take the time from")?;
        self.context.bind()?;
        let mut milliseconds = 0.0;
        // SAFETY: `milliseconds` is writable, both events are alive.
        let result = unsafe { sys::cuEventElapsedTime(&raw mut milliseconds, start.raw, self.raw) };
        check("cuEventElapsedTime", result)?;
        Ok(milliseconds)
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUevent {
        self.raw
    }

    /// The context it belongs to.
    pub fn context(&self) -> &Context {
        &self.context
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: the last use of the handle; streams that wait for it keep what they need. Nothing can be done
            // about a failure.
            let _ = unsafe { sys::cuEventDestroy_v2(self.raw) };
        }
    }
}
