//! A span as OTLP bytes, as far as it is known: the head and name when it starts, then each attribute as it is set.

use lens_otlp::encode::{
    BLANK_HEAD, END_AT, EncodeValue, FLAGS_AT, MAX_HEAD_BYTES, SPAN_ATTRIBUTES, SPAN_ID_AT,
    SpanHead, TRACE_ID_AT, key_value_len, name_len, write_key_value, write_name,
};
use lens_otlp::wire::{BYTES, Cursor, tag};

use super::attributes::{AttributeBytes, bit, cut, cut_strings};
use super::context::SpanContext;
use super::ids::{SpanId, TraceId};
use super::raw::small;
use super::value::Value;
use super::{fields, handle};
use crate::config::SpanLimits;

/// Room in the recording itself: most spans need no other, those of a rollout's requests among them.
const INLINE_BYTES: usize = 896;
/// No attribute is shorter.
const LEAST_BYTES: usize = 8;
/// Limits of at least these do not matter to small attributes in the recording's own room.
const GENEROUS_COUNT: usize = INLINE_BYTES / LEAST_BYTES;
const GENEROUS_BYTES: usize = small::MAX_BYTES;
const ATTRIBUTE_TAG: u8 = tag(SPAN_ATTRIBUTES, BYTES);
const NAME_TAG: u8 = tag(5, BYTES);
/// As if every key had been there: whoever comes is looked at closely.
const ALL_SEEN: [u64; 4] = [u64::MAX; 4];

/// Head, name and attributes. Keys of attributes are unique.
///
/// There is no index of keys: a set of bits tells most new keys apart, and only for the others are the fields looked
/// through. Where anything else is to be looked at, such as a limit, all bits are set, so that there is one question
/// to ask.
#[doc(hidden)]
#[derive(Debug)]
#[repr(C)]
pub struct SpanMessage {
    len: usize,
    /// Where attributes begin; zero where none are taken.
    start: usize,
    /// One bit for each kind of key that is there: a key whose bit is not set is new.
    seen: [u64; 4],
    /// Whether there is anything to it that most spans do not have, here or in its recording.
    pub(super) is_unusual: bool,
    dropped: u32,
    /// Next to what is always touched, so that few lines of the cache hold a span. Begins with a head, if a blank one.
    inline: [u8; INLINE_BYTES],
    /// In use instead of `inline` when it is not empty; initialised to its end.
    spilled: Vec<u8>,
}

impl SpanMessage {
    /// Takes no attribute.
    pub(super) const fn closed() -> Self {
        Self {
            len: 0,
            start: 0,
            seen: ALL_SEEN,
            is_unusual: false,
            dropped: 0,
            spilled: Vec::new(),
            inline: const {
                let mut bytes = [0; INLINE_BYTES];
                bytes.split_at_mut(MAX_HEAD_BYTES).0.copy_from_slice(&BLANK_HEAD);
                bytes
            },
        }
    }

    /// Forgets what it held and takes no attribute until it begins anew.
    pub(super) fn close(&mut self) {
        self.clear();
        (self.len, self.start) = (0, 0);
        self.seen = ALL_SEEN;
    }

    /// Forgets what most spans do not have.
    pub(super) fn clear(&mut self) {
        self.is_unusual = false;
        self.dropped = 0;
        self.spilled.clear();
    }

