//! Reads OTLP messages in place.
//!
//! A view borrows the request's bytes. Its scalar fields are read when it is made, repeated fields are walked on
//! demand. Every iterator yields a `Result` and ends after the first error.

use crate::encode::StatusCode;
use crate::wire::{BYTES, Content, DecodeError, FIXED64, Fields, VARINT, is_ascii, tag};

pub mod logs;
pub mod metrics;

/// Deepest nesting of attribute values that is read.
const MAX_DEPTH: u8 = 32;

/// The length-delimited fields of one number.
#[derive(Clone, Copy, Debug)]
pub struct Repeated<'a> {
    fields: Fields<'a>,
    number: u32,
}

impl<'a> Repeated<'a> {
    /// The fields `number` of a message.
    pub const fn new(message: &'a [u8], number: u32) -> Self {
        Self { fields: Fields::new(message), number }
    }
}

impl<'a> Iterator for Repeated<'a> {
    type Item = Result<&'a [u8], DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.fields.next()? {
                Ok((number, content)) if number == self.number => return Some(content.bytes()),
                Ok(_) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The `ResourceSpans` (or `ResourceMetrics`, `ResourceLogs`) of a request.
pub fn resources(request: &[u8]) -> impl Iterator<Item = Result<ResourceView<'_>, DecodeError>> {
    Repeated::new(request, 1).map(|message| ResourceView::read(message?))
}

/// One resource and its scopes.
#[derive(Clone, Copy, Debug)]
pub struct ResourceView<'a> {
    message: &'a [u8],
    /// The encoded `Resource`.
    pub resource: &'a [u8],
    /// Schema URL, or empty.
    pub schema_url: &'a str,
}

impl<'a> ResourceView<'a> {
    fn read(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut view = Self { message, resource: &[], schema_url: "" };
        for field in Fields::new(message) {
            match field? {
                (1, content) => view.resource = content.bytes()?,
                (3, content) => view.schema_url = content.text()?,
                _ => {}
            }
        }
        Ok(view)
    }

    /// Attributes of the resource.
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes::new(self.resource, 1)
    }

    /// The `ScopeSpans` (or `ScopeMetrics`, `ScopeLogs`).
    pub fn scopes(&self) -> impl Iterator<Item = Result<ScopeView<'a>, DecodeError>> + use<'a> {
        Repeated::new(self.message, 2).map(|message| ScopeView::read(message?))
    }
}

/// One instrumentation scope and its items.
#[derive(Clone, Copy, Debug)]
pub struct ScopeView<'a> {
    message: &'a [u8],
    scope: &'a [u8],
    /// Name of the scope.
    pub name: &'a str,
    /// Version of the scope.
    pub version: &'a str,
    /// Schema URL, or empty.
    pub schema_url: &'a str,
}

impl<'a> ScopeView<'a> {
    fn read(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut view = Self { message, scope: &[], name: "", version: "", schema_url: "" };
        for field in Fields::new(message) {
            match field? {
                (1, content) => view.scope = content.bytes()?,
                (3, content) => view.schema_url = content.text()?,
                _ => {}
            }
        }
        for field in Fields::new(view.scope) {
            match field? {
                (1, content) => view.name = content.text()?,
                (2, content) => view.version = content.text()?,
                _ => {}
            }
        }
        Ok(view)
    }

    /// The encoded `InstrumentationScope`.
    pub fn scope_message(&self) -> &'a [u8] {
        self.scope
    }

    /// Attributes of the scope.
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes::new(self.scope, 3)
    }

    /// The encoded items: spans, metrics or log records.
    pub fn items(&self) -> Repeated<'a> {
        Repeated::new(self.message, 2)
    }

    /// The items as spans.
    pub fn spans(&self) -> impl Iterator<Item = Result<SpanView<'a>, DecodeError>> + use<'a> {
        self.items().map(|message| SpanView::read(message?))
    }
}

