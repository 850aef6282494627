//! Requests that could not be delivered, as files: written under pressure and at the end, sent again oldest first.
//!
//! Every process has a folder of its own, `<folder>/<run>/<process>`, made when it is needed, with a lock that tells
//! whether its owner lives; the folder of a dead one of any run is taken over by the next that looks. Files are named
//! by age. Their bytes are bounded; what exceeds the bound is refused and stays where it is.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::Kind;
use crate::enabled::clock;
use crate::enabled::raw::fork;
use crate::spool::Leftover;

const MAGIC: [u8; 8] = *b"LENSCHNK";
const HEAD_BYTES: usize = 16;
const LOCK: &str = "lock";
const EXTENSION: &str = "otlp";
/// Extension of a file that is being written.
const UNFINISHED: &str = "part";
/// Begins the name of a folder that is being made.
const UNFINISHED_FOLDER: &str = ".";
/// What has been in the making for so long is not made any more.
pub(in crate::enabled) const ABANDONED: Duration = Duration::from_secs(60);

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::enabled) struct Chunk {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) items: u32,
    /// Written by another process.
    pub(super) is_adopted: bool,
}

/// The folder of one process and one signal.
#[derive(Debug)]
pub(super) struct Overflow {
    /// `<root>/<run>/<process>`; there once `lock` is.
    folder: PathBuf,
    kind: Kind,
    lock: Option<File>,
    max_bytes: u64,
    bytes: u64,
    sequence: u32,
}

impl Overflow {
    /// The folder `<root>/<run>/<process>` of this process, still to be made.
    pub(super) fn new(folder: PathBuf, kind: Kind, max_bytes: u64) -> Self {
        Self { folder, kind, lock: None, max_bytes, bytes: 0, sequence: 0 }
    }

    /// Makes the folder. It gets its name only when it is locked, so that nobody takes it for one of the dead.
    fn make(&mut self) -> io::Result<()> {
        if self.lock.is_some() {
            return Ok(());
        }
        let run = self.folder.parent().ok_or(io::ErrorKind::InvalidInput)?;
        let name = self.folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let unfinished = run.join(format!("{UNFINISHED_FOLDER}{name}"));
        let lock = in_folder(Some(run), || {
            create_private(&unfinished)?;
            let lock = File::create(unfinished.join(LOCK))?;
            flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            fs::rename(&unfinished, &self.folder)?;
            Ok(lock)
        })?;
        fork::let_go_in_child(lock.as_raw_fd());
        self.lock = Some(lock);
        Ok(())
    }

    /// Where its files are.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether `bytes` more may be kept.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.bytes + bytes as u64 <= self.max_bytes
    }

    /// Writes a request.
    pub(super) fn write(&mut self, request: &[u8], items: usize) -> io::Result<Chunk> {
        self.make()?;
        self.sequence += 1;
        let name = format!("{:020}-{:06}.{EXTENSION}", clock::now_unix_nanos(), self.sequence);
        let path = self.folder.join(name);
        let unfinished = path.with_extension(UNFINISHED);
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&MAGIC);
        head[8..12].copy_from_slice(&(self.kind as u32).to_le_bytes());
        head[12..].copy_from_slice(&(items as u32).to_le_bytes());
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).open(&unfinished)?;
            file.write_all(&head)?;
            file.write_all(request)?;
            fs::rename(&unfinished, &path)
        };
        write().inspect_err(|_| {
            let _ = fs::remove_file(&unfinished);
        })?;
        let bytes = (HEAD_BYTES + request.len()) as u64;
        self.bytes += bytes;
        Ok(Chunk { path, bytes, items: items as u32, is_adopted: false })
    }

    /// Removes a chunk that was delivered.
    pub(super) fn remove(&mut self, chunk: &Chunk) {
        let _ = fs::remove_file(&chunk.path);
        self.bytes = self.bytes.saturating_sub(chunk.bytes);
    }

    /// Takes the chunks of dead processes of all runs over, oldest first.
    pub(super) fn adopt(&mut self) -> Vec<Chunk> {
        let mut adopted = Vec::new();
        let root = self.folder.parent().and_then(Path::parent).map(Path::to_owned);
        for folder in root.iter().flat_map(|root| process_folders(root)) {
            // Held while its files are moved, so that they go to one taker.
            let Some(_lock) = lock_of_dead(&folder) else { continue };
            let chunks = chunks(&folder, self.kind);
            if !chunks.is_empty() && self.make().is_err() {
                // They stay where they are, for somebody who can keep them.
                break;
            }
            for mut chunk in chunks {
                let Some(own) = adopted_name(&chunk.path, &folder) else { continue };
                let own = self.folder.join(own);
                if fs::rename(&chunk.path, &own).is_ok() {
                    chunk.path = own;
                    chunk.is_adopted = true;
                    self.bytes += chunk.bytes;
                    adopted.push(chunk);
                }
            }
            remove_if_empty(&folder);
        }
        adopted.sort_by(|left, right| left.path.file_name().cmp(&right.path.file_name()));
        adopted
    }
}

