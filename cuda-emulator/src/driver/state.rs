//! The state of a machine: the tables behind the driver's handles.

use super::config::EmulatorConfig;
use super::queue::Op;
use super::report::{LaunchRecord, UnsupportedCalls};
use crate::{Fault, GlobalMemory, LoadedModule};
use halfbyte_cuda_driver::Status;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::SeedableRng as _;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Everything that changes. One lock guards it; it is not held while a kernel runs.
#[derive(Debug)]
pub(super) struct State {
    /// Whether `cuInit` was called.
    pub(super) initialised: bool,
    serial: u64,
    pub(super) contexts: BTreeMap<u64, ContextState>,
    /// By device: the primary context's serial and its count.
    pub(super) primaries: Vec<Option<(u64, usize)>>,
    pub(super) primary_flags: Vec<u32>,
    pub(super) streams: BTreeMap<u64, StreamState>,
    /// The next stream's number in records.
    pub(super) next_stream: u64,
    pub(super) events: BTreeMap<u64, EventState>,
    pub(super) modules: BTreeMap<u64, ModuleState>,
    pub(super) functions: BTreeMap<u64, FunctionState>,
    /// Device memory by context and address, with its size. The emulated devices have their addresses apart only
    /// within a device.
    pub(super) device_memory: BTreeMap<(u64, u64), usize>,
    /// Pinned host memory by address: size, flags and context.
    pub(super) host_memory: BTreeMap<usize, HostMemory>,
    /// The place of the next operation in the order of queueing.
    pub(super) next_op: u64,
    /// Nanoseconds of the devices' virtual time.
    pub(super) clock: u64,
    pub(super) random: Pcg64,
    pub(super) records: Vec<LaunchRecord>,
    pub(super) faults: Vec<Fault>,
    pub(super) unsupported: UnsupportedCalls,
}

#[derive(Debug)]
pub(super) struct ContextState {
    pub(super) device: usize,
    pub(super) flags: u32,
    pub(super) primary: bool,
    /// The serial of its default stream.
    pub(super) default_stream: u64,
    /// What every call returns after a kernel's fault.
    pub(super) lost: Option<Status>,
    pub(super) limits: BTreeMap<i32, usize>,
    pub(super) cache_config: i32,
    pub(super) shared_config: i32,
}

/// How a stream is ordered with the default stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Default,
    Blocking,
    NonBlocking,
}

#[derive(Debug)]
pub(super) struct StreamState {
    pub(super) context: u64,
    pub(super) number: u64,
    pub(super) kind: Kind,
    pub(super) priority: i32,
    pub(super) queue: VecDeque<Op>,
    /// The handle is gone; what is queued still runs.
    pub(super) destroyed: bool,
}

#[derive(Debug)]
pub(super) struct EventState {
    pub(super) context: u64,
    pub(super) timing: bool,
    /// How often it was recorded.
    pub(super) recorded: u64,
    /// The recordings, counted from 1, that are still to come. They may happen in another order: each may be in
    /// another stream.
    pub(super) pending: BTreeSet<u64>,
    /// When the last recording happened.
    pub(super) time: u64,
    /// The handle is gone; streams may still wait for it.
    pub(super) destroyed: bool,
}

impl EventState {
    /// Whether what it was last recorded after has run.
    pub(super) fn is_done(&self) -> bool {
        !self.pending.contains(&self.recorded)
    }
}

#[derive(Debug)]
pub(super) struct ModuleState {
    pub(super) context: u64,
    pub(super) loaded: Arc<LoadedModule>,
}

#[derive(Debug, Clone)]
pub(super) struct FunctionState {
    pub(super) module: u64,
    pub(super) kernel: String,
    pub(super) registers: u32,
    pub(super) max_threads: u32,
    pub(super) max_dynamic_shared: u32,
    pub(super) ptx_version: i32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct HostMemory {
    pub(super) bytes: usize,
    pub(super) flags: u32,
    pub(super) context: u64,
}

impl State {
    pub(super) fn new(config: &EmulatorConfig) -> State {
        State {
            initialised: false,
            serial: 0,
            contexts: BTreeMap::new(),
            primaries: vec![None; config.devices],
            primary_flags: vec![0; config.devices],
            streams: BTreeMap::new(),
            next_stream: 1,
            events: BTreeMap::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            device_memory: BTreeMap::new(),
            host_memory: BTreeMap::new(),
            next_op: 0,
            clock: 0,
            random: Pcg64::seed_from_u64(config.seed),
            records: Vec::new(),
            faults: Vec::new(),
            unsupported: BTreeMap::new(),
        }
    }

    /// A number that no handle of this machine has had.
    pub(super) fn new_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    pub(super) fn add_context(&mut self, device: usize, flags: u32, primary: bool) -> u64 {
        let serial = self.new_serial();
        let default_stream = self.add_stream(serial, Kind::Default, 0);
        let context = ContextState {
            device,
            flags,
            primary,
            default_stream,
            lost: None,
            limits: BTreeMap::new(),
            cache_config: 0,
            shared_config: 0,
        };
        self.contexts.insert(serial, context);
        serial
    }

    pub(super) fn add_stream(&mut self, context: u64, kind: Kind, priority: i32) -> u64 {
        let serial = self.new_serial();
        let number = match kind {
            Kind::Default => 0,
            Kind::Blocking | Kind::NonBlocking => {
                self.next_stream += 1;
                self.next_stream - 1
            }
        };
        let queue = VecDeque::new();
        self.streams.insert(serial, StreamState { context, number, kind, priority, queue, destroyed: false });
        serial
    }

    /// Forgets a context and everything in it, once its work is done.
    pub(super) fn remove_context(&mut self, serial: u64, memory: &GlobalMemory) {
        self.contexts.remove(&serial);
        self.streams.retain(|_, s| s.context != serial);
        self.events.retain(|_, e| e.context != serial);
        self.modules.retain(|_, module| {
            if module.context == serial {
                // Each variable is freed here alone, so this cannot fail.
                let _ = module.loaded.unload(memory);
            }
            module.context != serial
        });
        let modules = &self.modules;
        self.functions.retain(|_, f| modules.contains_key(&f.module));
        self.device_memory.retain(|&(context, address), _| {
            if context == serial {
                let _ = memory.free(address);
            }
            context != serial
        });
    }

    /// The status that the context's calls return after a fault.
    pub(super) fn lost(&self, context: u64) -> Result<(), Status> {
        match self.contexts.get(&context) {
            None => Err(Status::CONTEXT_IS_DESTROYED),
            Some(ContextState { lost: Some(status), .. }) => Err(*status),
            Some(_) => Ok(()),
        }
    }
}
