//! Attributes that many spans have in common, encoded once.

use super::attributes::{AttributeBytes, cut_strings};
use super::handle::span_limits;
use super::span::Span;
use super::value::Value;

/// Attributes as they go out, to be added to spans by [`Span::set_all`].
///
/// The limit on values holds as it was when it was made.
#[derive(Clone, Debug, Default)]
pub struct AttributeSet(AttributeBytes);

impl AttributeSet {
    /// Encodes attributes; the last value of a key wins.
    pub fn new(attributes: &[(&'static str, Value)]) -> Self {
        let mut bytes = AttributeBytes::default();
        for (key, value) in attributes {
            bytes.put(key, &cut_strings(value, span_limits().attribute_value_chars));
        }
        Self(bytes)
    }
}

impl Span {
    /// Sets every attribute of a set; where a key is there already, the set's value wins.
    #[inline]
    pub fn set_all(&mut self, set: &AttributeSet) {
        if let Some(recording) = self.recording() {
            recording.message.append(&set.0);
        }
    }
}
