//! What a dead process left in its ring: ended spans that nobody acknowledged, and spans that were open.
//!
//! The file's lock tells whether its owner is alive; who gets the lock may ship what is inside and remove the file.
//! Ended spans go out as they are. Open ones of long-lived groups are ended at the last moment at which the owner is
//! known to have lived, and marked `nemo.span.truncated`.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use lens_otlp::encode::RESOURCE_ATTRIBUTES;
use lens_otlp::view::{AnyValue, Attributes, SpanView, resources};
use rustix::fs::{FlockOperation, flock};

use super::pipeline::gather::{Gathered, frame};
use super::pipeline::{ABANDONED, Kind, counts, is_locked, is_older, newest};
use super::raw::mapping::{MAGIC, UNFINISHED, VERSION, at, slots_at};
use super::raw::records::{self, RECORD_BYTES, RECORD_HEAD};
use super::raw::ring::state;
use super::truncated::truncate;
use crate::spool::{PipelineState, Spool};
use crate::{PipelineSnapshot, semconv};

/// Folder of all rings below the spool folder.
pub(super) const FOLDER: &str = "nemo-gym";
/// Extension of a ring's file.
pub(super) const EXTENSION: &str = "ring";
/// Notes in the file: a resource, a scope's number and name, or the folder of undeliverable requests.
pub(super) const NOTE_RESOURCE: u8 = 1;
pub(super) const NOTE_SCOPE: u8 = 2;
pub(super) const NOTE_OVERFLOW: u8 = 3;
/// A scope that is no namespace of ours, so it does not have our version.
pub(super) const NOTE_TARGET: u8 = 4;
/// How often counts that change while they are read are read again.
const COUNT_TRIES: usize = 100;
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

/// What is in a spool folder, by run and file.
pub fn spools(folder: &Path) -> Vec<Spool> {
    let read = |path: PathBuf| {
        let ring = Ring::read(&path)?;
        let run_id = path.parent()?.file_name()?.to_string_lossy().into_owned();
        Some(Spool {
            run_id,
            pid: ring.word(at::PID)?,
            is_alive: is_locked(&path),
            is_logs: ring.kind() == Some(Kind::Logs),
            waiting: ring.waiting(),
            open: ring.open_spans().len(),
            seen_nanos: ring.clock(),
            path,
        })
    };
    files(folder).into_iter().filter_map(read).collect()
}

/// How the pipelines of a spool folder do, by run and file; cheaper than [`spools`], as no item is looked at.
pub fn pipelines(folder: &Path) -> Vec<PipelineState> {
    let read = |path: PathBuf| {
        let file = File::open(&path).ok()?;
        let mut head = vec![0; at::HEADERS];
        file.read_exact_at(&mut head, 0).ok()?;
        let ring = Ring::of(head)?;
        let run_id = path.parent()?.file_name()?.to_string_lossy().into_owned();
        Some(PipelineState {
            run_id,
            service_name: ring.service_name().unwrap_or_default().to_owned(),
            pid: ring.word(at::PID)?,
            is_alive: is_locked(&path),
            is_logs: ring.kind() == Some(Kind::Logs),
            seen_nanos: ring.clock(),
            counts: read_counts(&file),
            path,
        })
    };
    files(folder).into_iter().filter_map(read).collect()
}

/// The counts, read while they do not change; `None` when there are none.
fn read_counts(file: &File) -> Option<PipelineSnapshot> {
    let long = |at: usize| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at as u64).ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    for _ in 0..COUNT_TRIES {
        let before = long(at::COUNTED)?;
        let mut bytes = [0; counts::WORDS * 8];
        file.read_exact_at(&mut bytes, at::COUNTS as u64).ok()?;
        if before > 0 && before.is_multiple_of(2) && long(at::COUNTED)? == before {
            let mut words = [0; counts::WORDS];
            for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            return Some(counts::from_words(&words));
        }
    }
    None
}