    /// Begins anew, after [`clear`](Self::clear) if it was unusual before.
    #[inline(always)]
    pub(super) fn begin(&mut self, head: &SpanHead, name: &str) {
        if let Some(place) = self.inline.first_chunk_mut() {
            head.write(place);
        }
        self.seen = [0; 4];
        if !handle::limits_are_generous() {
            self.seen = ALL_SEEN;
        }
        let at = head.encoded_len();
        match small::put_bytes(&mut self.inline, at, NAME_TAG, name.as_bytes()) {
            Some(end) => (self.start, self.len) = (end, end),
            None => self.begin_long(at, name),
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_long(&mut self, at: usize, name: &str) {
        let end = at + name_len(name);
        self.len = at;
        self.reserve(end);
        write_name(&mut Cursor::new(&mut self.buffer()[at..end]), name);
        (self.start, self.len) = (end, end);
    }

    /// Whether limits never matter to a small attribute.
    pub(super) const fn are_generous(limits: &SpanLimits) -> bool {
        limits.attributes >= GENEROUS_COUNT && limits.attribute_value_chars >= GENEROUS_BYTES
    }

    fn buffer(&mut self) -> &mut [u8] {
        if self.spilled.is_empty() { &mut self.inline } else { &mut self.spilled }
    }

    /// All that is known of what is not unusual.
    #[inline(always)]
    pub(super) fn usual_bytes(&self) -> &[u8] {
        &self.inline[..self.len.min(INLINE_BYTES)]
    }

    /// All that is known.
    pub(super) fn bytes(&self) -> &[u8] {
        let buffer = if self.spilled.is_empty() { &self.inline[..] } else { &self.spilled };
        buffer.get(..self.len).unwrap_or_default()
    }

    /// The ids and flags of a span that has begun.
    #[inline]
    pub(super) fn context(&self) -> SpanContext {
        let head = &self.inline;
        let trace_id = head[TRACE_ID_AT..].first_chunk().copied().unwrap_or_default();
        let span_id = head[SPAN_ID_AT..].first_chunk().copied().unwrap_or_default();
        let (trace_id, span_id) = (TraceId::from_bytes(trace_id), SpanId::from_bytes(span_id));
        SpanContext::with_flags(trace_id, span_id, head[FLAGS_AT], false)
    }

    /// Bytes of head and name.
    #[inline(always)]
    pub(super) fn head_len(&self) -> usize {
        self.start
    }

    pub(super) fn dropped(&self) -> u32 {
        self.dropped
    }

    /// Bytes that it holds beyond its own.
    pub(super) fn spilled_capacity(&self) -> usize {
        self.spilled.capacity()
    }

    /// Says when the span ended.
    pub(super) fn set_end(&mut self, end_nanos: u64) {
        set_end(self.buffer(), end_nanos);
    }

    /// Replaces the name.
    pub(super) fn set_name(&mut self, name: &str) {
        let Some(head) = fixed_len(self.bytes()) else { return };
        let attributes = self.bytes().get(self.start..).unwrap_or_default().to_vec();
        let start = head + name_len(name);
        let end = start + attributes.len();
        self.reserve(end);
        let buffer = self.buffer();
        write_name(&mut Cursor::new(&mut buffer[head..start]), name);
        buffer[start..end].copy_from_slice(&attributes);
        (self.start, self.len) = (start, end);
    }

    /// Takes over what was encoded elsewhere, as far as the limit goes; only when there is nothing yet.
    #[inline]
    pub(super) fn copy_from(&mut self, other: &AttributeBytes) {
        let is_generous = handle::limits_are_generous();
        let bytes = if is_generous { other.bytes() } else { self.limited(other) };
        let at = self.len;
        let end = at + bytes.len();
        self.reserve(end);
        if let Some(place) = self.buffer().get_mut(at..end) {
            place.copy_from_slice(bytes);
            self.len = end;
            if is_generous && self.spilled.is_empty() {
                self.seen = other.seen();
            }
        }
    }

    /// Adds what was encoded elsewhere; its values win.
    #[inline]
    pub(super) fn append(&mut self, other: &AttributeBytes) {
        let (bytes, seen) = (other.bytes(), other.seen());
        let are_new = (0..seen.len()).all(|at| self.seen[at] & seen[at] == 0);
        let end = self.len + bytes.len();
        match self.inline.get_mut(self.len..end) {
            Some(place) if are_new => {
                place.copy_from_slice(bytes);
                self.len = end;
                for (own, seen) in self.seen.iter_mut().zip(seen) {
                    *own |= seen;
                }
            }
            _ => self.append_each(bytes),
        }
    }

    #[cold]
    #[inline(never)]
    fn append_each(&mut self, mut rest: &[u8]) {
        while let Some(field) = fields::first(rest).filter(|_| self.start > 0) {
            let (bytes, after) = rest.split_at(field.len);
            rest = after;
            let Ok(key) = std::str::from_utf8(field.key) else { continue };
            let bit = bit(key);
            if !self.is_new(bit) && !self.make_way(key) {
                continue;
            }
            let at = self.len;
            let end = at + bytes.len();
            self.reserve(end);
            if let Some(place) = self.buffer().get_mut(at..end) {
                place.copy_from_slice(bytes);
                self.took(bit, end);
            }
        }
    }

    #[cold]
    fn limited<'a>(&mut self, other: &'a AttributeBytes) -> &'a [u8] {
        let most = handle::span_limits().attributes;
        let (mut at, mut count) = (0, 0);
        let mut end = 0;
        while let Some(field) = other.bytes().get(at..).and_then(fields::first) {
            at += field.len;
            count += 1;
            if count <= most {
                end = at;
            }
        }
        self.dropped += count.saturating_sub(most) as u32;
        self.is_unusual |= count > most;
        other.bytes().get(..end).unwrap_or_default()
    }

