//! The driver's C functions under their own names, called through the slots.
//!
//! Those that this crate, `cust` 0.3.2 and the emulator use, with the signatures of the driver's own documentation
//! (the CUDA
//! Driver API reference). A function that the driver lacks, or any function while no driver is loaded, returns
//! [`Status::STUB_LIBRARY`](crate::Status::STUB_LIBRARY) (34). Every function is `unsafe` for the reason that any
//! C function is:
//! pointers must be valid and handles alive.

#![allow(non_snake_case, non_camel_case_types, reason = "the driver's own names")]

use crate::slots::slot;
use crate::status::Status;
use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ushort, c_void};

/// The result of a driver function: 0, or an error listed in [`Status`].
pub type CUresult = c_int;
/// A device's handle.
pub type CUdevice = c_int;
/// An address in the device's memory.
pub type CUdeviceptr = u64;
/// A context's handle.
pub type CUcontext = *mut opaque::Context;
/// A module's handle.
pub type CUmodule = *mut opaque::Module;
/// A kernel's handle.
pub type CUfunction = *mut opaque::Function;
/// A stream's handle; null is the legacy default stream.
pub type CUstream = *mut opaque::Stream;
/// An event's handle.
pub type CUevent = *mut opaque::Event;
/// A function that a stream calls on the host.
pub type CUhostFn = Option<unsafe extern "system" fn(user_data: *mut c_void)>;
/// Dynamic shared memory as a function of the block's threads.
pub type CUoccupancyB2DSize = Option<unsafe extern "system" fn(block_size: c_int) -> usize>;

/// The 16 bytes that identify a device permanently.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUuuid {
    /// The bytes.
    pub bytes: [c_char; 16],
}

/// Opaque types that the handles point to.
pub mod opaque {
    /// Of a context.
    #[derive(Debug)]
    pub enum Context {}
    /// Of a module.
    #[derive(Debug)]
    pub enum Module {}
    /// Of a kernel.
    #[derive(Debug)]
    pub enum Function {}
    /// Of a stream.
    #[derive(Debug)]
    pub enum Stream {}
    /// Of an event.
    #[derive(Debug)]
    pub enum Event {}
}

macro_rules! calls {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?);)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "` of the driver.")]
            ///
            /// # Safety
            /// As in the driver's reference: pointers valid for what it reads and writes, handles alive.
            #[inline]
            #[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
            pub unsafe fn $name($($arg: $type),*) -> CUresult {
                let address = slot::$name.address();
                if address.is_null() {
                    return Status::STUB_LIBRARY.0;
                }
                // SAFETY: what fills a slot promises the signature that its name has here: `install` by contract, the
                // driver's library by its stable interface.
                let function = unsafe { std::mem::transmute::<*mut (), types::$name>(address) };
                // SAFETY: the caller's promise.
                unsafe { function($($arg),*) }
            }
        )*

        /// The functions' types, for code that provides functions to [`install`](crate::install).
        pub mod types {
            use super::*;
            $(
                #[doc = concat!("Of [`", stringify!($name), "`](super::", stringify!($name), "()).")]
                pub type $name = unsafe extern "system" fn($($arg: $type),*) -> CUresult;
            )*
        }
    };
}

