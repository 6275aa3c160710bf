//! A driver of a few functions, installed into the slots: what the safe layer asks of it, in which order, and what it
//! makes of the answers. "Device" memory is host memory here. Each test has a fake of its own, on its own thread.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use halfbyte_cuda_driver::sys::{self, CUresult};
use halfbyte_cuda_driver::{
    Argument, ComputeCapability, Context, DeviceBuffer, DevicePointer, Driver, DriverVersion, Error, Event,
    Function, LaunchConfig, Module, PinnedBuffer, Status, Stream, StreamKind, Timing, driver_functions,
    install, loaded,
};
use std::alloc::{Layout, alloc, dealloc};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// What the fake answers, and what it was asked.
struct Fake {
    version: c_int,
    init: CUresult,
    devices: c_int,
    memory: HashMap<u64, Layout>,
    calls: Vec<&'static str>,
    next: usize,
    launched: Vec<([u32; 6], u32, Vec<u8>)>,
}

thread_local! {
    static FAKE: RefCell<Fake> = RefCell::new(Fake {
        version: 12_040,
        init: 0,
        devices: 2,
        memory: HashMap::new(),
        calls: Vec::new(),
        next: 1,
        launched: Vec::new(),
    });
}

fn fake<R>(f: impl FnOnce(&mut Fake) -> R) -> R {
    FAKE.with_borrow_mut(f)
}

/// Notes a call.
fn call(name: &'static str) -> CUresult {
    fake(|f| f.calls.push(name));
    0
}

/// A new handle: a small number.
fn handle<T>(name: &'static str, out: *mut *mut T) -> CUresult {
    call(name);
    let number = fake(|f| {
        f.next += 1;
        f.next
    });
    // SAFETY: the crate passes writable pointers.
    unsafe { out.write(std::ptr::without_provenance_mut(number)) };
    0
}

fn put<T>(out: *mut T, value: T) -> CUresult {
    // SAFETY: the crate passes writable pointers.
    unsafe { out.write(value) };
    0
}