impl Drop for Overflow {
    fn drop(&mut self) {
        if let Some(lock) = &self.lock {
            remove_if_empty(&self.folder);
            fork::closes(lock.as_raw_fd());
        }
    }
}

/// The age stays in front; the end of the process's name keeps the files of several apart, once is enough.
fn adopted_name(chunk: &Path, folder: &Path) -> Option<String> {
    let age = chunk.file_stem()?.to_str()?;
    if age.matches('-').count() > 1 {
        return Some(format!("{age}.{EXTENSION}"));
    }
    let process = folder.file_name()?.to_str()?;
    let unique = process.rsplit('-').next()?;
    Some(format!("{age}-{unique}.{EXTENSION}"))
}

/// Makes a folder that nobody else may look into.
fn create_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Makes something in a folder that another process may be removing because it was empty.
pub(super) fn in_folder<T>(
    folder: Option<&Path>,
    mut make: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let mut made = || {
        folder.map_or(Ok(()), create_private)?;
        make()
    };
    for _ in 0..10 {
        match made() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => return result,
        }
    }
    made()
}

/// Folders of processes of all runs, without those that are being made.
fn process_folders(root: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = (entries(root).iter().flat_map(|run| entries(run)))
        .filter(|folder| !is_abandoned(folder))
        .filter(|folder| folder.is_dir() && !is_unfinished(folder))
        .collect();
    folders.sort();
    folders
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.map(|entry| entry.path()).collect()
}

fn is_unfinished(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Removes a folder whose maker died over it.
fn is_abandoned(folder: &Path) -> bool {
    let abandoned = is_unfinished(folder)
        && is_older(folder, ABANDONED)
        && (lock_of_dead(folder).is_some() || !folder.join(LOCK).exists());
    if abandoned {
        remove_if_empty(folder);
    }
    abandoned
}

/// Whether nothing changed there for so long.
pub(in crate::enabled) fn is_older(path: &Path, age: Duration) -> bool {
    let changed = path.metadata().and_then(|metadata| metadata.modified());
    changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|elapsed| elapsed > age))
}

fn lock_of_dead(folder: &Path) -> Option<File> {
    let lock = File::open(folder.join(LOCK)).ok()?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(lock)
}

/// Removes the folder of one who is dead or done, unless it holds chunks.
fn remove_if_empty(folder: &Path) {
    for path in entries(folder) {
        if path.extension().is_some_and(|extension| extension == UNFINISHED) {
            // Never finished: what was to go in is still in the ring.
            let _ = fs::remove_file(path);
        }
    }
    if entries(folder).iter().all(|path| path.file_name().is_some_and(|name| name == LOCK)) {
        let _ = fs::remove_file(folder.join(LOCK));
        // The run's folder goes with the last process, the folder of all runs with the last run.
        for folder in folder.ancestors().take(3) {
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }
}

/// The request that the owner of a folder kept last, also where another process has taken it over since.
pub(in crate::enabled) fn newest(folder: &Path, kind: Kind) -> Option<Vec<u8>> {
    let root = folder.parent().and_then(Path::parent)?;
    let unique = folder.file_name()?.to_str()?.rsplit('-').next()?;
    let is_its = |chunk: &Chunk| {
        let stem = chunk.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        stem.matches('-').count() > 1 && stem.ends_with(unique)
    };
    let taken_over = process_folders(root).into_iter().flat_map(|other| chunks(&other, kind));
    let found = chunks(folder, kind).into_iter().chain(taken_over.filter(is_its));
    let newest = found.max_by(|left, right| left.path.file_name().cmp(&right.path.file_name()))?;
    read(&newest).ok()
}

/// What is kept below a folder of undeliverable requests, oldest first.
pub fn leftovers(folder: &Path) -> Vec<Leftover> {
    let mut found = Vec::new();
    for process in process_folders(folder) {
        let is_alive = is_locked(&process.join(LOCK));
        let run_id = process.parent().and_then(Path::file_name).unwrap_or_default();
        for kind in [Kind::Spans, Kind::Logs] {
            found.extend(chunks(&process, kind).into_iter().map(|chunk| Leftover {
                path: chunk.path,
                run_id: run_id.to_string_lossy().into_owned(),
                is_alive,
                is_logs: kind.is_logs(),
                items: chunk.items as usize,
                bytes: chunk.bytes,
            }));
        }
    }
    found.sort_by(|left, right| left.path.file_name().cmp(&right.path.file_name()));
    found
}

/// Whether somebody holds the lock on a file. The lock that tells is shared, so that two who look do not see each other.
pub(in crate::enabled) fn is_locked(path: &Path) -> bool {
    let file = File::open(path);
    file.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err())
}

