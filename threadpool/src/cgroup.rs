//! Linux control groups: how much CPU time and memory this process may use.
//!
//! A CPU quota (`docker run --cpus=1.5`, a Kubernetes limit, a systemd `CPUQuota`) does not hide CPUs; it stops all
//! threads of the group for the rest of a period once they have used the group's time. Threads beyond the quota
//! therefore cost more than they bring, and one stopped while holding a chunk stops the whole call.
//!
//! Versions 1 and 2 differ in file names and formats:
//!
//! | | v1, controller `cpu` | v2 |
//! |---|---|---|
//! | line in `/proc/self/cgroup` | `4:cpu,cpuacct:/path` | `0::/path` |
//! | CPU limit | `cpu.cfs_quota_us`, -1 for none, and `cpu.cfs_period_us` | `cpu.max`: `max 100000` or `150000 100000` |
//! | memory limit | `memory.limit_in_bytes`, a huge number for none | `memory.max`: `max` or a number |
//! | memory in use | `memory.usage_in_bytes` | `memory.current` |
//!
//! A limit binds all groups below it, so every directory from the process's own up to the mount point counts. In
//! a container the path may be the host's; the mount's root, in `/proc/self/mountinfo`, says which part of it is
//! the mount point. Source: the kernel's `Documentation/scheduler/sched-bwc.rst`, `admin-guide/cgroup-v2.rst` and
//! proc(5).

use std::path::{Component, Path, PathBuf};

/// Reads a small file; `None` if it is not there or not readable.
pub(crate) type ReadFile<'a> = &'a dyn Fn(&Path) -> Option<String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// A memory limit of a control group and how much of it is used, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// What the processes of the group may use together.
    pub limit: u64,
    /// What they use, caches of files included; `None` if it cannot be told.
    pub used: Option<u64>,
}

impl MemoryLimit {
    /// The limits of the control groups that this process is in, the innermost first. Reads a few small files on
    /// Linux; there are none on other systems, without limits, and where they cannot be told.
    #[must_use]
    pub fn detect() -> Vec<Self> {
        if cfg!(target_os = "linux") {
            memory_limits(&|path| std::fs::read_to_string(path).ok())
        } else {
            Vec::new()
        }
    }
}

/// The memory limits over this process.
fn memory_limits(read: ReadFile<'_>) -> Vec<MemoryLimit> {
    let number = |path: PathBuf| read(&path)?.trim().parse::<u64>().ok();
    let limits = all_dirs("memory", read).into_iter().filter_map(|(version, dir)| {
        let (limit, used) = match version {
            Version::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            Version::V2 => ("memory.max", "memory.current"),
        };
        Some(MemoryLimit { limit: number(dir.join(limit))?, used: number(dir.join(used)) })
    });
    limits.collect()
}

/// The directories whose limits by `controller` bind this process.
fn all_dirs(controller: &str, read: ReadFile<'_>) -> Vec<(Version, PathBuf)> {
    let groups = read(Path::new("/proc/self/cgroup"));
    let mounts = read(Path::new("/proc/self/mountinfo"));
    groups.zip(mounts).map_or_else(Vec::new, |(groups, mounts)| group_dirs(controller, &groups, &mounts))
}

/// The tightest CPU quota over this process, in CPUs; `None` if there is none or it cannot be told.
pub(crate) fn quota(read: ReadFile<'_>) -> Option<f64> {
    all_dirs("cpu", read)
        .into_iter()
        .filter_map(|(version, dir)| match version {
            Version::V1 => {
                parse_cfs(&read(&dir.join("cpu.cfs_quota_us"))?, &read(&dir.join("cpu.cfs_period_us"))?)
            }
            Version::V2 => parse_cpu_max(&read(&dir.join("cpu.max"))?),
        })
        .min_by(f64::total_cmp)
}

/// The directories whose limits by `controller` bind the process, from the text of `/proc/self/cgroup` and `mountinfo`.
fn group_dirs(controller: &str, groups: &str, mounts: &str) -> Vec<(Version, PathBuf)> {
    let mut dirs = Vec::new();
    for (version, path) in groups.lines().filter_map(|line| parse_group(line, controller)) {
        for (root, mount) in mounts.lines().filter_map(|line| parse_mount(line, version, controller)) {
            // Not below the root, or with `..`: the group is outside what is mounted here, of which the mount
            // point is the nearest.
            let below = Path::new(path)
                .strip_prefix(root)
                .ok()
                .filter(|below| below.components().all(|part| matches!(part, Component::Normal(_))))
                .unwrap_or(Path::new(""));
            let levels = below.ancestors().map(|level| (version, Path::new(mount).join(level)));
            dirs.extend(levels);
        }
    }
    dirs
}

/// Version and path of a line of `/proc/self/cgroup` for a hierarchy in which `controller` may set limits.
fn parse_group<'a>(line: &'a str, controller: &str) -> Option<(Version, &'a str)> {
    let mut fields = line.splitn(3, ':');
    let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    if id == "0" && controllers.is_empty() {
        Some((Version::V2, path))
    } else if controllers.split(',').any(|name| name == controller) {
        Some((Version::V1, path))
    } else {
        None
    }
}