unsafe extern "system" fn init(_: c_uint) -> CUresult {
    fake(|f| f.init)
}
unsafe extern "system" fn version(out: *mut c_int) -> CUresult {
    put(out, fake(|f| f.version))
}
unsafe extern "system" fn device_count(out: *mut c_int) -> CUresult {
    put(out, fake(|f| f.devices))
}
unsafe extern "system" fn device_get(out: *mut c_int, ordinal: c_int) -> CUresult {
    put(out, ordinal)
}
unsafe extern "system" fn device_name(out: *mut c_char, len: c_int, _: c_int) -> CUresult {
    let name = c"Fake GPU".to_bytes_with_nul();
    assert!(len as usize >= name.len());
    // SAFETY: `len` bytes are writable.
    unsafe { out.cast::<u8>().copy_from_nonoverlapping(name.as_ptr(), name.len()) };
    0
}
unsafe extern "system" fn device_attribute(out: *mut c_int, attribute: c_int, _: c_int) -> CUresult {
    match attribute {
        75 => put(out, 8),
        76 => put(out, 6),
        97 => put(out, 101_376),
        _ => Status::INVALID_VALUE.0,
    }
}
unsafe extern "system" fn total_memory(out: *mut usize, _: c_int) -> CUresult {
    put(out, 24 << 30)
}
unsafe extern "system" fn retain(out: *mut sys::CUcontext, device: c_int) -> CUresult {
    call("retain");
    put(out, std::ptr::without_provenance_mut(1000 + device as usize))
}
unsafe extern "system" fn release(_: c_int) -> CUresult {
    call("release")
}
unsafe extern "system" fn set_current(_: sys::CUcontext) -> CUresult {
    0
}
unsafe extern "system" fn mem_alloc(out: *mut u64, bytes: usize) -> CUresult {
    call("alloc");
    if bytes > 1 << 20 {
        return Status::OUT_OF_MEMORY.0;
    }
    let layout = Layout::from_size_align(bytes, 256).unwrap();
    // SAFETY: the crate asks for no empty allocation.
    let address = unsafe { alloc(layout) } as u64;
    fake(|f| f.memory.insert(address, layout));
    put(out, address)
}
unsafe extern "system" fn mem_free(address: u64) -> CUresult {
    call("free");
    let layout = fake(|f| f.memory.remove(&address)).expect("freed once");
    // SAFETY: from `mem_alloc`, with its layout.
    unsafe { dealloc(address as *mut u8, layout) };
    0
}
unsafe extern "system" fn host_alloc(out: *mut *mut c_void, bytes: usize) -> CUresult {
    let mut address = 0;
    // SAFETY: `address` is writable.
    let status = unsafe { mem_alloc(&raw mut address, bytes) };
    put(out, address as *mut c_void);
    status
}
unsafe extern "system" fn host_free(address: *mut c_void) -> CUresult {
    // SAFETY: from `host_alloc`.
    unsafe { mem_free(address as u64) }
}
unsafe extern "system" fn to_device(
    dst: u64,
    src: *const c_void,
    bytes: usize,
    _: sys::CUstream,
) -> CUresult {
    call("to_device");
    // SAFETY: "device" memory is host memory; the crate checked the lengths.
    unsafe { std::ptr::copy_nonoverlapping(src.cast::<u8>(), dst as *mut u8, bytes) };
    0
}
unsafe extern "system" fn to_host(dst: *mut c_void, src: u64, bytes: usize, _: sys::CUstream) -> CUresult {
    call("to_host");
    // SAFETY: as in `to_device`.
    unsafe { std::ptr::copy_nonoverlapping(src as *const u8, dst.cast::<u8>(), bytes) };
    0
}
unsafe extern "system" fn within(dst: u64, src: u64, bytes: usize, _: sys::CUstream) -> CUresult {
    call("within");
    // SAFETY: as in `to_device`.
    unsafe { std::ptr::copy(src as *const u8, dst as *mut u8, bytes) };
    0
}
unsafe extern "system" fn fill(dst: u64, value: u8, bytes: usize, _: sys::CUstream) -> CUresult {
    call("fill");
    // SAFETY: as in `to_device`.
    unsafe { std::ptr::write_bytes(dst as *mut u8, value, bytes) };
    0
}
unsafe extern "system" fn stream_create(out: *mut sys::CUstream, flags: c_uint) -> CUresult {
    handle(if flags == 1 { "stream non-blocking" } else { "stream blocking" }, out)
}
unsafe extern "system" fn stream_destroy(_: sys::CUstream) -> CUresult {
    call("stream destroy")
}
unsafe extern "system" fn stream_synchronize(_: sys::CUstream) -> CUresult {
    call("stream synchronize")
}
unsafe extern "system" fn stream_wait(_: sys::CUstream, _: sys::CUevent, _: c_uint) -> CUresult {
    call("stream wait")
}
unsafe extern "system" fn event_create(out: *mut sys::CUevent, _: c_uint) -> CUresult {
    handle("event create", out)
}
unsafe extern "system" fn event_record(_: sys::CUevent, _: sys::CUstream) -> CUresult {
    call("event record")
}
unsafe extern "system" fn event_query(_: sys::CUevent) -> CUresult {
    Status::NOT_READY.0
}
unsafe extern "system" fn event_synchronize(_: sys::CUevent) -> CUresult {
    call("event synchronize")
}
unsafe extern "system" fn event_destroy(_: sys::CUevent) -> CUresult {
    call("event destroy")
}
unsafe extern "system" fn module_load(
    out: *mut sys::CUmodule,
    image: *const c_void,
    count: c_uint,
    options: *mut c_int,
    values: *mut *mut c_void,
) -> CUresult {
    // SAFETY: PTX ends in a zero.
    let text = unsafe { CStr::from_ptr(image.cast()) }.to_str().unwrap();
    // SAFETY: `count` options.
    let options = unsafe { std::slice::from_raw_parts(options, count as usize) };
    assert_eq!(options, [5, 6], "error log and its size");
    if text.starts_with(".version") {
        return handle("module load", out);
    }
    let log = c"line 1: expected .version".to_bytes_with_nul();
    // SAFETY: `count` values: the log's address and its size.
    let values = unsafe { std::slice::from_raw_parts(values, count as usize) };
    let (buffer, size) = (values[0], values[1].addr());
    assert!(size > log.len());
    // SAFETY: the log has `size` bytes.
    unsafe { buffer.cast::<u8>().copy_from_nonoverlapping(log.as_ptr(), log.len()) };
    Status::INVALID_PTX.0
}
unsafe extern "system" fn module_unload(_: sys::CUmodule) -> CUresult {
    call("module unload")
}
unsafe extern "system" fn get_function(
    out: *mut sys::CUfunction,
    _: sys::CUmodule,
    name: *const c_char,
) -> CUresult {
    // SAFETY: names end in a zero.
    match unsafe { CStr::from_ptr(name) }.to_bytes() {
        b"axpy" => handle("get function", out),
        _ => Status::NOT_FOUND.0,
    }
}
unsafe extern "system" fn function_attribute(
    out: *mut c_int,
    attribute: c_int,
    _: sys::CUfunction,
) -> CUresult {
    put(out, [256, 1024, 0, 0, 32, 80, 86, 0, 48_128][attribute as usize])
}
unsafe extern "system" fn function_set(_: sys::CUfunction, attribute: c_int, value: c_int) -> CUresult {
    assert_eq!((attribute, value), (8, 100_352));
    call("set max dynamic shared")
}
/// `axpy(u64, f32, u32)`.
unsafe extern "system" fn parameter(
    _: sys::CUfunction,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> CUresult {
    match [(0, 8), (8, 4), (12, 4)].get(index) {
        Some(&(o, s)) => put(offset, o) + put(size, s),
        None => Status::INVALID_VALUE.0,
    }
}
#[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
unsafe extern "system" fn launch(
    _: sys::CUfunction,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: c_uint,
    _: sys::CUstream,
    parameters: *mut *mut c_void,
    _: *mut *mut c_void,
) -> CUresult {
    let mut bytes = Vec::new();
    // SAFETY: three parameters.
    let parameters = unsafe { std::slice::from_raw_parts(parameters, 3) };
    for (address, size) in parameters.iter().zip([8, 4, 4]) {
        // SAFETY: each of its size.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(address.cast::<u8>(), size) });
    }
    fake(|f| f.launched.push(([gx, gy, gz, bx, by, bz], shared, bytes)));
    0
}

/// Installs the fake, which all tests of the process share, and takes this thread's device 0.
fn context() -> Context {
    install_fake().unwrap();
    Context::primary(Driver::load().unwrap().device(0).unwrap()).unwrap()
}

fn install_fake() -> Result<(), Error> {
    let functions = driver_functions! {
        cuInit = init, cuDriverGetVersion = version, cuDeviceGetCount = device_count, cuDeviceGet = device_get,
        cuDeviceGetName = device_name, cuDeviceGetAttribute = device_attribute,
        cuDeviceTotalMem_v2 = total_memory, cuDevicePrimaryCtxRetain = retain,
        cuDevicePrimaryCtxRelease_v2 = release, cuCtxSetCurrent = set_current, cuMemAlloc_v2 = mem_alloc,
        cuMemFree_v2 = mem_free, cuMemAllocHost_v2 = host_alloc, cuMemFreeHost = host_free,
        cuMemcpyHtoDAsync_v2 = to_device, cuMemcpyDtoHAsync_v2 = to_host, cuMemcpyDtoDAsync_v2 = within,
        cuMemsetD8Async = fill, cuStreamCreate = stream_create, cuStreamDestroy_v2 = stream_destroy,
        cuStreamSynchronize = stream_synchronize, cuStreamWaitEvent = stream_wait,
        cuEventCreate = event_create, cuEventRecord = event_record, cuEventQuery = event_query,
        cuEventSynchronize = event_synchronize, cuEventDestroy_v2 = event_destroy,
        cuModuleLoadDataEx = module_load, cuModuleUnload = module_unload, cuModuleGetFunction = get_function,
        cuFuncGetAttribute = function_attribute, cuFuncSetAttribute = function_set,
        cuFuncGetParamInfo = parameter, cuLaunchKernel = launch,
    };
    // SAFETY: the signatures are checked by the macro, and each function does what its name says with valid pointers.
    unsafe { install("a fake", &functions) }
}

fn calls() -> Vec<&'static str> {
    fake(|f| std::mem::take(&mut f.calls))
}

