//! What a dead process left in its ring: ended spans that nobody acknowledged, and spans that were open.
//!
//! The file's lock tells whether its owner is alive; who gets the lock may ship what is inside and remove the file.
//! Ended spans go out as they are. Open ones of long-lived groups are ended at the last moment at which the owner is
//! known to have lived, and marked `nemo.span.truncated`.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use lens_otlp::encode::{SPAN_ATTRIBUTES, put_key_value};
use lens_otlp::view::SpanView;
use lens_otlp::wire::put_fixed64;
use rustix::fs::{FlockOperation, flock};

use super::pipeline::Kind;
use super::pipeline::gather::{Gathered, frame};
use super::raw::mapping::{MAGIC, VERSION, at, slots_at};
use super::raw::records::{RECORD_BYTES, RECORD_HEAD};
use super::raw::ring::state;
use crate::semconv;

/// Folder of all rings below the spool folder.
pub(super) const FOLDER: &str = "nemo-gym";
/// Extension of a ring's file.
pub(super) const EXTENSION: &str = "ring";
/// Notes in the file: a resource, or a scope's number and name.
pub(super) const NOTE_RESOURCE: u8 = 1;
pub(super) const NOTE_SCOPE: u8 = 2;
/// Field number of `Span.end_time_unix_nano`.
const END_TIME: u8 = 8;
/// Words of a slot's header, by their place.
mod word {
    pub(super) const STATE: usize = 0;
    pub(super) const COMMITTED: usize = 4;
    pub(super) const ACKNOWLEDGED: usize = 12;
    pub(super) const SEQUENCE: usize = 24;
    pub(super) const HEADER_BYTES: usize = 64;
}

/// A note as it goes into the file.
pub(super) fn note(kind: u8, number: u16, content: &[u8]) -> Vec<u8> {
    let mut out = vec![kind];
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&(content.len() as u32).to_le_bytes());
    out.extend_from_slice(content);
    out
}

/// What a process keeps, or left behind, in the spool folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spool {
    /// The file.
    pub path: PathBuf,
    /// The run that it belongs to.
    pub run_id: String,
    /// The process.
    pub pid: u32,
    /// Whether its owner still runs.
    pub is_alive: bool,
    /// Spans (or log records) that ended and were not acknowledged.
    pub waiting: usize,
    /// Spans that were open.
    pub open: usize,
    /// When the owner was last seen alive, in nanoseconds since the epoch.
    pub seen_nanos: u64,
}

/// What is in a spool folder, by run and file.
pub fn spools(folder: &Path) -> Vec<Spool> {
    let read = |path: PathBuf| {
        let ring = Ring::read(&path)?;
        let run_id = path.parent()?.file_name()?.to_string_lossy().into_owned();
        Some(Spool {
            run_id,
            pid: ring.word(at::PID)?,
            is_alive: !is_dead(&path),
            waiting: ring.waiting(),
            open: ring.open_spans().len(),
            seen_nanos: ring.clock(),
            path,
        })
    };
    files(folder).into_iter().filter_map(read).collect()
}

/// The rings' files below a spool folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let mut files: Vec<PathBuf> = entries(&folder.join(FOLDER))
        .iter()
        .flat_map(|run| entries(run))
        .filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION))
        .collect();
    files.sort();
    files
}

fn is_dead(path: &Path) -> bool {
    File::open(path)
        .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// The ring of a dead process, locked against others who look.
#[derive(Debug)]
pub(super) struct Dead {
    path: PathBuf,
    _lock: File,
    ring: Ring,
}

/// One request to send for the dead.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Remains {
    pub(super) request: Vec<u8>,
    pub(super) items: usize,
}

impl Dead {
    /// The dead of a spool folder whose rings carry `kind`; nobody else gets them while these live.
    pub(super) fn find(folder: &Path, kind: Kind) -> Vec<Self> {
        files(folder).into_iter().filter_map(|path| Self::take(path, kind)).collect()
    }