/// The chunks of a folder, oldest first.
pub(in crate::enabled) fn chunks(folder: &Path, kind: Kind) -> Vec<Chunk> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut chunks: Vec<Chunk> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION))
        .filter_map(|path| {
            let (found, items, bytes) = head(&path)?;
            (found == kind).then_some(Chunk { path, bytes, items, is_adopted: false })
        })
        .collect();
    chunks.sort_by(|left, right| left.path.cmp(&right.path));
    chunks
}

fn head(path: &Path) -> Option<(Kind, u32, u64)> {
    use std::io::Read as _;
    let mut file = File::open(path).ok()?;
    let bytes = file.metadata().ok()?.len();
    let mut head = [0; HEAD_BYTES];
    file.read_exact(&mut head).ok()?;
    let (magic, rest) = head.split_first_chunk::<8>()?;
    let (kind, rest) = rest.split_first_chunk::<4>()?;
    let (items, _) = rest.split_first_chunk::<4>()?;
    (*magic == MAGIC).then_some(())?;
    Some((Kind::from_number(u32::from_le_bytes(*kind))?, u32::from_le_bytes(*items), bytes))
}

/// The request of a chunk.
pub(super) fn read(chunk: &Chunk) -> io::Result<Vec<u8>> {
    let mut bytes = fs::read(&chunk.path)?;
    bytes.drain(..HEAD_BYTES.min(bytes.len()));
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("lens-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn chunks_of_a_dead_process_are_taken_over_in_order_of_age() {
        let root = folder("adopt");
        let (first, second) = (root.join("first run"), root.join("second run"));
        let mut dead = Overflow::new(first.join("agent-1-dead"), Kind::Spans, 1 << 20);
        for request in [b"one".as_slice(), b"two"] {
            dead.write(request, 1).expect("room");
        }
        fs::write(first.join("agent-1-dead/0.part"), "cut").expect("writable");
        let mut living = Overflow::new(second.join("agent-2-living"), Kind::Spans, 1 << 20);
        assert!(living.adopt().is_empty(), "its owner lives");
        // The lock goes with its owner.
        drop(dead);
        let adopted = living.adopt();
        let requests: Vec<_> = adopted.iter().map(|chunk| read(chunk).expect("readable")).collect();
        assert_eq!(requests, [b"one", b"two"]);
        assert!(!first.exists());
        for chunk in &adopted {
            living.remove(chunk);
        }
        drop(living);
        assert!(!root.exists(), "nothing is left behind");
    }

    #[test]
    fn bytes_are_bounded() {
        let root = folder("bound");
        let mut overflow = Overflow::new(root.join("run/process"), Kind::Spans, 100);
        assert!(overflow.has_room(84));
        let chunk = overflow.write(&[7; 84], 1).expect("room");
        assert!(!overflow.has_room(1));
        overflow.remove(&chunk);
        assert!(overflow.has_room(84));
    }

    #[test]
    fn nothing_is_made_before_it_is_needed() {
        let root = folder("lazy");
        let mut overflow = Overflow::new(root.join("run/process"), Kind::Spans, 100);
        assert!(overflow.adopt().is_empty());
        assert!(!root.exists());
        drop(overflow);
        assert!(!root.exists());
    }

    #[test]
    fn name_of_a_file_does_not_grow_with_its_owners() {
        let once = adopted_name(Path::new("/a/0123-000001.otlp"), Path::new("/a/agent-7-0a1b"));
        assert_eq!(once.as_deref(), Some("0123-000001-0a1b.otlp"));
        let again = adopted_name(Path::new("/b/0123-000001-0a1b.otlp"), Path::new("/b/x-8-ffff"));
        assert_eq!(again, once);
    }

    #[test]
    fn folder_that_was_never_finished_is_swept_when_it_is_old() {
        let root = folder("abandoned");
        let unfinished = root.join("run/.process");
        create_private(&unfinished).expect("a folder");
        assert!(process_folders(&root).is_empty());
        assert!(unfinished.exists(), "its maker may be at it");
        let long_ago = std::time::SystemTime::now() - 2 * ABANDONED;
        let times = fs::FileTimes::new().set_modified(long_ago);
        File::open(&unfinished).and_then(|file| file.set_times(times)).expect("its own folder");
        assert!(process_folders(&root).is_empty());
        assert!(!root.exists());
    }
}
