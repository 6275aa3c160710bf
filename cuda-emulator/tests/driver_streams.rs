//! Streams run in every order that the driver's rules allow, and in no other.
//!
//! The work here is fills and copies, so that nothing depends on kernels: `a` is filled in one place and copied to
//! `b`
//! in another, and `b` tells which came first.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use halfbyte_cuda_driver::{
    Context, DeviceBuffer, Driver, Error, Event, PinnedBuffer, Status, Stream, StreamKind, Timing, sys,
};
use halfbyte_cuda_emulator::{Emulator, EmulatorConfig, FaultKind, Schedule};
use std::collections::BTreeSet;

const SEEDS: u64 = 40;

/// Runs `f` on a machine of its own, and checks that it leaves nothing behind.
fn on<R>(schedule: Schedule, seed: u64, f: impl FnOnce(&Context) -> R) -> R {
    let emulator = Emulator::new(EmulatorConfig { schedule, seed, ..EmulatorConfig::default() }).unwrap();
    let _here = emulator.enter();
    let context = Context::primary(Driver::load().unwrap().device(0).unwrap()).unwrap();
    let result = f(&context);
    drop(context);
    emulator.check_leaks().unwrap();
    assert_eq!(emulator.faults(), []);
    result
}

/// All results over the seeds of the random schedule.
fn results(f: impl Fn(&Context) -> u8) -> BTreeSet<u8> {
    (0..SEEDS).map(|seed| on(Schedule::Random, seed, &f)).collect()
}

/// `a` is filled with 7 on one stream and copied to `b` on the other, `between` the two calls `link` is called;
/// what is
/// in `b` then.
fn produce_and_consume(
    context: &Context,
    producer: &Stream,
    consumer: &Stream,
    link: impl FnOnce(&Stream, &Stream),
) -> u8 {
    let mut a = DeviceBuffer::<u8>::zeroed(context, 100).unwrap();
    let mut b = DeviceBuffer::<u8>::zeroed(context, 100).unwrap();
    a.as_mut_slice().fill_bytes_async(7, producer).unwrap();
    link(producer, consumer);
    b.as_mut_slice().copy_from_device_async(&a.as_slice(), consumer).unwrap();
    consumer.synchronize().unwrap();
    let b = b.to_vec().unwrap();
    assert!(b.iter().all(|&x| x == b[0]), "operations are whole");
    b[0]
}

fn by_event(producer: &Stream, consumer: &Stream) {
    let event = Event::new(producer.context(), Timing::Off).unwrap();
    event.record(producer).unwrap();
    consumer.wait_event(&event).unwrap();
    // Dropped with the wait still queued: it must hold all the same.
}

fn nothing(_: &Stream, _: &Stream) {}

fn streams(context: &Context, kinds: [StreamKind; 2]) -> [Stream; 2] {
    kinds.map(|kind| Stream::new(context, kind).unwrap())
}

#[test]
fn a_missing_event_shows_under_some_seed_and_a_present_one_under_none() {
    let kinds = [StreamKind::NonBlocking; 2];
    let without = results(|context| {
        let [p, c] = streams(context, kinds);
        produce_and_consume(context, &p, &c, nothing)
    });
    assert_eq!(without, BTreeSet::from([0, 7]));
    let with = results(|context| {
        let [p, c] = streams(context, kinds);
        produce_and_consume(context, &p, &c, by_event)
    });
    assert_eq!(with, BTreeSet::from([7]));
    // An event that is waited for before it is recorded holds nothing up.
    let too_early = results(|context| {
        let [p, c] = streams(context, kinds);
        produce_and_consume(context, &p, &c, |p, c| {
            let event = Event::new(context, Timing::Off).unwrap();
            c.wait_event(&event).unwrap();
            event.record(p).unwrap();
        })
    });
    assert_eq!(too_early, BTreeSet::from([0, 7]));
}

