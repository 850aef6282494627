//! Spans, log records and request framing as bytes, written once.

use crate::wire::{
    BYTES, Cursor, FIXED32, FIXED64, VARINT, bytes_field_len, put_bytes, put_fixed64, put_message,
    put_uint, put_varint, tag, varint_len,
};

/// Field number of `Span.attributes`.
pub const SPAN_ATTRIBUTES: u8 = 9;
/// Field number of `Span.events`.
pub const SPAN_EVENTS: u8 = 11;
/// Field number of `Span.links`.
pub const SPAN_LINKS: u8 = 13;
/// Field number of `Resource.attributes`.
pub const RESOURCE_ATTRIBUTES: u8 = 1;
/// Field number of `LogRecord.attributes`.
pub const LOG_ATTRIBUTES: u8 = 6;
/// `Span.flags`: the next bit is meaningful.
pub const FLAG_HAS_IS_REMOTE: u32 = 0x100;
/// `Span.flags`: the parent is in another process.
pub const FLAG_IS_REMOTE: u32 = 0x200;

/// Something that can be an `AnyValue`.
pub trait EncodeValue {
    /// Bytes that [`write_value`](Self::write_value) writes.
    fn value_len(&self) -> usize;
    /// Writes the content of an `AnyValue` message.
    fn write_value(&self, out: &mut Cursor<'_>);
}

impl EncodeValue for str {
    #[inline]
    fn value_len(&self) -> usize {
        bytes_field_len(self.len())
    }
    #[inline]
    fn write_value(&self, out: &mut Cursor<'_>) {
        out.bytes(1, self.as_bytes());
    }
}

impl EncodeValue for bool {
    #[inline]
    fn value_len(&self) -> usize {
        2
    }
    #[inline]
    fn write_value(&self, out: &mut Cursor<'_>) {
        out.array(&[tag(2, VARINT), u8::from(*self)]);
    }
}

impl EncodeValue for i64 {
    #[inline]
    fn value_len(&self) -> usize {
        1 + varint_len(*self as u64)
    }
    #[inline]
    fn write_value(&self, out: &mut Cursor<'_>) {
        out.array(&[tag(3, VARINT)]);
        out.varint(*self as u64);
    }
}

impl EncodeValue for f64 {
    #[inline]
    fn value_len(&self) -> usize {
        9
    }
    #[inline]
    fn write_value(&self, out: &mut Cursor<'_>) {
        out.fixed64(4, self.to_bits());
    }
}

/// Bytes as an `AnyValue`.
#[derive(Clone, Copy, Debug)]
pub struct BytesValue<'a>(pub &'a [u8]);

impl EncodeValue for BytesValue<'_> {
    fn value_len(&self) -> usize {
        bytes_field_len(self.0.len())
    }
    fn write_value(&self, out: &mut Cursor<'_>) {
        out.bytes(7, self.0);
    }
}

/// An array as an `AnyValue`.
#[derive(Clone, Copy, Debug)]
pub struct ArrayValue<'a, T>(pub &'a [T]);

impl<T: EncodeValue> EncodeValue for ArrayValue<'_, T> {
    fn value_len(&self) -> usize {
        bytes_field_len(self.0.iter().map(|item| bytes_field_len(item.value_len())).sum())
    }
    fn write_value(&self, out: &mut Cursor<'_>) {
        out.array(&[tag(5, BYTES)]);
        out.varint(self.0.iter().map(|item| bytes_field_len(item.value_len()) as u64).sum());
        for item in self.0 {
            out.array(&[tag(1, BYTES)]);
            out.varint(item.value_len() as u64);
            item.write_value(out);
        }
    }
}

/// Bytes of the field that [`write_key_value`] writes.
#[inline(always)]
pub fn key_value_len(key: &str, value: &(impl EncodeValue + ?Sized)) -> usize {
    bytes_field_len(bytes_field_len(key.len()) + bytes_field_len(value.value_len()))
}

