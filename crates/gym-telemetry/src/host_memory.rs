//! Memory of this host, as Linux counts it.

use std::{fs, path::Path};

/// Where Linux tells about processes and memory.
pub const PROC: &str = "/proc";

/// Said once, where memory was to be sampled on another system.
pub const UNSUPPORTED: &str = "memory is not sampled: that is supported on Linux only";

/// How much memory there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMemory {
    /// All of it.
    pub total_bytes: u64,
    /// What can be had without swapping.
    pub available_bytes: u64,
}

impl HostMemory {
    /// Reads `meminfo` below `proc`; `None` where there is none.
    pub fn read(proc: &Path) -> Option<Self> {
        let text = fs::read_to_string(proc.join("meminfo")).ok()?;
        Some(Self {
            total_bytes: kib(&text, "MemTotal:")? * 1024,
            available_bytes: kib(&text, "MemAvailable:")? * 1024,
        })
    }

    /// What cannot be had without swapping.
    pub fn used_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.available_bytes)
    }
}

/// The number of a line `<key>   <number> kB`, which is in KiB.
pub fn kib(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_available_is_used() {
        let proc = tempfile::tempdir().unwrap();
        assert_eq!(HostMemory::read(proc.path()), None);
        let text = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\n";
        fs::write(proc.path().join("meminfo"), text).unwrap();
        let memory = HostMemory::read(proc.path()).unwrap();
        assert_eq!((memory.total_bytes, memory.available_bytes), (1_024_000, 409_600));
        assert_eq!(memory.used_bytes(), 614_400);
    }
}