/// The rings' files below a spool folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    with_extension(folder, EXTENSION)
}

fn with_extension(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let mut files: Vec<PathBuf> = entries(&folder.join(FOLDER))
        .iter()
        .flat_map(|run| entries(run))
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files
}

/// The ring of a dead process, locked against others who look.
#[derive(Debug)]
pub(super) struct Dead {
    path: PathBuf,
    file: File,
    ring: Ring,
}

/// Words of a dead process's file that say of a request that it was delivered.
pub(super) type Settled = Vec<(u64, u32)>;

/// One request to send for the dead.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Remains {
    pub(super) request: Vec<u8>,
    pub(super) items: usize,
    pub(super) settled: Settled,
}

impl Dead {
    /// The dead of a spool folder whose rings carry `kind`; nobody else gets them while these live.
    pub(super) fn find(folder: &Path, kind: Kind) -> Vec<Self> {
        let is_cut = |path: &PathBuf| {
            path.metadata().is_ok_and(|metadata| metadata.len() < at::HEADERS as u64)
        };
        // Its maker died over it, or is at it right now; or nothing that could be read is left of it.
        let mut useless = with_extension(folder, UNFINISHED);
        useless.extend(files(folder).into_iter().filter(is_cut));
        for path in useless {
            if is_older(&path, ABANDONED) && !is_locked(&path) {
                remove(&path);
            }
        }
        files(folder).into_iter().filter_map(|path| Self::take(path, kind)).collect()
    }

    fn take(path: PathBuf, kind: Kind) -> Option<Self> {
        let mut file = OpenOptions::new().read(true).write(true).open(&path).ok()?;
        // Who looks for the other kind must find it free.
        let mut head = [0; at::KIND + 4];
        file.read_exact_at(&mut head, 0).ok()?;
        let word = |at: usize| head.get(at..)?.first_chunk().copied().map(u32::from_le_bytes);
        // What another version wrote is for another version to read.
        let is_ours = head.starts_with(&MAGIC) && word(at::VERSION) == Some(VERSION);
        if !is_ours || word(at::KIND) != Some(kind as u32) || !is_own(&file) {
            return None;
        }
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        // Removed by somebody who was faster: the lock is on a file without a name.
        path.exists().then_some(())?;
        let mut ring = Ring::read_from(&mut file)?;
        ring.find_moved(kind);
        Some(Self { path, file, ring })
    }

    /// What it left, in requests of about `max_bytes`.
    pub(super) fn remains(&self, max_bytes: usize) -> Vec<Remains> {
        self.ring.remains(max_bytes)
    }

    /// Notes that a request was delivered, so that it does not go out again if this process dies before the last one.
    pub(super) fn settle(&self, settled: &Settled) {
        for (at, word) in settled {
            let _ = self.file.write_all_at(&word.to_le_bytes(), *at);
        }
    }

    /// Removes the file: everything in it is safe elsewhere.
    pub(super) fn remove(&self) {
        remove(&self.path);
    }
}

/// Whether a file is of this process's user; in a folder that everybody may write to it need not be.
fn is_own(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.uid() == rustix::process::geteuid().as_raw())
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
    slots_at: usize,
    /// Spans that are in a file too: the owner died before it could acknowledge them.
    moved: HashSet<[u8; 8]>,
}

/// One item that ended.
struct Frame<'a> {
    slot: u32,
    end: u32,
    scope: u16,
    item: &'a [u8],
}

/// One span that was open.
struct OpenSpan<'a> {
    /// Where the file says that it is.
    state_at: u64,
    scope: u16,
    message: &'a [u8],
}

impl Ring {
    fn read(path: &Path) -> Option<Self> {
        Self::read_from(&mut File::open(path).ok()?)
    }

    /// Reads what is there: of a file that was cut, the slots that are whole.
    fn read_from(file: &mut File) -> Option<Self> {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        Self::of(bytes)
    }