/// Writes a `KeyValue` as `field`.
#[inline(always)]
pub fn write_key_value(
    out: &mut Cursor<'_>,
    field: u8,
    key: &str,
    value: &(impl EncodeValue + ?Sized),
) {
    let value_len = value.value_len();
    let len = bytes_field_len(key.len()) + bytes_field_len(value_len);
    if len < 0x80 {
        // Every length inside is shorter, so each takes one byte.
        out.array(&[tag(field, BYTES), len as u8, tag(1, BYTES), key.len() as u8]);
        out.slice(key.as_bytes());
        out.array(&[tag(2, BYTES), value_len as u8]);
    } else {
        out.array(&[tag(field, BYTES)]);
        out.varint(len as u64);
        out.bytes(1, key.as_bytes());
        out.array(&[tag(2, BYTES)]);
        out.varint(value_len as u64);
    }
    value.write_value(out);
}

/// Appends a `KeyValue` as `field`.
pub fn put_key_value(out: &mut Vec<u8>, field: u8, key: &str, value: &(impl EncodeValue + ?Sized)) {
    let at = out.len();
    out.resize(at + key_value_len(key, value), 0);
    write_key_value(&mut Cursor::new(&mut out[at..]), field, key, value);
}

/// `Status.code`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusCode {
    /// Nobody said.
    #[default]
    Unset,
    /// Declared a success.
    Ok,
    /// Failed.
    Error,
}

impl StatusCode {
    /// The code of a number on the wire; an unknown one is `Unset`.
    pub const fn from_number(number: u64) -> Self {
        match number {
            1 => Self::Ok,
            2 => Self::Error,
            _ => Self::Unset,
        }
    }

    /// `UNSET`, `OK` or `ERROR`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unset => "UNSET",
            Self::Ok => "OK",
            Self::Error => "ERROR",
        }
    }
}

/// Most bytes of a head.
pub const MAX_HEAD_BYTES: usize = 64;
/// Where in a head the trace's id is.
pub const TRACE_ID_AT: usize = 2;
/// Where in a head the span's id is.
pub const SPAN_ID_AT: usize = 20;
/// Where in a head the end is, as eight bytes in little-endian order.
pub const END_AT: usize = 40;
/// Where in a head the lowest byte of the flags is: those of W3C.
pub const FLAGS_AT: usize = 50;

/// The fields of a span that have a fixed length.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpanHead {
    /// 16 bytes.
    pub trace_id: [u8; 16],
    /// 8 bytes.
    pub span_id: [u8; 8],
    /// `None` for a root.
    pub parent_id: Option<[u8; 8]>,
    /// OTLP's number of the kind: 1 internal, 2 server, 3 client, 4 producer, 5 consumer.
    pub kind: u8,
    /// Start since the epoch.
    pub start_nanos: u64,
    /// End since the epoch; may be written later, at [`END_AT`].
    pub end_nanos: u64,
    /// W3C flags and [`FLAG_HAS_IS_REMOTE`], [`FLAG_IS_REMOTE`].
    pub flags: u32,
}

impl SpanHead {
    /// Bytes of the fields.
    #[inline]
    pub const fn encoded_len(&self) -> usize {
        if self.parent_id.is_some() { MAX_HEAD_BYTES } else { MAX_HEAD_BYTES - 10 }
    }

    /// Writes the fields over [`BLANK_HEAD`] or another head; what follows them is not defined.
    #[inline]
    pub fn write(&self, out: &mut [u8; MAX_HEAD_BYTES]) {
        debug_assert_eq!([out[0], out[48]], [BLANK_HEAD[0], BLANK_HEAD[48]], "no head");
        out[TRACE_ID_AT..18].copy_from_slice(&self.trace_id);
        out[SPAN_ID_AT..28].copy_from_slice(&self.span_id);
        out[29] = self.kind;
        out[31..39].copy_from_slice(&self.start_nanos.to_le_bytes());
        out[END_AT..48].copy_from_slice(&self.end_nanos.to_le_bytes());
        out[FLAGS_AT..54].copy_from_slice(&self.flags.to_le_bytes());
        // Behind a root's head the name was there.
        out[54] = tag(4, BYTES);
        out[55] = 8;
        out[56..64].copy_from_slice(&self.parent_id.unwrap_or_default());
    }
}

