//! Fields of attributes, as they were written: tag, length, key, value.

/// One field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field<'a> {
    pub(super) key: &'a [u8],
    /// Bytes of the whole field.
    pub(super) len: usize,
}

/// The first field of what this crate encoded; `None` at the end.
pub(super) fn first(bytes: &[u8]) -> Option<Field<'_>> {
    let (len, rest) = length(bytes.get(1..)?)?;
    let content = rest.get(..len)?;
    let (key_len, key) = length(content.get(1..)?)?;
    Some(Field { key: key.get(..key_len)?, len: bytes.len() - rest.len() + len })
}

/// A length in front of what it counts.
fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut len = 0_usize;
    for (at, byte) in bytes.iter().enumerate().take(5) {
        len |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((len, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use lens_otlp::encode::{SPAN_ATTRIBUTES, put_key_value};

    #[test]
    fn fields_are_found_whatever_their_length() {
        let mut bytes = Vec::new();
        let long = "v".repeat(40_000);
        for (key, value) in [("a", "1"), ("long", long.as_str()), ("last", "x")] {
            put_key_value(&mut bytes, SPAN_ATTRIBUTES, key, value);
        }
        let mut rest = bytes.as_slice();
        let mut keys = Vec::new();
        while let Some(field) = first(rest) {
            keys.push(field.key);
            rest = &rest[field.len..];
        }
        assert_eq!(keys, [b"a".as_slice(), b"long", b"last"]);
        assert!(rest.is_empty());
    }
}