#[test]
fn who_is_first_stays_installed() {
    install_fake().unwrap();
    install_fake().expect("the same functions again are no second driver");
    assert_eq!(loaded(), Some("a fake"));
    let other = driver_functions! { cuInit = init };
    // SAFETY: the signature is checked by the macro.
    let refused = unsafe { install("another", &other) }.unwrap_err();
    assert_eq!(refused, Error::AlreadyLoaded { loaded: "a fake", refused: "another" });
}

#[test]
fn versions_devices_and_their_absence() {
    install_fake().unwrap();
    let driver = Driver::load().unwrap();
    assert_eq!(driver.version(), DriverVersion::new(12, 4));
    assert_eq!(driver.device_count().unwrap(), 2);
    let device = driver.device(1).unwrap();
    assert_eq!(device.name().unwrap(), "Fake GPU");
    assert_eq!(device.total_memory().unwrap(), 24 << 30);
    assert_eq!(device.compute_capability().unwrap(), ComputeCapability { major: 8, minor: 6 });
    assert_eq!(device.compute_capability().unwrap().to_string(), "sm_86");
    assert_eq!(driver.device(2).unwrap_err(), Error::NoSuchDevice { ordinal: 2, count: 2 });

    let needed = DriverVersion::new(13, 0);
    let too_old = Driver::at_least(needed).unwrap_err();
    assert_eq!(too_old, Error::DriverTooOld { found: DriverVersion::new(12, 4), needed });
    fake(|f| f.version = 11_040);
    let text = Driver::load().unwrap_err().to_string();
    assert!(text.contains("11.4") && text.contains("12.0"), "{text}");
    fake(|f| f.version = 12_040);

    fake(|f| f.devices = 0);
    assert_eq!(driver.device(0).unwrap_err(), Error::NoDevice);
    fake(|f| f.init = Status::NO_DEVICE.0);
    assert_eq!(Driver::load().unwrap_err(), Error::NoDevice);
    fake(|f| f.init = 803);
    assert_eq!(Driver::load().unwrap_err(), Error::Init { status: Status(803) });
}