/// What is the same in every head: tags and lengths, at their places.
pub const BLANK_HEAD: [u8; MAX_HEAD_BYTES] = {
    let mut out = [0; MAX_HEAD_BYTES];
    out[0] = tag(1, BYTES);
    out[1] = 16;
    out[18] = tag(2, BYTES);
    out[19] = 8;
    out[28] = tag(6, VARINT);
    out[30] = tag(7, FIXED64);
    out[39] = tag(8, FIXED64);
    out[48] = FLAGS_TAG[0];
    out[49] = FLAGS_TAG[1];
    out
};

/// Bytes of a `Span.name` field.
#[inline]
pub const fn name_len(name: &str) -> usize {
    bytes_field_len(name.len())
}

/// Writes a `Span.name` field.
#[inline]
pub fn write_name(out: &mut Cursor<'_>, name: &str) {
    out.bytes(5, name.as_bytes());
}

/// What most spans do not have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rare<'a> {
    /// W3C tracestate.
    pub trace_state: &'a str,
    /// Attributes that exceeded the limit.
    pub dropped_attributes: u32,
    /// `Span.events` fields, see [`put_event`].
    pub events: &'a [u8],
    /// Events that exceeded the limit.
    pub dropped_events: u32,
    /// `Span.links` fields, see [`put_link`].
    pub links: &'a [u8],
    /// Links that exceeded the limit.
    pub dropped_links: u32,
    /// Outcome.
    pub status: StatusCode,
    /// What the status says.
    pub status_message: &'a str,
}

impl Rare<'_> {
    fn status_len(&self) -> usize {
        let message = match self.status_message {
            "" => 0,
            text => bytes_field_len(text.len()),
        };
        message + if self.status == StatusCode::Unset { 0 } else { 2 }
    }

    /// Bytes that [`write`](Self::write) writes.
    pub fn encoded_len(&self) -> usize {
        let count = |value: u32| if value == 0 { 0 } else { 1 + varint_len(u64::from(value)) };
        let field = |len: usize| if len == 0 { 0 } else { bytes_field_len(len) };
        field(self.trace_state.len())
            + self.events.len()
            + self.links.len()
            + count(self.dropped_attributes)
            + count(self.dropped_events)
            + count(self.dropped_links)
            + field(self.status_len())
    }

    /// Writes the fields.
    pub fn write(&self, out: &mut Cursor<'_>) {
        if !self.trace_state.is_empty() {
            out.bytes(3, self.trace_state.as_bytes());
        }
        out.count(10, u64::from(self.dropped_attributes));
        out.slice(self.events);
        out.count(12, u64::from(self.dropped_events));
        out.slice(self.links);
        out.count(14, u64::from(self.dropped_links));
        let status_len = self.status_len();
        if status_len > 0 {
            out.array(&[tag(15, BYTES)]);
            out.varint(status_len as u64);
            if !self.status_message.is_empty() {
                out.bytes(2, self.status_message.as_bytes());
            }
            out.count(3, self.status as u64);
        }
    }
}

/// A whole span; repeated fields come encoded, with their tags.
#[derive(Clone, Debug, Default)]
pub struct SpanParts<'a> {
    /// 16 bytes.
    pub trace_id: [u8; 16],
    /// 8 bytes.
    pub span_id: [u8; 8],
    /// W3C tracestate.
    pub trace_state: &'a str,
    /// `None` for a root.
    pub parent_id: Option<[u8; 8]>,
    /// Name.
    pub name: &'a str,
    /// OTLP's number of the kind: 1 internal, 2 server, 3 client, 4 producer, 5 consumer.
    pub kind: u8,
    /// Start since the epoch.
    pub start_nanos: u64,
    /// End since the epoch.
    pub end_nanos: u64,
    /// `Span.attributes` fields, see [`put_key_value`] with [`SPAN_ATTRIBUTES`].
    pub attributes: &'a [u8],
    /// Attributes that exceeded the limit.
    pub dropped_attributes: u32,
    /// `Span.events` fields, see [`put_event`].
    pub events: &'a [u8],
    /// Events that exceeded the limit.
    pub dropped_events: u32,
    /// `Span.links` fields, see [`put_link`].
    pub links: &'a [u8],
    /// Links that exceeded the limit.
    pub dropped_links: u32,
    /// Outcome.
    pub status: StatusCode,
    /// What the status says.
    pub status_message: &'a str,
    /// W3C flags and [`FLAG_HAS_IS_REMOTE`], [`FLAG_IS_REMOTE`].
    pub flags: u32,
}

