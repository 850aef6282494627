//! A span that is larger than an empty slot: its longest strings are shortened until it fits.

use lens_otlp::encode::{SPAN_ATTRIBUTES, put_key_value};
use lens_otlp::view::{AnyValue, Attributes};

use super::writer::Ended;
use crate::enabled::fields;

/// Bytes of a string that are always kept.
const KEPT_BYTES: usize = 64;

/// The span's bytes with shorter strings; `None` when no string is long enough to help.
pub(super) fn trim(ended: &Ended<'_>, fits: impl Fn(usize) -> bool) -> Option<Vec<u8>> {
    let (head, attributes) = ended.message.split_at_checked(ended.head_len)?;
    let pairs: Vec<(&str, AnyValue<'_>)> =
        Attributes::new(attributes, SPAN_ATTRIBUTES.into()).collect::<Result<_, _>>().ok()?;
    let mut limit = pairs.iter().map(|(_, value)| string_len(value)).max().unwrap_or(0);
    while limit > KEPT_BYTES {
        // Halving is enough: what matters is that the span arrives, not its last byte.
        limit = (limit / 2).max(KEPT_BYTES);
        let mut out = head.to_vec();
        let mut rest = attributes;
        for (key, value) in &pairs {
            let (field, tail) = rest.split_at_checked(fields::first(rest)?.len)?;
            rest = tail;
            match value {
                AnyValue::String(text) if text.len() > limit => {
                    let text = &text[..text.floor_char_boundary(limit)];
                    put_key_value(&mut out, SPAN_ATTRIBUTES, key, text);
                }
                _ => out.extend_from_slice(field),
            }
        }
        let trimmed = Ended { message: &out, ..*ended };
        if fits(trimmed.encoded_len()) {
            return Some(trimmed.to_bytes());
        }
    }
    None
}

fn string_len(value: &AnyValue<'_>) -> usize {
    match value {
        AnyValue::String(text) => text.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lens_otlp::encode::{Rare, name_len, write_name};
    use lens_otlp::wire::Cursor;

    fn attributes(pairs: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (key, value) in pairs {
            put_key_value(&mut out, SPAN_ATTRIBUTES, key, *value);
        }
        out
    }

    #[test]
    fn longest_strings_go_first() {
        let long = "ä".repeat(50_000);
        let attributes = attributes(&[("short", "kept as it is"), ("long", &long)]);
        let ended = Ended { message: &attributes, head_len: 0, rare: Rare::default() };
        let bytes = trim(&ended, |len| len < 65_528).expect("fits when trimmed");
        assert!((10_000..65_528).contains(&bytes.len()), "{}", bytes.len());
        assert!(bytes.windows(13).any(|part| part == b"kept as it is"));
    }

    #[test]
    fn span_without_long_strings_cannot_be_trimmed() {
        let name = "n".repeat(100_000);
        let mut head = vec![0; name_len(&name)];
        write_name(&mut Cursor::new(&mut head), &name);
        let ended = Ended { message: &head, head_len: head.len(), rare: Rare::default() };
        assert_eq!(trim(&ended, |len| len < 65_528), None);
    }
}
