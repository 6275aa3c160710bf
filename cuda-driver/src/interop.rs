//! Lends streams and memory of `cust` to this crate, so that its kernels run on them.

use crate::context::Context;
use crate::error::{Error, check};
use crate::memory::{DevicePointer, DeviceSlice, DeviceSliceMut};
use crate::stream::{BorrowedStream, Stream};
use crate::sys;
use bytemuck::Pod;
use cust::memory::DeviceCopy;
use std::marker::PhantomData;
use std::ptr::null_mut;

impl<'a> BorrowedStream<'a> {
    /// A stream of `cust`'s.
    ///
    /// # Errors
    /// [`Error::OtherContext`] if it is not one of `context`; `cust`'s own context is the device's
    /// [primary](Context::primary) one.
    pub fn from_cust(
        context: &Context,
        stream: &'a cust::stream::Stream,
    ) -> Result<BorrowedStream<'a>, Error> {
        let raw: sys::CUstream = stream.as_inner().cast();
        let mut owner = null_mut();
        context.bind()?;
        // SAFETY: `owner` is writable, the stream is alive while it is borrowed.
        check("cuStreamGetCtx", unsafe { sys::cuStreamGetCtx(raw, &raw mut owner) })?;
        if owner != context.raw() {
            return Err(Error::OtherContext { what: "the stream of cust" });
        }
        // SAFETY: a stream of the context, alive while `'a` lasts.
        let stream = unsafe { Stream::from_raw(context, raw) };
        Ok(BorrowedStream { stream, lender: PhantomData })
    }
}

impl<'a, T: Pod + DeviceCopy> DeviceSlice<'a, T> {
    /// Memory of `cust`'s, to read. It must be `context`'s, or the driver will refuse to use it.
    pub fn from_cust(context: &'a Context, memory: &'a cust::memory::DeviceSlice<T>) -> DeviceSlice<'a, T> {
        let pointer = DevicePointer(memory.as_device_ptr().as_raw());
        // SAFETY: an allocation of `len` elements that is borrowed for `'a`.
        unsafe { DeviceSlice::from_raw(context, pointer, memory.len()) }
    }
}

impl<'a, T: Pod + DeviceCopy> DeviceSliceMut<'a, T> {
    /// Memory of `cust`'s, to write. It must be `context`'s, or the driver will refuse to use it.
    pub fn from_cust(
        context: &'a Context,
        memory: &'a mut cust::memory::DeviceSlice<T>,
    ) -> DeviceSliceMut<'a, T> {
        let pointer = DevicePointer(memory.as_device_ptr().as_raw());
        // SAFETY: an allocation of `len` elements that is borrowed alone for `'a`.
        unsafe { DeviceSliceMut::from_raw(context, pointer, memory.len()) }
    }
}
