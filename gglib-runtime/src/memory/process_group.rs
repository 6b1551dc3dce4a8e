//! What the processes of one group hold, from `/proc` (proc(5)).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The memory of a group, in bytes.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) processes: Vec<u32>,
    /// Not backed by a file; shared memory included.
    pub(super) anonymous: u64,
    /// The same, as far as it is in swap.
    pub(super) swapped: u64,
    /// Of model files, each part once.
    pub(super) mapped: u64,
}

/// Measures the group led by `leader`; `None` when it has no process, and wherever there is no `/proc`.
pub(super) fn measure(leader: u32) -> Option<Group> {
    let mut group = Group::default();
    // Part of a file, by device, inode and offset: its length.
    let mut parts = BTreeMap::new();
    for process in
        fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
    {
        // Any of these files may be gone: the process has ended then.
        let read = |file: &str| fs::read_to_string(format!("/proc/{process}/{file}"));
        if read("stat").ok().and_then(|stat| group_of(&stat)) != Some(leader) {
            continue;
        }
        group.processes.push(process);
        let status = read("status").unwrap_or_default();
        group.anonymous = group.anonymous.saturating_add(bytes(&status, &["RssAnon:", "RssShmem:"]));
        group.swapped = group.swapped.saturating_add(bytes(&status, &["VmSwap:"]));
        parts.extend(read("maps").unwrap_or_default().lines().filter_map(part_of_model));
    }
    group.mapped = parts.into_values().fold(0, u64::saturating_add);
    (!group.processes.is_empty()).then_some(group)
}

/// The fifth field; the second, a name in parentheses, may hold anything.
fn group_of(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok()
}

/// The sum of these members of a `status` file.
fn bytes(status: &str, members: &[&str]) -> u64 {
    let kibibytes = |name: &&str| {
        let line = status.lines().find_map(|line| line.strip_prefix(*name));
        line.and_then(|value| value.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0)
    };
    members.iter().map(kibibytes).fold(0, u64::saturating_add).saturating_mul(1024)
}

/// Where a mapped part of a model file lies and how long it is, of a line such as
/// `7f00-7f10 r--s 00001000 08:01 42    /models/a.gguf`.
fn part_of_model(line: &str) -> Option<((String, u64, u64), u64)> {
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let hexadecimal = |number| u64::from_str_radix(number, 16).ok();
    let len = hexadecimal(end)?.checked_sub(hexadecimal(start)?)?;
    let offset = hexadecimal(fields.nth(1)?)?;
    let device = fields.next()?.to_owned();
    let inode = fields.next()?.parse().ok()?;
    let extension = Path::new(line.trim_end_matches(" (deleted)")).extension()?;
    extension.eq_ignore_ascii_case("gguf").then_some(((device, inode, offset), len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_found_behind_any_name() {
        assert_eq!(group_of("12 (a) b (c) S 1 34 56 0"), Some(34));
        assert_eq!(group_of("12"), None);
    }

    #[test]
    fn shared_memory_is_no_file_either() {
        let status =
            "VmRSS:\t 100 kB\nRssAnon:\t  60 kB\nRssFile:\t  30 kB\nRssShmem:\t  10 kB\nVmSwap:\t  5 kB\n";
        assert_eq!(bytes(status, &["RssAnon:", "RssShmem:"]), 70 * 1024);
        assert_eq!(bytes(status, &["VmSwap:"]), 5 * 1024);
        assert_eq!(bytes("", &["RssAnon:"]), 0);
    }

    #[test]
    fn only_model_files_count_as_mapped() {
        let part = |line| part_of_model(line).map(|(_, len)| len);
        assert_eq!(part("7f0000001000-7f0000003000 r--s 00000000 08:01 42    /m/a b.GGUF"), Some(0x2000));
        assert_eq!(
            part("7f0000001000-7f0000003000 r--s 00000000 08:01 42    /m/a.gguf (deleted)"),
            Some(0x2000)
        );
        assert_eq!(part("7f0000001000-7f0000003000 r-xp 00000000 08:01 43    /lib/libc.so"), None);
        assert_eq!(part("7f0000001000-7f0000003000 rw-p 00000000 00:00 0"), None);
        assert_eq!(part(""), None);
        assert_eq!(part("gguf"), None);
    }
}
