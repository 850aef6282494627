//! A walk over the fields of a message that is known to be one, for what is done to every span: tags and lengths of one
//! byte, which nearly all are, cost a comparison, and texts are compared as bytes.

use lens_otlp::DecodeError;
use lens_otlp::view::{AnyValue, Plain, key_value, plain_parts};
use lens_otlp::wire::{BYTES, FIXED32, FIXED64, VARINT, tag};

/// What follows a tag.
#[derive(Clone, Copy)]
pub(super) enum Content<'a> {
    /// A varint.
    Number(u64),
    /// Eight bytes.
    Fixed(u64),
    /// Length-delimited.
    Bytes(&'a [u8]),
    /// Four bytes, which nobody here asks for.
    Other,
}

impl<'a> Content<'a> {
    pub(super) fn bytes(self) -> Result<&'a [u8], DecodeError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(DecodeError::WireType),
        }
    }

    pub(super) fn number(self) -> Result<u64, DecodeError> {
        match self {
            Self::Number(number) => Ok(number),
            _ => Err(DecodeError::WireType),
        }
    }

    pub(super) fn fixed(self) -> Result<u64, DecodeError> {
        match self {
            Self::Fixed(number) => Ok(number),
            _ => Err(DecodeError::WireType),
        }
    }
}

/// What an encoded `Span` begins with; what was not found is empty, or 0.
pub(super) struct Head<'a> {
    pub(super) parent_id: &'a [u8],
    pub(super) name: &'a [u8],
    pub(super) kind: u64,
    pub(super) end_nanos: u64,
}

/// The tag of `Span.flags`, which takes two bytes.
const FLAGS: u8 = (16 << 3 | FIXED32) | 0x80;
const FLAGS_MORE: u8 = 1;

/// The fields of a message.
#[derive(Clone, Copy)]
pub(super) struct Scan<'a>(pub(super) &'a [u8]);

impl<'a> Scan<'a> {
    #[inline]
    fn varint(&mut self) -> Result<u64, DecodeError> {
        match self.0 {
            [byte, rest @ ..] if *byte < 0x80 => {
                self.0 = rest;
                Ok(u64::from(*byte))
            }
            [low, high, rest @ ..] if *high < 0x80 => {
                self.0 = rest;
                Ok(u64::from(low & 0x7f) | u64::from(*high) << 7)
            }
            _ => self.long_varint(),
        }
    }

