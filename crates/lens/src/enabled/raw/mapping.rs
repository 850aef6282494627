//! The memory of a ring: a file on tmpfs that outlives its process, or anonymous memory.
//!
//! A file is created with `fallocate`, so that a full file system is seen here and not as a signal later, and its
//! owner holds a lock on it for life: who gets the lock knows that the owner is dead. It gets its name only when it is
//! locked and readable, so that nobody takes a file that is being made for one of the dead. Layout, little endian:
//!
//! ```text
//!      0  magic, version, bytes of a slot, slots, bytes of the notes, pid, kind
//!     40  clock: nanoseconds since the epoch when the owner was last seen alive
//!     48  bytes of the notes that are published
//!     56  how often the counts changed, odd while they do
//!     64  counts of what became of every item
//!   4096  notes: what a reader of the dead needs (resource, names of scopes)
//!  65536  headers of slots, 64 bytes each, padded to whole pages
//!      …  slots
//! ```

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::Mutex;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::fork;
use super::ring::{Header, Memory};
use super::sync::{AtomicU32, AtomicU64, Ordering};

/// First bytes of the file.
pub(crate) const MAGIC: [u8; 8] = *b"LENSRING";
/// Version of the layout.
pub(crate) const VERSION: u32 = 1;
/// Extension of a file that is being made.
pub(crate) const UNFINISHED: &str = "part";
/// Bytes of a slot.
pub(crate) const SLOT_BYTES: usize = 64 << 10;
/// Where the fixed words are.
pub(crate) mod at {
    pub(crate) const VERSION: usize = 8;
    pub(crate) const SLOT_BYTES: usize = 12;
    pub(crate) const SLOTS: usize = 16;
    pub(crate) const PID: usize = 24;
    pub(crate) const KIND: usize = 28;
    pub(crate) const CLOCK: usize = 40;
    pub(crate) const NOTED: usize = 48;
    pub(crate) const COUNTED: usize = 56;
    pub(crate) const COUNTS: usize = 64;
    pub(crate) const NOTES: usize = 4 << 10;
    pub(crate) const HEADERS: usize = 64 << 10;
}
/// Room for notes.
pub(crate) const NOTES_BYTES: usize = at::HEADERS - at::NOTES;

/// Where the slots begin.
pub(crate) const fn slots_at(slots: u32) -> usize {
    at::HEADERS + (slots as usize * size_of::<Header>()).next_multiple_of(4096)
}

/// The mapping; unmapped when dropped, its file stays.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    slots: u32,
    first_slot: NonNull<u8>,
    file: Option<(File, PathBuf)>,
    noting: Mutex<()>,
}

/// A slot of a mapping that lives for ever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    header: &'static Header,
    bytes: NonNull<u8>,
}

// SAFETY: it says where a slot is; who may write there is the ring's protocol.
unsafe impl Send for Place {}

