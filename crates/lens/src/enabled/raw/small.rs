//! Fields of few bytes, written with one check of their room and without a call.

/// Most bytes of a small key, text or name.
pub(crate) const MAX_BYTES: usize = 64;
/// Room that has to be there for a field: no small one takes more.
pub(crate) const FIELD_ROOM: usize = 2 + 0x7f + 8;
/// Most bytes inside of a field whose length takes one byte.
const MAX_INSIDE: usize = 0x7f;

/// Copies at most [`MAX_BYTES`].
///
/// # Safety
///
/// `len` bytes can be read at `from` and written at `to`, and these do not overlap.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    /// Copies the first and the last `T` of `len` bytes, which may overlap.
    #[inline(always)]
    unsafe fn ends<T>(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the caller has `len` bytes on both sides, at least as many as `T` has.
        unsafe {
            let last = len - size_of::<T>();
            let first = from.cast::<T>().read_unaligned();
            let end = from.add(last).cast::<T>().read_unaligned();
            to.cast::<T>().write_unaligned(first);
            to.add(last).cast::<T>().write_unaligned(end);
        }
    }
    // SAFETY: each arm touches exactly the `len` bytes from the start of both.
    unsafe {
        if len > 16 {
            if len > 32 { ends::<[u128; 2]>(from, to, len) } else { ends::<u128>(from, to, len) }
        } else if len >= 8 {
            ends::<u64>(from, to, len);
        } else if len >= 4 {
            ends::<u32>(from, to, len);
        } else if len >= 2 {
            ends::<u16>(from, to, len);
        } else if len == 1 {
            *to = *from;
        }
    }
}

/// Where `at` is in the buffer, if there is room for any field.
#[inline(always)]
fn place(buffer: &mut [u8], at: usize) -> Option<*mut u8> {
    if buffer.len() < FIELD_ROOM || at > buffer.len() - FIELD_ROOM {
        return None;
    }
    // SAFETY: inside of the buffer, as just checked.
    Some(unsafe { buffer.as_mut_ptr().add(at) })
}

/// Writes a field; gives the place behind it, or `None` when it is not small or there is no room for any.
#[inline(always)]
pub(crate) fn put_bytes(buffer: &mut [u8], at: usize, tag: u8, bytes: &[u8]) -> Option<usize> {
    let len = bytes.len();
    if len > MAX_BYTES {
        return None;
    }
    let place = place(buffer, at)?;
    // SAFETY: `FIELD_ROOM` bytes at `place` are in the buffer, which `bytes` is not.
    unsafe {
        place.cast::<u16>().write_unaligned(u16::from_le_bytes([tag, len as u8]).to_le());
        copy(bytes.as_ptr(), place.add(2), len);
    }
    Some(at + 2 + len)
}

/// Writes a `KeyValue` but for its value; gives the place behind it.
///
/// # Safety
///
/// `FIELD_ROOM` bytes can be written at `place`, the key is small and not among them, and all lengths fit into seven
/// bits.
#[inline(always)]
unsafe fn put_key(place: *mut u8, tag: u8, key: &str, value_len: usize) -> *mut u8 {
    let key_len = key.len();
    // Tag, length of all, tag and length of the key, from the lowest byte on: no length reaches into the next byte.
    let head = u32::from_le_bytes([tag, 4, KEY_TAG, 0])
        + (key_len as u32) * u32::from_le_bytes([0, 1, 0, 1])
        + ((value_len as u32) << 8);
    // SAFETY: four bytes, a small key and two bytes are less than `FIELD_ROOM`.
    unsafe {
        copy(key.as_ptr(), place.add(4), key_len);
        place.cast::<u32>().write_unaligned(head.to_le());
        let value = place.add(4 + key_len);
        let head = u16::from(VALUE_TAG) + ((value_len as u16) << 8);
        value.cast::<u16>().write_unaligned(head.to_le());
        value.add(2)
    }
}

/// `KeyValue.key` and `.value`.
const KEY_TAG: u8 = 1 << 3 | 2;
const VALUE_TAG: u8 = 2 << 3 | 2;
/// `AnyValue.string_value`, `.bool_value`, `.int_value`, `.double_value`.
const TEXT_TAG: u8 = 1 << 3 | 2;
const BOOL_TAG: u8 = 2 << 3;
const INT_TAG: u8 = 3 << 3;
const DOUBLE_TAG: u8 = 4 << 3 | 1;

