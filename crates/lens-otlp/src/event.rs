//! Events with numbers alone, in one pass: what every request of a client leaves.

use crate::encode::{EVENT_ATTRIBUTES, SPAN_EVENTS, write_key_value};
use crate::wire::{BYTES, Cursor, tag, varint_len};

/// Appends a `Span.events` field whose attributes are integers; keys must differ.
pub fn put_event_of_numbers(
    out: &mut Vec<u8>,
    name: &str,
    unix_nanos: u64,
    attributes: &[(&str, i64)],
    dropped_attributes: u32,
) {
    let start = out.len();
    let most = |(key, _): &(&str, i64)| key.len() + MAX_AROUND_NUMBER;
    let room = name.len() + MAX_AROUND + attributes.iter().map(most).sum::<usize>();
    out.resize(start + room, 0);
    let place = &mut out[start..];
    let mut cursor = Cursor::new(&mut place[HEAD..]);
    cursor.fixed64(1, unix_nanos);
    cursor.bytes(2, name.as_bytes());
    for (key, value) in attributes {
        write_key_value(&mut cursor, EVENT_ATTRIBUTES, key, value);
    }
    cursor.count(4, u64::from(dropped_attributes));
    let len = room - HEAD - cursor.left();
    // The length of most events takes two bytes, for which there is room in front.
    let head = 1 + varint_len(len as u64);
    if head != HEAD {
        out.resize(start + room + head, 0);
        out.copy_within(start + HEAD..start + HEAD + len, start + head);
    }
    let mut cursor = Cursor::new(&mut out[start..start + head]);
    cursor.array(&[tag(SPAN_EVENTS, BYTES)]);
    cursor.varint(len as u64);
    out.truncate(start + head + len);
}

/// Tag and length of most events.
const HEAD: usize = 3;
/// Most bytes of an event beside its name and its attributes.
const MAX_AROUND: usize = HEAD + 9 + 6 + 6;
/// Most bytes of an attribute beside its key.
const MAX_AROUND_NUMBER: usize = 1 + 5 + 1 + 5 + 2 + 11;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{put_event, put_key_value};

    #[test]
    fn event_of_numbers_reads_like_any_other() {
        let long = "k".repeat(200);
        let attributes = [("a", 0), ("b", i64::MAX), (long.as_str(), -1)];
        for (count, dropped) in [(0, 0), (1, 0), (2, 1), (3, 300)] {
            let attributes = &attributes[..count];
            let mut expected = vec![7];
            put_event(&mut expected, "an event", 1 << 60, dropped, |out| {
                for (key, value) in attributes {
                    put_key_value(out, EVENT_ATTRIBUTES, key, value);
                }
            });
            let mut written = vec![7];
            put_event_of_numbers(&mut written, "an event", 1 << 60, attributes, dropped);
            assert_eq!(written, expected);
        }
    }
}