#[test]
fn the_default_stream_waits_for_blocking_streams_and_they_for_it() {
    use StreamKind::{Blocking, NonBlocking};
    for (kind, expected) in [(Blocking, BTreeSet::from([7])), (NonBlocking, BTreeSet::from([0, 7]))] {
        let side_first = results(|context| {
            let side = Stream::new(context, kind).unwrap();
            produce_and_consume(context, &side, &Stream::legacy_default(context), nothing)
        });
        assert_eq!(side_first, expected, "{kind:?} stream before the default stream");
        let side_second = results(|context| {
            let side = Stream::new(context, kind).unwrap();
            produce_and_consume(context, &Stream::legacy_default(context), &side, nothing)
        });
        assert_eq!(side_second, expected, "{kind:?} stream after the default stream");
    }
    // Two blocking streams are ordered by the default stream's work between them, and not without.
    let bystander = results(|context| {
        let [p, c] = streams(context, [Blocking; 2]);
        let mut other = DeviceBuffer::<u8>::uninit(context, 1).unwrap();
        produce_and_consume(context, &p, &c, |_, _| {
            let default = Stream::legacy_default(context);
            other.as_mut_slice().fill_bytes_async(0, &default).unwrap();
        })
    });
    assert_eq!(bystander, BTreeSet::from([7]));
    let alone = results(|context| {
        let [p, c] = streams(context, [Blocking; 2]);
        produce_and_consume(context, &p, &c, nothing)
    });
    assert_eq!(alone, BTreeSet::from([0, 7]));
}

/// The two adversarial schedules: one finds a missing fork, the other a missing join.
#[test]
fn early_and_late_schedules_find_what_is_missing_at_once() {
    let fork = |context: &Context, link: fn(&Stream, &Stream)| {
        let side = Stream::new(context, StreamKind::NonBlocking).unwrap();
        produce_and_consume(context, &Stream::legacy_default(context), &side, link)
    };
    let join = |context: &Context, link: fn(&Stream, &Stream)| {
        let side = Stream::new(context, StreamKind::NonBlocking).unwrap();
        produce_and_consume(context, &side, &Stream::legacy_default(context), link)
    };
    assert_eq!(on(Schedule::SideStreamsEarly, 0, |c| fork(c, nothing)), 0);
    assert_eq!(on(Schedule::SideStreamsLate, 0, |c| join(c, nothing)), 0);
    for schedule in
        [Schedule::SideStreamsEarly, Schedule::SideStreamsLate, Schedule::Random, Schedule::InOrder]
    {
        assert_eq!(on(schedule, 0, |c| fork(c, by_event)), 7, "{schedule:?}");
        assert_eq!(on(schedule, 0, |c| join(c, by_event)), 7, "{schedule:?}");
    }
    assert_eq!(on(Schedule::InOrder, 0, |c| fork(c, nothing)), 7);
    assert_eq!(on(Schedule::InOrder, 0, |c| join(c, nothing)), 7);
}

/// A recording is of what was queued before it, not of what the event is recorded after later.
#[test]
fn a_wait_is_for_the_recording_before_it() {
    let seen = results(|context| {
        let [p, c] = streams(context, [StreamKind::NonBlocking; 2]);
        let event = Event::new(context, Timing::Off).unwrap();
        produce_and_consume(context, &p, &c, |p, c| {
            event.record(p).unwrap();
            c.wait_event(&event).unwrap();
            // In another stream, with nothing before it: this one may well happen first.
            let other = Stream::new(context, StreamKind::NonBlocking).unwrap();
            event.record(&other).unwrap();
        })
    });
    assert_eq!(seen, BTreeSet::from([7]));
}

#[test]
fn the_same_seed_gives_the_same_order() {
    let run = |seed| {
        on(Schedule::Random, seed, |context| {
            let kinds = [StreamKind::NonBlocking; 2];
            (0..16)
                .map(|_| {
                    let [p, c] = streams(context, kinds);
                    produce_and_consume(context, &p, &c, nothing)
                })
                .collect::<Vec<_>>()
        })
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2), "32 orders in a row");
}

