//! Kernels through the driver API: results, what was recorded of them, faults, attributes and occupancy.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use halfbyte_cuda_driver::{
    Argument, Context, DeviceBuffer, Driver, Error, Event, Function, FunctionAttribute, LaunchConfig, Module,
    Status, Stream, StreamKind, Timing,
};
use halfbyte_cuda_emulator::{Emulator, EmulatorConfig, FaultKind, Schedule};

const PTX: &str = include_str!("ptx/axpy.ptx");

fn context() -> Context {
    Context::primary(Driver::load().unwrap().device(0).unwrap()).unwrap()
}

/// Queues `y += a * x` in blocks of 128 threads.
fn axpy(function: &Function, stream: &Stream, a: f32, x: &DeviceBuffer<f32>, y: &DeviceBuffer<f32>) {
    let n = u32::try_from(x.len()).unwrap();
    let (x, y) = (x.pointer(), y.pointer());
    let arguments = [Argument::new(&x), Argument::new(&y), Argument::new(&a), Argument::new(&n)];
    // SAFETY: the kernel's arguments; both buffers have `n` elements and live until the stream has been waited for.
    unsafe { function.launch(&LaunchConfig::linear(n.div_ceil(128), 128), stream, &arguments) }.unwrap();
}

#[test]
fn a_kernel_computes_and_is_recorded() {
    let emulator = Emulator::new(EmulatorConfig::default()).unwrap();
    let _here = emulator.enter();
    let context = context();
    let function = Module::from_ptx(&context, PTX).unwrap().function("axpy").unwrap();
    let stream = Stream::new(&context, StreamKind::NonBlocking).unwrap();
    let x: Vec<f32> = (0..300).map(|i| i as f32).collect();
    let x = DeviceBuffer::from_slice(&context, &x).unwrap();
    let y = DeviceBuffer::from_slice(&context, &[1.0f32; 300]).unwrap();
    axpy(&function, &stream, 0.5, &x, &y);
    stream.synchronize().unwrap();
    let expected: Vec<f32> = (0..300).map(|i| 1.0 + 0.5 * i as f32).collect();
    assert_eq!(y.to_vec().unwrap(), expected);

    let records = emulator.take_launches();
    assert_eq!(records.len(), 1);
    let record = &records[0];
    assert_eq!((record.kernel.as_str(), record.grid, record.block), ("axpy", [3, 1, 1], [128, 1, 1]));
    assert_eq!((record.stream, record.dynamic_shared), (1, 0));
    // 300 elements of four bytes: two read, one written. Ten of the twelve warps have any to do.
    assert_eq!((record.stats.global_loaded, record.stats.global_stored), (2400, 1200));
    assert_eq!(record.stats.histogram["fma.rn.f32"], 10);
    assert_eq!(record.stats.histogram["setp.ge.u32"], 12);
    assert!(emulator.take_launches().is_empty());

    drop((x, y, stream, function, context));
    emulator.check_leaks().unwrap();
}

/// `y = 2 * (1 + x)` in two launches on two streams: right under every seed with an event, under some without.
#[test]
fn launches_on_two_streams_need_their_event() {
    let run = |seed: u64, ordered: bool| {
        let emulator = Emulator::new(EmulatorConfig { seed, ..EmulatorConfig::default() }).unwrap();
        let _here = emulator.enter();
        let context = context();
        let function = Module::from_ptx(&context, PTX).unwrap().function("axpy").unwrap();
        let [first, second] = [(); 2].map(|()| Stream::new(&context, StreamKind::NonBlocking).unwrap());
        let x = DeviceBuffer::from_slice(&context, &[3.0f32; 40]).unwrap();
        let y = DeviceBuffer::from_slice(&context, &[1.0f32; 40]).unwrap();
        let z = DeviceBuffer::zeroed(&context, 40).unwrap();
        axpy(&function, &first, 1.0, &x, &y);
        if ordered {
            let event = Event::new(&context, Timing::Off).unwrap();
            event.record(&first).unwrap();
            second.wait_event(&event).unwrap();
        }
        axpy(&function, &second, 2.0, &y, &z);
        context.synchronize().unwrap();
        z.to_vec().unwrap()[39]
    };
    let without: Vec<f32> = (0..20).map(|seed| run(seed, false)).collect();
    assert!(without.contains(&8.0) && without.contains(&2.0), "{without:?}");
    assert!((0..20).all(|seed| run(seed, true) == 8.0));
}

