//! Start records: what is known of long-lived spans while they are open, for whoever finds this process dead.
//!
//! Records live in pages that are slots of the ring, at most a quarter of it. A thread writes new records into its
//! own pages; any thread may close one. A place is written again only when its word is zero, so whoever reads a record
//! says so in its word, and nobody waits for anybody. One thread of a process at a time reads records and frees pages.

use super::ring::{Memory, Ring, state};
use super::sync::{AtomicU32, Ordering};

/// Bytes of a record with its head.
pub(crate) const RECORD_BYTES: usize = 512;
/// State, length, scope, group.
pub(crate) const RECORD_HEAD: usize = 16;

/// Bits of a record's word. The numbers are part of the file's format.
pub(crate) mod word {
    /// The span has begun.
    pub(crate) const OPEN: u32 = 1_u32.to_le();
    /// Its own code ends it.
    pub(crate) const ENDING: u32 = 2_u32.to_le();
    /// Somebody else ends it: its own code came too late.
    pub(crate) const TAKEN: u32 = 4_u32.to_le();
    /// Somebody reads the record.
    pub(crate) const READ: u32 = 8_u32.to_le();
    /// Somebody else has ended it, and that is published.
    pub(crate) const DONE: u32 = 16_u32.to_le();
}

/// Whether a word says of a span that nobody has published its end.
pub(crate) fn is_open(state: u32) -> bool {
    state & word::OPEN != 0 && state & word::DONE == 0
}
/// How many places are tried before another page is taken.
const PROBES: usize = 16;

/// The pages that one thread adds to.
#[derive(Debug)]
pub(crate) struct Pages<M: Memory + 'static> {
    ring: &'static Ring<M>,
    slots: Vec<u32>,
    next: usize,
}

/// What is known of an open span.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started<'a> {
    pub(crate) scope: u16,
    pub(crate) group: u16,
    /// The span as it began.
    pub(crate) message: &'a [u8],
}

/// One open record. Closing is left to whoever ends the span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

    /// Says that the span's own code ends it; false when somebody else was faster, who then publishes its end.
    pub(crate) fn begin_end(&self, record: Record) -> bool {
        self.record_state(record).fetch_or(word::ENDING, Ordering::AcqRel) & word::TAKEN == 0
    }

    /// Closes a record: its span has ended and is published.
    pub(crate) fn close(&self, record: Record) {
        self.record_state(record).fetch_and(word::READ, Ordering::Release);
    }

    /// Takes the end of a span from its own code; false when that is at it already, or the span is no longer open.
    pub(crate) fn take(&self, record: Record) -> bool {
        let take = |state: u32| {
            let is_free = is_open(state) && state & (word::ENDING | word::TAKEN) == 0;
            is_free.then_some(state | word::TAKEN)
        };
        let state = self.record_state(record);
        state.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_ok()
    }

    /// The end of a span that was taken is published.
    pub(crate) fn close_taken(&self, record: Record) {
        self.record_state(record).fetch_or(word::DONE, Ordering::Release);
    }

    /// Lends what is known of every open span, unless its end is under way.
    pub(crate) fn read_open(&self, mut read: impl FnMut(Record, Started<'_>)) {
        for slot in self.slots_in_use().filter(|slot| self.is_page(*slot)) {
            for index in 0..self.records_a_page() as u32 {
                let record = Record { slot, index };
                let state = self.record_state(record);
                let claimed = word::OPEN | word::READ;
                if state
                    .compare_exchange(word::OPEN, claimed, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
                {
                    self.lend(record, |started| read(record, started));
                    state.fetch_and(!word::READ, Ordering::Release);
                }
            }
        }
    }

    /// Lends what is known of a span whose end was taken.
    pub(crate) fn read_taken<R>(&self, record: Record, read: impl FnOnce(Started<'_>) -> R) -> R {
        self.lend(record, read)
    }

    fn lend<R>(&self, record: Record, read: impl FnOnce(Started<'_>) -> R) -> R {
        let at = record.index as usize * RECORD_BYTES;
        let read = |bytes: &[u8]| {
            let number = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
            let len = usize::from(number(0)).min(RECORD_BYTES - RECORD_HEAD);
            let message = &bytes[RECORD_HEAD - 4..][..len];
            read(Started { scope: number(4), group: number(6), message })
        };
        // SAFETY: the record's word is not zero and stays so meanwhile, so its place is not written.
        unsafe { self.memory.read(record.slot, at + 4, at + RECORD_BYTES, read) }
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

    fn is_page(&self, slot: u32) -> bool {
        let state = self.memory.header(slot).state.load(Ordering::Acquire);
        state == state::RECORDS || state == state::RECORDS_SEALED
    }

    fn pages(&self) -> u32 {
        self.slots_in_use().filter(|slot| self.is_page(*slot)).count() as u32
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
        [scope, group]: [u16; 2],
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<Record> {
        if len > RECORD_BYTES - RECORD_HEAD {
            return None;
        }
        let record = self.find().or_else(|| self.grow())?;
        let at = record.index as usize * RECORD_BYTES;
        let place = self.ring.memory.place(record.slot);
        // SAFETY: a record lies inside its page, which is this thread's; it is closed, so nobody looks at it before the
        // state is stored below.
        unsafe {
            self.ring.memory.fill(place, at + 4, len + RECORD_HEAD - 4, |bytes| {
                let (head, content) = bytes.split_at_mut(RECORD_HEAD - 4);
                head[..4].copy_from_slice(&(len as u32).to_le_bytes());
                head[4..6].copy_from_slice(&scope.to_le_bytes());
                head[6..8].copy_from_slice(&group.to_le_bytes());
                fill(content);
            });
        }
        self.ring.record_state(record).store(word::OPEN, Ordering::Release);
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
