//! Modules: PTX into the interpreter, with the refusals of a driver's compiler.

use super::{Answer, driver_function, put};
use crate::driver::config::SHARED_BLOCK_DEFAULT;
use crate::driver::handle::Kind;
use crate::driver::machine::{Machine, resolve, usable_context};
use crate::driver::occupancy;
use crate::driver::queue::Goal;
use crate::driver::state::{FunctionState, ModuleState};
use crate::{Kernel, Module};
use halfbyte_cuda_driver::sys::{CUdeviceptr, CUfunction, CUmodule};
use halfbyte_cuda_driver::{ComputeCapability, DriverVersion, Status};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

/// `CU_JIT_ERROR_LOG_BUFFER` and its size.
const LOG: c_int = 5;
const LOG_SIZE: c_int = 6;
/// Registers of a kernel of which nothing is known.
const UNKNOWN_REGISTERS: u32 = 64;
/// How machine code starts: an ELF file, and a bundle of several.
const MACHINE_CODE: [[u8; 4]; 2] = [*b"\x7fELF", [0x50, 0xed, 0x55, 0xba]];

/// Why a text was refused: the driver's status, and a line for its log.
type Refusal = (Status, String);

/// The version of PTX that a driver reads, as major and minor: NVIDIA's *PTX ISA* reference, release history.
fn newest_ptx(driver: DriverVersion) -> (u32, u32) {
    match (driver.major, driver.minor) {
        (..12, _) => (7, 8),
        (12, minor @ 0..=5) => (8, minor),
        (12, 6) => (8, 5),
        (12, 7) => (8, 6),
        (12, 8) => (8, 7),
        (12, _) => (8, 8),
        (13, minor) => (9, minor),
        _ => (9, 9),
    }
}

/// What follows a directive on its line.
fn directive<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim_start().strip_prefix(name)).map(str::trim)
}

/// Refuses PTX of a version that the driver does not know, or for devices that this one is not.
fn check_header(machine: &Machine, text: &str) -> Result<c_int, Refusal> {
    let version = directive(text, ".version").and_then(|v| v.split_once('.'));
    let version = version.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    let version: (u32, u32) = version.ok_or((Status::INVALID_PTX, "no .version directive".to_owned()))?;
    let newest = newest_ptx(machine.config.driver_version);
    if version > newest {
        let (major, minor) = version;
        let log = format!("PTX .version {major}.{minor} is newer than {}.{}", newest.0, newest.1);
        return Err((Status::UNSUPPORTED_PTX_VERSION, log));
    }
    let target = directive(text, ".target").and_then(|t| t.strip_prefix("sm_"));
    let target = target.map(|t| t.split([',', ' ']).next().unwrap_or(t));
    let number = target.map(|t| t.trim_end_matches(|c: char| c.is_ascii_lowercase()));
    let wanted = number.and_then(|n| n.parse::<u32>().ok());
    let wanted = wanted.ok_or((Status::INVALID_PTX, "no .target directive".to_owned()))?;
    let needed = ComputeCapability { major: wanted / 10, minor: wanted % 10 };
    let device = machine.config.compute_capability;
    // Code with a letter behind the number is for that device alone.
    let fits = if target == number { device >= needed } else { device == needed };
    if !fits {
        let log = format!("PTX .target {needed} does not run on {device}");
        return Err((Status::NO_BINARY_FOR_GPU, log));
    }
    Ok(wanted.cast_signed())
}

/// Registers a thread, and threads of the largest block.
fn resources(machine: &Machine, kernel: &Kernel) -> (u32, u32) {
    let declared = kernel.required_threads.or(kernel.max_threads);
    let declared = declared.map_or(1024, |t| t.iter().product::<u32>()).min(1024);
    let registers = machine.config.registers.get(&kernel.name).copied().unwrap_or_else(|| {
        // As the compiler does, in units of eight.
        let most = machine.limits.registers / declared.next_multiple_of(32).max(32) / 8 * 8;
        UNKNOWN_REGISTERS.min(most)
    });
    (registers, declared.min(occupancy::max_threads(&machine.limits, registers)))
}