calls! {
    // The driver and its devices.
    fn cuInit(flags: c_uint);
    fn cuDriverGetVersion(driver_version: *mut c_int);
    fn cuGetErrorName(error: CUresult, text: *mut *const c_char);
    fn cuGetErrorString(error: CUresult, text: *mut *const c_char);
    fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    fn cuDeviceGetCount(count: *mut c_int);
    fn cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice);
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: CUdevice);
    fn cuDeviceGetUuid(uuid: *mut CUuuid, device: CUdevice);
    fn cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, device: CUdevice);

    // Contexts.
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint);
    fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int);
    fn cuDevicePrimaryCtxReset_v2(device: CUdevice);
    fn cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice);
    fn cuCtxDestroy_v2(context: CUcontext);
    fn cuCtxPushCurrent_v2(context: CUcontext);
    fn cuCtxPopCurrent_v2(context: *mut CUcontext);
    fn cuCtxSetCurrent(context: CUcontext);
    fn cuCtxGetCurrent(context: *mut CUcontext);
    fn cuCtxGetDevice(device: *mut CUdevice);
    fn cuCtxGetFlags(flags: *mut c_uint);
    fn cuCtxSynchronize();
    fn cuCtxSetLimit(limit: c_int, value: usize);
    fn cuCtxGetLimit(value: *mut usize, limit: c_int);
    fn cuCtxGetCacheConfig(config: *mut c_int);
    fn cuCtxSetCacheConfig(config: c_int);
    fn cuCtxGetSharedMemConfig(config: *mut c_int);
    fn cuCtxSetSharedMemConfig(config: c_int);
    fn cuCtxGetApiVersion(context: CUcontext, version: *mut c_uint);
    fn cuCtxGetStreamPriorityRange(least_priority: *mut c_int, greatest_priority: *mut c_int);

    // Modules and functions.
    fn cuModuleLoad(module: *mut CUmodule, path: *const c_char);
    fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    fn cuModuleLoadDataEx(
        module: *mut CUmodule, image: *const c_void, num_options: c_uint, options: *mut c_int,
        option_values: *mut *mut c_void,
    );
    fn cuModuleUnload(module: CUmodule);
    fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    fn cuModuleGetGlobal_v2(
        pointer: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char,
    );
    fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: CUfunction);
    fn cuFuncSetAttribute(function: CUfunction, attribute: c_int, value: c_int);
    fn cuFuncSetCacheConfig(function: CUfunction, config: c_int);
    fn cuFuncSetSharedMemConfig(function: CUfunction, config: c_int);
    fn cuFuncGetModule(module: *mut CUmodule, function: CUfunction);

    // Memory.
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    fn cuMemAlloc_v2(pointer: *mut CUdeviceptr, bytes: usize);
    fn cuMemFree_v2(pointer: CUdeviceptr);
    fn cuMemAllocAsync(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuMemFreeAsync(pointer: CUdeviceptr, stream: CUstream);
    fn cuMemGetAddressRange_v2(base: *mut CUdeviceptr, size: *mut usize, pointer: CUdeviceptr);
    fn cuPointerGetAttribute(data: *mut c_void, attribute: c_int, pointer: CUdeviceptr);
    fn cuMemAllocHost_v2(pointer: *mut *mut c_void, bytes: usize);
    fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
    fn cuMemFreeHost(pointer: *mut c_void);
    fn cuMemHostGetFlags(flags: *mut c_uint, pointer: *mut c_void);

    // Copies and fills.
    fn cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize);
    fn cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuMemcpyHtoD_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize);
    fn cuMemcpyDtoH_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize);
    fn cuMemcpyDtoD_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize);
    fn cuMemcpyHtoDAsync_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize, stream: CUstream);
    fn cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuMemcpyDtoDAsync_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuMemsetD8_v2(dst: CUdeviceptr, value: c_uchar, count: usize);
    fn cuMemsetD16_v2(dst: CUdeviceptr, value: c_ushort, count: usize);
    fn cuMemsetD32_v2(dst: CUdeviceptr, value: c_uint, count: usize);
    fn cuMemsetD8Async(dst: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream);
    fn cuMemsetD16Async(dst: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream);
    fn cuMemsetD32Async(dst: CUdeviceptr, value: c_uint, count: usize, stream: CUstream);

    // Streams and events.
    fn cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int);
    fn cuStreamGetPriority(stream: CUstream, priority: *mut c_int);
    fn cuStreamGetFlags(stream: CUstream, flags: *mut c_uint);
    fn cuStreamGetCtx(stream: CUstream, context: *mut CUcontext);
    fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    fn cuStreamQuery(stream: CUstream);
    fn cuStreamSynchronize(stream: CUstream);
    fn cuStreamDestroy_v2(stream: CUstream);
    fn cuEventCreate(event: *mut CUevent, flags: c_uint);
    fn cuEventRecord(event: CUevent, stream: CUstream);
    fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint);
    fn cuEventQuery(event: CUevent);
    fn cuEventSynchronize(event: CUevent);
    fn cuEventDestroy_v2(event: CUevent);
    fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);

    // Launches and occupancy.
    fn cuLaunchKernel(
        function: CUfunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint,
        block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint,
        stream: CUstream, kernel_params: *mut *mut c_void, extra: *mut *mut c_void,
    );
    fn cuLaunchHostFunc(stream: CUstream, host_function: CUhostFn, user_data: *mut c_void);
    fn cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize);
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        num_blocks: *mut c_int, function: CUfunction, block_size: c_int, dynamic_shared: usize,
    );
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        num_blocks: *mut c_int, function: CUfunction, block_size: c_int, dynamic_shared: usize,
        flags: c_uint,
    );
    fn cuOccupancyMaxPotentialBlockSize(
        min_grid_size: *mut c_int, block_size: *mut c_int, function: CUfunction,
        block_size_to_dynamic_smem_size: CUoccupancyB2DSize, dynamic_shared: usize,
        block_size_limit: c_int,
    );
    fn cuOccupancyAvailableDynamicSMemPerBlock(
        dynamic_shared: *mut usize, function: CUfunction, num_blocks: c_int, block_size: c_int,
    );
}

/// Makes the list that [`install`](crate::install) takes, checking each function against the driver's signature:
///
/// ```
/// use halfbyte_cuda_driver::driver_functions;
/// # use std::ffi::c_int;
/// unsafe extern "system" fn count(count: *mut c_int) -> c_int {
///     // SAFETY: the caller's promise, as in the driver's reference.
///     unsafe { count.write(0) };
///     0
/// }
/// let functions = driver_functions! { cuDeviceGetCount = count };
/// assert_eq!(functions[0].0, "cuDeviceGetCount");
/// ```
#[macro_export]
macro_rules! driver_functions {
    ($($name:ident = $function:expr),* $(,)?) => {
        [$((stringify!($name), {
            let function: $crate::sys::types::$name = $function;
            function as *const ()
        })),*]
    };
}
