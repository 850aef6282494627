//! Spans, log records and request framing as bytes, written once.

use crate::wire::{
    BYTES, Cursor, FIXED32, VARINT, bytes_field_len, put_bytes, put_double, put_fixed64,
    put_message, put_uint, put_varint, tag, varint_len,
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
    /// Bytes that [`put_value`](Self::put_value) appends.
    fn value_len(&self) -> usize;
    /// Appends the content of an `AnyValue` message.
    fn put_value(&self, out: &mut Vec<u8>);
}

impl EncodeValue for str {
    #[inline]
    fn value_len(&self) -> usize {
        bytes_field_len(self.len())
    }
    #[inline]
    fn put_value(&self, out: &mut Vec<u8>) {
        put_bytes(out, 1, self.as_bytes());
    }
}

impl EncodeValue for bool {
    #[inline]
    fn value_len(&self) -> usize {
        2
    }
    #[inline]
    fn put_value(&self, out: &mut Vec<u8>) {
        put_uint(out, 2, u64::from(*self));
    }
}

impl EncodeValue for i64 {
    #[inline]
    fn value_len(&self) -> usize {
        1 + varint_len(*self as u64)
    }
    #[inline]
    fn put_value(&self, out: &mut Vec<u8>) {
        put_uint(out, 3, *self as u64);
    }
}

impl EncodeValue for f64 {
    #[inline]
    fn value_len(&self) -> usize {
        9
    }
    #[inline]
    fn put_value(&self, out: &mut Vec<u8>) {
        put_double(out, 4, *self);
    }
}

/// Bytes as an `AnyValue`.
#[derive(Clone, Copy, Debug)]
pub struct BytesValue<'a>(pub &'a [u8]);

impl EncodeValue for BytesValue<'_> {
    fn value_len(&self) -> usize {
        bytes_field_len(self.0.len())
    }
    fn put_value(&self, out: &mut Vec<u8>) {
        put_bytes(out, 7, self.0);
    }
}

/// An array as an `AnyValue`.
#[derive(Clone, Copy, Debug)]
pub struct ArrayValue<'a, T>(pub &'a [T]);

impl<T: EncodeValue> EncodeValue for ArrayValue<'_, T> {
    fn value_len(&self) -> usize {
        bytes_field_len(self.0.iter().map(|item| bytes_field_len(item.value_len())).sum())
    }
    fn put_value(&self, out: &mut Vec<u8>) {
        out.push(tag(5, BYTES));
        put_varint(out, self.0.iter().map(|item| bytes_field_len(item.value_len()) as u64).sum());
        for item in self.0 {
            out.push(tag(1, BYTES));
            put_varint(out, item.value_len() as u64);
            item.put_value(out);
        }
    }
}

/// Appends a `KeyValue` as `field` and returns where in `out` the key's bytes begin.
#[inline]
pub fn put_key_value(
    out: &mut Vec<u8>,
    field: u8,
    key: &str,
    value: &(impl EncodeValue + ?Sized),
) -> usize {
    let value_len = value.value_len();
    out.push(tag(field, BYTES));
    put_varint(out, (bytes_field_len(key.len()) + bytes_field_len(value_len)) as u64);
    out.push(tag(1, BYTES));
    put_varint(out, key.len() as u64);
    let key_at = out.len();
    out.extend_from_slice(key.as_bytes());
    out.push(tag(2, BYTES));
    put_varint(out, value_len as u64);
    value.put_value(out);
    key_at
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

/// A span's parts; repeated fields come encoded, with their tags.
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
    fn status_len(&self) -> usize {
        let message = match self.status_message {
            "" => 0,
            text => bytes_field_len(text.len()),
        };
        message + if self.status == StatusCode::Unset { 0 } else { 2 }
    }

    /// Whether it has neither events, links, a status nor anything dropped, as most spans.
    #[inline]
    fn is_plain(&self) -> bool {
        self.events.is_empty()
            && self.links.is_empty()
            && self.status == StatusCode::Unset
            && self.status_message.is_empty()
            && self.dropped_attributes | self.dropped_events | self.dropped_links == 0
    }

    /// Bytes of the message.
    #[inline]
    pub fn encoded_len(&self) -> usize {
        const IDS: usize = 18 + 10;
        const KIND_TIMES_AND_FLAGS: usize = 2 + 18 + 6;
        let trace_state = match self.trace_state.len() {
            0 => 0,
            len => bytes_field_len(len),
        };
        IDS + trace_state
            + if self.parent_id.is_some() { 10 } else { 0 }
            + bytes_field_len(self.name.len())
            + KIND_TIMES_AND_FLAGS
            + self.attributes.len()
            + if self.is_plain() { 0 } else { self.rare_len() }
    }

    fn rare_len(&self) -> usize {
        let count = |value: u32| if value == 0 { 0 } else { 1 + varint_len(u64::from(value)) };
        let status_len = self.status_len();
        self.events.len()
            + self.links.len()
            + count(self.dropped_attributes)
            + count(self.dropped_events)
            + count(self.dropped_links)
            + if status_len == 0 { 0 } else { bytes_field_len(status_len) }
    }

    /// Writes the message without a tag or length of its own into [`encoded_len`](Self::encoded_len) bytes.
    #[inline]
    pub fn write(&self, out: &mut [u8]) {
        let mut out = Cursor::new(out);
        out.id(1, &self.trace_id);
        out.id(2, &self.span_id);
        if !self.trace_state.is_empty() {
            out.bytes(3, self.trace_state.as_bytes());
        }
        if let Some(parent) = &self.parent_id {
            out.id(4, parent);
        }
        out.bytes(5, self.name.as_bytes());
        out.array(&[tag(6, VARINT), self.kind]);
        out.fixed64(7, self.start_nanos);
        out.fixed64(8, self.end_nanos);
        out.slice(self.attributes);
        if self.is_plain() {
            out.array(&FLAGS_TAG);
            out.array(&self.flags.to_le_bytes());
            return;
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
        out.array(&FLAGS_TAG);
        out.array(&self.flags.to_le_bytes());
    }

    /// Appends the message without a tag or length of its own.
    pub fn put(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.resize(at + self.encoded_len(), 0);
        self.write(&mut out[at..]);
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
    put_message(out, SPAN_LINKS, |out| {
        put_bytes(out, 1, trace_id);
        put_bytes(out, 2, span_id);
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
            self.body.put_value(out);
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
