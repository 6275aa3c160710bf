//! An allocation on a device.

use super::{DevicePointer, DeviceSlice, DeviceSliceMut};
use crate::context::Context;
use crate::error::{Error, check};
use crate::stream::Stream;
use crate::sys;
use bytemuck::Pod;
use std::marker::PhantomData;
use std::ops::Range;

/// `len` elements of `T` in a device's memory, freed on drop.
///
/// Freeing waits for the work that the driver has queued. An empty buffer has the null address and no allocation;
/// others start at a multiple of 256 bytes.
#[derive(Debug)]
pub struct DeviceBuffer<T> {
    pointer: DevicePointer,
    len: usize,
    context: Context,
    elements: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// `len` elements that hold anything. Every bit pattern is a `T`, so to read them is pointless, not unsound.
    ///
    /// # Errors
    /// [`Error::TooLarge`], or [`Error::Call`] with [`Status::OUT_OF_MEMORY`](crate::Status::OUT_OF_MEMORY).
    pub fn uninit(context: &Context, len: usize) -> Result<DeviceBuffer<T>, Error> {
        let size = size_of::<T>();
        let bytes = len.checked_mul(size).ok_or(Error::TooLarge { len, size })?;
        let mut address = 0;
        if bytes > 0 {
            context.bind()?;
            // SAFETY: `address` is writable, the context is current.
            check("cuMemAlloc_v2", unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes) })?;
        }
        let pointer = DevicePointer(address);
        Ok(DeviceBuffer { pointer, len, context: context.clone(), elements: PhantomData })
    }

    /// `len` elements of zero bytes, in place when this returns.
    ///
    /// # Errors
    /// As [`uninit`](DeviceBuffer::uninit).
    pub fn zeroed(context: &Context, len: usize) -> Result<DeviceBuffer<T>, Error> {
        let mut buffer = DeviceBuffer::uninit(context, len)?;
        let stream = Stream::legacy_default(context);
        buffer.as_mut_slice().fill_bytes_async(0, &stream)?;
        stream.synchronize()?;
        Ok(buffer)
    }

    /// A copy of `data`, in place when this returns.
    ///
    /// # Errors
    /// As [`uninit`](DeviceBuffer::uninit).
    pub fn from_slice(context: &Context, data: &[T]) -> Result<DeviceBuffer<T>, Error> {
        let mut buffer = DeviceBuffer::uninit(context, data.len())?;
        buffer.copy_from_host(data)?;
        Ok(buffer)
    }

    /// All of it, to read.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        // SAFETY: the allocation of `len` elements lives as long as `self`.
        unsafe { DeviceSlice::from_raw(&self.context, self.pointer, self.len) }
    }

    /// All of it, to write.
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, T> {
        // SAFETY: the allocation of `len` elements lives as long as `self`, which is borrowed alone.
        unsafe { DeviceSliceMut::from_raw(&self.context, self.pointer, self.len) }
    }

    /// Elements `range`, to read.
    ///
    /// # Errors
    /// [`Error::Range`] if they are not all there.
    pub fn slice(&self, range: Range<usize>) -> Result<DeviceSlice<'_, T>, Error> {
        self.as_slice().slice(range)
    }

    /// Elements `range`, to write.
    ///
    /// # Errors
    /// [`Error::Range`] if they are not all there.
    pub fn slice_mut(&mut self, range: Range<usize>) -> Result<DeviceSliceMut<'_, T>, Error> {
        self.as_mut_slice().slice(range)
    }

    /// Fills the buffer from `src` on the default stream, and returns when it has happened.
    ///
    /// # Errors
    /// [`Error::Length`] or [`Error::Call`].
    pub fn copy_from_host(&mut self, src: &[T]) -> Result<(), Error> {
        let stream = Stream::legacy_default(&self.context);
        self.as_mut_slice().copy_from_host(src, &stream)
    }

    /// Fills `dst` from the buffer on the default stream, and returns when it has happened.
    ///
    /// # Errors
    /// [`Error::Length`] or [`Error::Call`].
    pub fn copy_to_host(&self, dst: &mut [T]) -> Result<(), Error> {
        self.as_slice().copy_to_host(dst, &Stream::legacy_default(&self.context))
    }

    /// The buffer's elements, copied on the default stream.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        let mut data = vec![T::zeroed(); self.len];
        self.copy_to_host(&mut data)?;
        Ok(data)
    }
}

impl<T> DeviceBuffer<T> {
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

    /// The context it was allocated in.
    pub fn context(&self) -> &Context {
        &self.context
    }
}

impl<T> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        if self.pointer != DevicePointer::NULL && self.context.bind().is_ok() {
            // SAFETY: the last use of the allocation. A failure (a lost context) leaves nothing to do.
            let _ = unsafe { sys::cuMemFree_v2(self.pointer.0) };
        }
    }
}
