//! Processes as `/proc` shows them: who started whom, and how much memory each has.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::Path;

use gym_telemetry::host_memory::kib;
use rustix::io::Errno;

/// A process at the time of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    parent: u32,
    group: u32,
    /// Clock ticks since boot.
    started: u64,
}

impl Process {
    /// Reads `<pid> (<name>) <state> <parent> <group> …`; the name may hold anything. Nothing for one that has ended
    /// and only waits to be noticed.
    fn parse(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().take(20).collect();
        let [state, parent, group, ..] = fields[..] else { return None };
        if matches!(state, "Z" | "X" | "x") {
            return None;
        }
        Some(Self {
            parent: parent.parse().ok()?,
            group: group.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

/// Every process of the host, from one walk.
#[derive(Debug, Default)]
pub struct Table {
    processes: HashMap<u32, Process>,
    children: HashMap<u32, Vec<u32>>,
    groups: HashMap<u32, Vec<u32>>,
}

impl Table {
    /// Walks once; who ends meanwhile is not in it. Nothing when the walk could not be finished, as without a
    /// descriptor to spare: half a table would take servers for gone.
    pub fn read(proc: &Path) -> Option<Self> {
        let mut table = Self::default();
        for entry in fs::read_dir(proc).ok()? {
            let entry = entry.ok()?;
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // A name is bytes of anybody's choice.
            let stat = match fs::read(entry.path().join("stat")) {
                Ok(stat) => stat,
                Err(error) if is_its_own(&error) => continue,
                Err(_) => return None,
            };
            if let Some(process) = Process::parse(&String::from_utf8_lossy(&stat)) {
                table.processes.insert(pid, process);
                table.children.entry(process.parent).or_default().push(pid);
                table.groups.entry(process.group).or_default().push(pid);
            }
        }
        Some(table)
    }

    /// When a process started, in clock ticks since boot; `None` when there is none.
    pub fn started(&self, pid: u32) -> Option<u64> {
        self.processes.get(&pid).map(|process| process.started)
    }

    /// A process and everything below it, each once. What was left behind by a parent that ended is found by its
    /// process group, which is `root`'s for all that a server starts and does not move away itself.
    pub fn tree(&self, root: u32) -> Vec<u32> {
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        let mut waiting = vec![root];
        waiting.extend(self.groups.get(&root).into_iter().flatten());
        while let Some(pid) = waiting.pop() {
            if self.processes.contains_key(&pid) && seen.insert(pid) {
                found.push(pid);
                waiting.extend(self.children.get(&pid).into_iter().flatten());
            }
        }
        found
    }
}

/// Whether a process has ended or hides, which says nothing about the others.
fn is_its_own(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
        || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

/// Memory of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Pages in memory.
    pub rss_bytes: u64,
    /// The same, with what processes share divided among them; not every system tells.
    pub pss_bytes: Option<u64>,
}

impl Memory {
    /// Nothing when the process has ended, or cannot be looked at now.
    pub fn read(proc: &Path, pid: u32) -> Option<Self> {
        let folder = proc.join(pid.to_string());
        if let Ok(rollup) = fs::read_to_string(folder.join("smaps_rollup"))
            && let Some(rss) = kib(&rollup, "Rss:")
        {
            let pss_bytes = kib(&rollup, "Pss:").map(|pss| pss * 1024);
            return Some(Self { rss_bytes: rss * 1024, pss_bytes });
        }
        let statm = fs::read_to_string(folder.join("statm")).ok()?;
        let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
        // One that is ending has given its memory back already.
        let pss_bytes = (pages == 0).then_some(0);
        Some(Self { rss_bytes: pages * rustix::param::page_size() as u64, pss_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_the_rest_of_the_line() {
        let rest = "1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 99";
        let expected = Process { parent: 1, group: 7, started: 4711 };
        assert_eq!(Process::parse(&format!("12 (a) S 9 (b)) R {rest}")), Some(expected));
        assert_eq!(Process::parse(&format!("12 (python) Z {rest}")), None);
        assert_eq!(Process::parse("12 (cut"), None);
        assert_eq!(Process::parse("12 (cut) S 1 2"), None);
    }
}
