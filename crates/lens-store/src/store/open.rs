//! Opening a store, to write it or to read it beside its writer.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::commit::{Upkeep, unreadable};
use super::error::{Damage, StoreError, at};
use super::lock::Lock;
use super::maintain::Maintenance;
use super::memory::Memory;
use super::options::Options;
use super::segments::Segment;
use super::sync::Sync;
use super::{DAMAGED, Shared, State, Store, locked, read_manifest, replay};
use crate::manifest::{Manifest, SegmentEntry, Table};
use crate::segment::SegmentError;
use crate::vfs::Vfs;
use crate::wal::{self, Log};

/// How often a reader starts again because the writer committed meanwhile.
const ATTEMPTS: usize = 20;

/// What a thread does until it is told to stop.
type Work = fn(&Shared);

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
        let unusable = |source| StoreError::Manifest { path: folder.to_owned(), source };
        let manifest = match read_manifest(folder)? {
            Some(manifest) => manifest,
            None if !table_files(folder)?.is_empty() => {
                return Err(StoreError::NoManifest(folder.to_owned()));
            }
            None => {
                let manifest = Manifest { next_number: 1, ..Manifest::default() };
                manifest.write(&vfs, folder).map_err(unusable)?;
                manifest
            }
        };
        let logs = folder.join(wal::FOLDER);
        vfs.create_folder(&logs).map_err(at("made", &logs))?;
        remove_strays(&vfs, folder, &manifest)?;
        let (segments, broken) = open_segments(&vfs, folder, &manifest)?;
        let manifest = set_aside(&vfs, folder, manifest, &broken).map_err(unusable)?;

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
        let of_log = replayed.broken.into_iter().map(|broken| broken.damage);
        let damage = broken.into_iter().map(|(_, damage)| damage).chain(of_log).collect();
        let upkeep = Upkeep { next_number: manifest.next_number, ..Upkeep::default() };
        let shared = Arc::new(Shared {
            folder: folder.to_owned(),
            sync: Sync::new(last_seq),
            maintenance: Maintenance::default(),
            options,
            log: Some(Mutex::new(log)),
            turn: Mutex::default(),
            upkeep: Mutex::new(upkeep),
            carried_bytes: AtomicU64::default(),
            state: RwLock::new(State {
                active: Arc::new(memory),
                frozen: None,
                manifest: Arc::new(manifest),
                segments: Arc::new(segments),
            }),
            damage: Arc::new(Mutex::new(damage)),
            rows: Arc::default(),
            buffers: Mutex::default(),
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
        let (state, damage) = load(folder, &options)?;
        let shared = Arc::new(Shared {
            folder: folder.to_owned(),
            options,
            log: None,
            turn: Mutex::default(),
            upkeep: Mutex::default(),
            carried_bytes: AtomicU64::default(),
            state: RwLock::new(state),
            sync: Sync::new(0),
            maintenance: Maintenance::default(),
            damage: Arc::new(Mutex::new(damage)),
            rows: Arc::default(),
            buffers: Mutex::default(),
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
            let (state, damage) = load(&self.shared.folder, &self.shared.options)?;
            *self.shared.state.write().unwrap_or_else(PoisonError::into_inner) = state;
            *locked(&self.shared.damage) = damage;
        }
        Ok(())
    }

    fn start_threads(&mut self) -> Result<(), StoreError> {
        let works: [(&str, Work); 2] = [
            ("lens-store-sync", Shared::sync_until_stopped),
            ("lens-store-keep", Shared::maintain_until_stopped),
        ];
        for (name, work) in works {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name(name.to_owned());
            let thread = thread.spawn(move || work(&shared));
            self.threads.push(thread.map_err(at("served by a thread", &self.shared.folder))?);
        }
        Ok(())
    }
}

/// Files of all tables, unfinished ones too.
fn table_files(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let list = |folder: &Path| -> Result<Vec<PathBuf>, StoreError> {
        match std::fs::read_dir(folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            entries => entries
                .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
                .map_err(at("read", folder)),
        }
    };
    let mut files = Vec::new();
    for table in Table::ALL {
        for date in list(&folder.join(table.folder()))? {
            if date.is_dir() {
                files.extend(list(&date)?);
            }
        }
    }
    Ok(files)
}

/// Removes files that no commit made count: their writer died, and what they hold is in the log.
fn remove_strays(vfs: &Arc<dyn Vfs>, folder: &Path, manifest: &Manifest) -> Result<(), StoreError> {
    let paths = |entry: &SegmentEntry| -> Vec<PathBuf> {
        entry.files.iter().map(|file| folder.join(entry.path(file.table))).collect()
    };
    let known: HashSet<PathBuf> = manifest.segments.iter().flat_map(paths).collect();
    for file in table_files(folder)? {
        if !known.contains(&file) {
            // What stays is passed over by everybody who reads the manifest.
            vfs.remove(&file).ok();
        }
    }
    Ok(())
}

type Broken = Vec<(SegmentEntry, Damage)>;

/// Opens the segments of a manifest; those that cannot be read are told.
fn open_segments(
    vfs: &Arc<dyn Vfs>,
    folder: &Path,
    manifest: &Manifest,
) -> Result<(Vec<Arc<Segment>>, Broken), StoreError> {
    let (mut segments, mut broken) = (Vec::new(), Vec::new());
    for entry in &manifest.segments {
        match Segment::open(vfs, folder, entry.clone()) {
            Ok(segment) => segments.push(Arc::new(segment)),
            Err(SegmentError::Io(error)) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(at("read", &folder.join(entry.path(Table::Spans)))(error));
            }
            Err(error) => broken.push((entry.clone(), unreadable(folder, entry, &error))),
        }
    }
    Ok((segments, broken))
}

