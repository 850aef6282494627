//! Eight lower-case hexadecimal digits at once, one in each byte of a word.

const ONES: u64 = 0x0101_0101_0101_0101;

/// Characters of digits 0 to 15, one in each byte.
#[inline]
fn characters(nibbles: u64) -> u64 {
    let are_letters = (nibbles + 6 * ONES) >> 4 & ONES;
    nibbles + u64::from(b'0') * ONES + are_letters * u64::from(b'a' - b'0' - 10)
}

/// The digits of a number.
#[inline]
pub(super) fn digits(number: u32) -> [u8; 8] {
    let mut spread = u64::from(number);
    spread = (spread | spread << 16) & 0x0000_ffff_0000_ffff;
    spread = (spread | spread << 8) & 0x00ff_00ff_00ff_00ff;
    spread = (spread | spread << 4) & (15 * ONES);
    characters(spread).to_be_bytes()
}

/// The number that digits are; `None` when one is none.
#[inline]
pub(super) fn value(digits: [u8; 8]) -> Option<u32> {
    let text = u64::from_be_bytes(digits);
    let are_letters = text >> 6 & ONES;
    let mut value = (text & (15 * ONES)) + are_letters * 9;
    // Whatever is no digit is written otherwise, or as one past 15.
    if value & !(15 * ONES) != 0 || characters(value) != text {
        return None;
    }
    value = (value | value >> 4) & 0x00ff_00ff_00ff_00ff;
    value = (value | value >> 8) & 0x0000_ffff_0000_ffff;
    Some((value | value >> 16) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_number() {
        for number in [0, 1, 0x9a, 0x0123_4567, 0x89ab_cdef, u32::MAX] {
            let text = format!("{number:08x}");
            assert_eq!(digits(number), text.as_bytes());
            assert_eq!(value(digits(number)), Some(number));
        }
    }

    #[test]
    fn every_other_byte_is_refused_wherever_it_stands() {
        for byte in 0..=u8::MAX {
            for at in 0..8 {
                let mut text = *b"0a1b2c3d";
                text[at] = byte;
                let is_digit = matches!(byte, b'0'..=b'9' | b'a'..=b'f');
                assert_eq!(value(text).is_some(), is_digit, "{byte:#x} at {at}");
            }
        }
    }
}