    fn take(path: PathBuf, kind: Kind) -> Option<Self> {
        let lock = File::open(&path).ok()?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
        // Removed by somebody who was faster: the lock is on a file without a name.
        path.exists().then_some(())?;
        let Some(ring) = Ring::read(&path) else {
            remove(&path);
            return None;
        };
        (ring.kind() == Some(kind)).then_some(Self { path, _lock: lock, ring })
    }

    /// What it left, in requests of about `max_bytes`.
    pub(super) fn remains(&self, max_bytes: usize) -> Vec<Remains> {
        self.ring.remains(max_bytes)
    }

    /// Removes the file: everything in it is safe elsewhere.
    pub(super) fn remove(&self) {
        remove(&self.path);
    }
}

/// Removes a ring and the run's folder, if it was the last.
pub(super) fn remove(path: &Path) {
    let _ = fs::remove_file(path);
    if let Some(run) = path.parent() {
        let _ = fs::remove_dir(run);
    }
}

/// A ring's file as bytes.
#[derive(Debug)]
struct Ring {
    bytes: Vec<u8>,
    slots: u32,
    slot_bytes: usize,
}

/// One span that was open.
struct OpenSpan<'a> {
    scope: u16,
    message: &'a [u8],
}

impl Ring {
    fn read(path: &Path) -> Option<Self> {
        let mut bytes = Vec::new();
        File::open(path).ok()?.read_to_end(&mut bytes).ok()?;
        let mut ring = Self { bytes, slots: 0, slot_bytes: 0 };
        (ring.bytes.get(..8)? == MAGIC && ring.word(at::VERSION)? == VERSION).then_some(())?;
        ring.slots = ring.word(at::SLOTS)?;
        ring.slot_bytes = ring.word(at::SLOT_BYTES)? as usize;
        let len = slots_at(ring.slots).checked_add(ring.slot_bytes * ring.slots as usize)?;
        (ring.bytes.len() >= len).then_some(ring)
    }