/// Moves the files of broken segments away and takes the segments out of the manifest.
fn set_aside(
    vfs: &Arc<dyn Vfs>,
    folder: &Path,
    mut manifest: Manifest,
    broken: &Broken,
) -> Result<Manifest, crate::manifest::ManifestError> {
    if broken.is_empty() {
        return Ok(manifest);
    }
    manifest.segments.retain(|entry| broken.iter().all(|(other, _)| other.number != entry.number));
    manifest.removed.segments_damaged += broken.len() as u64;
    manifest.generation += 1;
    broken.iter().for_each(|(entry, _)| move_aside(vfs, folder, entry));
    manifest.write(vfs, folder)?;
    Ok(manifest)
}

/// Moves the files of a segment away. What is missing cannot be moved.
pub(super) fn move_aside(vfs: &Arc<dyn Vfs>, folder: &Path, entry: &SegmentEntry) {
    let aside = folder.join(DAMAGED);
    vfs.create_folder(&aside).ok();
    for file in &entry.files {
        let path = folder.join(entry.path(file.table));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{}-{}-{name}", file.table.folder(), entry.date);
        vfs.rename(&path, &aside.join(name)).ok();
    }
}

/// Reads a store that another process may be writing.
fn load(folder: &Path, options: &Options) -> Result<(State, Vec<Damage>), StoreError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let manifest =
            read_manifest(folder)?.ok_or_else(|| StoreError::NotAStore(folder.to_owned()))?;
        let memory = Memory::default();
        let replayed = replay::replay(folder, manifest.watermark, options, &memory);
        let opened = open_segments(&options.vfs, folder, &manifest);
        // Files of the log go away after a commit, and what was in them is in segments that this manifest lacks.
        let is_current =
            read_manifest(folder)?.is_some_and(|newer| newer.generation == manifest.generation);
        if attempt < ATTEMPTS && (!is_current || is_outdated(&replayed) || is_outdated(&opened)) {
            continue;
        }
        let (segments, broken) = opened?;
        let of_segments = broken.into_iter().map(|(_, damage)| damage);
        let of_log = replayed?.broken.into_iter().map(|broken| broken.damage);
        let state = State {
            active: Arc::new(memory),
            frozen: None,
            manifest: Arc::new(manifest),
            segments: Arc::new(segments),
        };
        return Ok((state, of_segments.chain(of_log).collect()));
    }
}

fn is_outdated<T>(result: &Result<T, StoreError>) -> bool {
    result.as_ref().is_err_and(StoreError::is_outdated)
}