    /// Makes room up to `end`.
    #[inline]
    fn reserve(&mut self, end: usize) {
        if self.buffer().len() < end {
            self.spill(end);
        }
    }

    #[cold]
    fn spill(&mut self, end: usize) {
        let was_inline = self.spilled.is_empty();
        (self.is_unusual, self.seen) = (true, ALL_SEEN);
        self.spilled.resize(end.next_power_of_two().max(2 * INLINE_BYTES), 0);
        if was_inline {
            self.spilled[..INLINE_BYTES].copy_from_slice(&self.inline);
        }
    }

    #[inline(always)]
    fn is_new(&self, bit: u8) -> bool {
        self.seen[usize::from(bit >> 6)] & 1 << (bit & 63) == 0
    }

    #[inline(always)]
    fn took(&mut self, bit: u8, end: usize) {
        self.seen[usize::from(bit >> 6)] |= 1 << (bit & 63);
        self.len = end;
    }

    #[inline(always)]
    pub(super) fn put_text(&mut self, key: &str, bit: u8, text: &str) {
        if self.is_new(bit)
            && let Some(end) = small::put_text(&mut self.inline, self.len, ATTRIBUTE_TAG, key, text)
        {
            return self.took(bit, end);
        }
        self.put_long_text(key, bit, text);
    }

    #[inline(always)]
    pub(super) fn put_int(&mut self, key: &str, bit: u8, value: i64) {
        if self.is_new(bit)
            && let Some(end) = small::put_int(&mut self.inline, self.len, ATTRIBUTE_TAG, key, value)
        {
            return self.took(bit, end);
        }
        self.put_any(key, bit, &value);
    }

    #[inline(always)]
    pub(super) fn put_bool(&mut self, key: &str, bit: u8, value: bool) {
        if self.is_new(bit)
            && let Some(end) =
                small::put_bool(&mut self.inline, self.len, ATTRIBUTE_TAG, key, value)
        {
            return self.took(bit, end);
        }
        self.put_any(key, bit, &value);
    }

    #[inline(always)]
    pub(super) fn put_double(&mut self, key: &str, bit: u8, value: f64) {
        if self.is_new(bit)
            && let Some(end) =
                small::put_double(&mut self.inline, self.len, ATTRIBUTE_TAG, key, value)
        {
            return self.took(bit, end);
        }
        self.put_any(key, bit, &value);
    }

    #[cold]
    #[inline(never)]
    fn put_long_text(&mut self, key: &str, bit: u8, text: &str) {
        let text = cut(text, handle::span_limits().attribute_value_chars);
        self.put_any(key, bit, text);
    }

