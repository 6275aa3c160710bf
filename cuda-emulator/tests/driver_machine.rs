//! Devices, contexts, memory and modules as the driver presents them, and what is left at the end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use halfbyte_cuda_driver::{
    Attribute, ComputeCapability, Context, DeviceBuffer, Driver, DriverVersion, Error, Event, Module, Status,
    Stream, StreamKind, Timing, sys,
};
use halfbyte_cuda_emulator::{Emulator, EmulatorConfig};
use std::ptr::null_mut;

fn capability(major: u32, minor: u32) -> ComputeCapability {
    ComputeCapability { major, minor }
}

fn context() -> Context {
    Context::primary(Driver::load().unwrap().device(0).unwrap()).unwrap()
}

#[test]
fn a_device_is_what_the_configuration_says() {
    let config = EmulatorConfig {
        devices: 2,
        name: "Test GPU".to_owned(),
        compute_capability: capability(9, 0),
        multiprocessors: 132,
        memory: 80 << 30,
        driver_version: DriverVersion::new(12, 4),
        ..EmulatorConfig::default()
    };
    let emulator = Emulator::new(config).unwrap();
    let _here = emulator.enter();
    let driver = Driver::load().unwrap();
    assert_eq!((driver.version(), driver.device_count().unwrap()), (DriverVersion::new(12, 4), 2));
    assert!(matches!(Driver::at_least(DriverVersion::new(13, 0)), Err(Error::DriverTooOld { .. })));
    assert!(matches!(driver.device(2), Err(Error::NoSuchDevice { ordinal: 2, count: 2 })));
    let device = driver.device(1).unwrap();
    assert_eq!(device.name().unwrap(), "Test GPU");
    assert_eq!(device.total_memory().unwrap(), 80 << 30);
    assert_eq!(device.compute_capability().unwrap(), capability(9, 0));
    // Of an H100, from the programming guide's table.
    for (attribute, value) in [
        (Attribute::MULTIPROCESSOR_COUNT, 132),
        (Attribute::MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10),
        (Attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 << 10),
        (Attribute::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 << 10),
        (Attribute::MAX_THREADS_PER_MULTIPROCESSOR, 2048),
        (Attribute::WARP_SIZE, 32),
    ] {
        assert_eq!(device.attribute(attribute).unwrap(), value, "{attribute:?}");
    }
    assert!(device.attribute(Attribute(10_000)).is_err());
}

#[test]
fn no_devices_and_no_machine() {
    let empty = Emulator::new(EmulatorConfig { devices: 0, ..EmulatorConfig::default() }).unwrap();
    {
        let _here = empty.enter();
        assert_eq!(Driver::load().unwrap_err(), Error::NoDevice);
    }
    // No machine is installed for the whole process here, and this thread is on none.
    assert!(Driver::load().is_err());
}

#[test]
fn machines_do_not_see_each_other() {
    let machines = [1u8, 2].map(|_| Emulator::new(EmulatorConfig::default()).unwrap());
    let stays: Vec<_> = machines
        .iter()
        .map(|machine| {
            let here = machine.enter();
            let buffer = DeviceBuffer::from_slice(&context(), &[1u8; 10]).unwrap();
            drop(here);
            buffer
        })
        .collect();
    // Whatever is current, a buffer's context is on its own machine.
    for (buffer, machine) in stays.iter().zip(&machines) {
        assert_eq!(buffer.to_vec().unwrap(), [1; 10]);
        assert_eq!(machine.leaks().device, [(buffer.pointer().0, 10)]);
    }
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(stays[1].to_vec().unwrap(), [1; 10]));
    });
}

