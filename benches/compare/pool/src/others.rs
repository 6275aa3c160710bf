//! How much CPU time other programs take, so that their noise is known and not measured.

use anyhow::{Context, Result};
use std::time::Instant;

/// CPU time of the whole machine and of this program with its children that have ended, in seconds.
#[derive(Clone, Copy, Debug)]
struct Used {
    machine: f64,
    own: f64,
}

/// Watches from when it is made.
#[derive(Debug)]
pub(crate) struct Others {
    since: Instant,
    before: Used,
}

impl Others {
    pub(crate) fn watch() -> Result<Self> {
        Ok(Self { since: Instant::now(), before: used()? })
    }

    /// The share of one CPU that other programs have taken since.
    pub(crate) fn share(&self) -> Result<f64> {
        let now = used()?;
        let others = (now.machine - self.before.machine) - (now.own - self.before.own);
        Ok((others / self.since.elapsed().as_secs_f64()).max(0.0))
    }
}

fn used() -> Result<Used> {
    let stat = std::fs::read_to_string("/proc/stat").context("/proc/stat")?;
    let total = stat.lines().next().context("/proc/stat is empty")?;
    let ticks: Vec<f64> = total.split_whitespace().skip(1).map(str::parse).collect::<Result<_, _>>()?;
    // User, nice, system; then idle and waiting, which are no use; then interrupts of both kinds.
    let busy: f64 = [0, 1, 2, 5, 6].into_iter().filter_map(|i| ticks.get(i)).sum();
    // SAFETY: asks for a number, touches no memory.
    let ticks_a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let own = rusage(libc::RUSAGE_SELF) + rusage(libc::RUSAGE_CHILDREN);
    Ok(Used { machine: busy / ticks_a_second, own })
}

fn rusage(who: libc::c_int) -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a structure of the right type that outlives the call.
    let status = unsafe { libc::getrusage(who, usage.as_mut_ptr()) };
    assert_eq!(status, 0, "getrusage knows both");
    // SAFETY: zeros are a valid value, and the call has filled it.
    let usage = unsafe { usage.assume_init() };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