/// Writes a text attribute; gives the place behind it, or `None` when it is not small or there is no room for any.
#[inline(always)]
pub(crate) fn put_text(
    buffer: &mut [u8],
    at: usize,
    tag: u8,
    key: &str,
    text: &str,
) -> Option<usize> {
    let (key_len, len) = (key.len(), text.len());
    if key_len > MAX_BYTES || len > MAX_BYTES || key_len + len + 6 > MAX_INSIDE {
        return None;
    }
    let place = place(buffer, at)?;
    // SAFETY: `FIELD_ROOM` bytes at `place` are in the buffer, which key and text are not; the field has at most two
    // bytes more than `MAX_INSIDE`.
    unsafe {
        let value = put_key(place, tag, key, len + 2);
        let head = u16::from(TEXT_TAG) + ((len as u16) << 8);
        value.cast::<u16>().write_unaligned(head.to_le());
        copy(text.as_ptr(), value.add(2), len);
    }
    Some(at + 8 + key_len + len)
}

/// Writes an attribute that is true or false.
#[inline(always)]
pub(crate) fn put_bool(
    buffer: &mut [u8],
    at: usize,
    tag: u8,
    key: &str,
    value: bool,
) -> Option<usize> {
    if key.len() > MAX_BYTES {
        return None;
    }
    let place = place(buffer, at)?;
    // SAFETY: as above; a small key and two bytes are far from the limits.
    unsafe {
        let place = put_key(place, tag, key, 2);
        place.cast::<u16>().write_unaligned(u16::from_le_bytes([BOOL_TAG, value.into()]).to_le());
    }
    Some(at + 8 + key.len())
}

/// Writes an integer attribute.
#[inline(always)]
pub(crate) fn put_int(
    buffer: &mut [u8],
    at: usize,
    tag: u8,
    key: &str,
    value: i64,
) -> Option<usize> {
    if key.len() > MAX_BYTES {
        return None;
    }
    let place = place(buffer, at)?;
    let mut value = value as u64;
    // SAFETY: as above; a small key and at most eleven bytes are far from the limits.
    unsafe {
        let begin = place.add(6 + key.len());
        *begin = INT_TAG;
        let mut len = 1;
        while value >= 0x80 {
            *begin.add(len) = value as u8 | 0x80;
            value >>= 7;
            len += 1;
        }
        *begin.add(len) = value as u8;
        len += 1;
        put_key(place, tag, key, len);
        Some(at + 6 + key.len() + len)
    }
}

/// Writes a floating-point attribute.
#[inline(always)]
pub(crate) fn put_double(
    buffer: &mut [u8],
    at: usize,
    tag: u8,
    key: &str,
    value: f64,
) -> Option<usize> {
    if key.len() > MAX_BYTES {
        return None;
    }
    let place = place(buffer, at)?;
    // SAFETY: as above; a small key and nine bytes are far from the limits.
    unsafe {
        let place = put_key(place, tag, key, 9);
        *place = DOUBLE_TAG;
        place.add(1).cast::<u64>().write_unaligned(value.to_bits().to_le());
    }
    Some(at + 15 + key.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lens_otlp::encode::{EncodeValue, SPAN_ATTRIBUTES, put_key_value};

    const TAG: u8 = SPAN_ATTRIBUTES << 3 | 2;

    /// Whether `put` writes what the general encoder writes, behind something else, and only where there is room.
    fn agrees(
        key: &str,
        value: &(impl EncodeValue + ?Sized),
        is_small: bool,
        put: impl Fn(&mut [u8], usize) -> Option<usize>,
    ) {
        let mut expected = b"before".to_vec();
        put_key_value(&mut expected, SPAN_ATTRIBUTES, key, value);
        let mut buffer = vec![0xee; 6 + FIELD_ROOM];
        buffer[..6].copy_from_slice(b"before");
        let end = put(&mut buffer, 6);
        assert_eq!(end.is_some(), is_small, "{key}");
        if let Some(end) = end {
            assert_eq!(&buffer[..end], expected);
            assert!(buffer[end..].iter().all(|byte| *byte == 0xee), "{key}");
        }
        assert_eq!(put(&mut buffer, 7), None, "no room for {key}");
        assert_eq!(put(&mut buffer[..20], 6), None, "no room for {key}");
    }

    #[test]
    fn small_fields_are_those_of_the_general_encoder() {
        for key_len in (0..=70).chain([126, 127, 128, 300]) {
            let key: String = ('a'..='z').cycle().take(key_len).collect();
            let is_small = key_len <= MAX_BYTES;
            for text_len in (0..=70).chain([127, 128, 300]) {
                let text: String = ('0'..='9').cycle().take(text_len).collect();
                let is_small = is_small && text_len <= MAX_BYTES && key_len + text_len + 6 < 0x80;
                agrees(&key, text.as_str(), is_small, |out, at| {
                    put_text(out, at, TAG, &key, &text)
                });
            }
            for value in [0, 1, 127, 128, 300, 1 << 20, i64::MAX, -1, i64::MIN] {
                agrees(&key, &value, is_small, |out, at| put_int(out, at, TAG, &key, value));
            }
            agrees(&key, &true, is_small, |out, at| put_bool(out, at, TAG, &key, true));
            agrees(&key, &1.5, is_small, |out, at| put_double(out, at, TAG, &key, 1.5));
        }
    }
}
