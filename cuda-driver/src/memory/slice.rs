//! Parts of a device's memory, and the copies in and out of them.

use super::{DevicePointer, PinnedBuffer};
use crate::context::Context;
use crate::error::{Error, check};
use crate::stream::Stream;
use crate::sys;
use bytemuck::Pod;
use std::marker::PhantomData;
use std::ops::Range;

/// Elements in a device's memory, to read.
#[derive(Debug, Clone, Copy)]
pub struct DeviceSlice<'a, T> {
    pointer: DevicePointer,
    len: usize,
    context: &'a Context,
    elements: PhantomData<&'a [T]>,
}

/// Elements in a device's memory, to write.
#[derive(Debug)]
pub struct DeviceSliceMut<'a, T> {
    pointer: DevicePointer,
    len: usize,
    context: &'a Context,
    elements: PhantomData<&'a mut [T]>,
}

/// The address of element `range.start`, if the range lies in `len` elements of `T`.
fn part<T>(pointer: DevicePointer, len: usize, range: &Range<usize>) -> Result<DevicePointer, Error> {
    if range.start > range.end || range.end > len {
        return Err(Error::Range { start: range.start, end: range.end, len });
    }
    Ok(pointer.byte_add(range.start * size_of::<T>()))
}

fn same_length(what: &'static str, expected: usize, got: usize) -> Result<(), Error> {
    if expected == got { Ok(()) } else { Err(Error::Length { what, expected, got }) }
}

macro_rules! common {
    ($slice:ident) => {
        impl<'a, T> $slice<'a, T> {
            /// `len` elements at `pointer`.
            ///
            /// # Safety
            /// They must lie in one allocation of `context`, which stays alive and is not written (for
            #[doc = concat!("[`", stringify!($slice), "`]: not used by anyone else, if it is the writable one) while this lives.")]
            pub unsafe fn from_raw(context: &'a Context, pointer: DevicePointer, len: usize) -> Self {
                $slice { pointer, len, context, elements: PhantomData }
            }

            /// Elements `range`.
            ///
            /// # Errors
            /// [`Error::Range`] if they are not all there.
            pub fn slice(self, range: Range<usize>) -> Result<Self, Error> {
                let pointer = part::<T>(self.pointer, self.len, &range)?;
                Ok($slice { pointer, len: range.len(), ..self })
            }

            /// The number of elements.
            pub fn len(&self) -> usize {
                self.len
            }

            /// Whether there are none.
            pub fn is_empty(&self) -> bool {
                self.len == 0
            }

            /// The size in bytes.
            pub fn bytes(&self) -> usize {
                self.len * size_of::<T>()
            }

            /// The first element's address.
            pub fn pointer(&self) -> DevicePointer {
                self.pointer
            }

            /// The context that the memory belongs to.
            pub fn context(&self) -> &'a Context {
                self.context
            }
        }
    };
}

common!(DeviceSlice);
common!(DeviceSliceMut);

impl<T: Pod> DeviceSlice<'_, T> {
    /// Copies to the host in `stream`'s order, and returns when it has happened.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::OtherContext`] or [`Error::Call`].
    pub fn copy_to_host(&self, dst: &mut [T], stream: &Stream) -> Result<(), Error> {
        same_length("copy to the host", self.len, dst.len())?;
        self.context.same(stream.context(), "the stream of a copy")?;
        if self.is_empty() {
            return Ok(());
        }
        self.context.bind()?;
        // SAFETY: both have `bytes` bytes; the host's stay borrowed until the stream has been waited for.
        let result = unsafe {
            sys::cuMemcpyDtoHAsync_v2(dst.as_mut_ptr().cast(), self.pointer.0, self.bytes(), stream.raw())
        };
        // Waited for even if the copy was refused: nothing of it may be left in flight.
        check("cuMemcpyDtoHAsync_v2", result).and(stream.synchronize())
    }

    /// Queues a copy to pinned host memory on `stream` and returns at once.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::OtherContext`] or [`Error::Call`].
    pub fn copy_to_pinned_async(&self, dst: &mut PinnedBuffer<T>, stream: &Stream) -> Result<(), Error> {
        same_length("copy to pinned memory", self.len, dst.len())?;
        self.context.same(stream.context(), "the stream of a copy")?;
        self.context.same(dst.context(), "the pinned memory of a copy")?;
        if self.is_empty() {
            return Ok(());
        }
        self.context.bind()?;
        // SAFETY: both have `bytes` bytes; the pinned memory waits for what `written_by` notes before its elements can be seen.
        let result = unsafe {
            sys::cuMemcpyDtoHAsync_v2(dst.address().cast(), self.pointer.0, self.bytes(), stream.raw())
        };
        check("cuMemcpyDtoHAsync_v2", result)?;
        dst.written_by(stream)
    }
}

