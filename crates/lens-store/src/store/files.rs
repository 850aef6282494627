//! Writing the files of segments: each gets its final name only when it is whole and safe (S-1).

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::date::Day;
use super::error::{StoreError, at};
use super::segments::{Segment, reason};
use crate::ids::TraceId;
use crate::manifest::{FileEntry, SegmentEntry, Table, path};
use crate::segment::SegmentError;
use crate::vfs::{Vfs, VfsFile, write_all};

/// Bytes that are gathered before the file system is called.
const BUFFER: usize = 256 << 10;

/// A file under an unfinished name that counts and checksums what goes into it.
#[derive(Debug)]
pub(super) struct PartFile {
    file: Arc<dyn VfsFile>,
    buffer: Vec<u8>,
    bytes: u64,
    crc32c: u32,
}

impl PartFile {
    fn put(&mut self) -> io::Result<()> {
        write_all(self.file.as_ref(), &mut [io::IoSlice::new(&self.buffer)])?;
        self.buffer.clear();
        Ok(())
    }
}

impl Write for PartFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + bytes.len() > BUFFER {
            self.put()?;
        }
        self.buffer.extend_from_slice(bytes);
        self.bytes += bytes.len() as u64;
        self.crc32c = crc32c::crc32c_append(self.crc32c, bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.put()
    }
}

/// Files that are to be committed together. Dropped without [`Self::finish`] they are removed again.
#[derive(Debug)]
pub(super) struct NewFiles<'a> {
    vfs: &'a Arc<dyn Vfs>,
    store: &'a Path,
    folders: BTreeSet<PathBuf>,
    entries: Vec<SegmentEntry>,
    is_finished: bool,
}

impl<'a> NewFiles<'a> {
    pub(super) fn new(vfs: &'a Arc<dyn Vfs>, store: &'a Path) -> Self {
        Self { vfs, store, folders: BTreeSet::new(), entries: Vec::new(), is_finished: false }
    }

    /// Begins a segment without files.
    pub(super) fn begin(&mut self, number: u64, level: u32, day: Day) {
        self.entries.push(SegmentEntry {
            number,
            level,
            date: day.to_string(),
            min_start_nanos: u64::MAX,
            max_start_nanos: 0,
            min_trace_id: String::new(),
            max_trace_id: String::new(),
            min_seq: u64::MAX,
            max_seq: 0,
            arrived_nanos: 0,
            files: Vec::new(),
        });
    }

    /// The segment that was begun last.
    pub(super) fn entry(&mut self) -> Option<&mut SegmentEntry> {
        self.entries.last_mut()
    }

    /// Writes a file of the segment that was begun last. `write` says how many rows it has.
    pub(super) fn write<T>(
        &mut self,
        table: Table,
        write: impl FnOnce(&mut PartFile) -> Result<(u64, T), SegmentError>,
    ) -> Result<T, StoreError> {
        let entry = self.entries.last_mut().ok_or(StoreError::ReadOnly)?;
        let name = self.store.join(path(table, &entry.date, entry.number, entry.level));
        let folder = name.parent().unwrap_or(self.store);
        if !folder.exists() {
            self.vfs.create_folder(folder).map_err(at("made", folder))?;
            // Its own name, and that of its table, have to survive too.
            self.folders.extend(folder.ancestors().skip(1).take(2).map(Path::to_owned));
        }
        self.folders.insert(folder.to_owned());
        let unfinished = name.with_extension("part");
        let file = self.vfs.create(&unfinished).map_err(at("made", &unfinished))?;
        let remove = |error| {
            self.vfs.remove(&unfinished).ok();
            error
        };
        let mut part = PartFile { file, buffer: Vec::new(), bytes: 0, crc32c: 0 };
        let (rows, facts) = write(&mut part)
            .map_err(|error| match error {
                SegmentError::Io(error) => at("written", &name)(error),
                error => at("written", &name)(io::Error::other(reason(&error))),
            })
            .map_err(remove)?;
        part.flush()
            .and_then(|()| part.file.sync())
            .and_then(|()| self.vfs.rename(&unfinished, &name))
            .map_err(at("written", &name))
            .map_err(remove)?;
        entry.files.push(FileEntry { table, rows, bytes: part.bytes, crc32c: part.crc32c });
        Ok(facts)
    }

    /// Makes the names of the files safe, and hands them over to be committed.
    pub(super) fn finish(mut self) -> Result<Vec<SegmentEntry>, StoreError> {
        for folder in &self.folders {
            self.vfs.sync_folder(folder).map_err(at("made safe", folder))?;
        }
        self.is_finished = true;
        let mut entries = std::mem::take(&mut self.entries);
        entries.retain(|entry| !entry.files.is_empty());
        Ok(entries)
    }
}

impl Drop for NewFiles<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            for entry in &self.entries {
                Segment::remove_files(self.vfs, self.store, entry);
            }
        }
    }
}

/// Puts the bounds of a file of spans into what the manifest says of its segment.
pub(super) fn describe(
    entry: &mut SegmentEntry,
    traces: Option<(TraceId, TraceId)>,
    starts: (u64, u64),
    seqs: (u64, u64),
) {
    if let Some((least, most)) = traces {
        entry.min_trace_id = least.to_string();
        entry.max_trace_id = most.to_string();
    }
    entry.min_start_nanos = entry.min_start_nanos.min(starts.0);
    entry.max_start_nanos = entry.max_start_nanos.max(starts.1);
    entry.min_seq = entry.min_seq.min(seqs.0);
    entry.max_seq = entry.max_seq.max(seqs.1);
}
