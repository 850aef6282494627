//! Protobuf's wire format: varints, tags, length-delimited fields.

/// Wire type of a varint field.
pub const VARINT: u8 = 0;
/// Wire type of an eight-byte field.
pub const FIXED64: u8 = 1;
/// Wire type of a length-delimited field.
pub const BYTES: u8 = 2;
/// Wire type of a four-byte field.
pub const FIXED32: u8 = 5;

/// The one-byte tag of a field with a number below 16.
pub const fn tag(field: u8, wire_type: u8) -> u8 {
    field << 3 | wire_type
}

/// Bytes that a varint takes.
#[inline]
pub const fn varint_len(value: u64) -> usize {
    // ceil(bits / 7), with one byte for zero.
    (((63 - (value | 1).leading_zeros()) * 9 + 73) / 64) as usize
}

/// Appends a varint.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the tag of any field.
pub fn put_tag(out: &mut Vec<u8>, field: u32, wire_type: u8) {
    put_varint(out, u64::from(field) << 3 | u64::from(wire_type));
}

/// Appends a length-delimited field with a number below 16.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(tag(field, BYTES));
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a varint field with a number below 16.
#[inline]
pub fn put_uint(out: &mut Vec<u8>, field: u8, value: u64) {
    out.push(tag(field, VARINT));
    put_varint(out, value);
}

/// Appends an eight-byte field with a number below 16.
#[inline]
pub fn put_fixed64(out: &mut Vec<u8>, field: u8, value: u64) {
    out.push(tag(field, FIXED64));
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a double field with a number below 16.
#[inline]
pub fn put_double(out: &mut Vec<u8>, field: u8, value: f64) {
    put_fixed64(out, field, value.to_bits());
}

/// Bytes of a length-delimited field with a number below 16.
#[inline]
pub const fn bytes_field_len(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

/// Appends a nested message whose length is not known before: `write` fills it, then its length is put in front.
pub fn put_message(out: &mut Vec<u8>, field: u8, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag(field, BYTES));
    let at = out.len();
    out.push(0);
    write(out);
    let len = out.len() - at - 1;
    if len < 0x80 {
        out[at] = len as u8;
    } else {
        // The length takes more than the byte that was kept for it: the message moves up.
        let prefix = varint_len(len as u64);
        out.resize(out.len() + prefix - 1, 0);
        out.copy_within(at + 1..at + 1 + len, at + prefix);
        Cursor::new(&mut out[at..at + prefix]).varint(len as u64);
    }
}

/// Writes fields into a slice that is exactly as long as they are; what does not fit is left out.
#[derive(Debug)]
pub struct Cursor<'a> {
    rest: &'a mut [u8],
}

impl<'a> Cursor<'a> {
    /// Begins at the start of a slice.
    #[inline]
    pub fn new(out: &'a mut [u8]) -> Self {
        Self { rest: out }
    }

    /// Bytes that are still free.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// Copies bytes of a length known at compile time.
    #[inline]
    pub fn array<const N: usize>(&mut self, bytes: &[u8; N]) {
        if let Some((place, rest)) = std::mem::take(&mut self.rest).split_first_chunk_mut::<N>() {
            *place = *bytes;
            self.rest = rest;
        }
    }

    /// Copies bytes.
    #[inline]
    pub fn slice(&mut self, bytes: &[u8]) {
        if let Some((place, rest)) =
            std::mem::take(&mut self.rest).split_at_mut_checked(bytes.len())
        {
            place.copy_from_slice(bytes);
            self.rest = rest;
        }
    }

    /// Writes a varint.
    #[inline]
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.array(&[value as u8 | 0x80]);
            value >>= 7;
        }
        self.array(&[value as u8]);
    }

    /// Writes a length-delimited field with a number below 16.
    #[inline]
    pub fn bytes(&mut self, field: u8, bytes: &[u8]) {
        self.array(&[tag(field, BYTES)]);
        self.varint(bytes.len() as u64);
        self.slice(bytes);
    }

    /// Writes a length-delimited field of `N` bytes, fewer than 128, with a number below 16.
    #[inline]
    pub fn id<const N: usize>(&mut self, field: u8, bytes: &[u8; N]) {
        self.array(&[tag(field, BYTES), N as u8]);
        self.array(bytes);
    }

    /// Writes an eight-byte field with a number below 16.
    #[inline]
    pub fn fixed64(&mut self, field: u8, value: u64) {
        self.array(&[tag(field, FIXED64)]);
        self.array(&value.to_le_bytes());
    }

    /// Writes a varint field with a number below 16, unless it is zero.
    #[inline]
    pub fn count(&mut self, field: u8, value: u64) {
        if value > 0 {
            self.array(&[tag(field, VARINT)]);
            self.varint(value);
        }
    }
}