impl SpanParts<'_> {
    fn head(&self) -> SpanHead {
        SpanHead {
            trace_id: self.trace_id,
            span_id: self.span_id,
            parent_id: self.parent_id,
            kind: self.kind,
            start_nanos: self.start_nanos,
            end_nanos: self.end_nanos,
            flags: self.flags,
        }
    }

    fn rare(&self) -> Rare<'_> {
        Rare {
            trace_state: self.trace_state,
            dropped_attributes: self.dropped_attributes,
            events: self.events,
            dropped_events: self.dropped_events,
            links: self.links,
            dropped_links: self.dropped_links,
            status: self.status,
            status_message: self.status_message,
        }
    }

    /// Bytes of the message.
    pub fn encoded_len(&self) -> usize {
        self.head().encoded_len()
            + name_len(self.name)
            + self.attributes.len()
            + self.rare().encoded_len()
    }

    /// Appends the message without a tag or length of its own.
    pub fn put(&self, out: &mut Vec<u8>) {
        let (head, rare) = (self.head(), self.rare());
        let mut bytes = BLANK_HEAD;
        head.write(&mut bytes);
        out.extend_from_slice(&bytes[..head.encoded_len()]);
        put_bytes(out, 5, self.name.as_bytes());
        out.extend_from_slice(self.attributes);
        let at = out.len();
        out.resize(at + rare.encoded_len(), 0);
        rare.write(&mut Cursor::new(&mut out[at..]));
    }
}

/// The tag of field 16 takes two bytes.
const FLAGS_TAG: [u8; 2] = [(16 << 3 | FIXED32) | 0x80, 1];

fn put_count(out: &mut Vec<u8>, field: u8, count: u32) {
    if count > 0 {
        put_uint(out, field, u64::from(count));
    }
}

/// Appends a `Span.events` field; `attributes` appends the event's attributes as field 3.
pub fn put_event(
    out: &mut Vec<u8>,
    name: &str,
    unix_nanos: u64,
    dropped_attributes: u32,
    attributes: impl FnOnce(&mut Vec<u8>),
) {
    put_message(out, SPAN_EVENTS, |out| {
        put_fixed64(out, 1, unix_nanos);
        put_bytes(out, 2, name.as_bytes());
        attributes(out);
        put_count(out, 4, dropped_attributes);
    });
}

/// Field number of `Event.attributes`.
pub const EVENT_ATTRIBUTES: u8 = 3;
/// Field number of `Link.attributes`.
pub const LINK_ATTRIBUTES: u8 = 4;

/// Appends a `Span.links` field without attributes.
pub fn put_link(out: &mut Vec<u8>, trace_id: &[u8; 16], span_id: &[u8; 8], flags: u32) {
    put_link_with(out, trace_id, span_id, flags, 0, |_| {});
}

/// Appends a `Span.links` field; `attributes` appends the link's attributes as field 4.
pub fn put_link_with(
    out: &mut Vec<u8>,
    trace_id: &[u8; 16],
    span_id: &[u8; 8],
    flags: u32,
    dropped_attributes: u32,
    attributes: impl FnOnce(&mut Vec<u8>),
) {
    put_message(out, SPAN_LINKS, |out| {
        put_bytes(out, 1, trace_id);
        put_bytes(out, 2, span_id);
        attributes(out);
        put_count(out, 5, dropped_attributes);
        out.push(tag(6, FIXED32));
        out.extend_from_slice(&flags.to_le_bytes());
    });
}