    /// Puts a value of any type or length, whatever its key and the limits.
    #[cold]
    #[inline(never)]
    fn put_any(&mut self, key: &str, bit: u8, value: &(impl EncodeValue + ?Sized)) {
        if self.start == 0 || !self.make_way(key) {
            return;
        }
        let at = self.len;
        let end = at + key_value_len(key, value);
        self.reserve(end);
        if let Some(place) = self.buffer().get_mut(at..end) {
            write_key_value(&mut Cursor::new(place), SPAN_ATTRIBUTES, key, value);
            self.took(bit, end);
        }
    }

    pub(super) fn put_value(&mut self, key: &str, bit: u8, value: &Value) {
        match value {
            Value::String(text) => self.put_text(key, bit, text),
            Value::Array(_) if handle::span_limits().attribute_value_chars < usize::MAX => {
                let chars = handle::span_limits().attribute_value_chars;
                self.put_any(key, bit, &cut_strings(value, chars));
            }
            other => self.put_any(key, bit, other),
        }
    }

    /// Removes the value that `key` has; false when it has none and no more may come.
    fn make_way(&mut self, key: &str) -> bool {
        let most = handle::span_limits().attributes;
        let (mut at, mut count) = (self.start, 0);
        while let Some(field) = self.bytes().get(at..).and_then(fields::first) {
            let (end, len) = (self.len, field.len);
            if field.key == key.as_bytes() {
                self.buffer().copy_within(at + len..end, at);
                self.len -= len;
                return true;
            }
            at += len;
            count += 1;
        }
        if count >= most {
            self.dropped += 1;
            self.is_unusual = true;
        }
        count < most
    }
}

/// Says in a span's bytes when it ended.
#[inline(always)]
pub(super) fn set_end(bytes: &mut [u8], end_nanos: u64) {
    if let Some(place) = bytes.get_mut(END_AT..END_AT + 8) {
        place.copy_from_slice(&end_nanos.to_le_bytes());
    }
}

