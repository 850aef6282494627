//! A store: a folder that one process writes and any number read.
//!
//! ```text
//! LOCK                                    held by the writer
//! manifest.json                           what counts; replaced whole
//! wal/0000000042.wal                      requests as received, after the manifest's watermark
//! spans/date=2026-11-29/000123-l0.parquet and traces/, rollouts/, logs/, points/, index/
//! damaged/                                what could not be read any more
//! ```
//!
//! # Guarantees
//!
//! * **W-1** What was acknowledged is found again after the process was killed, whenever that was.
//! * **W-2** A request is in exactly one of the log after the watermark and the committed segments.
//! * **Q-1** A [`Snapshot`] sees one state of the segments together with one state of what is in memory.
//!
//! * **S-1** A file of a segment is whole once it has its name, and does not change; **S-2** its rows lie in the order
//!   of (trace id, start); **S-3** they belong to its date, which for a time that cannot be believed is that of arrival.
//!
//! A request is not atomic across signals, and a store does not survive a loss of power without the last
//! [`Options::sync_interval`] unless it was told to ([`Durability::Power`]).

mod append;
mod carried;
mod commit;
mod compact;
mod date;
mod dedup;
mod error;
mod files;
mod flush;
mod lock;
mod maintain;
mod memory;
mod open;
mod options;
mod policy;
mod replay;
mod retain;
mod rows;
mod segments;
mod snapshot;
mod sync;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;

use commit::Upkeep;
pub use dedup::deduplicate;
use error::at;
pub use error::{Appended, Damage, Refusal, StoreError};
use lock::Lock;
use maintain::Maintenance;
use memory::Memory;
pub use memory::MemoryStats;
pub use options::{Clock, Compaction, Durability, FlushOptions, Options, Retention, SystemClock};
pub use policy::Policy;
use rows::RowCache;
pub use segments::Segment;
pub use snapshot::Snapshot;
use sync::Sync;

use crate::manifest::{self, Manifest};
use crate::segment::SpanBuffers;
use crate::wal::{self, Log};

/// Folder of what could not be read any more.
pub const DAMAGED: &str = "damaged";

/// An open store. Dropped without [`Store::close`] it is as if its process had been killed.
#[derive(Debug)]
pub struct Store {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// None when it is only read. Declared last, so that it goes last.
    _lock: Option<Lock>,
}

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    options: Options,
    /// None when it is only read. Whoever has it decides the order of requests, in the log and in memory.
    log: Option<Mutex<Log>>,
    /// Whose turn it is to merge or remove segments. Taken before `upkeep`, `log` and `state`, in this order.
    turn: Mutex<()>,
    upkeep: Mutex<Upkeep>,
    /// What `upkeep` carries from flush to flush, for who must not wait for it.
    carried_bytes: AtomicU64,
    state: RwLock<State>,
    sync: Sync,
    maintenance: Maintenance,
    damage: Arc<Mutex<Vec<Damage>>>,
    rows: Arc<Mutex<RowCache>>,
    /// The memory in which the last file was made, as long as spans come.
    buffers: Mutex<SpanBuffers>,
}

/// What a snapshot is made of. Changed as a whole, so that no reader sees a half of a change (Q-1).
#[derive(Debug)]
struct State {
    /// What was received last.
    active: Arc<Memory>,
    /// What was received before, while it is being written into segments.
    frozen: Option<Arc<Memory>>,
    manifest: Arc<Manifest>,
    /// Those of the manifest that can be read.
    segments: Arc<Vec<Arc<Segment>>>,
}

impl Store {
    /// What it holds at this moment.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.shared)
    }

    /// What was found broken.
    pub fn damage(&self) -> Vec<Damage> {
        locked(&self.shared.damage).clone()
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.shared.folder
    }

    /// Whether there is a store in a folder.
    pub fn is_in(folder: &Path) -> bool {
        folder.join(manifest::NAME).is_file()
    }

    /// Whether some process writes the store in a folder.
    pub fn is_written(folder: &Path) -> bool {
        Lock::is_held(folder)
    }

    /// What waits in memory for its segment.
    pub fn memory(&self) -> MemoryStats {
        self.shared.memory_stats()
    }

    /// Bytes of spans that are in segments and are kept in memory until the next flush.
    pub fn carried_bytes(&self) -> u64 {
        self.shared.carried_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the log.
    pub fn wal_bytes(&self) -> u64 {
        self.shared.log.as_ref().map_or(0, |log| locked(log).bytes())
    }

    /// Ends its work: what it holds is in segments once this returns, as far as they can be written, and survives a
    /// loss of power.
    ///
    /// # Errors
    ///
    /// When neither segments nor the log could be written out; the log is whole unless the machine loses power.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.stop_threads();
        if self.shared.log.is_none() || self.flush().is_ok() {
            return Ok(());
        }
        self.shared.sync_log().map_err(at("written out", &self.shared.folder.join(wal::FOLDER)))
    }

    fn stop_threads(&mut self) {
        self.shared.sync.stop();
        self.shared.maintenance.stop();
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop_threads();
    }
}

impl Shared {
    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of what is frozen too.
    fn memory_stats(&self) -> MemoryStats {
        let state = self.state();
        let frozen = state.frozen.as_ref().map(|frozen| frozen.stats());
        frozen.into_iter().fold(state.active.stats(), MemoryStats::with_older)
    }
}

fn read_manifest(folder: &Path) -> Result<Option<Manifest>, StoreError> {
    let path = || folder.to_owned();
    Manifest::read(folder).map_err(|source| StoreError::Manifest { path: path(), source })
}

/// A mutex whose owner panicked protects data that is whole: no change here is made in parts.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
