//! Requests that could not be delivered, as files: written under pressure and at the end, sent again oldest first.
//!
//! Every process has a folder of its own below the run's, with a lock that tells whether its owner lives; the folder
//! of a dead one is taken over by the next that starts there. Files are named by age. Their bytes are bounded; what
//! exceeds the bound is refused and stays where it is.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::Kind;
use crate::enabled::clock;

const MAGIC: [u8; 8] = *b"LENSCHNK";
const HEAD_BYTES: usize = 16;
const LOCK: &str = "lock";
const EXTENSION: &str = "otlp";

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
    folder: PathBuf,
    kind: Kind,
    _lock: File,
    max_bytes: u64,
    bytes: u64,
    sequence: u32,
}

impl Overflow {
    /// Makes the folder `<run>/<process>` of this process.
    pub(super) fn open(run: &Path, process: &str, kind: Kind, max_bytes: u64) -> io::Result<Self> {
        let folder = run.join(process);
        create_private(&folder)?;
        let lock = File::create(folder.join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { folder, kind, _lock: lock, max_bytes, bytes: 0, sequence: 0 })
    }

    /// Whether `bytes` more may be kept.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.bytes + bytes as u64 <= self.max_bytes
    }

    /// Writes a request.
    pub(super) fn write(&mut self, request: &[u8], items: usize) -> io::Result<Chunk> {
        self.sequence += 1;
        let name = format!("{:020}-{:06}.{EXTENSION}", clock::now_unix_nanos(), self.sequence);
        let path = self.folder.join(name);
        let unfinished = path.with_extension("part");
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

    /// Takes the chunks of dead processes of the same run over, oldest first.
    pub(super) fn adopt(&mut self) -> Vec<Chunk> {
        let Some(run) = self.folder.parent() else { return Vec::new() };
        let mut adopted = Vec::new();
        for folder in dead_folders(run) {
            let Some(process) = folder.file_name() else { continue };
            for mut chunk in chunks(&folder, self.kind) {
                let Some(age) = chunk.path.file_stem() else { continue };
                // The age stays in front; the process keeps the names of several apart.
                let mut own = age.to_owned();
                own.push("-");
                own.push(process);
                own.push(".");
                own.push(EXTENSION);
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
        adopted.sort_by(|left, right| left.path.cmp(&right.path));
        adopted
    }
}

impl Drop for Overflow {
    fn drop(&mut self) {
        remove_if_empty(&self.folder);
    }
}

/// Makes a folder that nobody else may look into.
pub(in crate::enabled) fn create_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Folders of processes that have died, each locked while it is looked at.
fn dead_folders(run: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(run).into_iter().flatten().filter_map(Result::ok);
    entries.map(|entry| entry.path()).filter(|folder| is_dead(folder)).collect()
}

fn is_dead(folder: &Path) -> bool {
    let lock = File::open(folder.join(LOCK));
    lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok())
}

fn remove_if_empty(folder: &Path) {
    let only_lock = fs::read_dir(folder)
        .is_ok_and(|entries| entries.filter_map(Result::ok).all(|entry| entry.file_name() == LOCK));
    if only_lock {
        let _ = fs::remove_file(folder.join(LOCK));
        let _ = fs::remove_dir(folder);
        // The run's folder goes with the last process; it stays while it holds another.
        if let Some(run) = folder.parent() {
            let _ = fs::remove_dir(run);
        }
    }
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
        let run = folder("adopt");
        let mut dead = Overflow::open(&run, "dead", Kind::Spans, 1 << 20).expect("a folder");
        for request in [b"one".as_slice(), b"two"] {
            dead.write(request, 1).expect("room");
        }
        let mut living = Overflow::open(&run, "living", Kind::Spans, 1 << 20).expect("a folder");
        assert!(living.adopt().is_empty(), "its owner lives");
        // The lock goes with its owner.
        drop(dead);
        let adopted = living.adopt();
        let requests: Vec<_> = adopted.iter().map(|chunk| read(chunk).expect("readable")).collect();
        assert_eq!(requests, [b"one", b"two"]);
        assert!(!run.join("dead").exists());
        for chunk in &adopted {
            living.remove(chunk);
        }
        drop(living);
        assert!(!run.exists(), "nothing is left behind");
    }

    #[test]
    fn bytes_are_bounded() {
        let run = folder("bound");
        let mut overflow = Overflow::open(&run, "process", Kind::Spans, 100).expect("a folder");
        assert!(overflow.has_room(84));
        let chunk = overflow.write(&[7; 84], 1).expect("room");
        assert!(!overflow.has_room(1));
        overflow.remove(&chunk);
        assert!(overflow.has_room(84));
    }
}
