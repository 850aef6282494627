//! What a store is told when it is opened.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::vfs::{RealFiles, Vfs};

/// Tells the time of day.
pub trait Clock: Debug + Send + Sync {
    /// Unix nanoseconds.
    fn now_nanos(&self) -> u64;
}

/// The clock of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_nanos(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// What an acknowledged request survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The end of this process, whatever ends it; of a loss of power all but the last [`Options::sync_interval`].
    #[default]
    Process,
    /// A loss of power too; requests that come together share a call of `fdatasync`.
    Power,
}

/// Settings of a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// What an acknowledged request survives.
    pub durability: Durability,
    /// How often the log is made to survive a loss of power.
    pub sync_interval: Duration,
    /// Bytes of a file of the log.
    pub wal_file_bytes: u64,
    /// Bytes of the log beyond which requests are refused.
    pub max_wal_bytes: u64,
    /// Bytes of requests in memory beyond which requests are refused.
    pub max_memory_bytes: u64,
    /// Longest request when it is inflated.
    pub max_request_bytes: usize,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Where files are.
    pub vfs: Arc<dyn Vfs>,
    /// Work is done by threads of the store; without, by who calls [`super::Store::maintain`].
    pub background: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            sync_interval: Duration::from_millis(200),
            wal_file_bytes: 128 << 20,
            max_wal_bytes: 2 << 30,
            max_memory_bytes: 768 << 20,
            max_request_bytes: 64 << 20,
            clock: Arc::new(SystemClock),
            vfs: Arc::new(RealFiles),
            background: true,
        }
    }
}
