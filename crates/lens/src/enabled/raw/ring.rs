//! Slots of shared memory: each a byte log with one writer and one reader.
//!
//! A thread claims a slot and appends frames to it; a frame is published by one release store of the slot's
//! committed length. The reader takes what is published, of open slots too, and acknowledges it when it is safe
//! elsewhere; a slot that its writer has sealed and its reader has acknowledged to the end is free again. So flush,
//! idle threads, dead threads and dead processes need nothing from the writer.
//!
//! Claiming is a pop from a stack: the slot that was freed last is the one whose memory is in the cache.

use super::sync::{AtomicU32, AtomicU64, Ordering};

/// Bytes in front of each frame: length, scope, flags.
pub(crate) const FRAME_HEADER: usize = 8;

/// What a slot is in. The numbers are part of the file's format.
pub(crate) mod state {
    /// On the free list.
    pub(crate) const FREE: u32 = 0;
    /// Being written.
    pub(crate) const OPEN: u32 = 1;
    /// Complete; to be read to its end.
    pub(crate) const SEALED: u32 = 2;
    /// A page of start records that a thread still adds to.
    pub(crate) const RECORDS: u32 = 3;
    /// A page of start records whose thread is gone.
    pub(crate) const RECORDS_SEALED: u32 = 4;
}

/// One slot's words; 64 bytes, so that writers of neighbouring slots do not meet in a cache line.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) state: AtomicU32,
    /// Bytes published.
    pub(crate) committed: AtomicU32,
    /// Items published.
    pub(crate) items: AtomicU32,
    /// Bytes that are safe elsewhere.
    pub(crate) acknowledged: AtomicU32,
    /// Items that are safe elsewhere.
    pub(crate) acknowledged_items: AtomicU32,
    pub(crate) reserved: AtomicU32,
    /// Order in which slots were claimed.
    pub(crate) sequence: AtomicU64,
}

