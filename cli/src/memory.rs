//! The memory of the machine, as far as the system reports it.

use std::fs;

use halfbyte_threadpool::MemoryLimit;

/// Bytes of memory; `None` where the system does not report them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// What the machine has, or the control group's limit where that is less.
    pub(crate) total: Option<u64>,
    /// What could be used without swapping.
    pub(crate) available: Option<u64>,
}

/// Asks the system; Linux only.
pub(crate) fn detect() -> Memory {
    let machine = fs::read_to_string("/proc/meminfo").map(|text| parse_meminfo(&text)).unwrap_or_default();
    MemoryLimit::detect().into_iter().fold(machine, Memory::within)
}

impl Memory {
    /// The same under a control group's limit.
    fn within(self, MemoryLimit { limit, used }: MemoryLimit) -> Self {
        let least = |a: Option<u64>, b: u64| Some(a.map_or(b, |a| a.min(b)));
        Self {
            total: least(self.total, limit),
            available: match used {
                Some(used) => least(self.available, limit.saturating_sub(used)),
                None => self.available,
            },
        }
    }
}

/// The fields of `/proc/meminfo`, which are in KiB.
fn parse_meminfo(text: &str) -> Memory {
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    Memory { total: field("MemTotal"), available: field("MemAvailable") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo() {
        let text = "MemTotal:       16384256 kB\nMemFree:         1 kB\nMemAvailable:    8192000 kB\n";
        let memory = parse_meminfo(text);
        assert_eq!(memory, Memory { total: Some(16_777_478_144), available: Some(8_388_608_000) });
        assert_eq!(parse_meminfo("MemTotal: many kB\n"), Memory::default());
    }

    #[test]
    fn a_group_limits_the_machine() {
        let machine = Memory { total: Some(100), available: Some(80) };
        let within = |limit, used| machine.within(MemoryLimit { limit, used });
        assert_eq!(within(50, Some(20)), Memory { total: Some(50), available: Some(30) });
        assert_eq!(within(50, None), Memory { total: Some(50), available: Some(80) });
        assert_eq!(within(500, Some(20)), machine);
    }
}
