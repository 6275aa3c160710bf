//! How many threads to use when nobody says, and why that many.
//!
//! Decode is bound by memory bandwidth, which fewer threads than cores saturate; and a thread that loses its core
//! while it holds a chunk keeps all others waiting. So the default leaves a quarter of the usable CPUs to the rest
//! of the machine:
//!
//! ```text
//! usable = min(CPUs online, CPUs in the affinity mask, floor(cgroup quota)), at least 1
//! count  = ceil(usable * 3 / 4), at most 12
//! ```
//!
//! The standard library's `available_parallelism` folds the same three limits into one number (on Linux since
//! Rust 1.64), which is the right bound but cannot say which limit it was. Where `/proc` and `/sys` can be read
//! the limits are read one by one; where they cannot, its number stands in for all three.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZero;
use std::path::Path;

use crate::cgroup::{self, ReadFile};
use crate::{Error, MAX_THREADS};

/// The environment variable that overrides the default number of threads, the only one this crate reads.
pub const THREADS_VARIABLE: &str = "HALFBYTE_THREADS";

/// More threads than this made the decode of the model this was first measured on slower.
const MOST: usize = 12;

/// What the machine lets this process use.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct CpuLimits {
    /// CPUs that are online; 0 counts as 1.
    pub online: usize,
    /// CPUs in the affinity mask of the thread that asked, if known.
    pub affinity: Option<usize>,
    /// The tightest cgroup quota, in CPUs, if there is one.
    pub quota: Option<f64>,
}

/// A number of threads and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DefaultThreads {
    /// The number of threads, the caller's included: what [`ThreadPool::new`](crate::ThreadPool::new) takes.
    pub count: usize,
    /// One line for people, such as
    /// `three quarters of 4 usable CPUs, rounded up (16 online, affinity mask of 4)`.
    pub reason: String,
}

/// The default number of threads on this machine: [`CpuLimits::detect`] and the environment variable
/// [`THREADS_VARIABLE`], put together by [`CpuLimits::default_threads`]. An empty variable counts as unset.
///
/// # Errors
///
/// [`Error::Override`] if the variable is set and does not hold a number of threads.
pub fn default_threads() -> Result<DefaultThreads, Error> {
    // A value that is not Unicode is no number either: the error shows it with replacement characters.
    let wanted = std::env::var_os(THREADS_VARIABLE).filter(|value| !value.is_empty());
    CpuLimits::detect().default_threads(wanted.as_ref().map(|value| value.to_string_lossy()).as_deref())
}

impl CpuLimits {
    /// Limits as given.
    #[must_use]
    pub fn new(online: usize, affinity: Option<usize>, quota: Option<f64>) -> Self {
        Self { online, affinity, quota }
    }

    /// The limits of the calling thread. Reads a few small files on Linux; never fails, what cannot be told is
    /// left out.
    #[must_use]
    pub fn detect() -> Self {
        let available = std::thread::available_parallelism().map_or(1, NonZero::get);
        let read: ReadFile<'_> = &|path| std::fs::read_to_string(path).ok();
        if cfg!(target_os = "linux") {
            Self::from_files(available, read)
        } else {
            Self::new(available, None, None)
        }
    }

    fn from_files(available: usize, read: ReadFile<'_>) -> Self {
        let online = read(Path::new("/sys/devices/system/cpu/online")).and_then(|text| parse_cpu_list(&text));
        let mask = read(Path::new("/proc/thread-self/status")).and_then(|text| parse_affinity(&text));
        let quota = cgroup::quota(read);
        match (online, mask) {
            // The mask may name CPUs that could be plugged in but are not.
            (Some(online), Some(mask)) => {
                Self::new(online.len(), Some(online.intersection(&mask).count()), quota)
            }
            _ => Self::new(available, None, quota),
        }
    }