    fn word(&self, at: usize) -> Option<u32> {
        self.bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    fn long(&self, at: usize) -> u64 {
        let bytes = self.bytes.get(at..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    fn kind(&self) -> Option<Kind> {
        Kind::from_number(self.word(at::KIND)?)
    }

    fn clock(&self) -> u64 {
        self.long(at::CLOCK)
    }

    fn header(&self, slot: u32, word: usize) -> u32 {
        self.word(at::HEADERS + slot as usize * word::HEADER_BYTES + word).unwrap_or(0)
    }

    fn slot(&self, slot: u32) -> &[u8] {
        let place = slots_at(self.slots) + slot as usize * self.slot_bytes;
        self.bytes.get(place..place + self.slot_bytes).unwrap_or_default()
    }

    /// Slots in one of these states, in the order in which they were claimed.
    fn slots_in(&self, states: [u32; 2]) -> Vec<u32> {
        let mut slots: Vec<u32> = (0..self.slots)
            .filter(|slot| states.contains(&self.header(*slot, word::STATE)))
            .collect();
        let place = |slot: &u32| at::HEADERS + *slot as usize * word::HEADER_BYTES + word::SEQUENCE;
        slots.sort_by_key(|slot| self.long(place(slot)));
        slots
    }

    /// Frames of a slot from `from` on.
    fn frames(&self, slot: u32, from: u32) -> impl Iterator<Item = (u16, &[u8])> {
        let committed = (self.header(slot, word::COMMITTED) as usize).min(self.slot_bytes);
        let mut rest = self.slot(slot).get(from as usize..committed).unwrap_or_default();
        std::iter::from_fn(move || {
            let (scope, item, len) = frame(rest)?;
            rest = &rest[len..];
            Some((scope, item))
        })
    }

    fn unacknowledged(&self) -> impl Iterator<Item = (u16, &[u8])> {
        self.slots_in([state::OPEN, state::SEALED])
            .into_iter()
            .flat_map(|slot| self.frames(slot, self.header(slot, word::ACKNOWLEDGED)))
    }

    fn waiting(&self) -> usize {
        self.unacknowledged().count()
    }

    /// Start records of spans that did not end. One that ended just before the death may still have its record.
    fn open_spans(&self) -> Vec<OpenSpan<'_>> {
        let pages = self.slots_in([state::RECORDS, state::RECORDS_SEALED]);
        let mut open: Vec<OpenSpan<'_>> = pages
            .into_iter()
            .flat_map(|slot| self.slot(slot).chunks_exact(RECORD_BYTES))
            .filter_map(|record| {
                let (head, content) = record.split_at_checked(RECORD_HEAD)?;
                let number = |at: usize| head.get(at..at + 4)?.first_chunk().copied();
                let is_open = u32::from_le_bytes(number(0)?) != 0;
                let message = content.get(..u32::from_le_bytes(number(4)?) as usize)?;
                let scope = u16::from_le_bytes([head[8], head[9]]);
                is_open.then_some(OpenSpan { scope, message })
            })
            .collect();
        if !open.is_empty() {
            let ended: HashSet<[u8; 8]> = self
                .slots_in([state::OPEN, state::SEALED])
                .into_iter()
                .flat_map(|slot| self.frames(slot, 0))
                .filter_map(|(_, span)| span_id(span))
                .collect();
            open.retain(|open| span_id(open.message).is_some_and(|id| !ended.contains(&id)));
        }
        open
    }

    /// Resource, and names of scopes by number.
    fn notes(&self) -> (&[u8], Vec<(u16, &str)>) {
        let noted = self.word(at::NOTED).unwrap_or(0) as usize;
        let mut rest = self.bytes.get(at::NOTES..at::NOTES + noted).unwrap_or_default();
        let (mut resource, mut scopes) = (&[] as &[u8], Vec::new());
        while let Some((&[kind, low, high, ref len @ ..], tail)) = rest.split_first_chunk::<7>() {
            let Some((content, tail)) = tail.split_at_checked(u32::from_le_bytes(*len) as usize)
            else {
                break;
            };
            rest = tail;
            match kind {
                NOTE_RESOURCE => resource = content,
                NOTE_SCOPE => scopes.push((
                    u16::from_le_bytes([low, high]),
                    std::str::from_utf8(content).unwrap_or_default(),
                )),
                _ => {}
            }
        }
        (resource, scopes)
    }

    fn remains(&self, max_bytes: usize) -> Vec<Remains> {
        let (resource, scopes) = self.notes();
        let name_of = |scope: u16| {
            let named = scopes.iter().find(|(number, _)| *number == scope);
            let name = named.map_or("lens", |(_, name)| *name);
            (name.to_owned(), env!("CARGO_PKG_VERSION").to_owned())
        };
        let mut remains = Vec::new();
        let mut gathered = Gathered::default();
        let mut last_nanos = self.clock();
        let mut add = |scope, item: &[u8]| {
            if gathered.items > 0 && gathered.bytes() + item.len() > max_bytes {
                let gathered = std::mem::take(&mut gathered);
                let items = gathered.items;
                remains.push(Remains { request: gathered.into_request(resource, name_of), items });
            }
            gathered.add(scope, item);
        };
        for (scope, item) in self.unacknowledged() {
            if let Ok(span) = SpanView::read(item) {
                last_nanos = last_nanos.max(span.end_nanos);
            }
            add(scope, item);
        }
        for open in self.open_spans() {
            let start = SpanView::read(open.message).map_or(0, |span| span.start_nanos);
            let mut message = open.message.to_vec();
            // The last of a field counts.
            put_fixed64(&mut message, END_TIME, last_nanos.max(start));
            put_key_value(&mut message, SPAN_ATTRIBUTES, semconv::TRUNCATED, &true);
            add(open.scope, &message);
        }
        if gathered.items > 0 {
            let items = gathered.items;
            remains.push(Remains { request: gathered.into_request(resource, name_of), items });
        }
        remains
    }
}

fn span_id(span: &[u8]) -> Option<[u8; 8]> {
    SpanView::read(span).ok()?.span_id.try_into().ok()
}