#[test]
fn a_function_that_the_driver_lacks_is_named_with_its_version() {
    let context = context();
    let expected =
        Error::MissingFunction { function: "cuMemGetInfo_v2", found: Some(DriverVersion::new(12, 4)) };
    assert_eq!(context.memory().unwrap_err(), expected);
    assert!(expected.to_string().contains("CUDA 12.4"));
}

#[test]
fn copies_arrive_and_wrong_lengths_do_not_start() {
    let context = context();
    let mut buffer = DeviceBuffer::from_slice(&context, &[1u32, 2, 3, 4, 5]).unwrap();
    assert_eq!((buffer.len(), buffer.bytes()), (5, 20));
    assert_eq!(buffer.to_vec().unwrap(), [1, 2, 3, 4, 5]);
    let stream = Stream::new(&context, StreamKind::NonBlocking).unwrap();
    buffer.slice_mut(1..3).unwrap().copy_from_host(&[20, 30], &stream).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [1, 20, 30, 4, 5]);
    let source = DeviceBuffer::from_slice(&context, &[7u32, 8]).unwrap();
    buffer.slice_mut(3..5).unwrap().copy_from_device_async(&source.as_slice(), &stream).unwrap();
    buffer.slice_mut(0..1).unwrap().fill_bytes_async(0xff, &stream).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [u32::MAX, 20, 30, 7, 8]);

    calls();
    let what = "copy from the host";
    assert_eq!(buffer.copy_from_host(&[1]).unwrap_err(), Error::Length { what, expected: 5, got: 1 });
    let what = "copy to the host";
    assert_eq!(buffer.copy_to_host(&mut [0; 6]).unwrap_err(), Error::Length { what, expected: 5, got: 6 });
    assert_eq!(buffer.slice(2..6).unwrap_err(), Error::Range { start: 2, end: 6, len: 5 });
    #[allow(clippy::reversed_empty_ranges, reason = "the case under test")]
    let reversed = buffer.slice(3..2).unwrap_err();
    assert_eq!(reversed, Error::Range { start: 3, end: 2, len: 5 });
    assert_eq!(calls(), [""; 0], "nothing was started");

    let len = usize::MAX / 2;
    let too_large = DeviceBuffer::<u32>::uninit(&context, len).unwrap_err();
    assert_eq!(too_large, Error::TooLarge { len, size: 4 });
    let full = DeviceBuffer::<u32>::uninit(&context, 1 << 20).unwrap_err();
    assert_eq!(full, Error::Call { function: "cuMemAlloc_v2", status: Status::OUT_OF_MEMORY });
    assert_eq!(calls(), ["alloc"]);
    let empty = DeviceBuffer::<u32>::zeroed(&context, 0).unwrap();
    assert_eq!((empty.pointer(), empty.to_vec().unwrap()), (DevicePointer::NULL, vec![]));
    drop(empty);
    assert_eq!(calls(), ["stream synchronize"], "an empty buffer allocates, copies and frees nothing");
    let zeros = DeviceBuffer::<u16>::zeroed(&context, 3).unwrap();
    assert_eq!(zeros.to_vec().unwrap(), [0, 0, 0]);
}

