//! A ring's memory on the heap.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64};

use crate::raw::records::RECORD_BYTES;
use crate::raw::ring::{Header, Memory};

/// Slots of a few bytes, each byte a cell of its own.
pub(crate) struct Heap {
    headers: Vec<Header>,
    slots: Vec<Vec<UnsafeCell<u8>>>,
    words: Vec<Vec<AtomicU32>>,
    slot_bytes: usize,
}

impl Heap {
    /// `cells` of the `slot_bytes` of each slot are watched.
    pub(crate) fn new(slots: usize, slot_bytes: usize, cells: usize) -> Self {
        let header = |_| Header {
            state: AtomicU32::new(0),
            committed: AtomicU32::new(0),
            items: AtomicU32::new(0),
            acknowledged: AtomicU32::new(0),
            acknowledged_items: AtomicU32::new(0),
            reserved: AtomicU32::new(0),
            sequence: AtomicU64::new(0),
        };
        let words = slot_bytes / RECORD_BYTES;
        Self {
            headers: (0..slots).map(header).collect(),
            slots: (0..slots).map(|_| (0..cells).map(|_| UnsafeCell::new(0)).collect()).collect(),
            words: (0..slots).map(|_| (0..words).map(|_| AtomicU32::new(0)).collect()).collect(),
            slot_bytes,
        }
    }
}

// SAFETY: a cell is touched only by the protocol under test, and the checker tells when that fails.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

// SAFETY: headers and cells stay where they are and do not overlap.
unsafe impl Memory for Heap {
    type Place = u32;

    fn slots(&self) -> u32 {
        self.headers.len() as u32
    }

    fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    fn header(&self, slot: u32) -> &Header {
        &self.headers[slot as usize]
    }

    fn word(&self, slot: u32, at: usize) -> &AtomicU32 {
        &self.words[slot as usize][at / RECORD_BYTES]
    }

    fn place(&'static self, slot: u32) -> u32 {
        slot
    }

    fn header_of(&'static self, slot: u32) -> &'static Header {
        self.header(slot)
    }

    unsafe fn fill(&'static self, slot: u32, at: usize, len: usize, fill: impl FnOnce(&mut [u8])) {
        let mut bytes = vec![0; len];
        fill(&mut bytes);
        // Unwatched bytes, of records, are not read by anybody.
        for (cell, byte) in self.slots[slot as usize].iter().skip(at).zip(bytes) {
            // SAFETY: the checker reports whoever else touches the cell meanwhile.
            cell.with_mut(|place| unsafe { *place = byte });
        }
    }

    unsafe fn read<R>(&self, slot: u32, from: usize, to: usize, read: impl FnOnce(&[u8]) -> R) -> R {
        let cells = &self.slots[slot as usize][from..to];
        // SAFETY: as above.
        let bytes: Vec<u8> =
            cells.iter().map(|cell| cell.with(|place| unsafe { *place })).collect();
        read(&bytes)
    }
}
