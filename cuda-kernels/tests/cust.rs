//! A program on `cust` lends its stream and its memory to a launcher of this crate.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use cust::memory::{CopyDestination, DeviceBuffer as CustBuffer};
use cust::prelude::{Stream, StreamFlags};
use halfbyte_cuda_driver::{BorrowedStream, Context, DeviceSlice, DeviceSliceMut, Driver};
use halfbyte_cuda_emulator::{Emulator, EmulatorConfig};
use halfbyte_cuda_kernels::{DeviceSampler, Draw, Kernels};

#[test]
fn a_sampler_reads_logits_and_writes_tokens_of_cust() {
    let emulator = Emulator::new(EmulatorConfig::default()).unwrap();
    let _here = emulator.enter();
    let _theirs = cust::quick_init().unwrap();
    let context = Context::primary(Driver::load().unwrap().device(0).unwrap()).unwrap();
    let kernels = Kernels::new(&context).unwrap();

    let their_stream = Stream::new(StreamFlags::DEFAULT, None).unwrap();
    let logits = CustBuffer::from_slice(&[0.5f32, -1.0, 2.0, 1.5, 7.0, 0.0, 6.5, -3.0]).unwrap();
    let mut tokens = CustBuffer::from_slice(&[9u32; 2]).unwrap();
    {
        let stream = BorrowedStream::from_cust(&context, &their_stream).unwrap();
        let mut sampler = DeviceSampler::new(&kernels, 4).unwrap();
        let to = &mut DeviceSliceMut::from_cust(&context, &mut tokens);
        sampler.sample(&*stream, &[Draw::GREEDY; 2], DeviceSlice::from_cust(&context, &logits), to).unwrap();
    }
    their_stream.synchronize().unwrap();

    // The largest of each row of four.
    let mut chosen = [0; 2];
    tokens.copy_to(&mut chosen).unwrap();
    assert_eq!(chosen, [2, 0]);
    assert!(emulator.faults().is_empty());
}
