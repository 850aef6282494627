//! What can be set as an attribute, and attributes that contexts carry.

use std::borrow::Cow;
use std::sync::Arc;

use lens_otlp::encode::{EncodeValue, SPAN_ATTRIBUTES, put_key_value};

use super::fields;
use super::message::SpanMessage;
use super::value::{ToInt, Value};

/// What [`Span::set`](crate::Span::set) takes: everything that can become a [`Value`], by reference where that
/// saves a copy.
pub trait AttributeValue {
    #[doc(hidden)]
    fn encode(self, message: &mut SpanMessage, key: &str, bit: u8);
}

/// `text` up to so many characters.
#[inline]
pub(super) fn cut(text: &str, chars: usize) -> &str {
    if text.len() <= chars { text } else { cut_long(text, chars) }
}

#[cold]
fn cut_long(text: &str, chars: usize) -> &str {
    let end = text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

/// The value with its strings up to so many characters.
pub(super) fn cut_strings(value: &Value, chars: usize) -> Value {
    match value {
        Value::String(text) => Value::from(cut(text, chars)),
        Value::Array(values) => {
            Value::Array(values.iter().map(|value| cut_strings(value, chars)).collect())
        }
        other => other.clone(),
    }
}

/// Which of 256 bits a key has: its length, first byte and last bytes tell most keys apart.
///
/// Inlined into the site, where the key is known and this becomes a constant.
#[inline(always)]
pub(super) fn bit(key: &str) -> u8 {
    let bytes = key.as_bytes();
    let number = match bytes.last_chunk::<8>() {
        Some(tail) => u64::from_le_bytes(*tail),
        None => bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    };
    let first = bytes.first().copied().unwrap_or_default();
    let number = number ^ (bytes.len() as u64) << 56 ^ u64::from(first) << 48;
    // An odd number with which no two keys of a request's spans fall together.
    let mixed = number.wrapping_mul(0xdcf4_bb99_f4be_a973);
    (mixed >> 56) as u8
}

/// Notes a key.
#[inline]
pub(super) fn mark(seen: &mut [u64; 4], key: &str) {
    let bit = bit(key);
    seen[usize::from(bit >> 6)] |= 1 << (bit & 63);
}

/// Attributes as `Span.attributes` fields, to be copied into each span below a context. Keys are unique.
#[derive(Clone, Debug, Default)]
pub(super) struct AttributeBytes {
    bytes: Vec<u8>,
    seen: [u64; 4],
}

impl AttributeBytes {
    /// Of fields with keys that differ, and what [`mark`] made of these.
    pub(super) fn of_fields(bytes: Vec<u8>, seen: [u64; 4]) -> Self {
        Self { bytes, seen }
    }

    /// The fields.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bits of all keys.
    pub(super) fn seen(&self) -> [u64; 4] {
        self.seen
    }

    /// Adds an attribute; the last value of a key wins.
    pub(super) fn put(&mut self, key: &str, value: &(impl EncodeValue + ?Sized)) {
        let mut at = 0;
        while let Some(field) = fields::first(&self.bytes[at..]) {
            let end = at + field.len;
            if field.key == key.as_bytes() {
                self.bytes.drain(at..end);
            } else {
                at = end;
            }
        }
        put_key_value(&mut self.bytes, SPAN_ATTRIBUTES, key, value);
        mark(&mut self.seen, key);
    }
}

impl AttributeValue for &str {
    #[inline(always)]
    fn encode(self, message: &mut SpanMessage, key: &str, bit: u8) {
        message.put_text(key, bit, self);
    }
}

macro_rules! by_text {
    ($($type:ty),*) => {
        $(impl AttributeValue for $type {
            #[inline]
            fn encode(self, message: &mut SpanMessage, key: &str, bit: u8) {
                message.put_text(key, bit, &self);
            }
        })*
    };
}

by_text!(String, &String, Arc<str>, &Arc<str>, Cow<'_, str>, Box<str>);

macro_rules! by_int {
    ($($type:ty),*) => {
        $(impl AttributeValue for $type {
            #[inline(always)]
            fn encode(self, message: &mut SpanMessage, key: &str, bit: u8) {
                message.put_int(key, bit, self.to_int());
            }
        })*
    };
}

by_int!(i64, u64, i32, u32, i16, u16, i8, u8, isize, usize);

impl AttributeValue for bool {
    #[inline(always)]
    fn encode(self, message: &mut SpanMessage, key: &str, bit: u8) {
        message.put_bool(key, bit, self);
    }
}

impl AttributeValue for f64 {
    #[inline(always)]
    fn encode(self, message: &mut SpanMessage, key: &str, bit: u8) {
        message.put_double(key, bit, self);
    }
}

impl AttributeValue for f32 {
    #[inline]
    fn encode(self, message: &mut SpanMessage, key: &str, bit: u8) {
        message.put_double(key, bit, self.into());
    }
}

impl AttributeValue for &Value {
    fn encode(self, message: &mut SpanMessage, key: &str, bit: u8) {
        message.put_value(key, bit, self);
    }
}

impl AttributeValue for Value {
    fn encode(self, message: &mut SpanMessage, key: &str, bit: u8) {
        message.put_value(key, bit, &self);
    }
}

macro_rules! by_value {
    ($($type:ty),*) => {
        $(impl AttributeValue for $type {
            fn encode(self, message: &mut SpanMessage, key: &str, bit: u8) {
                message.put_value(key, bit, &Value::from(self));
            }
        })*
    };
}

by_value!(Vec<String>, Vec<&str>, Vec<i64>, Vec<f64>, Vec<bool>, Vec<Value>);

/// `None` sets nothing.
impl<T: AttributeValue> AttributeValue for Option<T> {
    #[inline]
    fn encode(self, message: &mut SpanMessage, key: &str, bit: u8) {
        if let Some(value) = self {
            value.encode(message, key, bit);
        }
    }
}
