//! Tying a worker to one CPU.

use std::io;

use crate::sync::JoinHandle;

/// Lets the thread of `handle` run on `cpu` only.
#[cfg(all(target_os = "linux", not(any(loom, miri))))]
pub(crate) fn pin(handle: &JoinHandle<()>, cpu: usize) -> io::Result<()> {
    use std::os::unix::thread::JoinHandleExt;

    // A mask as the kernel reads it, one bit a CPU in machine words, as long as the CPU asks for: it is not bound
    // to the size of `cpu_set_t`.
    const WORD: usize = libc::c_ulong::BITS as usize;
    const MOST: usize = 1 << 16;
    if cpu >= MOST {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut mask: Vec<libc::c_ulong> = vec![0; (cpu / WORD + 1).max(size_of::<libc::cpu_set_t>() * 8 / WORD)];
    mask[cpu / WORD] = 1 << (cpu % WORD);
    // SAFETY: the thread is not joined, since its handle is here; the kernel reads as many bytes of the mask as
    // it has.
    let status = unsafe {
        libc::pthread_setaffinity_np(
            handle.as_pthread_t(),
            size_of_val(mask.as_slice()),
            mask.as_ptr().cast::<libc::cpu_set_t>(),
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(status)) }
}

/// Where the system has no way to, or none that this crate knows.
#[cfg(not(all(target_os = "linux", not(any(loom, miri)))))]
pub(crate) fn pin(_handle: &JoinHandle<()>, _cpu: usize) -> io::Result<()> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}