    /// CPUs this process can keep busy: the least of the limits, the quota rounded down, and at least 1.
    #[must_use]
    pub fn usable(&self) -> usize {
        // `as` saturates, and takes NaN for 0.
        let quota = self.quota.map_or(usize::MAX, |cpus| cpus.floor() as usize);
        self.online.min(self.affinity.unwrap_or(usize::MAX)).min(quota).max(1)
    }

    /// The default number of threads under these limits: three quarters of [`usable`](Self::usable), rounded up,
    /// at most 12; or `wanted`, the value of [`THREADS_VARIABLE`], as it is.
    ///
    /// ```
    /// use halfbyte_threadpool::CpuLimits;
    ///
    /// let limits = CpuLimits::new(16, None, Some(5.5));
    /// let threads = limits.default_threads(None)?;
    /// assert_eq!(threads.count, 4);
    /// assert_eq!(threads.reason, "three quarters of 5 usable CPUs, rounded up (16 online, cgroup quota of 5.5)");
    /// assert_eq!(limits.default_threads(Some("16"))?.count, 16);
    /// # Ok::<(), halfbyte_threadpool::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Override`] if `wanted` is not a whole number from 1 to [`MAX_THREADS`].
    pub fn default_threads(&self, wanted: Option<&str>) -> Result<DefaultThreads, Error> {
        if let Some(wanted) = wanted {
            let count = wanted.parse().ok().filter(|count| (1..=MAX_THREADS).contains(count));
            let count = count
                .ok_or_else(|| Error::Override { variable: THREADS_VARIABLE, got: wanted.to_owned() })?;
            return Ok(DefaultThreads { count, reason: format!("{THREADS_VARIABLE} is set to {count}") });
        }
        let usable = self.usable();
        let share = (usable - usable / 4).min(MOST);
        let cap = if share < usable - usable / 4 { ", at most 12" } else { ", rounded up" };
        let plural = if usable == 1 { "CPU" } else { "CPUs" };
        let reason = format!("three quarters of {usable} usable {plural}{cap} ({self})");
        Ok(DefaultThreads { count: share, reason })
    }
}

/// The limits that are below the one before, such as `16 online, affinity mask of 4, cgroup quota of 1.5`.
impl fmt::Display for CpuLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} online", self.online)?;
        if let Some(mask) = self.affinity.filter(|&mask| mask < self.online) {
            write!(f, ", affinity mask of {mask}")?;
        }
        if let Some(quota) = self.quota.filter(|&quota| quota < self.online as f64) {
            write!(f, ", cgroup quota of {quota}")?;
        }
        Ok(())
    }
}

/// The `Cpus_allowed_list` of the text of `/proc/<thread>/status`.
fn parse_affinity(status: &str) -> Option<BTreeSet<u16>> {
    parse_cpu_list(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?)
}