    #[cold]
    fn long_varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0_u64;
        for (at, byte) in self.0.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.0 = &self.0[at + 1..];
                return Ok(value);
            }
        }
        Err(if self.0.len() < 10 { DecodeError::Truncated } else { DecodeError::Varint })
    }

    #[inline]
    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.0.split_at_checked(length).ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(head)
    }

    /// The next field, found sooner when it has this number, below 16, and is length-delimited and short: most fields
    /// of a span are its attributes.
    #[inline(always)]
    pub(super) fn next_likely(
        &mut self,
        number: u8,
    ) -> Result<Option<(u64, Content<'a>)>, DecodeError> {
        match self.short(number) {
            Some(content) => Ok(Some((number.into(), Content::Bytes(content)))),
            None => self.next(),
        }
    }

    /// Walks over the fields that a span begins with, as long as they lie as senders write them: in the order of their
    /// numbers, or those of a fixed length first. Whatever is left out, or said again, is found by walking on.
    #[inline(always)]
    pub(super) fn head(&mut self) -> Head<'a> {
        let _ids = (self.short(1), self.short(2));
        let (parent_id, name) = (self.short(4), self.short(5));
        let kind = self.small(6);
        let _start = self.eight(7);
        let end_nanos = self.eight(8);
        if let [FLAGS, FLAGS_MORE, _, _, _, _, rest @ ..] = self.0 {
            self.0 = rest;
        }
        Head {
            parent_id: parent_id.or_else(|| self.short(4)).unwrap_or_default(),
            name: name.or_else(|| self.short(5)).unwrap_or_default(),
            kind: kind.unwrap_or(0),
            end_nanos: end_nanos.unwrap_or(0),
        }
    }

    /// The next field if it has this number, below 16, and is a varint of one byte.
    #[inline(always)]
    fn small(&mut self, number: u8) -> Option<u64> {
        match self.0 {
            [first, small @ ..0x80, rest @ ..] if *first == tag(number, VARINT) => {
                self.0 = rest;
                Some((*small).into())
            }
            _ => None,
        }
    }

    /// The next field if it has this number, below 16, and eight bytes.
    #[inline(always)]
    fn eight(&mut self, number: u8) -> Option<u64> {
        match self.0 {
            [first, rest @ ..] if *first == tag(number, FIXED64) => {
                let (eight, rest) = rest.split_first_chunk()?;
                self.0 = rest;
                Some(u64::from_le_bytes(*eight))
            }
            _ => None,
        }
    }

    /// The content of the next field if it has this number, below 16, and is length-delimited and short. `None` says
    /// nothing.
    #[inline(always)]
    fn short(&mut self, number: u8) -> Option<&'a [u8]> {
        match self.0 {
            [first, length @ ..0x80, rest @ ..] if *first == tag(number, BYTES) => {
                let (content, rest) = rest.split_at_checked(usize::from(*length))?;
                self.0 = rest;
                Some(content)
            }
            _ => None,
        }
    }

    /// The next field; `None` at the end.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Result<Option<(u64, Content<'a>)>, DecodeError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let content = match (tag & 7) as u8 {
            VARINT => Content::Number(self.varint()?),
            FIXED64 => {
                let bytes = self.take(8)?.first_chunk().ok_or(DecodeError::Truncated)?;
                Content::Fixed(u64::from_le_bytes(*bytes))
            }
            BYTES => {
                let length = self.varint()?;
                let length = usize::try_from(length).map_err(|_| DecodeError::Truncated)?;
                Content::Bytes(self.take(length)?)
            }
            FIXED32 => {
                self.take(4)?;
                Content::Other
            }
            _ => return Err(DecodeError::Tag),
        };
        Ok(Some((tag >> 3, content)))
    }
}

/// The key of an encoded `KeyValue`, as bytes.
#[inline]
pub(super) fn key(pair: &[u8]) -> &[u8] {
    const KEY: u8 = tag(1, BYTES);
    // Who makes a pair writes the key first.
    match pair {
        [KEY, length @ ..0x80, rest @ ..] if usize::from(*length) <= rest.len() => {
            &rest[..usize::from(*length)]
        }
        _ => key_anywhere(pair),
    }
}

fn key_anywhere(pair: &[u8]) -> &[u8] {
    let mut scan = Scan(pair);
    while let Ok(Some((number, content))) = scan.next() {
        if let (1, Content::Bytes(key)) = (number, content) {
            return key;
        }
    }
    &[]
}