/// Bytes that are no protobuf message of the expected kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The input ends inside a field.
    #[error("the message ends inside a field")]
    Truncated,
    /// A varint of more than ten bytes.
    #[error("a varint is longer than ten bytes")]
    Varint,
    /// A tag with field number zero or an unknown wire type.
    #[error("a field has an invalid tag")]
    Tag,
    /// A known field of another wire type.
    #[error("a field has an unexpected wire type")]
    WireType,
    /// A string field that is not UTF-8.
    #[error("a string is not UTF-8")]
    Utf8,
    /// More nesting than any sender produces.
    #[error("values are nested too deeply")]
    Depth,
    /// A JSON document that is not the expected message.
    #[error("the JSON form is invalid at {0}")]
    Json(&'static str),
    /// An id in a JSON document that is not hex digits, e.g. base 64.
    #[error("{name} is not {digits} hex digits (OTLP/JSON has ids in hex, not in base 64)")]
    NotHex {
        /// The field.
        name: &'static str,
        /// How many there should be.
        digits: usize,
    },
}

/// Whether bytes are ASCII: the library's way has long texts in mind, and this is called for every attribute.
#[inline(always)]
pub(crate) fn is_ascii(bytes: &[u8]) -> bool {
    const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
    let Some(last) = bytes.last_chunk() else { return bytes.iter().all(u8::is_ascii) };
    // The last word and the one before it overlap.
    let words = bytes.as_chunks().0.iter().chain([last]);
    words.fold(0, |any, word| any | u64::from_le_bytes(*word)) & HIGH_BITS == 0
}

/// The content of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// A varint.
    Varint(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// Length-delimited bytes.
    Bytes(&'a [u8]),
    /// Four bytes.
    Fixed32(u32),
}

impl<'a> Content<'a> {
    /// The bytes of a length-delimited field.
    #[inline]
    pub fn bytes(self) -> Result<&'a [u8], DecodeError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(DecodeError::WireType),
        }
    }

    /// Bytes that are the text of a string field, for who passes them on without reading them. Nearly all text is ASCII,
    /// which is seen without decoding it.
    #[inline]
    pub fn text_bytes(self) -> Result<&'a [u8], DecodeError> {
        let bytes = self.bytes()?;
        if is_ascii(bytes) || std::str::from_utf8(bytes).is_ok() {
            return Ok(bytes);
        }
        Err(DecodeError::Utf8)
    }

    /// The text of a string field.
    #[inline]
    pub fn text(self) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| DecodeError::Utf8)
    }

    /// A varint.
    #[inline]
    pub fn varint(self) -> Result<u64, DecodeError> {
        match self {
            Self::Varint(value) => Ok(value),
            _ => Err(DecodeError::WireType),
        }
    }

    /// Eight bytes.
    #[inline]
    pub fn fixed64(self) -> Result<u64, DecodeError> {
        match self {
            Self::Fixed64(value) => Ok(value),
            _ => Err(DecodeError::WireType),
        }
    }

    /// Four bytes.
    #[inline]
    pub fn fixed32(self) -> Result<u32, DecodeError> {
        match self {
            Self::Fixed32(value) => Ok(value),
            _ => Err(DecodeError::WireType),
        }
    }
}