/// An instrumentation scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope<'a> {
    /// Name of the instrumentation.
    pub name: &'a str,
    /// Its version, or empty.
    pub version: &'a str,
}

impl Scope<'_> {
    /// Appends the scope as field 1, unless it says nothing.
    pub fn put(&self, out: &mut Vec<u8>) {
        if self.name.is_empty() && self.version.is_empty() {
            return;
        }
        put_message(out, 1, |out| {
            if !self.name.is_empty() {
                put_bytes(out, 1, self.name.as_bytes());
            }
            if !self.version.is_empty() {
                put_bytes(out, 2, self.version.as_bytes());
            }
        });
    }
}

/// Appends one span as a `ScopeSpans.spans` field: what [`put_request`] takes as items.
pub fn put_scope_item(out: &mut Vec<u8>, span: &[u8]) {
    put_bytes(out, 2, span);
}

/// Appends an export request of one resource.
///
/// All three signals are framed alike: `resource` is an encoded `Resource`, each scope has its items as encoded
/// `ScopeSpans.spans`, `ScopeMetrics.metrics` or `ScopeLogs.log_records` fields (number 2).
pub fn put_request<'a>(
    out: &mut Vec<u8>,
    resource: &[u8],
    scopes: impl Iterator<Item = (Scope<'a>, &'a [u8])> + Clone,
) {
    let mut head = Vec::new();
    let mut total = bytes_field_len(resource.len());
    let mut lengths = Vec::new();
    for (scope, items) in scopes.clone() {
        let at = head.len();
        scope.put(&mut head);
        let len = head.len() - at + items.len();
        lengths.push((at..head.len(), len));
        total += bytes_field_len(len);
    }
    out.reserve(total + 16);
    out.push(tag(1, BYTES));
    put_varint(out, total as u64);
    put_bytes(out, 1, resource);
    for ((_, items), (head_range, len)) in scopes.zip(lengths) {
        out.push(tag(2, BYTES));
        put_varint(out, len as u64);
        out.extend_from_slice(&head[head_range]);
        out.extend_from_slice(items);
    }
}

/// A log record's parts.
#[derive(Clone, Debug, Default)]
pub struct LogParts<'a> {
    /// When it happened.
    pub time_nanos: u64,
    /// When it was seen.
    pub observed_nanos: u64,
    /// 1 to 24.
    pub severity_number: u8,
    /// E.g. `INFO`.
    pub severity_text: &'a str,
    /// The message, or empty.
    pub body: &'a str,
    /// `LogRecord.attributes` fields, see [`put_key_value`] with [`LOG_ATTRIBUTES`].
    pub attributes: &'a [u8],
    /// The span it belongs to.
    pub span: Option<([u8; 16], [u8; 8])>,
    /// W3C flags.
    pub flags: u32,
    /// Name of the event, or empty.
    pub event_name: &'a str,
}

impl LogParts<'_> {
    /// Appends the message without a tag or length of its own.
    pub fn put(&self, out: &mut Vec<u8>) {
        put_fixed64(out, 1, self.time_nanos);
        if self.severity_number > 0 {
            put_uint(out, 2, u64::from(self.severity_number));
        }
        if !self.severity_text.is_empty() {
            put_bytes(out, 3, self.severity_text.as_bytes());
        }
        if !self.body.is_empty() {
            out.push(tag(5, BYTES));
            put_varint(out, self.body.value_len() as u64);
            put_bytes(out, 1, self.body.as_bytes());
        }
        out.extend_from_slice(self.attributes);
        if self.flags != 0 {
            out.push(tag(8, FIXED32));
            out.extend_from_slice(&self.flags.to_le_bytes());
        }
        if let Some((trace_id, span_id)) = &self.span {
            put_bytes(out, 9, trace_id);
            put_bytes(out, 10, span_id);
        }
        put_fixed64(out, 11, self.observed_nanos);
        if !self.event_name.is_empty() {
            put_bytes(out, 12, self.event_name.as_bytes());
        }
    }
}