/// The length-delimited fields `number`, below 16, of a message, up to what is malformed.
pub(super) fn fields(message: &[u8], number: u8) -> impl Iterator<Item = &[u8]> {
    let mut scan = Scan(message);
    std::iter::from_fn(move || {
        loop {
            match scan.next_likely(number) {
                Ok(Some((found, Content::Bytes(content)))) if found == u64::from(number) => {
                    return Some(content);
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return None,
            }
        }
    })
}

/// The encoded `KeyValue` fields `number`, below 16, of a message, each with its key, up to what is malformed.
pub(super) fn pairs(message: &[u8], number: u8) -> impl Iterator<Item = (&[u8], &[u8])> {
    fields(message, number).map(|pair| (key(pair), pair))
}

/// Whether the value of an encoded `KeyValue` is this text.
pub(super) fn has_text(pair: &[u8], text: &str) -> bool {
    match plain_parts(pair) {
        Some((_, Plain::Text(found))) => found == text.as_bytes(),
        Some(_) => false,
        None => matches!(key_value(pair), Ok((_, Some(AnyValue::String(found)))) if found == text),
    }
}

/// The value of an encoded `KeyValue` that is a number and not negative.
pub(super) fn count(pair: &[u8]) -> Option<u64> {
    let number = match plain_parts(pair) {
        Some((_, Plain::Int(number))) => number,
        Some(_) => return None,
        None => match key_value(pair).ok()?.1? {
            AnyValue::Int(number) => number,
            _ => return None,
        },
    };
    u64::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use lens_otlp::wire::{put_bytes, put_fixed64, put_tag, put_uint};
    use proptest::prelude::*;

    use super::*;

    /// A message of fields of few numbers and of all sorts, perhaps cut off.
    fn any_message() -> impl Strategy<Value = Vec<u8>> {
        let field = (1_u8..4, 0_usize..200, 0_u8..5);
        let fields = prop::collection::vec(field, 0..8);
        (fields, 0_usize..3).prop_map(|(fields, cut)| {
            let mut message = Vec::new();
            for (number, length, sort) in fields {
                match sort {
                    0 => put_uint(&mut message, number, length as u64),
                    1 => put_fixed64(&mut message, number, length as u64),
                    2 => {
                        put_tag(&mut message, number.into(), FIXED32);
                        message.extend_from_slice(&[1; 4]);
                    }
                    _ => put_bytes(&mut message, number, &vec![number; length]),
                }
            }
            message.truncate(message.len().saturating_sub(cut));
            message
        })
    }

    /// What a walk over all fields finds of a head.
    fn head_of(message: &[u8]) -> (&[u8], &[u8], u64, u64) {
        let mut head: (&[u8], &[u8], u64, u64) = (&[], &[], 0, 0);
        let mut scan = Scan(message);
        while let Ok(Some(field)) = scan.next() {
            match field {
                (4, Content::Bytes(parent)) => head.0 = parent,
                (5, Content::Bytes(name)) => head.1 = name,
                (6, Content::Number(kind)) => head.2 = kind,
                (8, Content::Fixed(end)) => head.3 = end,
                _ => {}
            }
        }
        head
    }

    proptest! {
        /// Guarantees: a head says nothing that a walk over all fields does not say, and ends where a field does.
        #[test]
        fn a_head_is_what_a_walk_finds(
            fields in prop::sample::subsequence(vec![1_u8, 2, 3, 4, 5, 6, 7, 8, 16], 0..=9),
            is_ours in any::<bool>(),
            cut in 0_usize..3,
        ) {
            let place = |number: &u8| match number {
                3..=5 if is_ours => number + 16,
                number => *number,
            };
            let mut fields = fields;
            fields.sort_by_key(place);
            let mut message = Vec::new();
            for number in fields {
                match number {
                    6 => put_uint(&mut message, number, 3),
                    7 | 8 => put_fixed64(&mut message, number, 1_000),
                    16 => message.extend_from_slice(&[FLAGS, FLAGS_MORE, 1, 1, 0, 0]),
                    _ => put_bytes(&mut message, number, &[number; 8]),
                }
            }
            message.truncate(message.len().saturating_sub(cut));
            let mut scan = Scan(&message);
            let Head { parent_id, name, kind, end_nanos } = scan.head();
            let rest = head_of(scan.0);
            let either = |one: &[u8], other: &[u8]| if one.is_empty() { other.to_vec() } else { one.to_vec() };
            let expected = head_of(&message);
            prop_assert_eq!(either(parent_id, rest.0), expected.0);
            prop_assert_eq!(either(name, rest.1), expected.1);
            prop_assert_eq!((kind.max(rest.2), end_nanos.max(rest.3)), (expected.2, expected.3));
        }

        /// Guarantees: the quick way finds what a walk over all fields finds.
        #[test]
        fn short_fields_are_found_like_all_others(message in any_message()) {
            let mut scan = Scan(&message);
            let mut expected = Vec::new();
            while let Ok(Some((number, content))) = scan.next() {
                if let (2, Content::Bytes(bytes)) = (number, content) {
                    expected.push(bytes);
                }
            }
            prop_assert_eq!(fields(&message, 2).collect::<Vec<_>>(), expected);
        }
    }
}