/// Where slots live.
///
/// # Safety
///
/// `header` and the bytes of a slot must stay at their place for the life of the value, and slots must not overlap.
/// `place` is of the very slot and panics where there is none, `header_of` of a place is the slot's header, and `fill`
/// and `read` lend exactly the bytes that they are asked for.
pub(crate) unsafe trait Memory: Send + Sync {
    /// A slot as the one who writes it holds it, with nothing left to look up or to check.
    type Place: Copy + Send;
    /// How many slots there are; less than `u32::MAX`.
    fn slots(&self) -> u32;
    /// Bytes of one slot.
    fn slot_bytes(&self) -> usize;
    /// The words of a slot.
    fn header(&self, slot: u32) -> &Header;
    /// The word at `at`, a multiple of four, for those who use the slot as words.
    fn word(&self, slot: u32, at: usize) -> &AtomicU32;
    /// Where a slot is.
    fn place(&'static self, slot: u32) -> Self::Place;
    /// The words of the slot at a place.
    fn header_of(&'static self, place: Self::Place) -> &'static Header;
    /// Lets `fill` write `len` bytes at `at`.
    ///
    /// # Safety
    ///
    /// The place is one of this memory, the bytes lie inside the slot, and nobody else reads or writes them meanwhile.
    unsafe fn fill(
        &'static self,
        place: Self::Place,
        at: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    );
    /// Lends the bytes `from..to`, which must lie inside the slot.
    ///
    /// # Safety
    ///
    /// Nobody writes these bytes meanwhile.
    unsafe fn read<R>(&self, slot: u32, from: usize, to: usize, read: impl FnOnce(&[u8]) -> R)
    -> R;
}

/// Slots, free list and the set of those in use.
#[derive(Debug)]
pub(crate) struct Ring<M> {
    pub(super) memory: M,
    /// Top of the stack of free slots: tag in the high half, slot + 1 in the low one.
    free: AtomicU64,
    below: Box<[AtomicU32]>,
    free_slots: AtomicU32,
    /// One bit for each slot in use.
    in_use: Box<[AtomicU64]>,
    sequence: AtomicU64,
    /// Items of slots that were freed.
    retired_items: AtomicU64,
    reader_taken: AtomicU32,
}

impl<M: Memory> Ring<M> {
    pub(crate) fn new(memory: M) -> Self {
        let slots = memory.slots();
        let below = (0..slots).map(|slot| AtomicU32::new(slot_above(slot, slots))).collect();
        Self {
            memory,
            free: AtomicU64::new(u64::from(slots.min(1))),
            below,
            free_slots: AtomicU32::new(slots),
            in_use: (0..slots.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            sequence: AtomicU64::new(1),
            retired_items: AtomicU64::new(0),
            reader_taken: AtomicU32::new(0),
        }
    }

    pub(crate) fn memory(&self) -> &M {
        &self.memory
    }

    /// Slots on the free list, about.
    pub(crate) fn free_slots(&self) -> u32 {
        self.free_slots.load(Ordering::Relaxed)
    }

    /// Whether a frame of `len` bytes fits into an empty slot.
    pub(crate) fn fits(&self, len: usize) -> bool {
        len <= self.memory.slot_bytes() - FRAME_HEADER
    }

    fn pop_free(&self) -> Option<u32> {
        let mut top = self.free.load(Ordering::Acquire);
        loop {
            let slot = (top as u32).checked_sub(1)?;
            let below = self.below[slot as usize].load(Ordering::Relaxed);
            let next = (top >> 32).wrapping_add(1) << 32 | u64::from(below);
            match self.free.compare_exchange_weak(top, next, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => {
                    self.free_slots.fetch_sub(1, Ordering::Relaxed);
                    return Some(slot);
                }
                Err(seen) => top = seen,
            }
        }
    }

    fn push_free(&self, slot: u32) {
        let mut top = self.free.load(Ordering::Relaxed);
        loop {
            self.below[slot as usize].store(top as u32, Ordering::Relaxed);
            let next = (top >> 32).wrapping_add(1) << 32 | u64::from(slot + 1);
            match self.free.compare_exchange_weak(top, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => {
                    self.free_slots.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Err(seen) => top = seen,
            }
        }
    }

    /// Takes a free slot and gives it a state; `None` when there is none.
    pub(super) fn take_slot(&self, state: u32) -> Option<u32> {
        let slot = self.pop_free()?;
        let header = self.memory.header(slot);
        header.committed.store(0, Ordering::Relaxed);
        header.items.store(0, Ordering::Relaxed);
        header.acknowledged.store(0, Ordering::Relaxed);
        header.acknowledged_items.store(0, Ordering::Relaxed);
        header.sequence.store(self.sequence.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        header.state.store(state, Ordering::Release);
        self.in_use[slot as usize / 64].fetch_or(1 << (slot % 64), Ordering::Release);
        Some(slot)
    }

    pub(super) fn give_slot_back(&self, slot: u32) {
        let header = self.memory.header(slot);
        self.in_use[slot as usize / 64].fetch_and(!(1 << (slot % 64)), Ordering::Relaxed);
        self.retired_items
            .fetch_add(u64::from(header.items.load(Ordering::Relaxed)), Ordering::Release);
        header.items.store(0, Ordering::Release);
        header.state.store(state::FREE, Ordering::Release);
        self.push_free(slot);
    }

    /// Claims a slot to write; `None` when the ring is full.
    pub(crate) fn claim(&'static self) -> Option<Writer<M>> {
        let slot = self.take_slot(state::OPEN)?;
        Some(Writer { ring: self, place: self.memory.place(slot), at: 0, items: 0 })
    }

    /// The reader of all slots; there is one.
    pub(crate) fn reader(&'static self) -> Option<Reader<M>> {
        let taken = self.reader_taken.swap(1, Ordering::AcqRel);
        (taken == 0).then_some(Reader { ring: self })
    }

    /// The slots in use.
    pub(crate) fn slots_in_use(&self) -> impl Iterator<Item = u32> + '_ {
        self.in_use.iter().enumerate().flat_map(|(word, bits)| {
            let mut bits = bits.load(Ordering::Acquire);
            std::iter::from_fn(move || {
                let bit = bits.trailing_zeros();
                if bit == 64 {
                    return None;
                }
                bits &= bits - 1;
                Some(word as u32 * 64 + bit)
            })
        })
    }

    /// Items ever published. Exact once writers pause; meanwhile never more than were.
    pub(crate) fn published_items(&self) -> u64 {
        loop {
            let retired = self.retired_items.load(Ordering::Acquire);
            let waiting: u64 = (self.slots_in_use())
                .map(|slot| u64::from(self.memory.header(slot).items.load(Ordering::Acquire)))
                .sum();
            if self.retired_items.load(Ordering::Acquire) == retired {
                return retired + waiting;
            }
        }
    }

    /// Slots that their writers are done with and the reader is not.
    pub(crate) fn sealed_slots(&self) -> usize {
        let is_sealed =
            |slot: &u32| self.memory.header(*slot).state.load(Ordering::Relaxed) == state::SEALED;
        self.slots_in_use().filter(is_sealed).count()
    }

    /// Items published in slots that are still in use and not acknowledged.
    pub(crate) fn waiting_items(&self) -> u64 {
        let waiting = |slot| {
            let header = self.memory.header(slot);
            let acknowledged = header.acknowledged_items.load(Ordering::Acquire);
            u64::from(header.items.load(Ordering::Acquire).saturating_sub(acknowledged))
        };
        self.slots_in_use().map(waiting).sum()
    }
}

fn slot_above(slot: u32, slots: u32) -> u32 {
    // The stack begins in order: slot 0 on top. Zero is the end.
    if slot + 1 < slots { slot + 2 } else { 0 }
}

/// The right to append to one slot.
#[derive(Debug)]
pub(crate) struct Writer<M: Memory + 'static> {
    ring: &'static Ring<M>,
    place: M::Place,
    at: u32,
    items: u32,
}

impl<M: Memory> Writer<M> {
    /// The longest frame that fits.
    pub(crate) fn room(&self) -> usize {
        let left = self.ring.memory.slot_bytes() - self.at as usize;
        left.saturating_sub(FRAME_HEADER)
    }

    /// Appends a frame of `len` bytes; false when it does not fit.
    #[inline]
    pub(crate) fn append(
        &mut self,
        scope: u16,
        flags: u16,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        let memory = &self.ring.memory;
        let at = self.at as usize;
        let framed = len + FRAME_HEADER;
        // Never below zero: what was appended fitted.
        if framed > memory.slot_bytes() - at {
            return false;
        }
        let head = (len as u64) | u64::from(scope) << 32 | u64::from(flags) << 48;
        // SAFETY: the frame ends inside the slot, as just checked; this writer is the only one of its slot, and the
        // reader stays below the committed length, which is `at` until the store below.
        unsafe {
            memory.fill(self.place, at, framed, |bytes| {
                if let Some((header, content)) = bytes.split_first_chunk_mut::<FRAME_HEADER>() {
                    *header = head.to_le_bytes();
                    fill(content);
                }
            });
        }
        self.at += framed as u32;
        self.items += 1;
        let header = memory.header_of(self.place);
        header.items.store(self.items, Ordering::Relaxed);
        header.committed.store(self.at, Ordering::Release);
        true
    }
}

impl<M: Memory> Drop for Writer<M> {
    /// Seals the slot.
    fn drop(&mut self) {
        let header = self.ring.memory.header_of(self.place);
        header.state.store(state::SEALED, Ordering::Release);
    }
}

/// The right to read all slots and to free them.
#[derive(Debug)]
pub(crate) struct Reader<M: Memory + 'static> {
    ring: &'static Ring<M>,
}

/// What a slot has to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    pub(crate) slot: u32,
    pub(crate) sequence: u64,
    pub(crate) committed: u32,
    pub(crate) acknowledged: u32,
}

impl<M: Memory> Reader<M> {
    /// Slots that hold frames, in the order in which they were claimed. Frees what is done.
    pub(crate) fn published(&mut self, out: &mut Vec<Published>) {
        out.clear();
        for slot in self.ring.slots_in_use() {
            let header = self.ring.memory.header(slot);
            let state = header.state.load(Ordering::Acquire);
            if state != state::OPEN && state != state::SEALED {
                continue;
            }
            let committed = header.committed.load(Ordering::Acquire);
            let acknowledged = header.acknowledged.load(Ordering::Relaxed);
            if state == state::SEALED && committed == acknowledged {
                self.ring.give_slot_back(slot);
            } else if committed > acknowledged {
                let sequence = header.sequence.load(Ordering::Relaxed);
                out.push(Published { slot, sequence, committed, acknowledged });
            }
        }
        out.sort_unstable_by_key(|published| published.sequence);
    }

