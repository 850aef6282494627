//! Start records: what is known of long-lived spans while they are open, for whoever finds this process dead.
//!
//! Records live in pages that are slots of the ring, at most a quarter of it. A thread writes new records into its
//! own pages; any thread may close one. Only a reader of a dead process looks inside.

use super::ring::{Memory, Ring, state};
use super::sync::{AtomicU32, Ordering};

/// Bytes of a record with its head.
pub(crate) const RECORD_BYTES: usize = 512;
/// State, length, scope.
pub(crate) const RECORD_HEAD: usize = 16;
const OPEN: u32 = 1;
/// How many places are tried before another page is taken.
const PROBES: usize = 16;

/// The pages that one thread adds to.
#[derive(Debug)]
pub(crate) struct Pages<M: Memory + 'static> {
    ring: &'static Ring<M>,
    slots: Vec<u32>,
    next: usize,
}

/// One open record. Closing is left to whoever ends the span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    slot: u32,
    index: u32,
}

impl<M: Memory> Ring<M> {
    fn records_a_page(&self) -> usize {
        self.memory.slot_bytes() / RECORD_BYTES
    }

    fn record_state(&self, record: Record) -> &AtomicU32 {
        self.memory.word(record.slot, record.index as usize * RECORD_BYTES)
    }

    /// Closes a record: its span has ended and is published.
    pub(crate) fn close(&self, record: Record) {
        self.record_state(record).store(0, Ordering::Release);
    }

    /// Frees the pages of threads that are gone once all their records are closed.
    pub(crate) fn sweep_pages(&self) {
        for slot in self.slots_in_use() {
            if self.memory.header(slot).state.load(Ordering::Acquire) == state::RECORDS_SEALED
                && (0..self.records_a_page()).all(|index| {
                    let record = Record { slot, index: index as u32 };
                    self.record_state(record).load(Ordering::Acquire) == 0
                })
            {
                self.give_slot_back(slot);
            }
        }
    }

    fn pages(&self) -> u32 {
        let is_page = |slot: &u32| {
            let state = self.memory.header(*slot).state.load(Ordering::Relaxed);
            state == state::RECORDS || state == state::RECORDS_SEALED
        };
        self.slots_in_use().filter(is_page).count() as u32
    }
}

impl<M: Memory> Pages<M> {
    pub(crate) fn new(ring: &'static Ring<M>) -> Self {
        Self { ring, slots: Vec::new(), next: 0 }
    }

    fn place(&self, at: usize) -> Record {
        let page = self.ring.records_a_page();
        Record { slot: self.slots[at / page], index: (at % page) as u32 }
    }

    fn find(&mut self) -> Option<Record> {
        let places = self.slots.len() * self.ring.records_a_page();
        for _ in 0..PROBES.min(places) {
            let record = self.place(self.next);
            self.next = (self.next + 1) % places;
            if self.ring.record_state(record).load(Ordering::Acquire) == 0 {
                return Some(record);
            }
        }
        None
    }

    fn grow(&mut self) -> Option<Record> {
        if self.ring.pages() >= self.ring.memory.slots() / 4 {
            return None;
        }
        let slot = self.ring.take_slot(state::OPEN)?;
        for index in 0..self.ring.records_a_page() {
            self.ring
                .record_state(Record { slot, index: index as u32 })
                .store(0, Ordering::Relaxed);
        }
        // Only now is it a page to those who look: what the slot held before is no record.
        self.ring.memory.header(slot).state.store(state::RECORDS, Ordering::Release);
        self.next = self.slots.len() * self.ring.records_a_page();
        self.slots.push(slot);
        let record = self.place(self.next);
        self.next += 1;
        Some(record)
    }

    /// Writes a record of at most [`RECORD_BYTES`] less [`RECORD_HEAD`]; `None` when there is no room.
    pub(crate) fn open(
        &mut self,
        scope: u16,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<Record> {
        if len > RECORD_BYTES - RECORD_HEAD {
            return None;
        }
        let record = self.find().or_else(|| self.grow())?;
        let at = record.index as usize * RECORD_BYTES;
        // SAFETY: the place belongs to this thread's page and its record is closed, so nobody looks at it before the
        // state is stored below.
        unsafe {
            self.ring.memory.fill(record.slot, at + 4, len + RECORD_HEAD - 4, |bytes| {
                let (head, content) = bytes.split_at_mut(RECORD_HEAD - 4);
                head[..4].copy_from_slice(&(len as u32).to_le_bytes());
                head[4..6].copy_from_slice(&scope.to_le_bytes());
                fill(content);
            });
        }
        self.ring.record_state(record).store(OPEN.to_le(), Ordering::Release);
        Some(record)
    }
}

impl<M: Memory> Drop for Pages<M> {
    fn drop(&mut self) {
        for slot in &self.slots {
            let header = self.ring.memory.header(*slot);
            header.state.store(state::RECORDS_SEALED, Ordering::Release);
        }
    }
}