/// Ordinary memory is read when a copy is called, pinned memory when its turn comes.
#[test]
fn host_memory_is_read_when_the_driver_may_read_it() {
    on(Schedule::SideStreamsLate, 0, |context| {
        let mut device = DeviceBuffer::<u8>::zeroed(context, 1).unwrap();
        let stream = Stream::new(context, StreamKind::NonBlocking).unwrap();
        let mut ordinary = [1u8];
        // SAFETY: one byte on each side, alive until the stream has been waited for.
        let status = unsafe {
            sys::cuMemcpyHtoDAsync_v2(device.pointer().0, ordinary.as_ptr().cast(), 1, stream.raw())
        };
        assert_eq!(status, 0);
        ordinary[0] = 2;
        stream.synchronize().unwrap();
        assert_eq!(device.to_vec().unwrap(), [1]);
        assert_eq!(ordinary, [2]);

        let mut pinned = std::ptr::null_mut();
        // SAFETY: `pinned` is writable.
        assert_eq!(unsafe { sys::cuMemAllocHost_v2(&raw mut pinned, 1) }, 0);
        let byte = pinned.cast::<u8>();
        // SAFETY: one byte.
        unsafe { byte.write(3) };
        // SAFETY: one byte on each side, alive until the stream has been waited for.
        let status = unsafe { sys::cuMemcpyHtoDAsync_v2(device.pointer().0, pinned, 1, stream.raw()) };
        assert_eq!(status, 0);
        // SAFETY: one byte. (A program must not do this; the emulator shows why.)
        unsafe { byte.write(4) };
        stream.synchronize().unwrap();
        assert_eq!(device.to_vec().unwrap(), [4]);

        // Out of the device: pinned memory changes when the copy runs, ordinary memory before the call returns.
        device.copy_from_host(&[5]).unwrap();
        // SAFETY: one byte on each side, alive until the stream has been waited for.
        let status = unsafe { sys::cuMemcpyDtoHAsync_v2(pinned, device.pointer().0, 1, stream.raw()) };
        assert_eq!(status, 0);
        // SAFETY: one byte.
        assert_eq!(unsafe { byte.read() }, 4, "not waited for yet");
        stream.synchronize().unwrap();
        // SAFETY: one byte.
        assert_eq!(unsafe { byte.read() }, 5);
        // SAFETY: allocated above; nothing uses it.
        assert_eq!(unsafe { sys::cuMemFreeHost(pinned) }, 0);
    });
}

/// The safe layer's pinned buffers are right under every schedule.
#[test]
fn pinned_buffers_wait_by_themselves() {
    for seed in 0..SEEDS {
        on(Schedule::Random, seed, |context| {
            let stream = Stream::new(context, StreamKind::NonBlocking).unwrap();
            let mut device = DeviceBuffer::<u32>::zeroed(context, 3).unwrap();
            let mut pinned = PinnedBuffer::<u32>::zeroed(context, 3).unwrap();
            for round in 0..4u32 {
                pinned.as_mut_slice().unwrap().copy_from_slice(&[round, round + 1, round + 2]);
                device.as_mut_slice().copy_from_pinned_async(&pinned, &stream).unwrap();
                pinned.as_mut_slice().unwrap().fill(99);
                device.as_slice().copy_to_pinned_async(&mut pinned, &stream).unwrap();
                assert_eq!(pinned.as_slice().unwrap(), [round, round + 1, round + 2], "seed {seed}");
            }
        });
    }
}

#[test]
fn events_tell_when_they_happened() {
    on(Schedule::SideStreamsLate, 0, |context| {
        let stream = Stream::new(context, StreamKind::NonBlocking).unwrap();
        let (start, end) =
            (Event::new(context, Timing::On).unwrap(), Event::new(context, Timing::On).unwrap());
        let mut buffer = DeviceBuffer::<u8>::uninit(context, 5_000_000).unwrap();
        assert!(start.is_done().unwrap(), "never recorded");
        let unrecorded = end.milliseconds_since(&start).unwrap_err();
        assert_eq!(
            unrecorded,
            Error::Call { function: "cuEventElapsedTime", status: Status::INVALID_HANDLE }
        );
        start.record(&stream).unwrap();
        buffer.as_mut_slice().fill_bytes_async(1, &stream).unwrap();
        end.record(&stream).unwrap();
        let early = end.milliseconds_since(&start).unwrap_err();
        assert_eq!(early, Error::Call { function: "cuEventElapsedTime", status: Status::NOT_READY });
        // Polling gets there: each look runs an operation.
        let mut looks = 0;
        while !end.is_done().unwrap() {
            looks += 1;
        }
        assert_eq!(looks, 3);
        // 2 us and 5 MB at 500 GB/s for the fill, 0.5 us for the second record.
        let milliseconds = end.milliseconds_since(&start).unwrap();
        assert!((milliseconds - 0.0125).abs() < 1e-6, "{milliseconds}");
        let untimed = Event::new(context, Timing::Off).unwrap();
        untimed.record(&stream).unwrap();
        stream.synchronize().unwrap();
        assert!(untimed.milliseconds_since(&start).is_err());
        assert!(stream.is_done().unwrap());
    });
}

