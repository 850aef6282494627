//! Attributes of a span: encoded once, keys unique.

use std::borrow::Cow;
use std::sync::Arc;

use lens_otlp::encode::{EncodeValue, SPAN_ATTRIBUTES, put_key_value};

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
    pub value_bytes: usize,
}

impl ValueLimits {
    pub(super) const NONE: Self = Self { count: usize::MAX, value_bytes: usize::MAX };

    /// `text` up to the limit, cut at a character boundary.
    fn cut(self, text: &str) -> &str {
        if text.len() <= self.value_bytes {
            text
        } else {
            &text[..text.floor_char_boundary(self.value_bytes)]
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Where the field begins.
    at: u32,
    len: u32,
    key_at: u32,
    key_len: u32,
}

/// `Span.attributes` fields and where their keys are.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct AttributeBytes {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    /// One bit for each kind of key that is there: a key whose bit is not set is new, and need not be looked for.
    seen: u64,
    dropped: u32,
}

/// Which bit of `seen` a key has: its length and a few of its bytes tell most keys apart.
#[inline]
fn bit(key: &str) -> u64 {
    let bytes = key.as_bytes();
    let number = match bytes.last_chunk::<8>() {
        Some(tail) => u64::from_le_bytes(*tail),
        None => bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    };
    let mixed = (number ^ (bytes.len() as u64) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    1 << (mixed >> 58)
}

impl AttributeBytes {
    /// Room for `count` attributes of the usual size.
    pub(super) fn with_capacity(count: usize) -> Self {
        const USUAL_BYTES: usize = 48;
        Self {
            bytes: Vec::with_capacity(count * USUAL_BYTES),
            slots: Vec::with_capacity(count),
            seen: 0,
            dropped: 0,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn dropped(&self) -> u32 {
        self.dropped
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.slots.clear();
        self.seen = 0;
        self.dropped = 0;
    }

    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Takes over what was encoded elsewhere; only into an empty set.
    pub(super) fn copy_from(&mut self, other: &Self) {
        self.bytes.extend_from_slice(&other.bytes);
        self.slots.extend_from_slice(&other.slots);
        self.seen = other.seen;
    }

    /// Removes the value that `key` has; false when it has none and there are too many keys.
    #[inline(never)]
    fn make_way(&mut self, key: &str, limits: ValueLimits) -> bool {
        if let Some(index) = self.find(key) {
            self.remove(index);
        } else if self.slots.len() >= limits.count {
            self.dropped += 1;
            return false;
        }
        true
    }

    fn find(&self, key: &str) -> Option<usize> {
        self.slots.iter().position(|slot| {
            slot.key_len as usize == key.len()
                && self.bytes[slot.key_at as usize..][..key.len()] == *key.as_bytes()
        })
    }

    fn remove(&mut self, index: usize) {
        let gone = self.slots.remove(index);
        let range = gone.at as usize..(gone.at + gone.len) as usize;
        self.bytes.drain(range);
        for slot in &mut self.slots[index..] {
            slot.at -= gone.len;
            slot.key_at -= gone.len;
        }
    }

    #[inline]
    pub(super) fn put(
        &mut self,
        key: &str,
        value: &(impl EncodeValue + ?Sized),
        limits: ValueLimits,
    ) {
        let bit = bit(key);
        if (self.seen & bit != 0 || self.slots.len() >= limits.count)
            && !self.make_way(key, limits)
        {
            return;
        }
        self.seen |= bit;
        let at = self.bytes.len();
        let key_at = put_key_value(&mut self.bytes, SPAN_ATTRIBUTES, key, value);
        self.slots.push(Slot {
            at: at as u32,
            len: (self.bytes.len() - at) as u32,
            key_at: key_at as u32,
            key_len: key.len() as u32,
        });
    }
}

impl AttributeValue for &str {
    #[inline]
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
            #[inline]
            fn encode(self, attributes: &mut AttributeBytes, key: &str, limits: ValueLimits) {
                attributes.put(key, &self.to_int(), limits);
            }
        })*
    };
}

by_int!(i64, u64, i32, u32, i16, u16, i8, u8, isize, usize);

impl AttributeValue for bool {
    #[inline]
    fn encode(self, attributes: &mut AttributeBytes, key: &str, limits: ValueLimits) {
        attributes.put(key, &self, limits);
    }
}

impl AttributeValue for f64 {
    #[inline]
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
            Value::Array(_) if limits.value_bytes < usize::MAX => {
                attributes.put(key, &cut_strings(self, limits), limits);
            }
            other => attributes.put(key, other, limits),
        }
    }
}

fn cut_strings(value: &Value, limits: ValueLimits) -> Value {
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
        let limits = ValueLimits { count: 1, value_bytes: 4 };
        "größer".encode(&mut attributes, "a", limits);
        "x".encode(&mut attributes, "b", limits);
        "y".encode(&mut attributes, "a", limits);
        assert_eq!(read(&attributes), [("a".to_owned(), "y".to_owned())]);
        assert_eq!(attributes.dropped(), 1);
        "größer".encode(&mut attributes, "a", limits);
        assert_eq!(read(&attributes), [("a".to_owned(), "grö".to_owned())]);
    }
}
