//! Decoding and writing JSON text: strings, members, and whole values in other spacing.

use std::borrow::Cow;

use super::skip::{special, trusted_string};

/// Decodes a scanned JSON string; `None` when the value is not a string.
pub fn string(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    // The inside of a checked string has nothing else that would stop it.
    if special(inner.as_bytes()) == inner.len() {
        return Some(Cow::Borrowed(inner));
    }
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        text.push_str(&rest[..at]);
        let escape = rest.as_bytes().get(at + 1).copied().unwrap_or(b'\\');
        let mut used = at + 2;
        match escape {
            b'n' => text.push('\n'),
            b't' => text.push('\t'),
            b'r' => text.push('\r'),
            b'b' => text.push('\u{8}'),
            b'f' => text.push('\u{c}'),
            b'u' => {
                let first = hex4(rest, at + 2);
                used = at + 6;
                let second =
                    (rest.get(used..used + 2) == Some("\\u")).then(|| hex4(rest, used + 2));
                let code = match second {
                    Some(low)
                        if (0xd800..0xdc00).contains(&first) && (0xdc00..0xe000).contains(&low) =>
                    {
                        used += 6;
                        0x1_0000 + ((first - 0xd800) << 10) + (low - 0xdc00)
                    }
                    _ => first,
                };
                text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            other => text.push(char::from(other)),
        }
        rest = rest.get(used..).unwrap_or_default();
    }
    text.push_str(rest);
    Some(Cow::Owned(text))
}

fn hex4(text: &str, at: usize) -> u32 {
    text.get(at..at + 4).and_then(|hex| u32::from_str_radix(hex, 16).ok()).unwrap_or(0xfffd)
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Writes `text` as a JSON string in UTF-8.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    write_string_inner(out, text);
    out.push(b'"');
}

/// Writes the inside of a JSON string, without the quotes.
pub fn write_string_inner(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    loop {
        let plain = special(rest);
        out.extend_from_slice(&rest[..plain]);
        let Some(&byte) = rest.get(plain) else { break };
        write_escape(out, byte);
        rest = &rest[plain + 1..];
    }
}

fn write_escape(out: &mut Vec<u8>, byte: u8) {
    let short = match byte {
        b'"' => b'"',
        b'\\' => b'\\',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x8 => b'b',
        0xc => b'f',
        _ => {
            out.extend_from_slice(b"\\u00");
            out.push(HEX[usize::from(byte >> 4)]);
            out.push(HEX[usize::from(byte & 15)]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// Writes scanned JSON without the white space between its tokens.
pub fn write_compact(out: &mut Vec<u8>, raw: &str) {
    rewrite(out, raw, b",", b":", false);
}

/// Writes scanned JSON the way Python's `json.dumps` does by default: `, ` and `: `, everything beyond ASCII escaped.
pub fn write_python(out: &mut Vec<u8>, raw: &str) {
    rewrite(out, raw, b", ", b": ", true);
}

fn rewrite(out: &mut Vec<u8>, raw: &str, comma: &[u8], colon: &[u8], ascii: bool) {
    let bytes = raw.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' => at += 1,
            b',' => {
                out.extend_from_slice(comma);
                at += 1;
            }
            b':' => {
                out.extend_from_slice(colon);
                at += 1;
            }
            b'"' => {
                let end = trusted_string(bytes, at);
                let token = raw.get(at..end).unwrap_or_default();
                if !ascii || (token.is_ascii() && !token.contains(['\\', '\u{7f}'])) {
                    out.extend_from_slice(token.as_bytes());
                } else {
                    write_ascii_string(out, &string(token).unwrap_or_default());
                }
                at = end;
            }
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
}

fn write_ascii_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut units = [0; 2];
    for char in text.chars() {
        match char {
            '"' | '\\' | '\0'..='\u{1f}' => write_escape(out, char as u8),
            ' '..='~' => out.push(char as u8),
            _ => {
                for unit in char.encode_utf16(&mut units) {
                    out.extend_from_slice(b"\\u");
                    out.extend([12, 8, 4, 0].map(|shift| HEX[usize::from(*unit >> shift & 15)]));
                }
            }
        }
    }
    out.push(b'"');
}

/// Writes `"name":` after the comma that separates it from the member before it.
pub fn write_key(out: &mut Vec<u8>, name: &str) {
    if !matches!(out.last(), Some(b'{') | None) {
        out.push(b',');
    }
    write_string(out, name);
    out.push(b':');
}

/// Writes the member `name` with a value that is JSON already.
pub fn write_member(out: &mut Vec<u8>, name: &str, raw: &str) {
    write_key(out, name);
    out.extend_from_slice(raw.as_bytes());
}
