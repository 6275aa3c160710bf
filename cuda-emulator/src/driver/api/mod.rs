//! The driver's functions themselves: arguments checked as the driver's reference says, then a look into the machine.
//!
//! Each promises what its doc in [`halfbyte_cuda_driver::sys`] asks of the caller: pointers valid for what is read
//! and written. Null
//! is refused.

mod context;
mod copy;
mod device;
mod event;
mod launch;
mod memory;
mod module;
mod stream;
mod unsupported;

use halfbyte_cuda_driver::{Status, driver_functions, sys::CUresult};

/// The outcome of a function: nothing, or the error that it returns.
type Answer = Result<(), Status>;

/// The number that the driver returns.
fn answer(result: Answer) -> CUresult {
    result.map_or_else(|status| status.0, |()| Status::SUCCESS.0)
}

/// Writes a result through a pointer of the caller's.
///
/// # Safety
/// `to` must be null or writable.
unsafe fn write_result<T>(to: *mut T, value: T) -> Answer {
    if to.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: not null, so writable by the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}

/// [`write_result`] with the reason that holds for every driver function.
macro_rules! put {
    ($to:expr, $value:expr) => {{
        let (to, value) = ($to, $value);
        // SAFETY: the caller of the driver function promises that its pointers are null or writable.
        unsafe { $crate::driver::api::write_result(to, value) }
    }};
}
use put;

/// A driver function: its name and arguments, and a body of type [`Answer`].
macro_rules! driver_function {
    ($($name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        #[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
        pub(super) unsafe extern "system" fn $name($($arg: $type),*) -> halfbyte_cuda_driver::sys::CUresult {
            let body = || -> $crate::driver::api::Answer { $body };
            $crate::driver::api::answer(body())
        }
    )*};
}
use driver_function;

/// Every function of the driver: those that are emulated, and for the others one that says so.
pub(super) fn table() -> Vec<(&'static str, *const ())> {
    let mut table = driver_functions! {
        cuInit = device::init,
        cuDriverGetVersion = device::driver_version,
        cuGetErrorName = device::error_name,
        cuGetErrorString = device::error_string,
        cuDeviceGet = device::get,
        cuDeviceGetCount = device::count,
        cuDeviceGetName = device::name,
        cuDeviceTotalMem_v2 = device::total_memory,
        cuDeviceGetAttribute = device::attribute,
        cuDeviceGetUuid = device::uuid,
        cuDeviceComputeCapability = device::compute_capability,
        cuDevicePrimaryCtxRetain = context::primary_retain,
        cuDevicePrimaryCtxRelease_v2 = context::primary_release,
        cuDevicePrimaryCtxSetFlags_v2 = context::primary_set_flags,
        cuDevicePrimaryCtxGetState = context::primary_state,
        cuDevicePrimaryCtxReset_v2 = context::primary_reset,
        cuCtxCreate_v2 = context::create,
        cuCtxDestroy_v2 = context::destroy,
        cuCtxPushCurrent_v2 = context::push,
        cuCtxPopCurrent_v2 = context::pop,
        cuCtxSetCurrent = context::set_current,
        cuCtxGetCurrent = context::get_current,
        cuCtxGetDevice = context::device,
        cuCtxGetFlags = context::flags,
        cuCtxSynchronize = context::synchronize,
        cuCtxSetLimit = context::set_limit,
        cuCtxGetLimit = context::get_limit,
        cuCtxGetCacheConfig = context::get_cache_config,
        cuCtxSetCacheConfig = context::set_cache_config,
        cuCtxGetSharedMemConfig = context::get_shared_config,
        cuCtxSetSharedMemConfig = context::set_shared_config,
        cuCtxGetApiVersion = context::api_version,
        cuCtxGetStreamPriorityRange = context::stream_priorities,
        cuModuleLoadData = module::load,
        cuModuleLoadDataEx = module::load_with_options,
        cuModuleUnload = module::unload,
        cuModuleGetFunction = module::function,
        cuModuleGetGlobal_v2 = module::global,
        cuFuncGetAttribute = launch::get_attribute,
        cuFuncSetAttribute = launch::set_attribute,
        cuFuncSetCacheConfig = launch::set_cache_config,
        cuFuncSetSharedMemConfig = launch::set_shared_config,
        cuFuncGetModule = launch::module_of,
        cuFuncGetParamInfo = launch::parameter,
        cuLaunchKernel = launch::launch,
        cuLaunchHostFunc = launch::call_host,
        cuOccupancyMaxActiveBlocksPerMultiprocessor = launch::active_blocks,
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags = launch::active_blocks_with_flags,
        cuOccupancyMaxPotentialBlockSize = launch::potential_block_size,
        cuOccupancyAvailableDynamicSMemPerBlock = launch::available_dynamic_shared,
        cuMemGetInfo_v2 = memory::info,
        cuMemAlloc_v2 = memory::alloc,
        cuMemFree_v2 = memory::free,
        cuMemAllocAsync = memory::alloc_async,
        cuMemFreeAsync = memory::free_async,
        cuMemGetAddressRange_v2 = memory::range,
        cuPointerGetAttribute = memory::pointer_attribute,
        cuMemAllocHost_v2 = memory::alloc_host,
        cuMemHostAlloc = memory::alloc_host_with_flags,
        cuMemFreeHost = memory::free_host,
        cuMemHostGetFlags = memory::host_flags,
        cuMemcpy = copy::unified,
        cuMemcpyAsync = copy::unified_async,
        cuMemcpyHtoD_v2 = copy::to_device,
        cuMemcpyDtoH_v2 = copy::to_host,
        cuMemcpyDtoD_v2 = copy::within,
        cuMemcpyHtoDAsync_v2 = copy::to_device_async,
        cuMemcpyDtoHAsync_v2 = copy::to_host_async,
        cuMemcpyDtoDAsync_v2 = copy::within_async,
        cuMemsetD8_v2 = copy::fill8,
        cuMemsetD16_v2 = copy::fill16,
        cuMemsetD32_v2 = copy::fill32,
        cuMemsetD8Async = copy::fill8_async,
        cuMemsetD16Async = copy::fill16_async,
        cuMemsetD32Async = copy::fill32_async,
        cuStreamCreate = stream::create,
        cuStreamCreateWithPriority = stream::create_with_priority,
        cuStreamGetPriority = stream::priority,
        cuStreamGetFlags = stream::flags,
        cuStreamGetCtx = stream::context,
        cuStreamWaitEvent = stream::wait_event,
        cuStreamQuery = stream::query,
        cuStreamSynchronize = stream::synchronize,
        cuStreamDestroy_v2 = stream::destroy,
        cuEventCreate = event::create,
        cuEventRecord = event::record,
        cuEventRecordWithFlags = event::record_with_flags,
        cuEventQuery = event::query,
        cuEventSynchronize = event::synchronize,
        cuEventDestroy_v2 = event::destroy,
        cuEventElapsedTime = event::elapsed,
    }
    .to_vec();
    let missing = unsupported::TABLE.iter().filter(|(name, _)| !table.iter().any(|(n, _)| n == name));
    let missing: Vec<_> = missing.map(|&(name, function)| (name, function as *const ())).collect();
    table.extend(missing);
    table
}
