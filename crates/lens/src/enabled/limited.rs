//! Attributes of events and links: the last of a key, as many as the limit allows.

use lens_otlp::encode::put_key_value;

use super::attributes::{cut, cut_strings};
use super::value::Value;

/// What is kept of some attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limited<'a, K> {
    attributes: &'a [(K, Value)],
    max_count: usize,
}

impl<'a, K: AsRef<str> + Copy> Limited<'a, K> {
    pub(super) fn new(attributes: &'a [(K, Value)], max_count: usize) -> Self {
        Self { attributes, max_count }
    }

    /// Unique keys: an attribute counts unless a later one has its key.
    fn unique(self) -> impl Iterator<Item = &'a (K, Value)> {
        let is_last = move |(at, (key, _)): &(usize, &(K, Value))| {
            !self.attributes[at + 1..].iter().any(|(later, _)| later.as_ref() == key.as_ref())
        };
        self.attributes.iter().enumerate().filter(is_last).map(|(_, attribute)| attribute)
    }

    /// How many exceed the limit.
    pub(super) fn dropped(self) -> u32 {
        self.unique().count().saturating_sub(self.max_count) as u32
    }

    /// Appends what is kept, texts cut to so many characters.
    pub(super) fn put(self, out: &mut Vec<u8>, field: u8, value_chars: usize) {
        for (key, value) in self.unique().take(self.max_count) {
            let key = key.as_ref();
            match value {
                Value::String(text) => put_key_value(out, field, key, cut(text, value_chars)),
                Value::Array(_) if value_chars < usize::MAX => {
                    put_key_value(out, field, key, &cut_strings(value, value_chars));
                }
                value => put_key_value(out, field, key, value),
            }
        }
    }
}
