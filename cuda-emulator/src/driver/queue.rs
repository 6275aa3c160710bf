//! Streams: what is queued in them, what may run next, and what does.
//!
//! Nothing runs when it is queued (except what a [`Schedule`] lets run early). When the host waits, operations
//! are picked one at a time from the heads of
//! the streams' queues. A head may run if
//!
//! - it is not a wait for an event whose recording (the last one queued before the wait) has not happened yet;
//! - on the default stream: no operation queued earlier is left in a blocking stream of its context;
//! - on a blocking stream: no operation queued earlier is left in its context's default stream.
//!
//! All of these look back in the order of queueing, so the operation that was queued first may always run: there
//! is no
//! deadlock.

use super::config::Schedule;
use super::machine::Machine;
use super::report::LaunchRecord;
use super::state::{Kind, State};
use crate::{Fault, FaultKind, GlobalMemory, LaunchConfig, LoadedModule, MemoryError, launch};
use halfbyte_cuda_driver::Status;
use rand_pcg::rand_core::Rng as _;
use std::ffi::c_void;
use std::sync::{Arc, PoisonError};

/// An operation in a stream.
#[derive(Debug)]
pub(super) struct Op {
    /// Its place in the order in which the machine's operations were queued.
    pub(super) place: u64,
    pub(super) work: Work,
}

/// What an operation does.
#[derive(Debug)]
pub(super) enum Work {
    Launch(Box<Launch>),
    /// The bytes, which were read when the copy was queued.
    WriteSnapshot {
        to: u64,
        bytes: Vec<u8>,
    },
    /// Pinned host memory, read when the copy runs.
    WritePinned {
        to: u64,
        from: HostAddress,
        bytes: usize,
    },
    Read {
        from: u64,
        to: HostAddress,
        bytes: usize,
    },
    Copy {
        from: u64,
        to: u64,
        bytes: usize,
    },
    Fill {
        to: u64,
        pattern: Vec<u8>,
        bytes: usize,
    },
    Free {
        address: u64,
    },
    Record {
        event: u64,
        recording: u64,
    },
    Wait {
        event: u64,
        recording: u64,
    },
    Call {
        function: unsafe extern "system" fn(*mut c_void),
        data: HostAddress,
    },
}

/// A launch with its parameters.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) module: Arc<LoadedModule>,
    pub(super) kernel: String,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) dynamic_shared: u32,
    pub(super) parameters: Vec<u8>,
}

/// An address that the program handed to the driver.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostAddress(pub(super) *mut c_void);

// SAFETY: the code that queues an operation with it promises, as the driver's rules ask, that it stays valid until the
// operation has run, on whatever thread.
unsafe impl Send for HostAddress {}

/// What the host waits for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Goal {
    Stream(u64),
    Event { event: u64, recording: u64 },
    Context(u64),
}

/// Virtual nanoseconds that any operation takes.
const OVERHEAD: u64 = 2_000;
/// Virtual bytes a nanosecond of a copy with the host, and within the device.
const HOST_BYTES: u64 = 16;
const DEVICE_BYTES: u64 = 500;
/// Virtual warp instructions a nanosecond of a multiprocessor: one in each of four schedulers at 1.5 GHz.
const WARP_INSTRUCTIONS: u64 = 6;

impl State {
    /// Puts work at the end of a stream.
    pub(super) fn push(&mut self, stream: u64, work: Work) -> Result<(), Status> {
        let place = self.next_op;
        let stream = self.streams.get_mut(&stream).ok_or(Status::INVALID_HANDLE)?;
        stream.queue.push_back(Op { place, work });
        self.next_op += 1;
        Ok(())
    }

    fn reached(&self, goal: Goal) -> bool {
        let empty = |stream: &u64| self.streams.get(stream).is_none_or(|s| s.queue.is_empty());
        match goal {
            Goal::Stream(stream) => empty(&stream),
            Goal::Event { event, recording } => self.happened(event, recording),
            Goal::Context(context) => {
                self.streams.values().all(|s| s.context != context || s.queue.is_empty())
            }
        }
    }

