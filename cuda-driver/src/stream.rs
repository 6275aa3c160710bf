//! Queues of work on a device.

use crate::context::Context;
use crate::error::{Error, check};
use crate::event::Event;
use crate::status::Status;
use crate::sys::{self, CUstream};
use std::ptr::null_mut;

/// How a stream is ordered with the legacy default stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// Its work waits for the default stream's earlier work, and the default stream's later work for it.
    Blocking,
    /// The two are unordered, except where events order them.
    NonBlocking,
}

/// A stream: a queue whose work runs in order. Work in different streams is unordered, except where events or the default
/// stream's rule ([`StreamKind`]) order it.
#[derive(Debug)]
pub struct Stream {
    raw: CUstream,
    context: Context,
    /// Whether this value has to destroy the stream.
    owned: bool,
}

// SAFETY: the handle is a number to the driver, whose functions may be called from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above; the driver puts what comes from several threads in some order.
unsafe impl Sync for Stream {}

impl Stream {
    /// A new stream.
    ///
    /// # Errors
    /// [`Error::Call`] if the driver has no room for it.
    pub fn new(context: &Context, kind: StreamKind) -> Result<Stream, Error> {
        context.bind()?;
        let flags = match kind {
            StreamKind::Blocking => 0,
            StreamKind::NonBlocking => 1,
        };
        let mut raw = null_mut();
        // SAFETY: `raw` is writable, the context is current.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut raw, flags) })?;
        Ok(Stream { raw, context: context.clone(), owned: true })
    }

    /// The context's legacy default stream.
    pub fn legacy_default(context: &Context) -> Stream {
        Stream { raw: null_mut(), context: context.clone(), owned: false }
    }

    /// A stream that someone else made and will destroy.
    ///
    /// # Safety
    /// `raw` must be a stream of `context`, and stay alive as long as what this returns.
    pub unsafe fn from_raw(context: &Context, raw: CUstream) -> Stream {
        Stream { raw, context: context.clone(), owned: false }
    }

    /// The driver's handle, null for the legacy default stream.
    pub fn raw(&self) -> CUstream {
        self.raw
    }

    /// The context it belongs to.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Waits until everything queued so far has run.
    ///
    /// # Errors
    /// [`Error::Call`], also for work that failed.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.context.bind()?;
        // SAFETY: the stream is alive.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.raw) })
    }

    /// Whether everything queued so far has run.
    ///
    /// # Errors
    /// [`Error::Call`], also for work that failed.
    pub fn is_done(&self) -> Result<bool, Error> {
        self.context.bind()?;
        // SAFETY: the stream is alive.
        match unsafe { sys::cuStreamQuery(self.raw) } {
            result if Status(result) == Status::NOT_READY => Ok(false),
            result => check("cuStreamQuery", result).map(|()| true),
        }
    }

    /// Makes everything queued from now on wait for what `event` was last recorded after; the host does not wait.
    ///
    /// Waiting for an event that was never recorded does nothing.
    ///
    /// # Errors
    /// [`Error::OtherContext`] or [`Error::Call`].
    pub fn wait_event(&self, event: &Event) -> Result<(), Error> {
        self.context.same(event.context(), "the event to wait for")?;
        self.context.bind()?;
        // SAFETY: stream and event are alive.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.raw, event.raw(), 0) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned && self.context.bind().is_ok() {
            // SAFETY: the last use of the handle; the driver finishes what is queued. A failure leaves nothing to do.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.raw) };
        }
    }
}

/// A stream of `cust`, for as long as it is borrowed.
#[cfg(feature = "cust")]
#[derive(Debug)]
pub struct BorrowedStream<'a> {
    pub(crate) stream: Stream,
    pub(crate) lender: std::marker::PhantomData<&'a ()>,
}

#[cfg(feature = "cust")]
impl std::ops::Deref for BorrowedStream<'_> {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.stream
    }
}