/// Memory freed in one stream's order and used in another's: a use after free, where nothing orders the two.
#[test]
fn a_fault_ends_its_context() {
    let config = EmulatorConfig { schedule: Schedule::SideStreamsEarly, ..EmulatorConfig::default() };
    let emulator = Emulator::new(config).unwrap();
    let _here = emulator.enter();
    let context = Context::primary(Driver::load().unwrap().device(0).unwrap()).unwrap();
    let stream = Stream::new(&context, StreamKind::NonBlocking).unwrap();
    let keep = DeviceBuffer::<u8>::zeroed(&context, 8).unwrap();
    let mut address = 0;
    // SAFETY: `address` is writable, the default stream needs no handle.
    assert_eq!(unsafe { sys::cuMemAllocAsync(&raw mut address, 8, std::ptr::null_mut()) }, 0);
    // SAFETY: the fill is on memory that was allocated above.
    assert_eq!(unsafe { sys::cuMemsetD8Async(address, 0, 8, std::ptr::null_mut()) }, 0);
    // SAFETY: the memory is freed once; that the fill may come later is the fault under test.
    assert_eq!(unsafe { sys::cuMemFreeAsync(address, stream.raw()) }, 0);

    let lost = Status::ILLEGAL_ADDRESS;
    let expected = Error::Call { function: "cuCtxSynchronize", status: lost };
    assert_eq!(context.synchronize().unwrap_err(), expected);
    assert_eq!(context.synchronize().unwrap_err(), expected, "and again");
    let refused = DeviceBuffer::<u8>::uninit(&context, 1).unwrap_err();
    assert_eq!(refused, Error::Call { function: "cuMemAlloc_v2", status: lost });
    assert!(matches!(keep.to_vec(), Err(Error::Call { status, .. }) if status == lost));
    let faults = emulator.faults();
    assert_eq!(faults.len(), 1);
    assert_eq!((faults[0].kind, faults[0].kernel.as_str()), (FaultKind::UseAfterFree, "a fill"));
    assert!(faults[0].detail.contains(&format!("{address:#x}")), "{}", faults[0]);

    // What is dropped counts as freed all the same, and a new primary context is whole.
    drop((keep, stream, context));
    emulator.check_leaks().unwrap();
    let context = Context::primary(Driver::load().unwrap().device(0).unwrap()).unwrap();
    assert_eq!(DeviceBuffer::from_slice(&context, &[1u8]).unwrap().to_vec().unwrap(), [1]);
}

#[test]
fn host_functions_run_in_their_stream() {
    unsafe extern "system" fn add(data: *mut std::ffi::c_void) {
        // SAFETY: a number that outlives the stream's work.
        unsafe { *data.cast::<u32>() += 1 };
    }
    on(Schedule::SideStreamsLate, 0, |context| {
        let stream = Stream::new(context, StreamKind::NonBlocking).unwrap();
        let mut count = 0u32;
        let data = (&raw mut count).cast();
        for _ in 0..3 {
            // SAFETY: `count` outlives the synchronisation below, and nobody else touches it.
            assert_eq!(unsafe { sys::cuLaunchHostFunc(stream.raw(), Some(add), data) }, 0);
        }
        stream.synchronize().unwrap();
        assert_eq!(count, 3);
    });
}