#[test]
fn a_kernels_fault_is_reported_and_stays() {
    let config = EmulatorConfig { schedule: Schedule::SideStreamsLate, ..EmulatorConfig::default() };
    let emulator = Emulator::new(config).unwrap();
    let _here = emulator.enter();
    let context = context();
    let function = Module::from_ptx(&context, PTX).unwrap().function("overrun").unwrap();
    let stream = Stream::legacy_default(&context);
    let buffer = DeviceBuffer::<u32>::zeroed(&context, 31).unwrap();
    let (pointer, value) = (buffer.pointer(), 5u32);
    let arguments = [Argument::new(&pointer), Argument::new(&value)];
    // SAFETY: the kernel's arguments. Its 32nd thread writes past the buffer, which is what the emulator finds.
    unsafe { function.launch(&LaunchConfig::linear(1, 32), &stream, &arguments) }.unwrap();
    let failed = Error::Call { function: "cuStreamSynchronize", status: Status::ILLEGAL_ADDRESS };
    assert_eq!(stream.synchronize().unwrap_err(), failed);
    assert_eq!(stream.synchronize().unwrap_err(), failed, "and again");
    // SAFETY: as above; nothing is queued any more.
    let refused = unsafe { function.launch(&LaunchConfig::linear(1, 32), &stream, &arguments) }.unwrap_err();
    assert!(matches!(refused, Error::Call { status: Status::ILLEGAL_ADDRESS, .. }), "{refused}");

    let faults = emulator.faults();
    assert_eq!(faults.len(), 1);
    let fault = &faults[0];
    assert_eq!((fault.kind, fault.kernel.as_str()), (FaultKind::OutOfBounds, "overrun"));
    assert_eq!((fault.block, fault.thread), ([0, 0, 0], [31, 0, 0]));
    let line = PTX.lines().nth(fault.ptx_line as usize - 1).unwrap();
    assert!(line.contains("st.global.u32"), "line {}: {line}", fault.ptx_line);
    assert!(emulator.launches().is_empty(), "a launch that failed is no launch that ran");
}

#[test]
fn attributes_parameters_and_limits() {
    let mut config = EmulatorConfig::default();
    config.registers.insert("axpy".to_owned(), 16);
    config.registers.insert("overrun".to_owned(), 128);
    let emulator = Emulator::new(config).unwrap();
    let _here = emulator.enter();
    let context = context();
    let module = Module::from_ptx(&context, PTX).unwrap();
    assert!(matches!(module.function("gemm"), Err(Error::Call { status: Status::NOT_FOUND, .. })));
    let function = module.function("axpy").unwrap();
    let sizes: Vec<_> = function.parameters().unwrap().iter().map(|p| (p.offset, p.size)).collect();
    assert_eq!(sizes, [(0, 8), (8, 8), (16, 4), (20, 4)]);
    assert_eq!(function.max_threads_per_block(), 256);
    assert_eq!(function.attribute(FunctionAttribute::PTX_VERSION).unwrap(), 80);
    assert_eq!(function.attribute(FunctionAttribute::BINARY_VERSION).unwrap(), 86);
    assert_eq!(function.attribute(FunctionAttribute::MAX_DYNAMIC_SHARED_BYTES).unwrap(), 48 << 10);
    // 1536 threads of a multiprocessor of sm_86, and none for blocks that `.maxntid` forbids.
    assert_eq!(function.blocks_per_multiprocessor(256, 0).unwrap(), 6);
    assert_eq!(function.blocks_per_multiprocessor(257, 0).unwrap(), 0);
    // 40 KiB and the reserved one: two in 100 KiB.
    assert_eq!(function.blocks_per_multiprocessor(128, 40 << 10).unwrap(), 2);
    let stream = Stream::legacy_default(&context);
    let greedy = LaunchConfig { dynamic_shared: 64 << 10, ..LaunchConfig::linear(1, 32) };
    let (pointer, n) = (0u64, 0u32);
    let arguments =
        [Argument::new(&pointer), Argument::new(&pointer), Argument::new(&1.0f32), Argument::new(&n)];
    // SAFETY: the kernel's arguments; with `n` 0 it touches nothing.
    let launch = |config| unsafe { function.launch(config, &stream, &arguments) };
    assert!(matches!(launch(&greedy), Err(Error::SharedMemory { limit: 49_152, got: 65_536, .. })));
    function.set_max_dynamic_shared(64 << 10).unwrap();
    launch(&greedy).unwrap();
    context.synchronize().unwrap();
    assert!(matches!(
        function.set_max_dynamic_shared(100 << 10),
        Err(Error::SharedMemory { limit: 101_376, .. })
    ));
    // 128 registers a thread: 16 warps.
    let hungry = module.function("overrun").unwrap();
    assert_eq!(hungry.max_threads_per_block(), 512);
    assert_eq!(hungry.blocks_per_multiprocessor(128, 0).unwrap(), 4);
}