    fn of(bytes: Vec<u8>) -> Option<Self> {
        let mut ring = Self { bytes, slots: 0, slot_bytes: 0, slots_at: 0, moved: HashSet::new() };
        (ring.bytes.get(..8)? == MAGIC && ring.word(at::VERSION)? == VERSION).then_some(())?;
        let headers = ring.bytes.len().checked_sub(at::HEADERS)? / word::HEADER_BYTES;
        let slots = ring.word(at::SLOTS)?;
        ring.slots = slots.min(u32::try_from(headers).unwrap_or(u32::MAX));
        ring.slot_bytes = ring.word(at::SLOT_BYTES)? as usize;
        // Slots begin where the headers of all of them end, also of those that are cut off.
        ring.slots_at = slots_at(slots);
        Some(ring)
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

    fn slot_at(&self, slot: u32) -> usize {
        self.slots_at + slot as usize * self.slot_bytes
    }

    fn slot(&self, slot: u32) -> &[u8] {
        let place = self.slot_at(slot);
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

    /// Frames of a slot from `from` on, each with the place of its end.
    fn frames(&self, slot: u32, from: u32) -> impl Iterator<Item = Frame<'_>> {
        let committed = (self.header(slot, word::COMMITTED) as usize).min(self.slot_bytes);
        let mut rest = self.slot(slot).get(from as usize..committed).unwrap_or_default();
        let mut end = from;
        std::iter::from_fn(move || {
            let (scope, item, len) = frame(rest)?;
            rest = &rest[len..];
            end += len as u32;
            Some(Frame { slot, end, scope, item })
        })
    }

    fn unacknowledged(&self) -> impl Iterator<Item = Frame<'_>> {
        self.slots_in([state::OPEN, state::SEALED])
            .into_iter()
            .flat_map(|slot| self.frames(slot, self.header(slot, word::ACKNOWLEDGED)))
    }

    /// Only the file that was written last can be one whose items are not all acknowledged.
    fn find_moved(&mut self, kind: Kind) {
        let folder = self.notes().find(|(kind, ..)| *kind == NOTE_OVERFLOW);
        let folder = folder.map(|(_, _, folder)| PathBuf::from(OsStr::from_bytes(folder)));
        let Some(request) = folder.and_then(|folder| newest(&folder, kind)) else { return };
        let ids = resources(&request)
            .flatten()
            .flat_map(|resource| resource.scopes().flatten())
            .flat_map(|scope| scope.spans().flatten())
            .filter_map(|span| span.span_id.try_into().ok());
        self.moved = ids.collect();
    }

    fn is_moved(&self, item: &[u8]) -> bool {
        !self.moved.is_empty() && span_id(item).is_some_and(|id| self.moved.contains(&id))
    }

    fn waiting(&self) -> usize {
        self.unacknowledged().count()
    }