/// Walks the fields of a message; ends after the first error.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The fields of an encoded message.
    pub const fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// Nearly all tags and lengths take one byte, or two.
    #[inline(always)]
    fn read_varint(&mut self) -> Result<u64, DecodeError> {
        match self.rest {
            [byte @ ..0x80, rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            [low, high @ ..0x80, rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(low & 0x7f) | u64::from(*high) << 7)
            }
            _ => self.read_long_varint(),
        }
    }

    fn read_long_varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0_u64;
        for (at, byte) in self.rest.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[at + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < 10 { DecodeError::Truncated } else { DecodeError::Varint })
    }

    #[inline(always)]
    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    /// The field that comes next, if it has this number, and is length-delimited and short. `None` says nothing.
    #[inline(always)]
    pub fn next_short(&mut self, field: u8) -> Option<&'a [u8]> {
        match self.rest {
            [first, len @ ..0x80, rest @ ..] if *first == tag(field, BYTES) => {
                let (content, rest) = rest.split_at_checked(usize::from(*len))?;
                self.rest = rest;
                Some(content)
            }
            _ => None,
        }
    }

    /// Passes over the fields of one number that come next, as long as they are length-delimited and short: a quick way
    /// past attributes that nobody asks for.
    #[inline]
    pub fn skip_short(&mut self, field: u8) {
        while self.next_short(field).is_some() {}
    }

    #[inline(always)]
    fn read(&mut self) -> Result<(u32, Content<'a>), DecodeError> {
        let tag = self.read_varint()?;
        let field = u32::try_from(tag >> 3).map_err(|_| DecodeError::Tag)?;
        if field == 0 {
            return Err(DecodeError::Tag);
        }
        let content = match (tag & 7) as u8 {
            VARINT => Content::Varint(self.read_varint()?),
            FIXED64 => {
                let bytes = self.take(8)?.first_chunk().ok_or(DecodeError::Truncated)?;
                Content::Fixed64(u64::from_le_bytes(*bytes))
            }
            BYTES => {
                let len = self.read_varint()?;
                let len = usize::try_from(len).map_err(|_| DecodeError::Truncated)?;
                Content::Bytes(self.take(len)?)
            }
            FIXED32 => {
                let bytes = self.take(4)?.first_chunk().ok_or(DecodeError::Truncated)?;
                Content::Fixed32(u32::from_le_bytes(*bytes))
            }
            _ => return Err(DecodeError::Tag),
        };
        Ok((field, content))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Content<'a>), DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let item = self.read();
        if item.is_err() {
            self.rest = &[];
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varint_len_agrees_with_what_is_written() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1_u64 << shift) - 1, u64::MAX >> shift] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value), "{value}");
            }
        }
    }

    #[test]
    fn one_byte_that_is_not_ascii_is_seen_wherever_it_is() {
        for len in 0..40 {
            let mut bytes = vec![0x7f; len];
            assert!(is_ascii(&bytes));
            for at in 0..len {
                bytes[at] = 0x80;
                assert!(!is_ascii(&bytes), "{at} of {len}");
                bytes[at] = 0;
            }
        }
    }

    #[test]
    fn truncated_input_is_an_error_and_ends_the_walk() {
        let mut out = Vec::new();
        put_bytes(&mut out, 1, b"hello");
        for len in 1..out.len() {
            let items: Vec<_> = Fields::new(&out[..len]).collect();
            assert_eq!(items, [Err(DecodeError::Truncated)], "{len}");
        }
    }

    /// Guarantees: what is passed over is what would have been read, and nothing else.
    #[test]
    fn short_fields_of_one_number_are_passed_over() {
        let mut out = Vec::new();
        put_bytes(&mut out, 9, b"short");
        put_bytes(&mut out, 9, b"");
        put_bytes(&mut out, 9, &[7; 200]);
        put_bytes(&mut out, 9, b"another");
        put_uint(&mut out, 9, 5);
        put_bytes(&mut out, 10, b"other");
        let lengths = |mut fields: Fields<'_>| {
            let mut lengths = Vec::new();
            while let Some(field) = fields.next() {
                lengths.push(field.map(|(_, content)| content.bytes().map_or(0, <[u8]>::len)));
                fields.skip_short(9);
            }
            lengths
        };
        assert_eq!(lengths(Fields::new(&out)), [Ok(5), Ok(200), Ok(0), Ok(5)]);
        let cut = &out[..3];
        let mut fields = Fields::new(cut);
        fields.skip_short(9);
        assert_eq!(fields.next(), Some(Err(DecodeError::Truncated)));
    }

    #[test]
    fn long_nested_message_gets_a_long_length() {
        let mut out = Vec::new();
        put_message(&mut out, 3, |out| out.extend_from_slice(&[7; 300]));
        let (field, content) = Fields::new(&out).next().expect("one field").expect("valid");
        assert_eq!((field, content.bytes().map(<[u8]>::len)), (3, Ok(300)));
    }
}
