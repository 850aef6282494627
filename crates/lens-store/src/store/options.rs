//! What a store is told when it is opened.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::policy::Policy;
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

/// When memory is written into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushOptions {
    /// With so many spans.
    pub max_spans: u64,
    /// With so many bytes.
    pub max_bytes: u64,
    /// When its oldest request is so old.
    pub max_age: Duration,
    /// The same, while it has less than a hundredth of [`Self::max_spans`]: else an idle store consists of small files.
    pub idle_age: Duration,
}

impl Default for FlushOptions {
    fn default() -> Self {
        Self {
            max_spans: 1_000_000,
            max_bytes: 256 << 20,
            max_age: Duration::from_secs(15),
            idle_age: Duration::from_secs(60),
        }
    }
}

/// What is removed, whole segments at a time, oldest arrival first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Segments whose newest row was received longer ago.
    pub max_age: Option<Duration>,
    /// The oldest, until the others are no more than this.
    pub max_bytes: Option<u64>,
}

/// When segments are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// A date may have so many small segments.
    pub max_small_files: usize,
    /// Smaller ones are small.
    pub small_bytes: u64,
    /// What is merged at once is no larger.
    pub max_bytes: u64,
}

impl Default for Compaction {
    fn default() -> Self {
        Self { max_small_files: 32, small_bytes: 64 << 20, max_bytes: 512 << 20 }
    }
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
    /// When memory is written into segments.
    pub flush: FlushOptions,
    /// What is removed.
    pub retention: Retention,
    /// When segments are merged.
    pub compaction: Compaction,
    /// Which rollouts keep their spans; all do without one.
    pub policy: Option<Policy>,
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
            max_memory_bytes: 512 << 20,
            flush: FlushOptions::default(),
            retention: Retention::default(),
            compaction: Compaction::default(),
            policy: None,
            max_request_bytes: 64 << 20,
            clock: Arc::new(SystemClock),
            vfs: Arc::new(RealFiles),
            background: true,
        }
    }
}
