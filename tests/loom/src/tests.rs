//! What must hold in every interleaving.

use loom::thread;

use crate::heap::Heap;
use crate::raw::records::{Pages, RECORD_BYTES};
use crate::raw::ring::{FRAME_HEADER, Reader, Ring};

fn ring(slots: usize, slot_bytes: usize) -> &'static Ring<Heap> {
    Box::leak(Box::new(Ring::new(Heap::new(slots, slot_bytes, slot_bytes))))
}

/// Reads what is published, acknowledges it and gives the items back.
fn drain(reader: &mut Reader<Heap>, out: &mut Vec<u8>) {
    let mut published = Vec::new();
    reader.published(&mut published);
    for slot in published {
        let items = reader.read(slot, slot.acknowledged, |bytes| {
            let mut items = 0;
            for frame in bytes.chunks_exact(FRAME_HEADER + 1) {
                out.push(frame[FRAME_HEADER]);
                items += 1;
            }
            items
        });
        if let Some(items) = items {
            reader.acknowledge(slot.slot, slot.sequence, slot.committed, items);
        }
    }
}

/// Writes one-byte items; gives back how many found no room.
fn write(ring: &'static Ring<Heap>, items: &[u8]) -> usize {
    let mut writer = None;
    let mut refused = 0;
    for item in items {
        let fill = |bytes: &mut [u8]| bytes[0] = *item;
        let appended = match &mut writer {
            None => false,
            Some(open) => crate::raw::ring::Writer::append(open, 0, 0, 1, fill),
        };
        if !appended {
            drop(writer.take());
            writer = ring.claim();
            let appended = writer.as_mut().is_some_and(|open| open.append(0, 0, 1, fill));
            refused += usize::from(!appended);
        }
    }
    refused
}

/// Guarantees: what is read was written, once, and in order, while the writer goes on and changes slots.
#[test]
fn reader_sees_every_item_once_and_in_order() {
    loom::model(|| {
        // Room for two items in a slot.
        let ring = ring(2, 2 * (FRAME_HEADER + 1));
        let mut reader = ring.reader().expect("the only one");
        assert!(ring.reader().is_none());
        let writer = thread::spawn(move || write(ring, &[1, 2, 3]));
        let mut read = Vec::new();
        drain(&mut reader, &mut read);
        let refused = writer.join().expect("no panic");
        drain(&mut reader, &mut read);
        drain(&mut reader, &mut read);
        assert_eq!(refused, 0);
        assert_eq!(read, [1, 2, 3]);
        assert_eq!(ring.published_items(), 3);
        assert_eq!(ring.waiting_items(), 0);
        assert_eq!(ring.free_slots(), 2, "every slot is free again");
    });
}

/// Guarantees: a slot never has two writers, also when it is freed and claimed again meanwhile.
#[test]
fn two_writers_never_share_a_slot() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let ring = ring(2, FRAME_HEADER + 1);
        let mut reader = ring.reader().expect("the only one");
        let other = thread::spawn(move || write(ring, &[1, 2]));
        let refused = write(ring, &[3]);
        let mut read = Vec::new();
        drain(&mut reader, &mut read);
        let refused = refused + other.join().expect("no panic");
        drain(&mut reader, &mut read);
        drain(&mut reader, &mut read);
        assert_eq!(read.len() + refused, 3, "{read:?}");
        read.sort_unstable();
        read.dedup();
        assert_eq!(read.len() + refused, 3, "no item twice");
        assert_eq!(ring.published_items() as usize + refused, 3);
        assert_eq!(ring.free_slots(), 2);
    });
}

/// Guarantees: a page of start records is freed once its thread is gone and its last record closed, and not before.
#[test]
fn page_of_records_lives_as_long_as_its_last_record() {
    loom::model(|| {
        let heap = Heap::new(4, 2 * RECORD_BYTES, 0);
        let ring: &'static Ring<Heap> = Box::leak(Box::new(Ring::new(heap)));
        let owner = thread::spawn(move || {
            let mut pages = Pages::new(ring);
            let first = pages.open([0, 0], 4, |_| {}).expect("room");
            let second = pages.open([0, 0], 4, |_| {}).expect("room");
            ring.close(first);
            second
        });
        ring.sweep_pages();
        let open = owner.join().expect("no panic");
        ring.sweep_pages();
        assert_eq!(ring.free_slots(), 3, "one record is open");
        let closer = thread::spawn(move || ring.close(open));
        ring.sweep_pages();
        closer.join().expect("no panic");
        ring.sweep_pages();
        assert_eq!(ring.free_slots(), 4);
    });
}