/// Bytes of a message's head; `None` when it has none.
fn fixed_len(bytes: &[u8]) -> Option<usize> {
    let root = MAX_HEAD_BYTES - 10;
    // Behind a root's head comes its name, behind another's the parent.
    match *bytes.get(root)? {
        NAME_TAG => Some(root),
        _ => Some(MAX_HEAD_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enabled::attributes::{AttributeValue, bit};
    use lens_otlp::encode::FLAG_HAS_IS_REMOTE;
    use lens_otlp::view::{AnyValue, SpanView};

    fn message(name: &str) -> SpanMessage {
        let mut message = SpanMessage::closed();
        let head = SpanHead { trace_id: [1; 16], span_id: [2; 8], kind: 1, ..SpanHead::default() };
        message.begin(&head, name);
        message
    }

    fn set(message: &mut SpanMessage, key: &str, value: impl AttributeValue) {
        value.encode(message, key, bit(key));
    }

    fn read(message: &SpanMessage) -> (String, Vec<(String, String)>) {
        let span = SpanView::read(message.bytes()).expect("valid");
        let pairs = span.attributes().map(|pair| {
            let (key, value) = pair.expect("valid");
            let text = match value {
                AnyValue::String(text) => text.to_owned(),
                AnyValue::Int(value) => value.to_string(),
                other => format!("{other:?}"),
            };
            (key.to_owned(), text)
        });
        (span.name.to_owned(), pairs.collect())
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn attributes_encoded_elsewhere_are_added_and_win() {
        let of = |pairs: &[(&str, &str)]| {
            let mut bytes = AttributeBytes::default();
            for (key, value) in pairs {
                bytes.put(key, *value);
            }
            bytes
        };
        let mut message = message("name");
        message.append(&of(&[("a", "1"), ("bb", "2")]));
        message.append(&of(&[("ccc", "3"), ("dddd", "4")]));
        assert_eq!(
            read(&message).1,
            pairs(&[("a", "1"), ("bb", "2"), ("ccc", "3"), ("dddd", "4")])
        );
        message.append(&of(&[("bb", "5"), ("e", "6")]));
        set(&mut message, "dddd", "7");
        let expected = [("a", "1"), ("ccc", "3"), ("bb", "5"), ("e", "6"), ("dddd", "7")];
        assert_eq!(read(&message).1, pairs(&expected));
        let long = "v".repeat(INLINE_BYTES);
        message.append(&of(&[("long", &long), ("a", "8")]));
        message.append(&of(&[("f", "9")]));
        let expected = [
            ("ccc", "3"),
            ("bb", "5"),
            ("e", "6"),
            ("dddd", "7"),
            ("long", &long),
            ("a", "8"),
            ("f", "9"),
        ];
        assert_eq!(read(&message).1, pairs(&expected));
        let mut closed = SpanMessage::closed();
        closed.append(&of(&[("a", "1")]));
        assert!(closed.bytes().is_empty());
    }

    #[test]
    fn last_value_of_a_key_wins_and_the_others_stay_readable() {
        let mut message = message("name");
        set(&mut message, "a", "1");
        set(&mut message, "bb", "2");
        set(&mut message, "ccc", "3");
        set(&mut message, "a", "a longer value");
        set(&mut message, "ccc", 7_i64);
        assert_eq!(read(&message).1, pairs(&[("bb", "2"), ("a", "a longer value"), ("ccc", "7")]));
    }

    #[test]
    fn ids_are_read_back_whatever_the_message_grew_to() {
        let (trace_id, span_id) = (TraceId::from_bytes([7; 16]), SpanId::from_bytes([9; 8]));
        let context = SpanContext::with_flags(trace_id, span_id, 3, false);
        let mut message = SpanMessage::closed();
        for parent_id in [None, Some([4; 8]), None] {
            let (trace_id, span_id) = (trace_id.to_bytes(), span_id.to_bytes());
            let flags = 3 | FLAG_HAS_IS_REMOTE;
            let head =
                SpanHead { trace_id, span_id, parent_id, kind: 3, flags, ..SpanHead::default() };
            message.begin(&head, "name");
            assert_eq!(message.context(), context);
            let span = SpanView::read(message.bytes()).expect("valid");
            assert_eq!((span.name, span.kind, span.flags), ("name", 3, flags));
            assert_eq!((span.trace_id, span.span_id), (&trace_id[..], &span_id[..]));
            assert_eq!(span.parent_id, parent_id.as_ref().map_or(&[][..], |id| &id[..]));
            message.set_name(&"n".repeat(INLINE_BYTES));
            assert_eq!(message.context(), context);
            message.clear();
        }
    }

    #[test]
    fn name_is_replaced_whatever_the_lengths() {
        let long = "n".repeat(700);
        for (before, after) in [("a", "another"), ("another", "a"), ("a", &*long), (&*long, "a")] {
            let mut message = message(before);
            set(&mut message, "key", "value");
            message.set_name(after);
            set(&mut message, "key", "last");
            assert_eq!(read(&message), (after.to_owned(), pairs(&[("key", "last")])));
        }
    }

    #[test]
    fn attributes_that_outgrow_the_recording_stay() {
        let mut message = message("name");
        let keys: Vec<String> = (0..100).map(|at| format!("key.{at}")).collect();
        for key in &keys {
            set(&mut message, key, key.as_str());
        }
        message.set_end(9);
        let span = SpanView::read(message.bytes()).expect("valid");
        assert_eq!(span.end_nanos, 9);
        let expected: Vec<_> = keys.iter().map(|key| (key.clone(), key.clone())).collect();
        assert_eq!(read(&message).1, expected);
    }

    #[test]
    fn closed_message_takes_and_counts_nothing() {
        let mut message = message("name");
        message.close();
        set(&mut message, "key", "value");
        set(&mut message, "key", 1_u64);
        assert_eq!((message.bytes().len(), message.dropped()), (0, 0));
    }
}