    /// Lends the bytes `from..published.committed`.
    pub(crate) fn read<R>(
        &self,
        published: Published,
        from: u32,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        let header = self.ring.memory.header(published.slot);
        let is_same = header.sequence.load(Ordering::Relaxed) == published.sequence
            && header.state.load(Ordering::Relaxed) != state::FREE
            && published.committed <= header.committed.load(Ordering::Acquire);
        if !is_same || from > published.committed {
            return None;
        }
        // SAFETY: bytes below the committed length are never written again while the slot is in use, and only this
        // reader frees it.
        let lent = unsafe {
            self.ring.memory.read(published.slot, from as usize, published.committed as usize, read)
        };
        Some(lent)
    }

    /// Declares a slot's bytes up to `to` safe elsewhere, with `items` more items.
    pub(crate) fn acknowledge(&mut self, slot: u32, sequence: u64, to: u32, items: u32) {
        let header = self.ring.memory.header(slot);
        if header.sequence.load(Ordering::Relaxed) != sequence {
            return;
        }
        let known = header.acknowledged_items.load(Ordering::Relaxed);
        header.acknowledged_items.store(known + items, Ordering::Relaxed);
        header.acknowledged.store(to, Ordering::Release);
        let sealed = header.state.load(Ordering::Acquire) == state::SEALED;
        if sealed && header.committed.load(Ordering::Acquire) == to {
            self.ring.give_slot_back(slot);
        }
    }
}