#[test]
fn things_of_another_device_are_refused() {
    let context = context();
    let other = Context::primary(Driver::load().unwrap().device(1).unwrap()).unwrap();
    let stream = Stream::new(&other, StreamKind::Blocking).unwrap();
    let mut buffer = DeviceBuffer::<u8>::uninit(&context, 4).unwrap();
    let refused = buffer.as_mut_slice().copy_from_host(&[0; 4], &stream).unwrap_err();
    assert_eq!(refused, Error::OtherContext { what: "the stream of a copy" });
    let event = Event::new(&context, Timing::Off).unwrap();
    assert!(matches!(event.record(&stream), Err(Error::OtherContext { .. })));
    assert!(matches!(stream.wait_event(&event), Err(Error::OtherContext { .. })));
}

#[test]
fn pinned_memory_waits_before_it_is_seen() {
    let context = context();
    let stream = Stream::new(&context, StreamKind::NonBlocking).unwrap();
    let mut device = DeviceBuffer::<u32>::zeroed(&context, 2).unwrap();
    let mut pinned = PinnedBuffer::zeroed(&context, 2).unwrap();
    pinned.as_mut_slice().unwrap().copy_from_slice(&[5, 6]);
    calls();
    device.as_mut_slice().copy_from_pinned_async(&pinned, &stream).unwrap();
    assert_eq!(calls(), ["to_device", "event create", "event record"]);
    assert_eq!(pinned.as_slice().unwrap(), [5, 6]);
    assert_eq!(calls(), [""; 0], "the host may read what the device reads");
    pinned.as_mut_slice().unwrap()[0] = 7;
    assert_eq!(calls(), ["event synchronize", "event destroy"], "but not change it");
    device.as_slice().copy_to_pinned_async(&mut pinned, &stream).unwrap();
    calls();
    assert_eq!(pinned.as_slice().unwrap(), [5, 6]);
    assert_eq!(calls(), ["event synchronize", "event destroy"], "nor read what the device writes");
    device.as_slice().copy_to_pinned_async(&mut pinned, &stream).unwrap();
    calls();
    drop(pinned);
    assert_eq!(calls(), ["event synchronize", "event destroy", "free"], "nor free it");
}

#[test]
fn a_context_goes_last_whatever_is_dropped_first() {
    let context = context();
    let stream = Stream::new(&context, StreamKind::Blocking).unwrap();
    let event = Event::new(&context, Timing::On).unwrap();
    let buffer = DeviceBuffer::<u8>::uninit(&context, 4).unwrap();
    let module = Module::from_ptx(&context, ".version 8.0").unwrap();
    let function = module.function("axpy").unwrap();
    calls();
    drop(context);
    drop(module);
    drop(event);
    drop(stream);
    drop(buffer);
    assert_eq!(calls(), ["event destroy", "stream destroy", "free"]);
    drop(function);
    assert_eq!(calls(), ["module unload", "release"]);
}

