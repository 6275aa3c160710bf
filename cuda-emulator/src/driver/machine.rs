//! Emulated machines, and the choice of the machine that a thread's calls go to.

use super::config::{EmulatorConfig, Limits};
use super::handle::{Handle, Kind};
use super::state::State;
use crate::GlobalMemory;
use halfbyte_cuda_driver::Status;
use halfbyte_cuda_driver::sys::{CUcontext, CUstream};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// An emulated machine.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) id: u64,
    pub(super) config: EmulatorConfig,
    pub(super) limits: Limits,
    /// One memory a device.
    pub(super) memories: Vec<Arc<GlobalMemory>>,
    state: Mutex<State>,
    /// A thread holds it while it runs operations, so that one thread does at a time; taken before `state`.
    pub(super) executor: Mutex<()>,
}

/// All machines that handles may be of, and which one is for threads that have entered none.
#[derive(Debug)]
struct Registry {
    machines: BTreeMap<u64, Arc<Machine>>,
    last_id: u64,
    default: Option<u64>,
}

static REGISTRY: RwLock<Registry> =
    RwLock::new(Registry { machines: BTreeMap::new(), last_id: 0, default: None });

thread_local! {
    /// The machine that this thread has entered.
    static ENTERED: RefCell<Vec<Arc<Machine>>> = const { RefCell::new(Vec::new()) };
    /// The thread's stack of current contexts; `cuCtxSetCurrent` replaces the top.
    static CURRENT: RefCell<Vec<ContextNumber>> = const { RefCell::new(Vec::new()) };
}

/// A context's handle as a number, 0 for none.
type ContextNumber = usize;

impl Machine {
    pub(super) fn new(config: EmulatorConfig) -> Arc<Machine> {
        let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
        registry.last_id += 1;
        let id = registry.last_id;
        let machine = Arc::new(Machine {
            id,
            limits: Limits::of(config.compute_capability),
            memories: (0..config.devices).map(|_| Arc::new(GlobalMemory::new(config.memory))).collect(),
            state: Mutex::new(State::new(&config)),
            executor: Mutex::new(()),
            config,
        });
        registry.machines.insert(id, machine.clone());
        machine
    }

    /// Makes this the machine of threads that have entered none.
    pub(super) fn make_default(&self) {
        REGISTRY.write().unwrap_or_else(PoisonError::into_inner).default = Some(self.id);
    }

    /// Forgets the machine: its handles are invalid from now on.
    pub(super) fn retire(&self) {
        let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
        registry.machines.remove(&self.id);
        if registry.default == Some(self.id) {
            registry.default = None;
        }
    }

    pub(super) fn enter(self: &Arc<Machine>) {
        ENTERED.with_borrow_mut(|entered| entered.push(self.clone()));
    }

    /// Undoes one `enter`, and forgets the thread's current contexts of this machine.
    pub(super) fn leave(&self) {
        ENTERED.with_borrow_mut(|entered| {
            if let Some(last) = entered.iter().rposition(|m| m.id == self.id) {
                entered.remove(last);
            }
        });
        let mine = |&number: &ContextNumber| {
            let raw: CUcontext = std::ptr::without_provenance_mut(number);
            Handle::from_raw(raw, Kind::Context).is_ok_and(|handle| handle.machine == self.id)
        };
        CURRENT.with_borrow_mut(|stack| stack.retain(|number| !mine(number)));
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machine of calls that name no handle: the one that the thread has entered, that of its current context, or
    /// the process's.
    pub(super) fn of_thread() -> Result<Arc<Machine>, Status> {
        if let Some(machine) = ENTERED.with_borrow(|entered| entered.last().cloned()) {
            return Ok(machine);
        }
        if let Ok((machine, _)) = current_context() {
            return Ok(machine);
        }
        let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
        let default = registry.default.and_then(|id| registry.machines.get(&id));
        default.cloned().ok_or(Status::NO_DEVICE)
    }

    /// [`of_thread`](Machine::of_thread), if `cuInit` has been called.
    pub(super) fn started() -> Result<Arc<Machine>, Status> {
        let machine = Machine::of_thread()?;
        if !machine.state().initialised {
            return Err(Status::NOT_INITIALIZED);
        }
        Ok(machine)
    }

    fn by_id(id: u64) -> Option<Arc<Machine>> {
        REGISTRY.read().unwrap_or_else(PoisonError::into_inner).machines.get(&id).cloned()
    }

    pub(super) fn handle<T>(&self, serial: u64, kind: Kind) -> *mut T {
        Handle { machine: self.id, serial }.to_raw(kind)
    }
}

/// The machine and the serial that a handle names, alive or not.
pub(super) fn resolve<T>(raw: *mut T, kind: Kind) -> Result<(Arc<Machine>, u64), Status> {
    let handle = Handle::from_raw(raw, kind)?;
    let machine = Machine::by_id(handle.machine).ok_or(Status::INVALID_HANDLE)?;
    Ok((machine, handle.serial))
}

/// The thread's current context, null if there is none.
pub(super) fn current() -> CUcontext {
    let top = CURRENT.with_borrow(|stack| stack.last().copied().unwrap_or(0));
    std::ptr::without_provenance_mut(top)
}

pub(super) fn set_current(context: CUcontext) {
    CURRENT.with_borrow_mut(|stack| {
        stack.pop();
        stack.push(context.addr());
    });
}

pub(super) fn push_current(context: CUcontext) {
    CURRENT.with_borrow_mut(|stack| stack.push(context.addr()));
}

pub(super) fn pop_current() -> Option<CUcontext> {
    let top = CURRENT.with_borrow_mut(Vec::pop).filter(|&top| top != 0);
    top.map(std::ptr::without_provenance_mut)
}

/// The thread's current context, lost or not.
pub(super) fn current_context() -> Result<(Arc<Machine>, u64), Status> {
    let (machine, serial) = resolve(current(), Kind::Context).map_err(|_| Status::INVALID_CONTEXT)?;
    if !machine.state().contexts.contains_key(&serial) {
        return Err(Status::CONTEXT_IS_DESTROYED);
    }
    Ok((machine, serial))
}

/// The thread's current context, if it is not lost.
pub(super) fn usable_context() -> Result<(Arc<Machine>, u64), Status> {
    let (machine, serial) = current_context()?;
    machine.state().lost(serial)?;
    Ok((machine, serial))
}

/// `CU_STREAM_LEGACY`, another name of the default stream.
const LEGACY: usize = 1;

/// The machine, the stream's serial and its context's. Null is the current context's default stream.
pub(super) fn resolve_stream(raw: CUstream) -> Result<(Arc<Machine>, u64, u64), Status> {
    if raw.is_null() || raw.addr() == LEGACY {
        let (machine, context) = usable_context()?;
        let stream = {
            let state = machine.state();
            state.contexts.get(&context).ok_or(Status::INVALID_CONTEXT)?.default_stream
        };
        return Ok((machine, stream, context));
    }
    let (machine, stream) = resolve(raw, Kind::Stream)?;
    let context = {
        let state = machine.state();
        let it = state.streams.get(&stream).filter(|s| !s.destroyed).ok_or(Status::INVALID_HANDLE)?;
        state.lost(it.context)?;
        it.context
    };
    Ok((machine, stream, context))
}
