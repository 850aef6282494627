//! Attributes of a span: encoded once, keys unique.

use std::borrow::Cow;
use std::sync::Arc;

use lens_otlp::encode::{EncodeValue, SPAN_ATTRIBUTES, SpanHead, key_value_len, write_key_value};
use lens_otlp::wire::Cursor;

use super::fields;
use super::value::{ToInt, Value};

/// What [`Span::set`](crate::Span::set) takes: everything that can become a [`Value`], by reference where that
/// saves a copy.
pub trait AttributeValue {
    #[doc(hidden)]
    fn encode(self, attributes: &mut AttributeBytes, key: &str, limits: ValueLimits);
}

/// Limits that apply when a value is written.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct ValueLimits {
    pub count: usize,
    pub value_chars: usize,
}

impl ValueLimits {
    pub(super) const NONE: Self = Self { count: usize::MAX, value_chars: usize::MAX };

    /// `text` up to the limit.
    #[inline]
    pub(super) fn cut(self, text: &str) -> &str {
        if text.len() <= self.value_chars { text } else { self.cut_long(text) }
    }

    #[cold]
    fn cut_long(self, text: &str) -> &str {
        let end = text.char_indices().nth(self.value_chars).map_or(text.len(), |(at, _)| at);
        &text[..end]
    }
}

/// `Span.attributes` fields behind the head of their span, in a buffer that is used again.
///
/// Keys are unique. There is no index of them: a set of bits tells most new keys apart, and only for the others are
/// the fields looked through.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct AttributeBytes {
    /// Initialised to its end, so that a field is written without growing it byte by byte.
    buffer: Vec<u8>,
    len: usize,
    /// Where attributes begin: behind the head.
    start: usize,
    count: usize,
    /// One bit for each kind of key that is there: a key whose bit is not set is new.
    seen: [u64; 4],
    dropped: u32,
}

/// What a buffer begins with.
const FIRST_BYTES: usize = 256;

/// Which bit of `seen` a key has, by word and mask: its length and last bytes tell most keys apart.
#[inline(always)]
fn bit(key: &str) -> (usize, u64) {
    let bytes = key.as_bytes();
    let number = match bytes.last_chunk::<8>() {
        Some(tail) => u64::from_le_bytes(*tail),
        None => bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    };
    let mixed = (number ^ (bytes.len() as u64) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed >> 62) as usize, 1 << (mixed >> 56 & 63))
}

impl AttributeBytes {
    /// The attributes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.len]
    }

    /// Head and attributes.
    #[inline]
    pub(super) fn head_and_bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    #[inline]
    pub(super) fn head_len(&self) -> usize {
        self.start
    }

    #[inline]
    pub(super) fn dropped(&self) -> u32 {
        self.dropped
    }

    pub(super) fn capacity(&self) -> usize {
        self.buffer.len()
    }

    /// Begins anew with the head of a span.
    #[inline]
    pub(super) fn begin(&mut self, head: &SpanHead) {
        if self.buffer.len() < FIRST_BYTES {
            self.grow(FIRST_BYTES);
        }
        if let Some(place) = self.buffer.first_chunk_mut() {
            head.write(place);
        }
        self.start = head.encoded_len();
        self.len = self.start;
        self.count = 0;
        self.seen = [0; 4];
        self.dropped = 0;
    }

    /// Takes over what was encoded elsewhere, as far as the limit goes; only when there is nothing yet.
    pub(super) fn copy_from(&mut self, other: &Self, max_count: usize) {
        if other.count > max_count {
            return self.copy_some(other, max_count);
        }
        let bytes = other.bytes();
        let end = self.len + bytes.len();
        if self.buffer.len() < end {
            self.grow(end);
        }
        self.buffer[self.len..end].copy_from_slice(bytes);
        self.len = end;
        self.count = other.count;
        self.seen = other.seen;
    }

    #[cold]
    fn copy_some(&mut self, other: &Self, count: usize) {
        let mut end = other.start;
        for _ in 0..count {
            end += fields::first(&other.buffer[end..other.len]).map_or(0, |field| field.len);
        }
        let kept = Self { len: end, count, ..other.clone() };
        self.copy_from(&kept, count);
        self.dropped += (other.count - count) as u32;
    }

    #[cold]
    fn grow(&mut self, bytes: usize) {
        self.buffer.resize(bytes.next_power_of_two().max(FIRST_BYTES), 0);
    }

    /// Removes the value that `key` has; false when it has none and there are too many keys.
    #[cold]
    fn make_way(&mut self, key: &str, limits: ValueLimits) -> bool {
        let Some((at, len)) = self.find(key) else {
            let full = self.count >= limits.count;
            self.dropped += u32::from(full);
            return !full;
        };
        self.buffer.copy_within(at + len..self.len, at);
        self.len -= len;
        self.count -= 1;
        true
    }

    /// Where the field of a key is, and its length.
    fn find(&self, key: &str) -> Option<(usize, usize)> {
        let mut at = self.start;
        loop {
            let field = fields::first(&self.buffer[at..self.len])?;
            if field.key == key.as_bytes() {
                return Some((at, field.len));
            }
            at += field.len;
        }
    }

    /// Inlined into the site, where key and type are known: lengths and bits become constants there.
    #[inline(always)]
    pub(super) fn put(
        &mut self,
        key: &str,
        value: &(impl EncodeValue + ?Sized),
        limits: ValueLimits,
    ) {
        let (word, bit) = bit(key);
        if (self.seen[word] & bit != 0 || self.count >= limits.count) && !self.make_way(key, limits)
        {
            return;
        }
        self.seen[word] |= bit;
        self.count += 1;
        let end = self.len + key_value_len(key, value);
        if self.buffer.len() < end {
            self.grow(end);
        }
        if let Some(place) = self.buffer.get_mut(self.len..end) {
            write_key_value(&mut Cursor::new(place), SPAN_ATTRIBUTES, key, value);
            self.len = end;
        }
    }
}

