//! `cust` 0.3.2, unmodified, on the emulator: the symbols that it links are `cuda-driver`'s jumps.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use cust::context::{Context as CustContext, CurrentContext};
use cust::function::FunctionAttribute;
use cust::memory::{CopyDestination, DeviceBuffer as CustBuffer, LockedBuffer};
use cust::prelude::{Event, EventFlags, Module, Stream, StreamFlags};
use cust::stream::StreamWaitEventFlags;
use cust::{CudaApiVersion, launch};
use halfbyte_cuda_driver::{
    Argument, BorrowedStream, Context, DeviceSlice, DeviceSliceMut, Driver, LaunchConfig,
};
use halfbyte_cuda_emulator::{Emulator, EmulatorConfig};

const PTX: &str = include_str!("ptx/axpy.ptx");

#[test]
fn cust_runs_a_kernel() {
    let mut config = EmulatorConfig::default();
    config.registers.insert("axpy".to_owned(), 16);
    let emulator = Emulator::new(config).unwrap();
    let _here = emulator.enter();
    {
        let _context: CustContext = cust::quick_init().unwrap();
        assert_eq!(CudaApiVersion::get().unwrap().major(), 13);
        assert_eq!(CurrentContext::get_device().unwrap().name().unwrap(), "halfbyte emulator");
        let module = Module::from_ptx(PTX, &[]).unwrap();
        let function = module.get_function("axpy").unwrap();
        assert_eq!(function.get_attribute(FunctionAttribute::MaxThreadsPerBlock).unwrap(), 256);
        let (grid, block) = function.suggested_launch_configuration(0, 0.into()).unwrap();
        // Six blocks of 256 threads on each of 84 multiprocessors.
        assert_eq!((grid, block), (504, 256));

        let stream = Stream::new(StreamFlags::NON_BLOCKING, None).unwrap();
        let x = CustBuffer::from_slice(&(0..1000).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
        let y = CustBuffer::from_slice(&[2.0f32; 1000]).unwrap();
        let start = Event::new(EventFlags::DEFAULT).unwrap();
        let end = Event::new(EventFlags::DEFAULT).unwrap();
        start.record(&stream).unwrap();
        // SAFETY: the kernel's arguments, on buffers of 1000 elements.
        unsafe {
            launch!(function<<<8, 128, 0, stream>>>(
                x.as_device_ptr(),
                y.as_device_ptr(),
                3.0f32,
                1000u32
            ))
            .unwrap();
        }
        end.record(&stream).unwrap();
        end.synchronize().unwrap();
        assert!(end.elapsed_time_f32(&start).unwrap() > 0.0);
        let mut host = vec![0.0f32; 1000];
        y.copy_to(&mut host).unwrap();
        assert!(host.iter().enumerate().all(|(i, &v)| v == 2.0 + 3.0 * i as f32));

        let other = Stream::new(StreamFlags::DEFAULT, None).unwrap();
        other.wait_event(end, StreamWaitEventFlags::DEFAULT).unwrap();
        other.synchronize().unwrap();
        let mut locked = LockedBuffer::new(&0.0f32, 1000).unwrap();
        y.copy_to(&mut locked).unwrap();
        assert_eq!(locked[999], 2999.0);
    }
    assert_eq!(emulator.launches().len(), 1);
    assert!(emulator.unsupported_calls().is_empty(), "{:?}", emulator.unsupported_calls());
    emulator.check_leaks().unwrap();
}

/// A program of `cust`'s lends its stream and memory to a kernel of this crate's layer.
#[test]
fn streams_and_memory_can_be_lent() {
    let emulator = Emulator::new(EmulatorConfig::default()).unwrap();
    let _here = emulator.enter();
    let _theirs = cust::quick_init().unwrap();
    let context = Context::primary(Driver::load().unwrap().device(0).unwrap()).unwrap();
    let their_stream = Stream::new(StreamFlags::DEFAULT, None).unwrap();
    let x = CustBuffer::from_slice(&[1.0f32, 2.0, 3.0]).unwrap();
    let mut y = CustBuffer::from_slice(&[10.0f32, 20.0, 30.0]).unwrap();
    let stream = BorrowedStream::from_cust(&context, &their_stream).unwrap();
    let function = halfbyte_cuda_driver::Module::from_ptx(&context, PTX).unwrap().function("axpy").unwrap();
    {
        let (x, y) = (DeviceSlice::from_cust(&context, &x), DeviceSliceMut::from_cust(&context, &mut y));
        let (from, to) = (x.pointer(), y.pointer());
        let arguments =
            [Argument::new(&from), Argument::new(&to), Argument::new(&2.0f32), Argument::new(&3u32)];
        // SAFETY: the kernel's arguments; both have three elements and outlive the copy below, which waits.
        unsafe { function.launch(&LaunchConfig::linear(1, 32), &stream, &arguments) }.unwrap();
    }
    let mut host = [0.0f32; 3];
    DeviceSlice::from_cust(&context, &y).copy_to_host(&mut host, &stream).unwrap();
    assert_eq!(host, [12.0, 24.0, 36.0]);
}

/// Its errors print, though it prints them with the driver's function.
#[test]
fn errors_of_cust_have_words() {
    let emulator = Emulator::new(EmulatorConfig::default()).unwrap();
    let _here = emulator.enter();
    let _context = cust::quick_init().unwrap();
    let module = Module::from_ptx(PTX, &[]).unwrap();
    let error = module.get_function("nothing").unwrap_err();
    assert_eq!(error, cust::error::CudaError::NotFound);
    assert!(error.to_string().contains("no symbol of this name"), "{error}");
}