impl<T: Pod> DeviceSliceMut<'_, T> {
    /// The same elements, to read.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice { pointer: self.pointer, len: self.len, context: self.context, elements: PhantomData }
    }

    /// Copies from the host in `stream`'s order, and returns when it has happened.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::OtherContext`] or [`Error::Call`].
    pub fn copy_from_host(&mut self, src: &[T], stream: &Stream) -> Result<(), Error> {
        same_length("copy from the host", self.len, src.len())?;
        self.context.same(stream.context(), "the stream of a copy")?;
        if self.is_empty() {
            return Ok(());
        }
        self.context.bind()?;
        // SAFETY: both have `bytes` bytes; the host's stay borrowed until the stream has been waited for.
        let result = unsafe {
            sys::cuMemcpyHtoDAsync_v2(self.pointer.0, src.as_ptr().cast(), self.bytes(), stream.raw())
        };
        // Waited for even if the copy was refused: nothing of it may be left in flight.
        check("cuMemcpyHtoDAsync_v2", result).and(stream.synchronize())
    }

    /// Queues a copy from pinned host memory on `stream` and returns at once.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::OtherContext`] or [`Error::Call`].
    pub fn copy_from_pinned_async(&mut self, src: &PinnedBuffer<T>, stream: &Stream) -> Result<(), Error> {
        same_length("copy from pinned memory", self.len, src.len())?;
        self.context.same(stream.context(), "the stream of a copy")?;
        self.context.same(src.context(), "the pinned memory of a copy")?;
        if self.is_empty() {
            return Ok(());
        }
        self.context.bind()?;
        // SAFETY: both have `bytes` bytes; the pinned memory waits for what `read_by` notes before its elements can be changed.
        let result = unsafe {
            sys::cuMemcpyHtoDAsync_v2(self.pointer.0, src.address().cast(), self.bytes(), stream.raw())
        };
        check("cuMemcpyHtoDAsync_v2", result)?;
        src.read_by(stream)
    }

    /// Queues a copy within the device on `stream` and returns at once.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::OtherContext`] or [`Error::Call`].
    pub fn copy_from_device_async(&mut self, src: &DeviceSlice<'_, T>, stream: &Stream) -> Result<(), Error> {
        same_length("copy within the device", self.len, src.len())?;
        self.context.same(stream.context(), "the stream of a copy")?;
        self.context.same(src.context(), "the source of a copy")?;
        if self.is_empty() {
            return Ok(());
        }
        self.context.bind()?;
        // SAFETY: both have `bytes` bytes, of different borrows. The driver keeps freed memory until queued work
        // is done.
        let result =
            unsafe { sys::cuMemcpyDtoDAsync_v2(self.pointer.0, src.pointer.0, self.bytes(), stream.raw()) };
        check("cuMemcpyDtoDAsync_v2", result)
    }

    /// Queues on `stream` to set every byte to `value`, and returns at once.
    ///
    /// # Errors
    /// [`Error::OtherContext`] or [`Error::Call`].
    pub fn fill_bytes_async(&mut self, value: u8, stream: &Stream) -> Result<(), Error> {
        self.context.same(stream.context(), "the stream of a fill")?;
        if self.is_empty() {
            return Ok(());
        }
        self.context.bind()?;
        // SAFETY: the elements have `bytes` bytes, and any bytes are a `T`.
        let result = unsafe { sys::cuMemsetD8Async(self.pointer.0, value, self.bytes(), stream.raw()) };
        check("cuMemsetD8Async", result)
    }
}