    /// Start records of spans that did not end. One that ended just before the death may still have its record.
    fn open_spans(&self) -> Vec<OpenSpan<'_>> {
        let pages = self.slots_in([state::RECORDS, state::RECORDS_SEALED]);
        let mut open: Vec<OpenSpan<'_>> = pages
            .into_iter()
            .flat_map(|slot| {
                let places = (self.slot_at(slot) as u64..).step_by(RECORD_BYTES);
                places.zip(self.slot(slot).chunks_exact(RECORD_BYTES))
            })
            .filter_map(|(state_at, record)| {
                let (head, content) = record.split_at_checked(RECORD_HEAD)?;
                let number = |at: usize| head.get(at..at + 4)?.first_chunk().copied();
                let is_open = records::is_open(u32::from_ne_bytes(number(0)?));
                let message = content.get(..u32::from_le_bytes(number(4)?) as usize)?;
                let scope = u16::from_le_bytes([head[8], head[9]]);
                is_open.then_some(OpenSpan { state_at, scope, message })
            })
            .collect();
        if !open.is_empty() {
            let ended: HashSet<[u8; 8]> = self
                .slots_in([state::OPEN, state::SEALED])
                .into_iter()
                .flat_map(|slot| self.frames(slot, 0))
                .filter_map(|ended| span_id(ended.item))
                .collect();
            open.retain(|open| span_id(open.message).is_some_and(|id| !ended.contains(&id)));
        }
        open
    }

    /// Kind, number and content of each note.
    fn notes(&self) -> impl Iterator<Item = (u8, u16, &[u8])> {
        let noted = self.word(at::NOTED).unwrap_or(0) as usize;
        let mut rest = self.bytes.get(at::NOTES..at::NOTES + noted).unwrap_or_default();
        std::iter::from_fn(move || {
            let (&[kind, low, high, ref len @ ..], tail) = rest.split_first_chunk::<7>()?;
            let (content, tail) = tail.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            rest = tail;
            Some((kind, u16::from_le_bytes([low, high]), content))
        })
    }

    fn service_name(&self) -> Option<&str> {
        let (_, _, resource) = self.notes().find(|(kind, ..)| *kind == NOTE_RESOURCE)?;
        let attributes = Attributes::new(resource, u32::from(RESOURCE_ATTRIBUTES));
        attributes.filter_map(Result::ok).find_map(|(key, value)| match value {
            AnyValue::String(name) if key == semconv::SERVICE_NAME => Some(name),
            _ => None,
        })
    }

    fn remains(&self, max_bytes: usize) -> Vec<Remains> {
        let resource = self.notes().find(|(kind, ..)| *kind == NOTE_RESOURCE);
        let resource = resource.map_or(&[] as &[u8], |(_, _, resource)| resource);
        let name_of = |scope: u16| {
            let named = self.notes().find(|(kind, number, _)| {
                matches!(*kind, NOTE_SCOPE | NOTE_TARGET) && *number == scope
            });
            let name = named.and_then(|(_, _, name)| std::str::from_utf8(name).ok());
            let is_ours = named.is_none_or(|(kind, ..)| kind == NOTE_SCOPE);
            let version = if is_ours { env!("CARGO_PKG_VERSION") } else { "" };
            (name.unwrap_or("lens").to_owned(), version.to_owned())
        };
        let mut remains = Vec::new();
        let mut gathered = Gathered::default();
        let mut settled = Settled::new();
        let mut last_nanos = self.clock();
        let mut add = |scope, item: &[u8], (at, word): (u64, u32)| {
            if gathered.items > 0 && gathered.bytes() + item.len() > max_bytes {
                let (items, settled) = (gathered.items, std::mem::take(&mut settled));
                let mut request = Vec::new();
                gathered.take_request(&mut request, resource, name_of);
                remains.push(Remains { request, items, settled });
            }
            gathered.add(scope, item);
            // Of one place the last word counts.
            settled.pop_if(|(known, _)| *known == at);
            settled.push((at, word));
        };
        for Frame { slot, end, scope, item } in self.unacknowledged() {
            if self.is_moved(item) {
                continue;
            }
            if let Ok(span) = SpanView::read(item) {
                last_nanos = last_nanos.max(span.end_nanos);
            }
            let acknowledged =
                at::HEADERS + slot as usize * word::HEADER_BYTES + word::ACKNOWLEDGED;
            add(scope, item, (acknowledged as u64, end));
        }
        for open in self.open_spans() {
            let start = SpanView::read(open.message).map_or(0, |span| span.start_nanos);
            let mut message = open.message.to_vec();
            truncate(&mut message, last_nanos.max(start));
            add(open.scope, &message, (open.state_at, 0));
        }
        if gathered.items > 0 {
            let items = gathered.items;
            let mut request = Vec::new();
            gathered.take_request(&mut request, resource, name_of);
            remains.push(Remains { request, items, settled });
        }
        remains
    }
}

fn span_id(span: &[u8]) -> Option<[u8; 8]> {
    SpanView::read(span).ok()?.span_id.try_into().ok()
}