/// Root and mount point of a line of `mountinfo` that mounts the hierarchy with the controller's limits of this version.
fn parse_mount<'a>(line: &'a str, version: Version, controller: &str) -> Option<(&'a str, &'a str)> {
    // id parent device root mount-point options [optional...] - type source super-options
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let (root, mount) = (left.next()?, left.next()?);
    let mut right = right.split(' ');
    let (kind, _source, options) = (right.next()?, right.next()?, right.next()?);
    let fits = match version {
        Version::V1 => kind == "cgroup" && options.split(',').any(|name| name == controller),
        Version::V2 => kind == "cgroup2",
    };
    fits.then_some((root, mount))
}

/// CPUs allowed by v2's `cpu.max`; `None` for `max` and for what is not a limit.
fn parse_cpu_max(text: &str) -> Option<f64> {
    let mut fields = text.split_whitespace();
    cpus(fields.next()?, fields.next().unwrap_or("100000"))
}

/// CPUs allowed by v1's quota and period files; `None` for -1 and for what is not a limit.
fn parse_cfs(quota: &str, period: &str) -> Option<f64> {
    cpus(quota.trim(), period.trim())
}

fn cpus(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0).then(|| quota as f64 / period as f64)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn file(files: &[(&str, &str)], path: &Path) -> Option<String> {
        let (_, text) = files.iter().find(|(name, _)| Path::new(name) == path)?;
        Some((*text).to_owned())
    }

    fn quota_of(files: &[(&str, &str)]) -> Option<f64> {
        quota(&|path| file(files, path))
    }

    #[test]
    fn memory_limits_of_both_versions() {
        let v2 = [
            ("/proc/self/cgroup", "0::/a/b\n"),
            ("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "1000\n"),
            ("/sys/fs/cgroup/a/memory.current", "400\n"),
            ("/sys/fs/cgroup/memory.max", "5000\n"),
        ];
        let expected =
            [MemoryLimit { limit: 1000, used: Some(400) }, MemoryLimit { limit: 5000, used: None }];
        assert_eq!(memory_limits(&|path| file(&v2, path)), expected);
        let v1 = [
            ("/proc/self/cgroup", "9:memory:/docker/x\n4:cpu:/docker/x\n"),
            (
                "/proc/self/mountinfo",
                "40 30 0:32 /docker/x /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
            ),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "700\n"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "30\n"),
        ];
        assert_eq!(memory_limits(&|path| file(&v1, path)), [MemoryLimit { limit: 700, used: Some(30) }]);
        assert!(memory_limits(&|_| None).is_empty());
    }

    #[test]
    fn limits_parse() {
        assert_eq!(parse_cpu_max("150000 100000\n"), Some(1.5));
        assert_eq!(parse_cpu_max("max 100000\n"), None);
        assert_eq!(parse_cpu_max("50000\n"), Some(0.5));
        assert_eq!(parse_cpu_max(""), None);
        assert_eq!(parse_cpu_max("100000 0"), None);
        assert_eq!(parse_cfs("400000\n", "100000\n"), Some(4.0));
        assert_eq!(parse_cfs("-1\n", "100000\n"), None);
        assert_eq!(parse_cfs("abc", "100000"), None);
    }

    #[test]
    fn v2_takes_the_tightest_level() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let files = [
            ("/proc/self/cgroup", "0::/user.slice/run-1.scope\n"),
            ("/proc/self/mountinfo", mounts),
            ("/sys/fs/cgroup/user.slice/run-1.scope/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n"),
        ];
        assert_eq!(quota_of(&files), Some(1.5));
    }

    #[test]
    fn v1_inside_a_container_uses_the_mounts_root() {
        let mounts = "\
            40 30 0:32 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n\
            41 30 0:33 /docker/abc /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n";
        let files = [
            ("/proc/self/cgroup", "11:cpuset:/docker/abc\n4:cpu,cpuacct:/docker/abc\n"),
            ("/proc/self/mountinfo", mounts),
            ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ];
        assert_eq!(quota_of(&files), Some(2.5));
    }

    #[test]
    fn a_group_outside_the_mount_falls_back_to_the_mount_point() {
        let mounts = "30 23 0:26 /other /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        for path in ["0::/../../up\n", "0::/else\n"] {
            let files = [
                ("/proc/self/cgroup", path),
                ("/proc/self/mountinfo", mounts),
                ("/sys/fs/cgroup/cpu.max", "200000 100000\n"),
            ];
            assert_eq!(quota_of(&files), Some(2.0), "{path}");
        }
    }

    #[test]
    fn hybrid_reads_both_hierarchies() {
        let mounts = "\
            32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let dirs = group_dirs("cpu", "2:cpuacct:/a\n1:cpu:/b\n0::/\n", mounts);
        let expected = [
            (Version::V1, PathBuf::from("/sys/fs/cgroup/cpu/b")),
            (Version::V1, PathBuf::from("/sys/fs/cgroup/cpu")),
            (Version::V2, PathBuf::from("/sys/fs/cgroup/unified")),
        ];
        assert_eq!(dirs, expected);
    }

    #[test]
    fn missing_or_broken_files_are_no_limit() {
        assert_eq!(quota_of(&[]), None);
        let files =
            [("/proc/self/cgroup", "nonsense\n::\n0"), ("/proc/self/mountinfo", " - \n-\n1 2 3 - cgroup2")];
        assert_eq!(quota_of(&files), None);
    }
}
