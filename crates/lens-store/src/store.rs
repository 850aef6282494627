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
//! A request is not atomic across signals, and a store does not survive a loss of power without the last
//! [`Options::sync_interval`] unless it was told to ([`Durability::Power`]).

mod append;
mod dedup;
mod error;
mod lock;
mod memory;
mod options;
mod replay;
mod snapshot;
mod sync;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;

pub use dedup::deduplicate;
use error::at;
pub use error::{Appended, Damage, Refusal, StoreError};
use lock::Lock;
use memory::Memory;
pub use memory::MemoryStats;
pub use options::{Clock, Durability, Options, SystemClock};
pub use snapshot::Snapshot;
use sync::Sync;

use crate::manifest::{Manifest, Table};
use crate::wal::{self, Log};

/// Folder of what could not be read any more.
const DAMAGED: &str = "damaged";

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
    state: RwLock<State>,
    sync: Sync,
    damage: Mutex<Vec<Damage>>,
}

/// What a snapshot is made of. Changed as a whole, so that no reader sees a half of a change (Q-1).
#[derive(Debug)]
struct State {
    memory: Arc<Memory>,
    manifest: Arc<Manifest>,
}

impl Store {
    /// Opens a store to write it; makes it when there is none.
    ///
    /// # Errors
    ///
    /// When another process writes it, or it cannot be read.
    pub fn open(folder: &Path, options: Options) -> Result<Self, StoreError> {
        let vfs = Arc::clone(&options.vfs);
        vfs.create_folder(folder).map_err(at("made", folder))?;
        let lock = Lock::take(folder)?;
        let manifest = match read_manifest(folder)? {
            Some(manifest) => manifest,
            None if has_segments(folder) => {
                return Err(StoreError::NoManifest(folder.to_owned()));
            }
            None => {
                let manifest = Manifest { next_number: 1, ..Manifest::default() };
                manifest
                    .write(&vfs, folder)
                    .map_err(|source| StoreError::Manifest { path: folder.to_owned(), source })?;
                manifest
            }
        };
        let logs = folder.join(wal::FOLDER);
        vfs.create_folder(&logs).map_err(at("made", &logs))?;

        let memory = Memory::default();
        let replayed = replay::replay(folder, manifest.watermark, &options, &memory)?;
        let last_number = replayed.files.last().map_or(0, |file| file.number);
        let last_seq = replayed.last_seq;
        let mut log =
            Log::new(Arc::clone(&vfs), &logs, options.wal_file_bytes, last_number, last_seq);
        for file in replayed.files {
            file.keep(&vfs, &mut log)?;
        }
        log.drop_through(manifest.watermark);
        replay::set_aside(&vfs, folder, &replayed.broken);
        let damage = replayed.broken.into_iter().map(|broken| broken.damage).collect();
        let shared = Arc::new(Shared {
            folder: folder.to_owned(),
            sync: Sync::new(last_seq),
            options,
            log: Some(Mutex::new(log)),
            state: RwLock::new(State { memory: Arc::new(memory), manifest: Arc::new(manifest) }),
            damage: Mutex::new(damage),
        });
        let mut store = Self { shared, threads: Vec::new(), _lock: Some(lock) };
        if store.shared.options.background {
            store.start_threads()?;
        }
        Ok(store)
    }

    /// Opens a store to read what it holds now, beside the process that writes it.
    ///
    /// # Errors
    ///
    /// When there is none, or it cannot be read.
    pub fn open_read_only(folder: &Path) -> Result<Self, StoreError> {
        let options = Options { background: false, ..Options::default() };
        let (state, damage) = replay::load(folder, &options)?;
        let shared = Arc::new(Shared {
            folder: folder.to_owned(),
            options,
            log: None,
            state: RwLock::new(state),
            sync: Sync::new(0),
            damage: Mutex::new(damage),
        });
        Ok(Self { shared, threads: Vec::new(), _lock: None })
    }

    /// Looks again at a store that is only read; nothing changes for one that is written.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn refresh(&self) -> Result<(), StoreError> {
        if self.shared.log.is_none() {
            let (state, damage) = replay::load(&self.shared.folder, &self.shared.options)?;
            *self.shared.state.write().unwrap_or_else(PoisonError::into_inner) = state;
            *locked(&self.shared.damage) = damage;
        }
        Ok(())
    }

    /// What it holds at this moment.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.shared.state();
        Snapshot::new(Arc::clone(&state.manifest), vec![state.memory.view()])
    }

    /// What was found broken.
    pub fn damage(&self) -> Vec<Damage> {
        locked(&self.shared.damage).clone()
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.shared.folder
    }

    /// Whether some process writes the store in a folder.
    pub fn is_written(folder: &Path) -> bool {
        Lock::is_held(folder)
    }

    /// What waits in memory for its segment.
    pub fn memory(&self) -> MemoryStats {
        self.shared.state().memory.stats()
    }

    /// Bytes of the log.
    pub fn wal_bytes(&self) -> u64 {
        self.shared.log.as_ref().map_or(0, |log| locked(log).bytes())
    }

    /// Ends its work: what it holds survives a loss of power once this returns.
    ///
    /// # Errors
    ///
    /// When the log could not be written out; it is whole unless the machine loses power.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.stop_threads();
        if self.shared.log.is_none() {
            return Ok(());
        }
        self.shared.sync_log().map_err(at("written out", &self.shared.folder.join(wal::FOLDER)))
    }

    fn start_threads(&mut self) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("lens-store-sync".to_owned());
        let thread = thread.spawn(move || shared.sync_until_stopped());
        self.threads.push(thread.map_err(at("served by a thread", &self.shared.folder))?);
        Ok(())
    }

    fn stop_threads(&mut self) {
        self.shared.sync.stop();
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
}

fn read_manifest(folder: &Path) -> Result<Option<Manifest>, StoreError> {
    let path = || folder.to_owned();
    Manifest::read(folder).map_err(|source| StoreError::Manifest { path: path(), source })
}

/// Whether there are files that only a manifest could have made count.
fn has_segments(folder: &Path) -> bool {
    Table::ALL.iter().any(|table| {
        let dates = std::fs::read_dir(folder.join(table.folder()));
        dates.is_ok_and(|mut dates| dates.next().is_some())
    })
}

/// A mutex whose owner panicked protects data that is whole: no change here is made in parts.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