    fn happened(&self, event: u64, recording: u64) -> bool {
        self.events.get(&event).is_none_or(|e| !e.pending.contains(&recording))
    }

    /// The stream that the head of `stream` waits for. `None` if the head may run.
    fn held_by(&self, stream: u64) -> Option<u64> {
        let this = self.streams.get(&stream)?;
        let head = this.queue.front()?;
        if let Work::Wait { event, recording } = head.work
            && !self.happened(event, recording)
        {
            return self.recorder(event, recording);
        }
        let against = match this.kind {
            Kind::NonBlocking => return None,
            Kind::Default => Kind::Blocking,
            Kind::Blocking => Kind::Default,
        };
        let earlier = self.streams.iter().find(|(_, s)| {
            s.context == this.context
                && s.kind == against
                && s.queue.front().is_some_and(|op| op.place < head.place)
        });
        earlier.map(|(&serial, _)| serial)
    }

    /// The stream in which a recording is queued.
    fn recorder(&self, event: u64, recording: u64) -> Option<u64> {
        let is_it = |op: &Op| matches!(op.work, Work::Record { event: e, recording: r } if (e, r) == (event, recording));
        self.streams.iter().find(|(_, s)| s.queue.iter().any(is_it)).map(|(&serial, _)| serial)
    }

    /// The stream whose head has to run so that `stream` can make progress: itself, or the end of the chain of streams that it
    /// waits for.
    fn mover(&self, mut stream: u64) -> u64 {
        // Each step goes to an operation queued earlier, so this ends.
        while let Some(other) = self.held_by(stream) {
            stream = other;
        }
        stream
    }

    /// The streams whose head may run, oldest first.
    fn ready(&self) -> Vec<u64> {
        let waiting = self.streams.iter().filter(|(_, s)| !s.queue.is_empty()).map(|(&serial, _)| serial);
        waiting.filter(|&stream| self.held_by(stream).is_none()).collect()
    }

    /// The stream whose head runs next to reach `goal`.
    fn next_stream(&mut self, schedule: Schedule, goal: Goal) -> Option<u64> {
        let place = |stream: &u64| self.streams.get(stream)?.queue.front().map(|op| op.place);
        match schedule {
            Schedule::InOrder => self.ready().into_iter().min_by_key(place),
            Schedule::SideStreamsEarly => self.ready().pop(),
            Schedule::SideStreamsLate => {
                let wanted = match goal {
                    Goal::Stream(stream) => Some(stream),
                    Goal::Event { event, recording } => self.recorder(event, recording),
                    Goal::Context(context) => {
                        let mut streams = self.streams.iter();
                        let busy = streams.find(|(_, s)| s.context == context && !s.queue.is_empty());
                        busy.map(|(&serial, _)| serial)
                    }
                };
                wanted.map(|stream| self.mover(stream))
            }
            Schedule::Random => {
                let ready = self.ready();
                let index = self.random.next_u64() as usize % ready.len().max(1);
                ready.get(index).copied()
            }
        }
    }

    /// The stream whose head runs before the host goes on, if the schedule names one.
    fn eager_stream(&mut self, schedule: Schedule) -> Option<u64> {
        match schedule {
            Schedule::InOrder | Schedule::SideStreamsLate => None,
            Schedule::SideStreamsEarly => {
                let newest = self.ready().pop()?;
                (self.streams.get(&newest)?.kind != Kind::Default).then_some(newest)
            }
            Schedule::Random => {
                let now = self.random.next_u64().is_multiple_of(2);
                now.then(|| self.next_stream(schedule, Goal::Context(0))).flatten()
            }
        }
    }

