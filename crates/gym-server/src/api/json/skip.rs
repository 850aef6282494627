//! Finding the end of a value, fast: the checking way, and the way for text that was checked before.
//!
//! Neither says what is wrong. The checking way gives up and leaves the wording to the precise scanner; the other one
//! finds some end in any text, and never leaves it.

use super::MAX_DEPTH;

/// Bits of the levels that are open: set for an object.
type Levels = [u64; MAX_DEPTH as usize / 64];

#[inline]
fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

/// Index of the first byte at or behind `at` that is no white space.
#[inline]
pub(super) fn space(bytes: &[u8], mut at: usize) -> usize {
    while matches!(byte(bytes, at), b' ' | b'\n' | b'\r' | b'\t') {
        at += 1;
    }
    at
}

/// Index behind the value that starts at `at`; `None` when it is not valid or nested too deep.
#[inline]
pub(super) fn checked(bytes: &[u8], at: usize) -> Option<usize> {
    match byte(bytes, at) {
        b'"' => string(bytes, at),
        b'{' | b'[' => container(bytes, at),
        _ => scalar(bytes, at),
    }
}

fn container(bytes: &[u8], mut at: usize) -> Option<usize> {
    let mut outer: Levels = [0; _];
    let mut depth = 0usize;
    let mut is_object = false;
    loop {
        match byte(bytes, at) {
            b'"' => at = string(bytes, at)?,
            open @ (b'{' | b'[') => {
                if depth == MAX_DEPTH as usize {
                    return None;
                }
                at = space(bytes, at + 1);
                if byte(bytes, at) == open + 2 {
                    at += 1;
                } else {
                    let bit = 1 << (depth % 64);
                    if is_object {
                        outer[depth / 64] |= bit;
                    } else {
                        outer[depth / 64] &= !bit;
                    }
                    depth += 1;
                    is_object = open == b'{';
                    if is_object {
                        at = key(bytes, at)?;
                    }
                    continue;
                }
            }
            _ => at = scalar(bytes, at)?,
        }
        while depth > 0 {
            at = space(bytes, at);
            match byte(bytes, at) {
                b',' => {
                    at = space(bytes, at + 1);
                    if is_object {
                        at = key(bytes, at)?;
                    }
                    break;
                }
                b'}' if is_object => {}
                b']' if !is_object => {}
                _ => return None,
            }
            at += 1;
            depth -= 1;
            is_object = outer[depth / 64] >> (depth % 64) & 1 == 1;
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

#[inline]
fn scalar(bytes: &[u8], at: usize) -> Option<usize> {
    match byte(bytes, at) {
        b't' => word(bytes, at, b"true"),
        b'f' => word(bytes, at, b"false"),
        b'n' => word(bytes, at, b"null"),
        _ => number(bytes, at),
    }
}

/// Index of the value behind the name that starts at `at`.
#[inline]
fn key(bytes: &[u8], at: usize) -> Option<usize> {
    if byte(bytes, at) != b'"' {
        return None;
    }
    colon(bytes, string(bytes, at)?)
}

/// Index of the value behind a colon.
#[inline]
pub(super) fn colon(bytes: &[u8], at: usize) -> Option<usize> {
    let at = space(bytes, at);
    (byte(bytes, at) == b':').then(|| space(bytes, at + 1))
}

fn word(bytes: &[u8], at: usize, word: &[u8]) -> Option<usize> {
    bytes.get(at..)?.starts_with(word).then_some(at + word.len())
}

fn digits(bytes: &[u8], mut at: usize) -> usize {
    while byte(bytes, at).is_ascii_digit() {
        at += 1;
    }
    at
}

/// Takes the longest number, as Python does; what follows it is judged by the caller.
pub(super) fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + usize::from(byte(bytes, at) == b'-');
    match byte(bytes, at) {
        b'0' => at += 1,
        b'1'..=b'9' => at = digits(bytes, at),
        _ => return None,
    }
    if byte(bytes, at) == b'.' && byte(bytes, at + 1).is_ascii_digit() {
        at = digits(bytes, at + 1);
    }
    if matches!(byte(bytes, at), b'e' | b'E') {
        let sign = usize::from(matches!(byte(bytes, at + 1), b'+' | b'-'));
        if byte(bytes, at + 1 + sign).is_ascii_digit() {
            at = digits(bytes, at + 1 + sign);
        }
    }
    Some(at)
}

/// Index behind the string whose quote is at `at`; `None` when it is not valid.
#[inline]
pub(super) fn string(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        at += special(bytes.get(at..)?);
        match byte(bytes, at) {
            b'"' => return Some(at + 1),
            b'\\' => match byte(bytes, at + 1) {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => at += 2,
                b'u' if bytes.get(at + 2..at + 6)?.iter().all(u8::is_ascii_hexdigit) => at += 6,
                _ => return None,
            },
            _ => return None,
        }
    }
}

/// Index behind the value that starts at `at`, of text that was checked.
pub(super) fn trusted(bytes: &[u8], mut at: usize) -> usize {
    match byte(bytes, at) {
        b'"' => trusted_string(bytes, at),
        b'{' | b'[' => {
            let mut depth = 0u32;
            while let Some(&byte) = bytes.get(at) {
                match byte {
                    b'"' => {
                        at = trusted_string(bytes, at);
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => {
                        depth -= 1;
                        if depth == 0 {
                            return at + 1;
                        }
                    }
                    _ => {}
                }
                at += 1;
            }
            at
        }
        _ => {
            while let Some(byte) = bytes.get(at) {
                if matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t') {
                    break;
                }
                at += 1;
            }
            at
        }
    }
}

/// Index behind the string whose quote is at `at`, of text that was checked.
#[inline]
pub(super) fn trusted_string(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(rest) = bytes.get(at..) {
        at += special(rest);
        match bytes.get(at) {
            Some(b'"') => return at + 1,
            Some(b'\\') => at += 2,
            // Only text that was not checked has such bytes.
            Some(_) => at += 1,
            None => break,
        }
    }
    bytes.len()
}

/// How many leading bytes need no attention inside a JSON string: all before a quote, backslash or control character.
/// Eight at a time; names and most values are too short for wider steps to pay.
#[inline]
pub(super) fn special(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let mut at = 0;
    let mut rest = bytes;
    while let Some((chunk, behind)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let quote = word ^ (ONES * 0x22);
        let slash = word ^ (ONES * 0x5c);
        let special = (quote.wrapping_sub(ONES) & !quote)
            | (slash.wrapping_sub(ONES) & !slash)
            | (word.wrapping_sub(ONES * 0x20) & !word);
        // The lowest flagged byte is exact; borrows only disturb bytes above it.
        let special = special & HIGH;
        if special != 0 {
            return at + (special.trailing_zeros() / 8) as usize;
        }
        at += 8;
        rest = behind;
    }
    at + rest.iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..=0x1f)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_that_need_attention_are_found_anywhere(bytes in proptest::collection::vec(any::<u8>(), 0..70), at in 0usize..70, byte in any::<u8>()) {
            let mut plain: Vec<u8> = bytes.iter().map(|byte| byte | 0x20).filter(|byte| !matches!(byte, b'"' | b'\\')).collect();
            prop_assert_eq!(special(&plain), plain.len());
            if let Some(place) = plain.get_mut(at) {
                *place = byte;
                let needs = matches!(byte, b'"' | b'\\' | 0..=0x1f);
                prop_assert_eq!(special(&plain), if needs { at } else { plain.len() });
            }
        }
    }
}