/// One span.
#[derive(Clone, Copy, Debug)]
pub struct SpanView<'a> {
    message: &'a [u8],
    /// As sent; 16 bytes when valid.
    pub trace_id: &'a [u8],
    /// As sent; 8 bytes when valid.
    pub span_id: &'a [u8],
    /// Empty for a root.
    pub parent_id: &'a [u8],
    /// W3C tracestate.
    pub trace_state: &'a str,
    /// Name.
    pub name: &'a str,
    /// OTLP's number of the kind.
    pub kind: u64,
    /// Since the epoch.
    pub start_nanos: u64,
    /// Since the epoch.
    pub end_nanos: u64,
    /// Attributes the sender dropped.
    pub dropped_attributes: u64,
    /// Events the sender dropped.
    pub dropped_events: u64,
    /// Links the sender dropped.
    pub dropped_links: u64,
    /// Outcome.
    pub status: StatusCode,
    /// What the status says.
    pub status_message: &'a str,
    /// W3C flags in the low byte.
    pub flags: u32,
}

impl<'a> SpanView<'a> {
    /// Reads an encoded `Span`.
    ///
    /// # Errors
    ///
    /// When the message's own fields are malformed; nested ones are read on demand.
    pub fn read(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut view = Self {
            message,
            trace_id: &[],
            span_id: &[],
            parent_id: &[],
            trace_state: "",
            name: "",
            kind: 0,
            start_nanos: 0,
            end_nanos: 0,
            dropped_attributes: 0,
            dropped_events: 0,
            dropped_links: 0,
            status: StatusCode::Unset,
            status_message: "",
            flags: 0,
        };
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next() {
            match field? {
                (1, content) => view.trace_id = content.bytes()?,
                (2, content) => view.span_id = content.bytes()?,
                (3, content) => view.trace_state = content.text()?,
                (4, content) => view.parent_id = content.bytes()?,
                (5, content) => view.name = content.text()?,
                (6, content) => view.kind = content.varint()?,
                (7, content) => view.start_nanos = content.fixed64()?,
                (8, content) => view.end_nanos = content.fixed64()?,
                (9, _) => fields.skip_short(9),
                (10, content) => view.dropped_attributes = content.varint()?,
                (12, content) => view.dropped_events = content.varint()?,
                (14, content) => view.dropped_links = content.varint()?,
                (15, content) => view.read_status(content.bytes()?)?,
                (16, content) => view.flags = content.fixed32()?,
                _ => {}
            }
        }
        Ok(view)
    }

    fn read_status(&mut self, message: &'a [u8]) -> Result<(), DecodeError> {
        for field in Fields::new(message) {
            match field? {
                (2, content) => self.status_message = content.text()?,
                (3, content) => self.status = StatusCode::from_number(content.varint()?),
                _ => {}
            }
        }
        Ok(())
    }

    /// The encoded message.
    pub fn message(&self) -> &'a [u8] {
        self.message
    }

    /// `INTERNAL`, `SERVER`, `CLIENT`, `PRODUCER`, `CONSUMER` or `UNSPECIFIED`.
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            1 => "INTERNAL",
            2 => "SERVER",
            3 => "CLIENT",
            4 => "PRODUCER",
            5 => "CONSUMER",
            _ => "UNSPECIFIED",
        }
    }

    /// Attributes in the order of the wire.
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes::new(self.message, 9)
    }

    /// Events in the order of the wire.
    pub fn events(&self) -> impl Iterator<Item = Result<EventView<'a>, DecodeError>> + use<'a> {
        Repeated::new(self.message, 11).map(|message| EventView::read(message?))
    }

    /// Links in the order of the wire.
    pub fn links(&self) -> impl Iterator<Item = Result<LinkView<'a>, DecodeError>> + use<'a> {
        Repeated::new(self.message, 13).map(|message| LinkView::read(message?))
    }
}

