//! Host memory that the device copies from and to while the program goes on.

use crate::context::Context;
use crate::error::{Error, check};
use crate::event::{Event, Timing};
use crate::stream::Stream;
use crate::sys;
use bytemuck::Pod;
use std::ptr::{NonNull, null_mut};
use std::slice;
use std::sync::{Mutex, PoisonError};

/// `len` elements of host memory that stay where they are, for copies that return before they have happened.
///
/// The buffer notes the copies in flight: it waits for those into it before it shows its elements, and for all of
/// them
/// before it lets them be changed or frees them. So nothing has to be kept alive or waited for by hand.
#[derive(Debug)]
pub struct PinnedBuffer<T> {
    first: NonNull<T>,
    len: usize,
    context: Context,
    /// Events behind copies into the buffer.
    writes: Mutex<Vec<Event>>,
    /// Events behind copies out of it.
    reads: Mutex<Vec<Event>>,
}

// SAFETY: the memory is this buffer's alone, and `T` goes with it.
unsafe impl<T: Send> Send for PinnedBuffer<T> {}
// SAFETY: a shared reference gives shared access to the elements, and the lists have locks.
unsafe impl<T: Sync> Sync for PinnedBuffer<T> {}

impl<T: Pod> PinnedBuffer<T> {
    /// `len` elements of zero bytes.
    ///
    /// # Errors
    /// [`Error::TooLarge`], or [`Error::Call`] with [`Status::OUT_OF_MEMORY`](crate::Status::OUT_OF_MEMORY).
    pub fn zeroed(context: &Context, len: usize) -> Result<PinnedBuffer<T>, Error> {
        let size = size_of::<T>();
        let bytes = len
            .checked_mul(size)
            .filter(|&b| isize::try_from(b).is_ok())
            .ok_or(Error::TooLarge { len, size })?;
        let mut first = NonNull::dangling();
        if bytes > 0 {
            context.bind()?;
            let mut address = null_mut();
            // SAFETY: `address` is writable, the context is current.
            let result = unsafe { sys::cuMemAllocHost_v2(&raw mut address, bytes) };
            check("cuMemAllocHost_v2", result)?;
            // SAFETY: the driver gave `bytes` bytes.
            unsafe { address.cast::<u8>().write_bytes(0, bytes) };
            // Never null after success; pages are aligned for every `T` that can be.
            first = NonNull::new(address.cast()).unwrap_or(first);
        }
        Ok(PinnedBuffer {
            first,
            len,
            context: context.clone(),
            writes: Mutex::default(),
            reads: Mutex::default(),
        })
    }

    /// The elements, after waiting for copies into them.
    ///
    /// # Errors
    /// [`Error::Call`] if one of the copies, or what it waited for, failed.
    pub fn as_slice(&self) -> Result<&[T], Error> {
        wait(&self.writes)?;
        // SAFETY: `len` elements, initialised by `zeroed`. New copies into them need `&mut self`; those in flight
        // are done.
        Ok(unsafe { slice::from_raw_parts(self.first.as_ptr(), self.len) })
    }

    /// The elements to change, after waiting for all copies.
    ///
    /// # Errors
    /// [`Error::Call`] if one of the copies, or what it waited for, failed.
    pub fn as_mut_slice(&mut self) -> Result<&mut [T], Error> {
        wait(&self.writes)?;
        wait(&self.reads)?;
        // SAFETY: as in `as_slice`; the borrow is alone and nothing is in flight.
        Ok(unsafe { slice::from_raw_parts_mut(self.first.as_ptr(), self.len) })
    }

    /// Notes that a copy into the buffer is queued on `stream`.
    pub(super) fn written_by(&mut self, stream: &Stream) -> Result<(), Error> {
        note(&self.writes, stream)
    }

    /// Notes that a copy out of the buffer is queued on `stream`.
    pub(super) fn read_by(&self, stream: &Stream) -> Result<(), Error> {
        note(&self.reads, stream)
    }
}

impl<T> PinnedBuffer<T> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The context it was allocated in.
    pub fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn address(&self) -> *mut T {
        self.first.as_ptr()
    }
}

/// Waits for the events of a list, and forgets those that have happened.
fn wait(events: &Mutex<Vec<Event>>) -> Result<(), Error> {
    let mut events = events.lock().unwrap_or_else(PoisonError::into_inner);
    while let Some(event) = events.last() {
        event.synchronize()?;
        events.pop();
    }
    Ok(())
}

/// Records an event after what is queued on `stream` and adds it to a list. If that fails, waits for the stream itself.
fn note(events: &Mutex<Vec<Event>>, stream: &Stream) -> Result<(), Error> {
    let event = Event::new(stream.context(), Timing::Off);
    match event.and_then(|event| event.record(stream).map(|()| event)) {
        Ok(event) => {
            let mut events = events.lock().unwrap_or_else(PoisonError::into_inner);
            // Remove events that have happened: in a buffer that is only copied out of, they would accumulate.
            events.retain(|e| !matches!(e.is_done(), Ok(true)));
            events.push(event);
            Ok(())
        }
        Err(_) => stream.synchronize(),
    }
}

impl<T> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        if self.len * size_of::<T>() == 0 {
            return;
        }
        // A failure means that the context is lost, and the device no longer touches the memory.
        let _ = wait(&self.writes);
        let _ = wait(&self.reads);
        if self.context.bind().is_ok() {
            // SAFETY: the last use of the allocation; no copy is in flight.
            let _ = unsafe { sys::cuMemFreeHost(self.first.as_ptr().cast()) };
        }
    }
}