#[test]
fn memory_is_counted_and_bounded() {
    let emulator = Emulator::new(EmulatorConfig { memory: 1000, ..EmulatorConfig::default() }).unwrap();
    let _here = emulator.enter();
    let context = context();
    assert_eq!((context.memory().unwrap().free, context.memory().unwrap().total), (1000, 1000));
    let buffer = DeviceBuffer::<u16>::uninit(&context, 300).unwrap();
    assert_eq!(context.memory().unwrap().free, 400);
    let full = DeviceBuffer::<u8>::uninit(&context, 401).unwrap_err();
    assert_eq!(full, Error::Call { function: "cuMemAlloc_v2", status: Status::OUT_OF_MEMORY });
    let mut base = 0;
    let mut size = 0;
    // SAFETY: both are writable.
    let status =
        unsafe { sys::cuMemGetAddressRange_v2(&raw mut base, &raw mut size, buffer.pointer().0 + 599) };
    assert_eq!((status, base, size), (0, buffer.pointer().0, 600));
    // A copy that leaves its allocation is refused at once.
    let mut bytes = [0u8; 8];
    // SAFETY: eight writable bytes; the device's side is checked by the emulator.
    let status = unsafe { sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), buffer.pointer().0 + 596, 8) };
    assert_eq!(Status(status), Status::INVALID_VALUE);
    // SAFETY: the driver checks the address.
    assert_eq!(Status(unsafe { sys::cuMemFree_v2(buffer.pointer().0 + 2) }), Status::INVALID_VALUE);
    drop(buffer);
    assert_eq!(context.memory().unwrap().free, 1000);
}

#[test]
fn patterns_of_every_width_fill() {
    let emulator = Emulator::new(EmulatorConfig::default()).unwrap();
    let _here = emulator.enter();
    let context = context();
    let buffer = DeviceBuffer::<u32>::zeroed(&context, 3).unwrap();
    let at = buffer.pointer().0;
    // SAFETY: a word of the buffer.
    assert_eq!(unsafe { sys::cuMemsetD32_v2(at, 0x0102_0304, 1) }, 0);
    // SAFETY: two half words of the buffer.
    assert_eq!(unsafe { sys::cuMemsetD16_v2(at + 4, 0xabcd, 2) }, 0);
    // SAFETY: three bytes of the buffer.
    assert_eq!(unsafe { sys::cuMemsetD8_v2(at + 8, 0x11, 3) }, 0);
    assert_eq!(buffer.to_vec().unwrap(), [0x0102_0304, 0xabcd_abcd, 0x0011_1111]);
    // SAFETY: the driver refuses an address that is not a multiple of the pattern.
    assert_eq!(Status(unsafe { sys::cuMemsetD32_v2(at + 2, 0, 1) }), Status::INVALID_VALUE);
}

#[test]
fn everything_alive_is_a_leak() {
    let emulator = Emulator::new(EmulatorConfig::default()).unwrap();
    let _here = emulator.enter();
    emulator.check_leaks().unwrap();
    let context = context();
    let stream = Stream::new(&context, StreamKind::Blocking).unwrap();
    let events = [Timing::On, Timing::Off].map(|t| Event::new(&context, t).unwrap());
    let buffer = DeviceBuffer::<u8>::uninit(&context, 77).unwrap();
    let leaks = emulator.check_leaks().unwrap_err();
    assert_eq!((leaks.streams, leaks.events, leaks.modules, leaks.contexts), (1, 2, 0, 1));
    assert_eq!(leaks.device, [(buffer.pointer().0, 77)]);
    let text = leaks.to_string();
    assert!(text.contains("1 device allocations (77 bytes)") && text.contains("2 events"), "{text}");
    std::mem::forget(buffer);
    drop((stream, events));
    assert_eq!(emulator.leaks().device.len(), 1);
    // The buffer was forgotten with the context that it keeps alive. Resetting takes both.
    drop(context);
    assert_eq!((emulator.leaks().device.len(), emulator.leaks().contexts), (1, 1));
    // SAFETY: takes a device's number.
    assert_eq!(unsafe { sys::cuDevicePrimaryCtxReset_v2(0) }, 0);
    emulator.check_leaks().unwrap();
}

#[test]
#[allow(clippy::multiple_unsafe_ops_per_block, reason = "a list of calls with one reason")]
fn contexts_are_a_stack_on_each_thread() {
    let emulator = Emulator::new(EmulatorConfig::default()).unwrap();
    let _here = emulator.enter();
    let device = Driver::load().unwrap().device(0).unwrap();
    let (mut first, mut second, mut top) = (null_mut(), null_mut(), null_mut());
    // SAFETY: writable handles, here and below.
    unsafe {
        assert_eq!(sys::cuCtxCreate_v2(&raw mut first, 0, device.raw()), 0);
        assert_eq!(sys::cuCtxCreate_v2(&raw mut second, 4, device.raw()), 0);
        assert_eq!(sys::cuCtxGetCurrent(&raw mut top), 0);
        assert_eq!(top, second);
        let mut flags = 0;
        assert_eq!(sys::cuCtxGetFlags(&raw mut flags), 0);
        assert_eq!(flags, 4);
        assert_eq!(sys::cuCtxPopCurrent_v2(&raw mut top), 0);
        assert_eq!(top, second);
        assert_eq!(sys::cuCtxGetCurrent(&raw mut top), 0);
        assert_eq!(top, first);
        assert_eq!(sys::cuCtxDestroy_v2(second), 0);
        assert_eq!(Status(sys::cuCtxPushCurrent_v2(null_mut())), Status::INVALID_CONTEXT);
        assert_eq!(Status(sys::cuCtxSetCurrent(second)), Status::CONTEXT_IS_DESTROYED);
        assert_eq!(sys::cuCtxDestroy_v2(first), 0);
        assert_eq!(sys::cuCtxGetCurrent(&raw mut top), 0);
        assert!(top.is_null());
        assert_eq!(Status(sys::cuCtxSynchronize()), Status::INVALID_CONTEXT);
    }
    emulator.check_leaks().unwrap();
}