/// The kernel's list format, `0-3,8,10-11`; `None` if it is not that, or empty.
fn parse_cpu_list(text: &str) -> Option<BTreeSet<u16>> {
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = first.parse::<u16>().ok()?..=last.parse().ok()?;
        if range.is_empty() {
            return None;
        }
        cpus.extend(range);
    }
    Some(cpus)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn the_policy() {
        // online, affinity, quota, count; the first rows are the field cases: a quota of 1.5 CPUs on 16 cores,
        // and a mask of 4.
        let cases = [
            (16, None, Some(1.5), 1),
            (16, Some(4), None, 3),
            (16, Some(4), Some(1.5), 1),
            (16, Some(2), Some(8.0), 2),
            (16, None, Some(0.5), 1),
            (16, None, Some(2.999), 2),
            (16, None, Some(64.0), 12),
            (0, None, None, 1),
            (1, None, None, 1),
            (2, None, None, 2),
            (3, None, None, 3),
            (4, None, None, 3),
            (5, None, None, 4),
            (6, None, None, 5),
            (7, None, None, 6),
            (8, None, None, 6),
            (12, None, None, 9),
            (16, None, None, 12),
            (17, None, None, 12),
            (20, None, None, 12),
            (256, Some(256), Some(256.0), 12),
        ];
        for (online, affinity, quota, count) in cases {
            let limits = CpuLimits::new(online, affinity, quota);
            assert_eq!(limits.default_threads(None).unwrap().count, count, "{limits:?}");
        }
    }

    #[test]
    fn strange_quotas_leave_one_cpu_or_all() {
        for (quota, usable) in [(f64::NAN, 1), (-3.0, 1), (0.0, 1), (f64::INFINITY, 8)] {
            assert_eq!(CpuLimits::new(8, None, Some(quota)).usable(), usable, "{quota}");
        }
    }

    #[test]
    fn the_reason_names_what_limits() {
        let reason = |limits: CpuLimits| limits.default_threads(None).unwrap().reason;
        assert_eq!(
            reason(CpuLimits::new(16, Some(16), Some(1.5))),
            "three quarters of 1 usable CPU, rounded up (16 online, cgroup quota of 1.5)"
        );
        assert_eq!(
            reason(CpuLimits::new(16, Some(4), None)),
            "three quarters of 4 usable CPUs, rounded up (16 online, affinity mask of 4)"
        );
        assert_eq!(
            reason(CpuLimits::new(20, Some(20), Some(32.0))),
            "three quarters of 20 usable CPUs, at most 12 (20 online)"
        );
    }

    #[test]
    fn the_override_is_taken_as_it_is_or_refused() {
        let limits = CpuLimits::new(4, Some(2), Some(1.0));
        for (value, count) in [("1", 1), ("7", 7), ("1024", 1024)] {
            let threads = limits.default_threads(Some(value)).unwrap();
            assert_eq!(threads.count, count);
            assert_eq!(threads.reason, format!("HALFBYTE_THREADS is set to {count}"));
        }
        for value in ["", "0", "-1", "two", "2.5", " 2", "1025", "99999999999999999999999"] {
            let error = limits.default_threads(Some(value)).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("HALFBYTE_THREADS must be a whole number from 1 to 1024, got {value:?}")
            );
        }
    }

    #[test]
    fn cpu_lists_parse() {
        let count = |text| parse_cpu_list(text).map(|cpus| cpus.len());
        assert_eq!(count("0-15\n"), Some(16));
        assert_eq!(count("0-3,8,10-11\n"), Some(7));
        assert_eq!(count("5"), Some(1));
        for bad in ["", "\n", "a", "3-1", "0-", "0,,1", "0-99999999999"] {
            assert_eq!(count(bad), None, "{bad:?}");
        }
        let status = "Name:\tx\nCpus_allowed:\tf0\nCpus_allowed_list:\t4-7\nMems_allowed:\t1\n";
        assert_eq!(parse_affinity(status), parse_cpu_list("4-7"));
        assert_eq!(parse_affinity("Name:\tx\n"), None);
    }

    #[test]
    fn limits_come_from_the_files_or_else_from_the_standard_library() {
        let online = "0-7\n";
        let status = "Cpus_allowed_list:\t6-63\n";
        let read = |path: &Path| match path.to_str().unwrap() {
            "/sys/devices/system/cpu/online" => Some(online.to_owned()),
            "/proc/thread-self/status" => Some(status.to_owned()),
            _ => None,
        };
        assert_eq!(CpuLimits::from_files(99, &read), CpuLimits::new(8, Some(2), None));
        assert_eq!(CpuLimits::from_files(3, &|_| None), CpuLimits::new(3, None, None));
    }

    #[test]
    fn this_machine_agrees_with_the_standard_library() {
        // Both take the least of mask and whole quota; no test of this crate changes either meanwhile.
        let available = std::thread::available_parallelism().unwrap().get();
        assert_eq!(CpuLimits::detect().usable(), available, "{:?}", CpuLimits::detect());
    }
}