#[test]
fn a_module_that_does_not_compile_says_why() {
    let context = context();
    let error = Module::from_ptx(&context, "garbage").unwrap_err();
    let log = "line 1: expected .version".to_owned();
    assert_eq!(error, Error::Module { status: Status::INVALID_PTX, log });
    assert!(error.to_string().contains("line 1"));
    let zero = Module::from_ptx(&context, ".version\0").unwrap_err();
    assert_eq!(zero, Error::ZeroByte { what: "PTX", at: 8 });
    let module = Module::from_ptx(&context, ".version 8.0").unwrap();
    let missing = module.function("gemm").unwrap_err();
    assert_eq!(missing, Error::Call { function: "cuModuleGetFunction", status: Status::NOT_FOUND });
}

#[test]
fn launches_pass_their_arguments_and_refuse_wrong_ones() {
    let context = context();
    let function: Function = Module::from_ptx(&context, ".version 8.0").unwrap().function("axpy").unwrap();
    let stream = Stream::legacy_default(&context);
    let (pointer, scale, count) = (DevicePointer(0x1122_3344_5566_7788), 1.5f32, 7u32);
    let config = LaunchConfig { grid: [3, 2, 1], block: [64, 2, 1], dynamic_shared: 512 };
    let arguments = [Argument::new(&pointer), Argument::new(&scale), Argument::new(&count)];
    let launch = |config: &LaunchConfig, arguments: &[Argument<'_>]| {
        // SAFETY: the fake kernel takes these arguments, and does nothing with what they point to.
        unsafe { function.launch(config, &stream, arguments) }
    };
    launch(&config, &arguments).unwrap();
    let mut bytes = 0x1122_3344_5566_7788u64.to_ne_bytes().to_vec();
    bytes.extend(1.5f32.to_ne_bytes());
    bytes.extend(7u32.to_ne_bytes());
    assert_eq!(fake(|f| std::mem::take(&mut f.launched)), [([3, 2, 1, 64, 2, 1], 512, bytes)]);

    let kernel = "axpy".to_owned();
    for (grid, block, what, limit, got) in [
        ([0, 1, 1], [1, 1, 1], "the grid's x", i32::MAX as u64, 0),
        ([1, 65_536, 1], [1, 1, 1], "the grid's y", 65_535, 65_536),
        ([1, 1, 1], [1, 1, 65], "the block's z", 64, 65),
        // The fake kernel's own limit is 256.
        ([1, 1, 1], [257, 1, 1], "the number of a block's threads", 256, 257),
    ] {
        let error = launch(&LaunchConfig { grid, block, dynamic_shared: 0 }, &arguments).unwrap_err();
        assert_eq!(error, Error::LaunchShape { kernel: kernel.clone(), what, limit, got });
    }
    let greedy = LaunchConfig { dynamic_shared: 48_129, ..config };
    let error = launch(&greedy, &arguments).unwrap_err();
    assert_eq!(error, Error::SharedMemory { kernel: kernel.clone(), limit: 48_128, got: 48_129 });
    let error = launch(&config, &arguments[..2]).unwrap_err();
    assert_eq!(error, Error::ArgumentCount { kernel: kernel.clone(), expected: 3, got: 2 });
    let error = launch(&config, &[arguments[0], arguments[0], arguments[2]]).unwrap_err();
    assert_eq!(error, Error::ArgumentSize { kernel: kernel.clone(), index: 1, expected: 4, got: 8 });
    assert_eq!(fake(|f| f.launched.len()), 0, "none of these was started");

    // The device's 101,376 bytes less the kernel's own 1,024.
    let error = function.set_max_dynamic_shared(100_353).unwrap_err();
    assert_eq!(error, Error::SharedMemory { kernel, limit: 100_352, got: 100_353 });
    calls();
    function.set_max_dynamic_shared(100_352).unwrap();
    assert_eq!(calls(), ["set max dynamic shared"]);
}

/// The exports reach the same functions: `cust` on the fake.
#[cfg(feature = "cust")]
#[test]
fn cust_calls_what_is_installed() {
    install_fake().unwrap();
    cust::init(cust::CudaFlags::empty()).unwrap();
    assert_eq!(cust::device::Device::num_devices().unwrap(), 2);
    assert_eq!(cust::device::Device::get_device(0).unwrap().name().unwrap(), "Fake GPU");
    assert_eq!(cust::CudaApiVersion::get().unwrap().major(), 12);
}