/// One event of a span.
#[derive(Clone, Copy, Debug)]
pub struct EventView<'a> {
    message: &'a [u8],
    /// Since the epoch.
    pub unix_nanos: u64,
    /// Name.
    pub name: &'a str,
    /// Attributes the sender dropped.
    pub dropped_attributes: u64,
}

impl<'a> EventView<'a> {
    fn read(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut view = Self { message, unix_nanos: 0, name: "", dropped_attributes: 0 };
        for field in Fields::new(message) {
            match field? {
                (1, content) => view.unix_nanos = content.fixed64()?,
                (2, content) => view.name = content.text()?,
                (4, content) => view.dropped_attributes = content.varint()?,
                _ => {}
            }
        }
        Ok(view)
    }

    /// Attributes of the event.
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes::new(self.message, 3)
    }
}

/// One link of a span.
#[derive(Clone, Copy, Debug)]
pub struct LinkView<'a> {
    message: &'a [u8],
    /// 16 bytes when valid.
    pub trace_id: &'a [u8],
    /// 8 bytes when valid.
    pub span_id: &'a [u8],
    /// W3C tracestate.
    pub trace_state: &'a str,
    /// Attributes the sender dropped.
    pub dropped_attributes: u64,
    /// W3C flags in the low byte.
    pub flags: u32,
}

impl<'a> LinkView<'a> {
    fn read(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut view = Self {
            message,
            trace_id: &[],
            span_id: &[],
            trace_state: "",
            dropped_attributes: 0,
            flags: 0,
        };
        for field in Fields::new(message) {
            match field? {
                (1, content) => view.trace_id = content.bytes()?,
                (2, content) => view.span_id = content.bytes()?,
                (3, content) => view.trace_state = content.text()?,
                (5, content) => view.dropped_attributes = content.varint()?,
                (6, content) => view.flags = content.fixed32()?,
                _ => {}
            }
        }
        Ok(view)
    }

    /// Attributes of the link.
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes::new(self.message, 4)
    }
}

/// Walks `KeyValue` fields.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    items: Repeated<'a>,
}

impl<'a> Attributes<'a> {
    /// The attributes that are field `number` of a message.
    pub const fn new(message: &'a [u8], number: u32) -> Self {
        Self { items: Repeated::new(message, number) }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<(&'a str, AnyValue<'a>), DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.items.next()?.and_then(|message| read_key_value(message, 0)))
    }
}

fn read_key_value(message: &[u8], depth: u8) -> Result<(&str, AnyValue<'_>), DecodeError> {
    let (key, value) = read_pair(message, depth)?;
    Ok((key, value.unwrap_or(AnyValue::Empty)))
}

/// Reads an encoded `KeyValue` that is not inside another value; no value is something else than an empty one.
///
/// # Errors
///
/// When the message is malformed.
pub fn key_value(message: &[u8]) -> Result<(&str, Option<AnyValue<'_>>), DecodeError> {
    read_pair(message, 0)
}

#[inline]
fn read_pair(message: &[u8], depth: u8) -> Result<(&str, Option<AnyValue<'_>>), DecodeError> {
    match plain_pair(message) {
        Some((key, value)) if depth <= MAX_DEPTH => Ok((key, Some(value))),
        _ => read_any_pair(message, depth),
    }
}

/// The value of a [`plain_parts`] attribute; texts are not checked.
#[derive(Clone, Copy, Debug)]
pub enum Plain<'a> {
    /// What should be UTF-8.
    Text(&'a [u8]),
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A double.
    Double(f64),
}