    fn pop(&mut self, stream: u64) -> Option<Running> {
        let this = self.streams.get_mut(&stream)?;
        let op = this.queue.pop_front()?;
        let (context, number) = (this.context, this.number);
        if this.destroyed && this.queue.is_empty() {
            self.streams.remove(&stream);
        }
        let device = self.contexts.get(&context)?.device;
        Some(Running { op, context, number, device })
    }

    /// Drops everything queued in a context, after a fault.
    fn abandon(&mut self, context: u64, status: Status) {
        if let Some(context) = self.contexts.get_mut(&context) {
            context.lost.get_or_insert(status);
        }
        for stream in self.streams.values_mut().filter(|s| s.context == context) {
            stream.queue.clear();
        }
        for event in self.events.values_mut().filter(|e| e.context == context) {
            event.pending.clear();
        }
        self.streams.retain(|_, s| !(s.destroyed && s.queue.is_empty()));
    }
}

/// An operation that was taken from the queue and has not ended.
struct Running {
    op: Op,
    context: u64,
    number: u64,
    device: usize,
}

impl Machine {
    /// Runs operations until `goal` is reached, or an error has emptied the queues.
    pub(super) fn reach(&self, goal: Goal) {
        let _executor = self.executor.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let running = {
                let mut state = self.state();
                if state.reached(goal) {
                    return;
                }
                let schedule = self.config.schedule;
                state.next_stream(schedule, goal).and_then(|stream| state.pop(stream))
            };
            match running {
                Some(running) => self.run(running),
                // This happens only if what the goal waits for was removed in the meantime.
                None => return,
            }
        }
    }

    /// Runs what the schedule lets run before the host goes on.
    pub(super) fn run_ahead(&self) {
        let _executor = self.executor.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let running = {
                let mut state = self.state();
                state.eager_stream(self.config.schedule).and_then(|stream| state.pop(stream))
            };
            match running {
                Some(running) => self.run(running),
                None => return,
            }
        }
    }

    /// Whether `goal` is reached, running one operation towards it if not, so that a program that polls gets on.
    pub(super) fn poll(&self, goal: Goal) -> bool {
        let _executor = self.executor.lock().unwrap_or_else(PoisonError::into_inner);
        let running = {
            let mut state = self.state();
            if state.reached(goal) {
                return true;
            }
            state.next_stream(self.config.schedule, goal).and_then(|stream| state.pop(stream))
        };
        if let Some(running) = running {
            self.run(running);
        }
        false
    }

    fn run(&self, running: Running) {
        let Running { op, context, number, device } = running;
        let memory = self.memories[device].clone();
        let outcome = self.perform(&op, number, &memory);
        let mut state = self.state();
        match outcome {
            Ok(time) => {
                state.clock += time;
                let now = state.clock;
                if let Work::Record { event, recording } = op.work
                    && let Some(e) = state.events.get_mut(&event)
                {
                    e.pending.remove(&recording);
                    if recording == e.recorded {
                        e.time = now;
                    }
                    if e.destroyed && e.pending.is_empty() {
                        state.events.remove(&event);
                    }
                }
            }
            Err(fault) => {
                let status = status_of(fault.kind);
                state.faults.push(*fault);
                state.abandon(context, status);
            }
        }
    }

    /// Does an operation's work. Returns the virtual nanoseconds that it took, or its fault.
    fn perform(&self, op: &Op, stream: u64, memory: &Arc<GlobalMemory>) -> Result<u64, Box<Fault>> {
        let copied = |bytes: usize, rate: u64| OVERHEAD + bytes as u64 / rate;
        match &op.work {
            Work::Launch(launch) => self.perform_launch(op.place, stream, launch, memory),
            Work::WriteSnapshot { to, bytes } => {
                memory.write(*to, bytes).map_err(|e| copy_fault("a copy to the device", &e))?;
                Ok(copied(bytes.len(), HOST_BYTES))
            }
            Work::WritePinned { to, from, bytes } => {
                let mut data = vec![0u8; *bytes];
                // SAFETY: pinned memory of `bytes` bytes; freeing it waits for the copies from it.
                unsafe { from.0.cast::<u8>().copy_to_nonoverlapping(data.as_mut_ptr(), *bytes) };
                memory.write(*to, &data).map_err(|e| copy_fault("a copy to the device", &e))?;
                Ok(copied(*bytes, HOST_BYTES))
            }
            Work::Read { from, to, bytes } => {
                let mut data = vec![0u8; *bytes];
                memory.read(*from, &mut data).map_err(|e| copy_fault("a copy to the host", &e))?;
                // SAFETY: the program gave `bytes` writable bytes, and keeps them until the copy has been waited for.
                unsafe { to.0.cast::<u8>().copy_from_nonoverlapping(data.as_ptr(), *bytes) };
                Ok(copied(*bytes, HOST_BYTES))
            }
            Work::Copy { from, to, bytes } => {
                let done = memory.copy(*to, *from, *bytes as u64);
                done.map_err(|e| copy_fault("a copy within the device", &e))?;
                Ok(copied(*bytes, DEVICE_BYTES))
            }
            Work::Fill { to, pattern, bytes } => {
                let done = memory.fill(*to, pattern, *bytes as u64);
                done.map_err(|e| copy_fault("a fill", &e))?;
                Ok(copied(*bytes, DEVICE_BYTES))
            }
            Work::Free { address } => {
                memory.free(*address).map_err(|e| copy_fault("a free", &e))?;
                Ok(OVERHEAD)
            }
            Work::Record { .. } | Work::Wait { .. } => Ok(OVERHEAD / 4),
            Work::Call { function, data } => {
                // SAFETY: the program gave the function and its data for this one call.
                unsafe { function(data.0) };
                Ok(OVERHEAD)
            }
        }
    }

    fn perform_launch(
        &self,
        place: u64,
        stream: u64,
        it: &Launch,
        memory: &GlobalMemory,
    ) -> Result<u64, Box<Fault>> {
        let shape = LaunchConfig {
            grid: it.grid,
            block: it.block,
            dynamic_shared: it.dynamic_shared,
            params: &it.parameters,
        };
        let mut options = self.config.options.clone();
        // Each launch gets its own order of warps, which depends on the launch's place in the queue.
        options.seed = (self.config.seed ^ place.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let stats = launch(&it.module, &it.kernel, &shape, memory, &options)?;
        let rate = u64::from(self.config.multiprocessors.max(1)) * WARP_INSTRUCTIONS;
        let time = OVERHEAD + stats.warp_instructions / rate;
        self.state().records.push(LaunchRecord {
            kernel: it.kernel.clone(),
            grid: it.grid,
            block: it.block,
            dynamic_shared: it.dynamic_shared,
            stream,
            queued: place,
            stats,
        });
        Ok(time)
    }
}

/// The fault of an operation that is not a kernel.
fn copy_fault(what: &str, error: &MemoryError) -> Box<Fault> {
    let kind = match error {
        MemoryError::Freed { .. } => FaultKind::UseAfterFree,
        _ => FaultKind::OutOfBounds,
    };
    Box::new(Fault {
        kind,
        kernel: what.to_owned(),
        ptx_line: 0,
        source_line: None,
        block: [0; 3],
        thread: [0; 3],
        detail: error.to_string(),
    })
}

/// The status that a GPU's driver would return for a fault.
fn status_of(kind: FaultKind) -> Status {
    match kind {
        FaultKind::OutOfBounds | FaultKind::UseAfterFree | FaultKind::ReadOnly => Status::ILLEGAL_ADDRESS,
        FaultKind::Misaligned => Status::MISALIGNED_ADDRESS,
        FaultKind::IllegalInstruction => Status::ILLEGAL_INSTRUCTION,
        FaultKind::Deadlock | FaultKind::DivergentBarrier | FaultKind::Watchdog => Status::LAUNCH_TIMEOUT,
        FaultKind::InvalidLaunch => Status::INVALID_VALUE,
        _ => Status::LAUNCH_FAILED,
    }
}