fn load_text(machine: &Machine, context: u64, image: *const c_void) -> Result<u64, Refusal> {
    let refuse = |status: Status, why: &str| (status, why.to_owned());
    if image.is_null() {
        return Err(refuse(Status::INVALID_VALUE, "no image"));
    }
    // SAFETY: the caller promises an image, and any image has four bytes: the shortest text is ".version".
    let start = unsafe { image.cast::<[u8; 4]>().read_unaligned() };
    if MACHINE_CODE.contains(&start) {
        return Err(refuse(Status::INVALID_IMAGE, "machine code: the emulator runs PTX alone"));
    }
    // SAFETY: the caller promises that PTX ends in a zero.
    let text = unsafe { CStr::from_ptr(image.cast()) };
    let text = text.to_str().map_err(|_| refuse(Status::INVALID_PTX, "PTX is not UTF-8"))?;
    let ptx_version = check_header(machine, text)?;
    let module = Module::parse(text).map_err(|e| (Status::INVALID_PTX, e.to_string()))?;
    let module = Arc::new(module);
    let optin = machine.limits.shared_block_optin();
    if let Some(kernel) = module.kernels().iter().find(|k| k.static_shared > SHARED_BLOCK_DEFAULT.min(optin))
    {
        let (name, bytes) = (&kernel.name, kernel.static_shared);
        let log = format!("{name} declares {bytes} bytes of shared memory, more than {SHARED_BLOCK_DEFAULT}");
        return Err((Status::INVALID_PTX, log));
    }
    let mut state = machine.state();
    let device = state.contexts.get(&context).map(|c| c.device);
    let device = device.ok_or(refuse(Status::INVALID_CONTEXT, "the context is gone"))?;
    let loaded = module.load(&machine.memories[device]);
    let loaded = Arc::new(loaded.map_err(|e| (Status::OUT_OF_MEMORY, e.to_string()))?);
    let serial = state.new_serial();
    state.modules.insert(serial, ModuleState { context, loaded });
    for kernel in module.kernels() {
        let (registers, max_threads) = resources(machine, kernel);
        let function = FunctionState {
            module: serial,
            kernel: kernel.name.clone(),
            registers,
            max_threads,
            max_dynamic_shared: SHARED_BLOCK_DEFAULT - kernel.static_shared,
            ptx_version,
        };
        let id = state.new_serial();
        state.functions.insert(id, function);
    }
    Ok(serial)
}

/// The text that a name's pointer leads to.
fn text_of<'a>(name: *const c_char) -> Result<&'a str, Status> {
    if name.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: the caller promises that names end in a zero, and the text is used during the call alone.
    unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| Status::NOT_FOUND)
}

/// The options' log, if there is one: where it is, and where its size is.
fn log_options(count: c_uint, options: *mut c_int, values: *mut *mut c_void) -> Option<(*mut u8, usize)> {
    if count == 0 || options.is_null() || values.is_null() {
        return None;
    }
    // SAFETY: the caller promises `count` options.
    let options = unsafe { std::slice::from_raw_parts(options, count as usize) };
    // SAFETY: the caller promises a value for each.
    let values = unsafe { std::slice::from_raw_parts(values, count as usize) };
    let value = |wanted| options.iter().position(|&o| o == wanted).map(|at| values[at]);
    Some((value(LOG)?.cast(), value(LOG_SIZE)?.addr()))
}

fn write_log(to: Option<(*mut u8, usize)>, log: &str) {
    if let Some((buffer, size)) = to
        && !buffer.is_null()
        && size > 0
    {
        let mut bytes: Vec<u8> = log.bytes().filter(|&b| b != 0).take(size - 1).collect();
        bytes.push(0);
        // SAFETY: the caller promises a log of `size` bytes, and these are no more.
        unsafe { buffer.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}

fn load_into(out: *mut CUmodule, image: *const c_void, log: Option<(*mut u8, usize)>) -> Answer {
    let (machine, context) = usable_context()?;
    match load_text(&machine, context, image) {
        Ok(serial) => put!(out, machine.handle(serial, Kind::Module)),
        Err((status, why)) => {
            write_log(log, &why);
            Err(status)
        }
    }
}

driver_function! {
    load(out: *mut CUmodule, image: *const c_void) {
        load_into(out, image, None)
    }
    load_with_options(
        out: *mut CUmodule,
        image: *const c_void,
        count: c_uint,
        options: *mut c_int,
        values: *mut *mut c_void,
    ) {
        load_into(out, image, log_options(count, options, values))
    }
    unload(module: CUmodule) {
        let (machine, serial) = resolve(module, Kind::Module)?;
        let context = machine.state().modules.get(&serial).ok_or(Status::INVALID_HANDLE)?.context;
        machine.reach(Goal::Context(context));
        let mut state = machine.state();
        let module = state.modules.remove(&serial).ok_or(Status::INVALID_HANDLE)?;
        state.functions.retain(|_, f| f.module != serial);
        let device = state.contexts.get(&context).ok_or(Status::INVALID_CONTEXT)?.device;
        module.loaded.unload(&machine.memories[device]).map_err(|_| Status::INVALID_VALUE)?;
        state.lost(context)
    }
    function(out: *mut CUfunction, module: CUmodule, name: *const c_char) {
        let (machine, serial) = resolve(module, Kind::Module)?;
        let name = text_of(name)?;
        let state = machine.state();
        let module = state.modules.get(&serial).ok_or(Status::INVALID_HANDLE)?;
        state.lost(module.context)?;
        let mut functions = state.functions.iter();
        let found = functions.find(|(_, f)| f.module == serial && f.kernel == name);
        let (&function, _) = found.ok_or(Status::NOT_FOUND)?;
        put!(out, machine.handle(function, Kind::Function))
    }
    global(pointer: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char) {
        let (machine, serial) = resolve(module, Kind::Module)?;
        let name = text_of(name)?;
        let state = machine.state();
        let module = state.modules.get(&serial).ok_or(Status::INVALID_HANDLE)?;
        state.lost(module.context)?;
        let (address, size) = module.loaded.variable(name).ok_or(Status::NOT_FOUND)?;
        if !pointer.is_null() {
            put!(pointer, address)?;
        }
        if bytes.is_null() { Ok(()) } else { put!(bytes, size as usize) }
    }
}