/// Key and value of what nearly every attribute is: a key, then a text, flag, integer or double, in lengths of one
/// byte. `None` says nothing; a key is as unchecked as a text.
#[inline(always)]
pub fn plain_parts(message: &[u8]) -> Option<(&[u8], Plain<'_>)> {
    const TEXT: u8 = tag(1, BYTES);
    const FLAG: u8 = tag(2, VARINT);
    const INT: u8 = tag(3, VARINT);
    const DOUBLE: u8 = tag(4, FIXED64);
    let (key, rest) = plain_bytes(tag(1, BYTES), message)?;
    let (value, rest) = plain_bytes(tag(2, BYTES), rest)?;
    if !rest.is_empty() {
        return None;
    }
    let value = match value {
        [TEXT, len @ ..0x80, text @ ..] if usize::from(*len) == text.len() => Plain::Text(text),
        [INT, varint @ ..] => Plain::Int(plain_int(varint)?),
        [FLAG, flag @ 0..=1] => Plain::Bool(*flag == 1),
        [DOUBLE, bits @ ..] => Plain::Double(f64::from_le_bytes(*bits.as_array()?)),
        _ => return None,
    };
    Some((key, value))
}

/// A varint of fewer than ten bytes, which all integers have that are not negative.
#[inline(always)]
fn plain_int(varint: &[u8]) -> Option<i64> {
    if let [value @ ..0x80] = varint {
        return Some(i64::from(*value));
    }
    if varint.len() > 9 {
        return None;
    }
    let (mut value, mut shift) = (0, 0);
    for byte in varint {
        value |= i64::from(byte & 0x7f) << shift;
        shift += 7;
        if *byte < 0x80 {
            // What follows belongs to something else.
            return (shift as usize == varint.len() * 7).then_some(value);
        }
    }
    None
}

fn plain_pair(message: &[u8]) -> Option<(&str, AnyValue<'_>)> {
    let (key, value) = plain_parts(message)?;
    let value = match value {
        Plain::Text(text) => AnyValue::String(std::str::from_utf8(text).ok()?),
        Plain::Bool(value) => AnyValue::Bool(value),
        Plain::Int(value) => AnyValue::Int(value),
        Plain::Double(value) => AnyValue::Double(value),
    };
    Some((std::str::from_utf8(key).ok()?, value))
}

/// Whether an encoded `KeyValue` is one without any doubt: [`key_value`] reads a key and a value with nothing nested.
/// Most are; `false` says nothing.
#[inline(always)]
pub fn is_plain_pair(message: &[u8]) -> bool {
    plain_parts(message).is_some_and(|(key, value)| {
        // Checked at once: what lies between is ASCII too.
        is_ascii(if let Plain::Text(_) = value { message } else { key })
    })
}

/// A field of fewer than 128 bytes, and what follows it.
#[inline(always)]
fn plain_bytes(tag: u8, message: &[u8]) -> Option<(&[u8], &[u8])> {
    match message {
        [first, len @ ..0x80, rest @ ..] if *first == tag => {
            rest.split_at_checked(usize::from(*len))
        }
        _ => None,
    }
}

fn read_any_pair(message: &[u8], depth: u8) -> Result<(&str, Option<AnyValue<'_>>), DecodeError> {
    let mut pair = ("", None);
    for field in Fields::new(message) {
        match field? {
            (1, content) => pair.0 = content.text()?,
            (2, content) => pair.1 = Some(AnyValue::read(content.bytes()?, depth)?),
            _ => {}
        }
    }
    Ok(pair)
}

