//! Baggage that reads as we would write it: nothing to skip, to decode or to replace.
//!
//! Every request of a rollout carries some, and every process on its way reads it: one walk finds out whether it is
//! plain and encodes the entries that become attributes.

use lens_otlp::encode::{SPAN_ATTRIBUTES, put_key_value};
use lens_otlp::wire::{BYTES, put_bytes, put_uint, tag};

use super::attributes::{self, AttributeBytes, cut};
use super::context::promoted_chars;
use super::propagation::{IN_KEY, IN_PLAIN_VALUE, MAX_BAGGAGE_BYTES, class};

/// Members that are told apart without a list of them.
pub(super) const MAX_ENTRIES: usize = 16;
/// Room for the promoted entries of a rollout.
const USUAL_BYTES: usize = 256;

/// A key whose entries become attributes.
#[derive(Clone, Debug)]
pub(super) struct Promoted {
    pub(super) key: &'static str,
    /// Whether its values are numbers if they look like some.
    is_index: bool,
    /// Whether it can be a key of a header.
    is_token: bool,
    /// The field of an attribute up to its value, its two lengths left open; empty when they take more than a byte.
    field_head: Vec<u8>,
}

impl Promoted {
    pub(super) fn new(key: &'static str) -> Self {
        let mut field_head = Vec::new();
        if key.len() < 64 {
            field_head.extend([tag(SPAN_ATTRIBUTES, BYTES), 0]);
            put_bytes(&mut field_head, 1, key.as_bytes());
            field_head.extend([tag(2, BYTES), 0]);
        }
        Self {
            key,
            is_index: key.ends_with(".index"),
            is_token: !key.is_empty() && key.bytes().all(|byte| class(byte) & IN_KEY != 0),
            field_head,
        }
    }

    /// Whether a member begins with this key.
    #[inline]
    fn begins(&self, member: &[u8]) -> bool {
        let len = self.key.len();
        self.is_token && member.get(len) == Some(&b'=') && member.starts_with(self.key.as_bytes())
    }

    /// Appends the attribute of an entry.
    pub(super) fn put(&self, out: &mut Vec<u8>, value: &str, chars: usize) {
        let number = if self.is_index { value.parse::<i64>().ok() } else { None };
        let value = cut(value, chars);
        if self.field_head.is_empty() || value.len() > 40 {
            return match number {
                Some(number) => put_key_value(out, SPAN_ATTRIBUTES, self.key, &number),
                None => put_key_value(out, SPAN_ATTRIBUTES, self.key, value),
            };
        }
        let start = out.len();
        out.extend_from_slice(&self.field_head);
        let value_start = out.len();
        match number {
            Some(number) => put_uint(out, 3, number as u64),
            None => put_bytes(out, 1, value.as_bytes()),
        }
        // Neither is longer than 64 bytes of key, 40 of value and a few around them.
        out[value_start - 1] = (out.len() - value_start) as u8;
        out[start + 1] = (out.len() - start - 2) as u8;
    }
}

/// The promoted entries of a `baggage` header, encoded; `None` when it is not plain.
pub(super) fn read(text: &str, promoted: &[Promoted]) -> Option<AttributeBytes> {
    if text.is_empty() || text.len() > MAX_BAGGAGE_BYTES {
        return None;
    }
    let mut fields = Vec::with_capacity(USUAL_BYTES);
    let mut seen = [0; 4];
    let chars = promoted_chars();
    let mut keys = [""; MAX_ENTRIES];
    // Keys that came in the order of promotion are unique, and most do: who wrote them promotes the same.
    let (mut next, mut in_order) = (0, true);
    let mut rest = text;
    for known in 0..MAX_ENTRIES {
        let expected = promoted[next..].iter().position(|key| key.begins(rest.as_bytes()));
        let (key, entry) = match expected {
            Some(skipped) => {
                next += skipped + 1;
                let promoted = &promoted[next - 1];
                (promoted.key, Some(promoted))
            }
            None => {
                in_order = false;
                let end = rest.bytes().position(|byte| class(byte) & IN_KEY == 0)?;
                if end == 0 || rest.as_bytes()[end] != b'=' {
                    return None;
                }
                let key = &rest[..end];
                (key, promoted.iter().find(|promoted| promoted.key == key))
            }
        };
        if !in_order && keys[..known].contains(&key) {
            return None;
        }
        keys[known] = key;
        let value = &rest[key.len() + 1..];
        let end = value.bytes().position(|byte| class(byte) & IN_PLAIN_VALUE == 0);
        if let Some(entry) = entry {
            entry.put(&mut fields, &value[..end.unwrap_or(value.len())], chars);
            attributes::mark(&mut seen, key);
        }
        match end {
            None => return Some(AttributeBytes::of_fields(fields, seen)),
            Some(end) if value.as_bytes()[end] == b',' => rest = &value[end + 1..],
            Some(_) => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_any_attribute_is() {
        let long: &'static str = "k".repeat(70).leak();
        for key in ["task.index", "id", long] {
            let promoted = Promoted::new(key);
            for value in ["", "7", "-1", "x", &"1".repeat(40), &"v".repeat(41)] {
                let (mut written, mut expected) = (Vec::new(), Vec::new());
                promoted.put(&mut written, value, usize::MAX);
                match value.parse::<i64>().ok().filter(|_| key == "task.index") {
                    Some(number) => put_key_value(&mut expected, SPAN_ATTRIBUTES, key, &number),
                    None => put_key_value(&mut expected, SPAN_ATTRIBUTES, key, value),
                }
                assert_eq!(written, expected, "{key}={value}");
            }
        }
    }
}