#[test]
#[allow(clippy::multiple_unsafe_ops_per_block, reason = "a list of calls with one reason")]
fn handles_of_the_wrong_kind_and_of_the_dead_are_refused() {
    let emulator = Emulator::new(EmulatorConfig::default()).unwrap();
    let _here = emulator.enter();
    let context = context();
    let stream = Stream::new(&context, StreamKind::Blocking).unwrap();
    let event = Event::new(&context, Timing::Off).unwrap();
    let raw = stream.raw();
    // SAFETY: the emulator checks every handle, which is what is tested.
    unsafe {
        assert_eq!(Status(sys::cuEventQuery(raw.cast())), Status::INVALID_HANDLE);
        assert_eq!(Status(sys::cuStreamQuery(event.raw().cast())), Status::INVALID_HANDLE);
        drop(stream);
        assert_eq!(Status(sys::cuStreamQuery(raw)), Status::INVALID_HANDLE);
        assert_eq!(Status(sys::cuStreamDestroy_v2(raw)), Status::INVALID_HANDLE);
    }
}

/// PTX is refused as a driver does: by its version, by its target, and with the compiler's words.
#[test]
fn modules_that_the_driver_would_refuse() {
    let config = EmulatorConfig { driver_version: DriverVersion::new(12, 4), ..EmulatorConfig::default() };
    let emulator = Emulator::new(config).unwrap();
    let _here = emulator.enter();
    let context = context();
    let refused = |ptx: &str| match Module::from_ptx(&context, ptx) {
        Err(Error::Module { status, log }) => (status, log),
        other => panic!("{other:?}"),
    };
    let header = |version, target| {
        format!(
            "//\n.version {version}\n.target {target}\n.address_size 64\n.visible .entry k() {{ ret; }}\n"
        )
    };
    let (status, log) = refused(&header("9.0", "sm_80"));
    assert_eq!(
        (status, log.as_str()),
        (Status::UNSUPPORTED_PTX_VERSION, "PTX .version 9.0 is newer than 8.4")
    );
    let (status, log) = refused(&header("8.4", "sm_89"));
    assert_eq!(
        (status, log.as_str()),
        (Status::NO_BINARY_FOR_GPU, "PTX .target sm_89 does not run on sm_86")
    );
    assert_eq!(refused(&header("8.4", "sm_80a")).0, Status::NO_BINARY_FOR_GPU);
    assert_eq!(refused("no PTX").0, Status::INVALID_PTX);
    assert_eq!(refused("\x7fELF and so on").0, Status::INVALID_IMAGE);
    let (status, log) = refused(&header("8.4", "sm_80").replace("ret", "frobnicate.u32 %r1"));
    assert_eq!(status, Status::INVALID_PTX);
    assert!(!log.is_empty());
    assert_eq!(emulator.leaks().modules, 0);
}

#[test]
fn what_is_missing_is_counted() {
    let emulator = Emulator::new(EmulatorConfig::default()).unwrap();
    let _here = emulator.enter();
    Driver::load().unwrap();
    let mut graph = null_mut();
    for _ in 0..2 {
        // SAFETY: `graph` is writable.
        let status = unsafe { cust::sys::cuGraphCreate(&raw mut graph, 0) };
        assert_eq!(status, cust::sys::cudaError_enum::CUDA_ERROR_NOT_SUPPORTED);
    }
    assert_eq!(emulator.unsupported_calls().into_iter().collect::<Vec<_>>(), [("cuGraphCreate", 2)]);
}