impl AttributeValue for &str {
    #[inline(always)]
    fn encode(self, attributes: &mut AttributeBytes, key: &str, limits: ValueLimits) {
        attributes.put(key, limits.cut(self), limits);
    }
}

macro_rules! by_text {
    ($($type:ty),*) => {
        $(impl AttributeValue for $type {
            #[inline]
            fn encode(self, attributes: &mut AttributeBytes, key: &str, limits: ValueLimits) {
                attributes.put(key, limits.cut(&self), limits);
            }
        })*
    };
}

by_text!(String, &String, Arc<str>, &Arc<str>, Cow<'_, str>, Box<str>);

macro_rules! by_int {
    ($($type:ty),*) => {
        $(impl AttributeValue for $type {
            #[inline(always)]
            fn encode(self, attributes: &mut AttributeBytes, key: &str, limits: ValueLimits) {
                attributes.put(key, &self.to_int(), limits);
            }
        })*
    };
}

by_int!(i64, u64, i32, u32, i16, u16, i8, u8, isize, usize);

impl AttributeValue for bool {
    #[inline(always)]
    fn encode(self, attributes: &mut AttributeBytes, key: &str, limits: ValueLimits) {
        attributes.put(key, &self, limits);
    }
}

impl AttributeValue for f64 {
    #[inline(always)]
    fn encode(self, attributes: &mut AttributeBytes, key: &str, limits: ValueLimits) {
        attributes.put(key, &self, limits);
    }
}

impl AttributeValue for f32 {
    #[inline]
    fn encode(self, attributes: &mut AttributeBytes, key: &str, limits: ValueLimits) {
        attributes.put(key, &f64::from(self), limits);
    }
}

impl AttributeValue for &Value {
    fn encode(self, attributes: &mut AttributeBytes, key: &str, limits: ValueLimits) {
        match self {
            Value::String(text) => attributes.put(key, limits.cut(text), limits),
            Value::Array(_) if limits.value_chars < usize::MAX => {
                attributes.put(key, &cut_strings(self, limits), limits);
            }
            other => attributes.put(key, other, limits),
        }
    }
}

pub(super) fn cut_strings(value: &Value, limits: ValueLimits) -> Value {
    match value {
        Value::String(text) => Value::from(limits.cut(text)),
        Value::Array(values) => {
            Value::Array(values.iter().map(|value| cut_strings(value, limits)).collect())
        }
        other => other.clone(),
    }
}

impl AttributeValue for Value {
    fn encode(self, attributes: &mut AttributeBytes, key: &str, limits: ValueLimits) {
        (&self).encode(attributes, key, limits);
    }
}

macro_rules! by_value {
    ($($type:ty),*) => {
        $(impl AttributeValue for $type {
            fn encode(self, attributes: &mut AttributeBytes, key: &str, limits: ValueLimits) {
                Value::from(self).encode(attributes, key, limits);
            }
        })*
    };
}

by_value!(Vec<String>, Vec<&str>, Vec<i64>, Vec<f64>, Vec<bool>, Vec<Value>);

/// `None` sets nothing.
impl<T: AttributeValue> AttributeValue for Option<T> {
    #[inline]
    fn encode(self, attributes: &mut AttributeBytes, key: &str, limits: ValueLimits) {
        if let Some(value) = self {
            value.encode(attributes, key, limits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lens_otlp::view::{AnyValue, Attributes};

    fn read(attributes: &AttributeBytes) -> Vec<(String, String)> {
        Attributes::new(attributes.bytes(), 9)
            .map(|pair| {
                let (key, value) = pair.expect("valid");
                let text = match value {
                    AnyValue::String(text) => text.to_owned(),
                    AnyValue::Int(value) => value.to_string(),
                    other => format!("{other:?}"),
                };
                (key.to_owned(), text)
            })
            .collect()
    }

    #[test]
    fn last_value_of_a_key_wins_and_the_others_stay_readable() {
        let mut attributes = AttributeBytes::default();
        attributes.put("a", "1", ValueLimits::NONE);
        attributes.put("bb", "2", ValueLimits::NONE);
        attributes.put("ccc", "3", ValueLimits::NONE);
        attributes.put("a", "a longer value", ValueLimits::NONE);
        attributes.put("ccc", &7_i64, ValueLimits::NONE);
        let expected = [("bb", "2"), ("a", "a longer value"), ("ccc", "7")];
        assert_eq!(
            read(&attributes),
            expected.map(|(key, value)| (key.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn limits_cut_values_and_count_what_does_not_fit() {
        let mut attributes = AttributeBytes::default();
        let limits = ValueLimits { count: 1, value_chars: 4 };
        "größer".encode(&mut attributes, "a", limits);
        "x".encode(&mut attributes, "b", limits);
        "y".encode(&mut attributes, "a", limits);
        assert_eq!(read(&attributes), [("a".to_owned(), "y".to_owned())]);
        assert_eq!(attributes.dropped(), 1);
        "größer".encode(&mut attributes, "a", limits);
        assert_eq!(read(&attributes), [("a".to_owned(), "größ".to_owned())]);
    }
}