/// A value of any type.
#[derive(Clone, Copy, Debug)]
pub enum AnyValue<'a> {
    /// No value.
    Empty,
    /// Text.
    String(&'a str),
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A double.
    Double(f64),
    /// Values.
    Array(ArrayView<'a>),
    /// Keys with values.
    KeyValues(KeyValuesView<'a>),
    /// Bytes.
    Bytes(&'a [u8]),
}

impl<'a> AnyValue<'a> {
    fn read(message: &'a [u8], depth: u8) -> Result<Self, DecodeError> {
        if depth > MAX_DEPTH {
            return Err(DecodeError::Depth);
        }
        let mut value = Self::Empty;
        for field in Fields::new(message) {
            value = match field? {
                (1, content) => Self::String(content.text()?),
                (2, content) => Self::Bool(content.varint()? != 0),
                (3, content) => Self::Int(content.varint()? as i64),
                (4, content) => Self::Double(f64::from_bits(content.fixed64()?)),
                (5, content) => Self::Array(ArrayView { message: content.bytes()?, depth }),
                (6, content) => Self::KeyValues(KeyValuesView { message: content.bytes()?, depth }),
                (7, content) => Self::Bytes(content.bytes()?),
                (_, _) => continue,
            };
        }
        Ok(value)
    }

    /// Reads an encoded `AnyValue` that is not inside another.
    pub(crate) fn read_top(content: Content<'a>) -> Result<Self, DecodeError> {
        Self::read(content.bytes()?, 0)
    }
}

/// An array value.
#[derive(Clone, Copy, Debug)]
pub struct ArrayView<'a> {
    message: &'a [u8],
    depth: u8,
}

impl<'a> ArrayView<'a> {
    /// Its values.
    pub fn values(&self) -> impl Iterator<Item = Result<AnyValue<'a>, DecodeError>> + use<'a> {
        let depth = self.depth + 1;
        Repeated::new(self.message, 1).map(move |message| AnyValue::read(message?, depth))
    }
}

/// A list of keys with values.
#[derive(Clone, Copy, Debug)]
pub struct KeyValuesView<'a> {
    message: &'a [u8],
    depth: u8,
}

impl<'a> KeyValuesView<'a> {
    /// Its entries.
    pub fn entries(
        &self,
    ) -> impl Iterator<Item = Result<(&'a str, AnyValue<'a>), DecodeError>> + use<'a> {
        let depth = self.depth + 1;
        Repeated::new(self.message, 1).map(move |message| read_key_value(message?, depth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the short way to read an attribute reads what the long way reads, and nothing that this refuses.
    #[test]
    fn an_attribute_in_its_usual_form_is_read_as_any_other() {
        const BYTES: [u8; 12] =
            [0x00, 0x01, 0x02, 0x05, 0x0a, 0x10, 0x18, 0x21, 0x7f, 0x80, 0xc3, 0xff];
        let mut plain = 0;
        for len in 0..=4_u32 {
            for nth in 0..BYTES.len().pow(len) {
                let digit = |at: u32| BYTES[nth / BYTES.len().pow(at) % BYTES.len()];
                let value: Vec<u8> = (0..len).map(digit).collect();
                let mut pair = vec![0x0a, 1, b'k', 0x12, value.len() as u8];
                pair.extend(&value);
                let long = read_any_pair(&pair, 0);
                if let Some(short) = plain_pair(&pair) {
                    let short = (short.0, Some(short.1));
                    assert_eq!(format!("{:?}", Ok::<_, DecodeError>(short)), format!("{long:?}"));
                    plain += 1;
                }
                assert!(!is_plain_pair(&pair) || long.is_ok(), "{pair:x?}");
            }
        }
        assert!(plain > 100, "{plain}");
        for len in 1..=12 {
            for last in [0x00, 0x01, 0x7f, 0x80] {
                let mut varint = [0x81; 12];
                varint[len - 1] = last;
                let mut pair = vec![0x0a, 1, b'k', 0x12, len as u8 + 1, 0x18];
                pair.extend(&varint[..len]);
                let long = read_any_pair(&pair, 0);
                let short = plain_pair(&pair).map(|(key, value)| (key, Some(value)));
                assert_eq!(short.is_some(), long.is_ok() && len < 10, "{pair:x?}");
                if let Some(short) = short {
                    assert_eq!(format!("{:?}", Ok::<_, DecodeError>(short)), format!("{long:?}"));
                }
            }
        }
        for cut in 0..5 {
            assert!(!is_plain_pair(&[0x0a, 1, b'k', 0x12, 2, 0x18, 1][..cut]));
        }
    }
}
