//! Ids of traces and spans: numbers in memory, lower-case hex everywhere else.

use std::fmt;

/// Id of a trace, never zero. Orders as its 16 bytes do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TraceId(u128);

/// Id of a span, never zero. Orders as its 8 bytes do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SpanId(u64);

impl TraceId {
    /// Where an id is due and there is none.
    pub(crate) const NOBODY: Self = Self(u128::MAX);

    /// 32 hex digits, of any case, with or without `0x`.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = hex_digits(text, 32)?;
        u128::from_str_radix(digits, 16).ok().filter(|id| *id != 0).map(Self)
    }

    /// The bytes of the wire; `None` when they are not 16, or all zero.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let id = u128::from_be_bytes(bytes.try_into().ok()?);
        (id != 0).then_some(Self(id))
    }

    /// The bytes of the wire.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The id as a number.
    pub fn number(self) -> u128 {
        self.0
    }
}

impl SpanId {
    /// Where an id is due and there is none.
    pub(crate) const NOBODY: Self = Self(u64::MAX);

    /// 16 hex digits, of any case, with or without `0x`.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = hex_digits(text, 16)?;
        u64::from_str_radix(digits, 16).ok().filter(|id| *id != 0).map(Self)
    }

    /// The bytes of the wire; `None` when they are not 8, or all zero.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let id = u64::from_be_bytes(bytes.try_into().ok()?);
        (id != 0).then_some(Self(id))
    }

    /// The bytes of the wire.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// The id as a number.
    pub fn number(self) -> u64 {
        self.0
    }
}

fn hex_digits(text: &str, length: usize) -> Option<&str> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    (digits.len() == length && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then_some(digits)
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_with_and_without_prefix_and_zero_is_none() {
        let id = TraceId::parse("0x0af7651916cd43dd8448eb211c80319c").unwrap();
        assert_eq!(id.to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(TraceId::parse("0AF7651916CD43DD8448EB211C80319C"), Some(id));
        assert_eq!(TraceId::from_bytes(&id.to_bytes()), Some(id));
        assert_eq!(TraceId::parse(&"0".repeat(32)), None);
        assert_eq!(TraceId::from_bytes(&[0; 16]), None);
        assert_eq!(SpanId::from_bytes(&[1; 7]), None);
        assert_eq!(SpanId::parse("b7ad6b716920333"), None);
        assert_eq!(SpanId::parse("+7ad6b7169203331"), None);
    }
}