// SAFETY: the memory is shared by design; all access goes through atomics or the ring's protocol.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Anonymous memory of `slots` slots.
    pub(crate) fn anonymous(slots: u32) -> io::Result<Self> {
        let len = slots_at(slots) + slots as usize * SLOT_BYTES;
        // SAFETY: a new mapping at a place of the kernel's choice touches nothing that exists.
        let base = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        Self::from_new(base, len, slots, None)
    }

    /// A new file of `slots` slots, locked by this process.
    pub(crate) fn create(path: &Path, slots: u32, kind: u32) -> io::Result<Self> {
        let len = slots_at(slots) + slots as usize * SLOT_BYTES;
        let unfinished = path.with_extension(UNFINISHED);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&unfinished)?;
        let map = || -> io::Result<*mut c_void> {
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            fallocate(&file, FallocateFlags::empty(), 0, len as u64)?;
            // Opened anew: a mapping keeps what it was made from, and its copy in a forked child would keep the lock.
            let mapped = OpenOptions::new().read(true).write(true).open(&unfinished)?;
            // SAFETY: as above; the file is ours and never shrinks while it is mapped.
            let base = unsafe {
                mmap(
                    ptr::null_mut(),
                    len,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::SHARED,
                    &mapped,
                    0,
                )?
            };
            Ok(base)
        };
        let remove = || {
            let _ = std::fs::remove_file(&unfinished);
        };
        let base = map().inspect_err(|_| remove())?;
        fork::let_go_in_child(file.as_raw_fd());
        let mapping = Self::from_new(base, len, slots, Some((file, path.to_owned())))?;
        mapping.write_head(kind);
        std::fs::rename(&unfinished, path).inspect_err(|_| remove())?;
        Ok(mapping)
    }

    fn from_new(
        base: *mut c_void,
        len: usize,
        slots: u32,
        file: Option<(File, PathBuf)>,
    ) -> io::Result<Self> {
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: slots begin inside of the mapping.
        let first_slot = unsafe { base.add(slots_at(slots)) };
        Ok(Self { base, len, slots, first_slot, file, noting: Mutex::new(()) })
    }

    fn write_head(&self, kind: u32) {
        let words = [
            (at::VERSION, VERSION),
            (at::SLOT_BYTES, SLOT_BYTES as u32),
            (at::SLOTS, self.slots),
            (at::PID, std::process::id()),
            (at::KIND, kind),
        ];
        for (at, word) in words {
            self.fixed_word(at).store(word.to_le(), Ordering::Relaxed);
        }
        // The magic comes last: a file without it holds nothing.
        self.long(0).store(u64::from_ne_bytes(MAGIC), Ordering::Release);
    }

    fn fixed_word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.len);
        // SAFETY: in bounds, aligned, and zero bytes are a valid value; only atomics touch the fixed words.
        unsafe { &*self.base.as_ptr().add(at).cast::<AtomicU32>() }
    }

    fn long(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.len);
        // SAFETY: as above.
        unsafe { &*self.base.as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Says that the owner is alive.
    pub(crate) fn set_clock(&self, unix_nanos: u64) {
        self.long(at::CLOCK).store(unix_nanos.to_le(), Ordering::Relaxed);
    }

    /// Says what became of every item. Called by one thread.
    pub(crate) fn set_counts<const WORDS: usize>(&self, counts: &[u64; WORDS]) {
        const { assert!(at::COUNTS + WORDS * 8 <= at::NOTES) };
        let counted = self.long(at::COUNTED);
        let before = u64::from_le(counted.load(Ordering::Relaxed)) & !1;
        counted.store((before + 1).to_le(), Ordering::Relaxed);
        std::sync::atomic::fence(Ordering::Release);
        for (index, count) in counts.iter().enumerate() {
            self.long(at::COUNTS + index * 8).store(count.to_le(), Ordering::Relaxed);
        }
        counted.store((before + 2).to_le(), Ordering::Release);
    }

    /// Appends a note; false when there is no room.
    pub(crate) fn note(&self, note: &[u8]) -> bool {
        let _noting = self.noting.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let noted = u32::from_le(self.fixed_word(at::NOTED).load(Ordering::Relaxed)) as usize;
        if note.len() > NOTES_BYTES - noted.min(NOTES_BYTES) {
            return false;
        }
        // SAFETY: in bounds by the check above; the lock keeps other writers out, and readers of the file look only
        // at what is published below.
        unsafe {
            let place = self.base.as_ptr().add(at::NOTES + noted);
            ptr::copy_nonoverlapping(note.as_ptr(), place, note.len());
        }
        self.fixed_word(at::NOTED).store(((noted + note.len()) as u32).to_le(), Ordering::Release);
        true
    }

    /// The file, if there is one.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|(_, path)| path.as_path())
    }

    /// Bytes of the mapping.
    pub(crate) fn bytes(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some((file, _)) = &self.file {
            fork::closes(file.as_raw_fd());
        }
        // SAFETY: the mapping was made by this value and nothing borrows from it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

// SAFETY: headers and slots are disjoint parts of one mapping that lives as long as the value.
unsafe impl Memory for Mapping {
    type Place = Place;

    fn slots(&self) -> u32 {
        self.slots
    }

    fn slot_bytes(&self) -> usize {
        SLOT_BYTES
    }

    #[inline]
    fn header(&self, slot: u32) -> &Header {
        assert!(slot < self.slots);
        // SAFETY: in bounds; pages are aligned to more than 64 bytes; `Header` is atomics, for which zero is valid.
        unsafe {
            &*self
                .base
                .as_ptr()
                .add(at::HEADERS + slot as usize * size_of::<Header>())
                .cast::<Header>()
        }
    }

    fn word(&self, slot: u32, at: usize) -> &AtomicU32 {
        assert!(slot < self.slots && at.is_multiple_of(4) && at + 4 <= SLOT_BYTES);
        self.fixed_word(slots_at(self.slots) + slot as usize * SLOT_BYTES + at)
    }

    fn place(&'static self, slot: u32) -> Place {
        let header = self.header(slot);
        // SAFETY: `header` has checked that there is such a slot.
        Place { header, bytes: unsafe { self.first_slot.add(slot as usize * SLOT_BYTES) } }
    }

    #[inline(always)]
    fn header_of(&'static self, place: Place) -> &'static Header {
        place.header
    }

    #[inline(always)]
    unsafe fn fill(
        &'static self,
        place: Place,
        at: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        debug_assert!(at + len <= SLOT_BYTES);
        // SAFETY: a mapping that lives for ever keeps its slots where they are; the caller promises that the bytes are
        // inside of this one and that nobody else touches them; any bytes are a valid `[u8]`.
        fill(unsafe { std::slice::from_raw_parts_mut(place.bytes.as_ptr().add(at), len) });
    }

    #[inline]
    unsafe fn read<R>(
        &self,
        slot: u32,
        from: usize,
        to: usize,
        read: impl FnOnce(&[u8]) -> R,
    ) -> R {
        assert!(slot < self.slots && from <= to && to <= SLOT_BYTES);
        let place = slots_at(self.slots) + slot as usize * SLOT_BYTES + from;
        // SAFETY: in bounds; the caller promises that nobody writes these bytes.
        read(unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(place), to - from) })
    }
}
