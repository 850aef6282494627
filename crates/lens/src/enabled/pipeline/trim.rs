//! A span that is larger than an empty slot: its longest strings are shortened until it fits.

use lens_otlp::encode::{SPAN_ATTRIBUTES, SpanParts, put_key_value};
use lens_otlp::view::{AnyValue, Attributes};

/// Bytes of a string that are always kept.
const KEPT_BYTES: usize = 64;

/// The span's bytes with shorter strings; `None` when no string is long enough to help.
pub(super) fn trim(parts: &SpanParts<'_>, fits: impl Fn(usize) -> bool) -> Option<Vec<u8>> {
    let pairs: Vec<(&str, AnyValue<'_>)> =
        Attributes::new(parts.attributes, SPAN_ATTRIBUTES.into()).collect::<Result<_, _>>().ok()?;
    let longest = pairs.iter().map(|(_, value)| string_len(value)).max().unwrap_or(0);
    let mut limit = longest;
    while limit > KEPT_BYTES {
        // Halving is enough: what matters is that the span arrives, not its last byte.
        limit = (limit / 2).max(KEPT_BYTES);
        let mut attributes = Vec::new();
        let mut rest = parts.attributes;
        for (key, value) in &pairs {
            let (field, tail) = split_field(rest)?;
            rest = tail;
            match value {
                AnyValue::String(text) if text.len() > limit => {
                    let text = &text[..text.floor_char_boundary(limit)];
                    put_key_value(&mut attributes, SPAN_ATTRIBUTES, key, text);
                }
                _ => attributes.extend_from_slice(field),
            }
        }
        let trimmed = SpanParts { attributes: &attributes, ..parts.clone() };
        let len = trimmed.encoded_len();
        if fits(len) {
            let mut out = vec![0; len];
            trimmed.write(&mut out);
            return Some(out);
        }
    }
    // Shapes of what happened matter less than that it did.
    let bare = SpanParts {
        attributes: &[],
        events: &[],
        links: &[],
        dropped_attributes: parts.dropped_attributes + pairs.len() as u32,
        ..parts.clone()
    };
    let len = bare.encoded_len();
    (longest > KEPT_BYTES && fits(len)).then(|| {
        let mut out = vec![0; len];
        bare.write(&mut out);
        out
    })
}

fn string_len(value: &AnyValue<'_>) -> usize {
    match value {
        AnyValue::String(text) => text.len(),
        _ => 0,
    }
}

/// The first length-delimited field with a one-byte tag, and what follows it.
fn split_field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut len = 0_usize;
    for (at, byte) in bytes.iter().enumerate().skip(1).take(5) {
        len |= usize::from(byte & 0x7f) << (7 * (at - 1));
        if byte & 0x80 == 0 {
            return bytes.split_at_checked(at + 1 + len);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let parts = SpanParts { name: "wide", attributes: &attributes, ..SpanParts::default() };
        let bytes = trim(&parts, |len| len < 65_528).expect("fits when trimmed");
        assert!((10_000..65_528).contains(&bytes.len()), "{}", bytes.len());
        assert!(bytes.windows(13).any(|part| part == b"kept as it is"));
    }

    #[test]
    fn span_without_long_strings_cannot_be_trimmed() {
        let name = "n".repeat(100_000);
        let parts = SpanParts { name: &name, ..SpanParts::default() };
        assert_eq!(trim(&parts, |len| len < 65_528), None);
    }
}
