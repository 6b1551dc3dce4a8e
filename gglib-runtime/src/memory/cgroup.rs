//! What the control groups that we run in leave us, versions 1 and 2 (the kernel's `cgroup-v2.rst`, `memory.rst`).

use std::fs;
use std::path::Path;

/// Of the tightest group; everything when there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// In bytes.
    pub(super) limit: u64,
    /// Of the limit, in bytes; caches that the kernel would give up count as available.
    pub(super) available: u64,
}

impl Bounds {
    const NONE: Self = Self { limit: u64::MAX, available: u64::MAX };
}

/// The files of one version of the interface.
struct Interface {
    /// Where its hierarchy is mounted.
    mount: &'static str,
    /// Limits: at a `high` one the kernel slows a process down until it is useless.
    limits: &'static [&'static str],
    usage: &'static str,
    /// In `memory.stat`.
    reclaimable: &'static str,
}

const V2: Interface = Interface {
    mount: "sys/fs/cgroup",
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    reclaimable: "inactive_file",
};

const V1: Interface = Interface {
    mount: "sys/fs/cgroup/memory",
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    reclaimable: "total_inactive_file",
};

/// Of the groups that this process, and so its engines, belongs to.
pub(super) fn bounds() -> Bounds {
    bounds_below(Path::new("/"))
}

fn bounds_below(root: &Path) -> Bounds {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    groups.lines().filter_map(hierarchy).fold(Bounds::NONE, |tightest, (interface, group)| {
        let mount = root.join(interface.mount);
        // A container sees its own group as the root, whatever the path says: the mount itself always counts.
        let group = mount.join(group.trim_start_matches('/'));
        let levels = group.ancestors().take_while(|level| level.starts_with(&mount));
        levels.fold(tightest, |tightest, level| {
            let Bounds { limit, available } = of_level(interface, level);
            Bounds { limit: tightest.limit.min(limit), available: tightest.available.min(available) }
        })
    })
}

/// The memory hierarchy in a line of `/proc/self/cgroup`: its number, controllers and our group, with colons.
fn hierarchy(line: &str) -> Option<(&'static Interface, &str)> {
    let (number, rest) = line.split_once(':')?;
    let (controllers, group) = rest.split_once(':')?;
    if number == "0" && controllers.is_empty() {
        return Some((&V2, group));
    }
    controllers.split(',').any(|controller| controller == "memory").then_some((&V1, group))
}

fn of_level(interface: &Interface, directory: &Path) -> Bounds {
    // `max` is no number, and no limit.
    let read = |file: &str| fs::read_to_string(directory.join(file)).ok()?.trim().parse::<u64>().ok();
    let Some(limit) = interface.limits.iter().filter_map(|file| read(file)).min() else {
        return Bounds::NONE;
    };
    let stat = fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
    let reclaimable =
        stat.lines().find_map(|line| line.strip_prefix(interface.reclaimable)?.trim().parse().ok());
    let used = read(interface.usage).unwrap_or(0).saturating_sub(reclaimable.unwrap_or(0));
    Bounds { limit, available: limit.saturating_sub(used) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bounds in a tree of these files.
    fn bounds(files: &[(&str, &str)]) -> (u64, u64) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let Bounds { limit, available } = bounds_below(root.path());
        (limit, available)
    }

    #[test]
    fn without_groups_or_limits_there_is_no_bound() {
        assert_eq!(bounds(&[]), (u64::MAX, u64::MAX));
        let unlimited = [
            ("proc/self/cgroup", "0::/a\n"),
            ("sys/fs/cgroup/a/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.high", "max\n"),
        ];
        assert_eq!(bounds(&unlimited), (u64::MAX, u64::MAX));
    }

    #[test]
    fn the_tightest_group_on_the_way_up_counts_and_so_does_high() {
        let files = [
            ("proc/self/cgroup", "0::/slice/unit\n"),
            ("sys/fs/cgroup/slice/memory.max", "4000\n"),
            ("sys/fs/cgroup/slice/memory.current", "3500\n"),
            ("sys/fs/cgroup/slice/memory.stat", "anon 1\ninactive_file 500\n"),
            ("sys/fs/cgroup/slice/unit/memory.max", "9000\n"),
            ("sys/fs/cgroup/slice/unit/memory.high", "3000\n"),
            ("sys/fs/cgroup/slice/unit/memory.current", "100\n"),
        ];
        assert_eq!(bounds(&files), (3000, 1000));
    }

    #[test]
    fn in_a_container_the_mount_is_our_group() {
        let files = [
            ("proc/self/cgroup", "0::/system.slice/docker-1.scope\n"),
            ("sys/fs/cgroup/memory.max", "4000\n"),
            ("sys/fs/cgroup/memory.current", "1000\n"),
        ];
        assert_eq!(bounds(&files), (4000, 3000));
    }

    #[test]
    fn version_1_has_other_names() {
        let files = [
            ("proc/self/cgroup", "5:cpu,memory:/a\n4:blkio:/b\n0::/\nnonsense\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4000\n"),
            ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "3000\n"),
            ("sys/fs/cgroup/memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file 500\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(bounds(&files), (4000, 1500));
    }
}
