//! Spans as they came: slices of the export requests that they arrived in.
//!
//! This is the one form in which spans cross the borders between receiving, storing, reading back and exporting; a
//! reader of another form (console lines, JSON, columns) encodes what it read. Whoever wants more than ids and start
//! looks into the message with [`SpanView`].
//!
//! # Guarantees
//!
//! * What [`decode`] lets through can be read to its end: no later step meets a malformed span.
//! * A malformed span is refused alone. A request whose frame is broken is refused whole.

use std::borrow::Borrow;
use std::sync::Arc;

use bytes::Bytes;
use lens_otlp::DecodeError;
use lens_otlp::encode::{EVENT_ATTRIBUTES, SPAN_ATTRIBUTES};
use lens_otlp::view::{
    AnyValue, Attributes, ScopeView, SpanView, is_plain_pair, key_value, resources,
};
use lens_otlp::wire::Fields;

use crate::ids::{SpanId, TraceId};

mod request;
mod signals;

pub use request::{Item, to_request};
pub(crate) use signals::METRIC_DATA;
pub use signals::{Items, RawLog, RawMetric, decode_logs, decode_metrics};

/// The process that spans come from: its encoded `Resource`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RawResource {
    /// Encoded `Resource`.
    pub message: Bytes,
    /// Schema URL, or empty.
    pub schema_url: Box<str>,
}

/// Where spans come from: a process, and an instrumentation scope in it. Spans of one group of a request share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The process.
    pub resource: Arc<RawResource>,
    /// Encoded `InstrumentationScope`.
    pub scope: Bytes,
    /// Schema URL, or empty.
    pub schema_url: Box<str>,
}

/// One span.
#[derive(Clone, Debug)]
pub struct RawSpan {
    /// Id of its trace.
    pub trace_id: TraceId,
    /// Its own id.
    pub span_id: SpanId,
    /// Start, Unix nanoseconds.
    pub start_nanos: u64,
    /// Encoded `Span`.
    pub message: Bytes,
    /// Where it comes from.
    pub origin: Arc<Origin>,
    /// Number of the request that it came in; 0 where there was none. Later requests have higher ones.
    pub ingest_seq: u64,
}

impl RawSpan {
    /// Its fields.
    ///
    /// # Errors
    ///
    /// Never for a span from [`decode`].
    pub fn view(&self) -> Result<SpanView<'_>, DecodeError> {
        SpanView::read(&self.message)
    }
}

/// Looks at every cache line of some messages. Spans of a trace lie all over the requests that they came in, and a walk
/// would wait for memory at each; these reads do not wait for each other.
pub(crate) fn fetch(spans: &[impl Borrow<RawSpan>]) {
    const CACHE_LINE: usize = 64;
    let mut seen = 0_u8;
    for span in spans {
        for byte in span.borrow().message.iter().step_by(CACHE_LINE) {
            seen ^= byte;
        }
    }
    std::hint::black_box(seen);
}

/// Why a span was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The id of its trace is not 16 bytes, or zero.
    #[error("trace id is not 16 bytes, or all zero")]
    TraceId,
    /// Its id is not 8 bytes, or zero.
    #[error("span id is not 8 bytes, or all zero")]
    SpanId,
    /// The id of its parent is neither absent nor 8 bytes.
    #[error("parent span id is not 8 bytes")]
    ParentId,
    /// An attribute has a key and no value.
    #[error("an attribute has no value")]
    NoValue,
    /// Its bytes are not a span.
    #[error("not an encoded span")]
    Wire(#[from] DecodeError),
}

/// The spans of a request.
#[derive(Clone, Debug, Default)]
pub struct Decoded {
    /// Those that are kept.
    pub spans: Vec<RawSpan>,
    /// How many were refused.
    pub refused: u64,
    /// Why the first of them was.
    pub reason: Option<Malformed>,
}

/// What a span takes in a request, for the room that its spans get at first.
const USUAL_SPAN_BYTES: usize = 512;

/// Takes a request apart. `ingest_seq` is put on every span.
///
/// # Errors
///
/// When the request itself cannot be walked.
pub fn decode(request: &Bytes, ingest_seq: u64) -> Result<Decoded, DecodeError> {
    let mut decoded = Decoded::default();
    decoded.spans.reserve(request.len() / USUAL_SPAN_BYTES);
    for resource in resources(request) {
        let resource = resource?;
        check_attributes(resource.attributes())?;
        let raw = Arc::new(RawResource {
            message: slice(request, resource.resource),
            schema_url: resource.schema_url.into(),
        });
        for scope in resource.scopes() {
            take_scope(request, &raw, &scope?, ingest_seq, &mut decoded)?;
        }
    }
    Ok(decoded)
}

fn take_scope(
    request: &Bytes,
    resource: &Arc<RawResource>,
    scope: &ScopeView<'_>,
    ingest_seq: u64,
    decoded: &mut Decoded,
) -> Result<(), DecodeError> {
    check_attributes(scope.attributes())?;
    let origin = Arc::new(Origin {
        resource: Arc::clone(resource),
        scope: slice(request, scope.scope_message()),
        schema_url: scope.schema_url.into(),
    });
    for message in scope.items() {
        let message = message?;
        match check(message) {
            Ok((trace_id, span_id, start_nanos)) => decoded.spans.push(RawSpan {
                trace_id,
                span_id,
                start_nanos,
                message: slice(request, message),
                origin: Arc::clone(&origin),
                ingest_seq,
            }),
            Err(reason) => {
                decoded.refused += 1;
                decoded.reason.get_or_insert(reason);
            }
        }
    }
    Ok(())
}

/// A part of the request that shares its memory; an absent message is empty.
fn slice(request: &Bytes, part: &[u8]) -> Bytes {
    if part.is_empty() { Bytes::new() } else { request.slice_ref(part) }
}

/// Walks a span to its end, once. What passes here is what [`SpanView`] and its lists can read.
fn check(message: &[u8]) -> Result<(TraceId, SpanId, u64), Malformed> {
    let (mut trace_id, mut span_id, mut parent_id, mut start_nanos) =
        (&[][..], &[][..], &[][..], 0);
    let mut fields = Fields::new(message);
    loop {
        while let Some(pair) = fields.next_short(SPAN_ATTRIBUTES) {
            if !check_pair(pair)? {
                return Err(Malformed::NoValue);
            }
        }
        let Some(field) = fields.next() else { break };
        match field? {
            (1, content) => trace_id = content.bytes()?,
            (2, content) => span_id = content.bytes()?,
            (4, content) => parent_id = content.bytes()?,
            (7, content) => start_nanos = content.fixed64()?,
            (9, content) if !check_pair(content.bytes()?)? => return Err(Malformed::NoValue),
            (9, _) => {}
            (3 | 5, content) => drop(content.text_bytes()?),
            (6 | 10 | 12 | 14, content) => drop(content.varint()?),
            (8, content) => drop(content.fixed64()?),
            (11, content) => check_event(content.bytes()?)?,
            (13, content) => check_link(content.bytes()?)?,
            (15, content) => check_status(content.bytes()?)?,
            (16, content) => drop(content.fixed32()?),
            _ => {}
        }
    }
    let trace_id = TraceId::from_bytes(trace_id).ok_or(Malformed::TraceId)?;
    let span_id = SpanId::from_bytes(span_id).ok_or(Malformed::SpanId)?;
    if !matches!(parent_id.len(), 0 | 8) {
        return Err(Malformed::ParentId);
    }
    Ok((trace_id, span_id, start_nanos))
}

fn check_event(message: &[u8]) -> Result<(), DecodeError> {
    let mut fields = Fields::new(message);
    loop {
        while let Some(pair) = fields.next_short(EVENT_ATTRIBUTES) {
            check_pair(pair)?;
        }
        let Some(field) = fields.next() else { return Ok(()) };
        match field? {
            (1, content) => drop(content.fixed64()?),
            (2, content) => drop(content.text_bytes()?),
            (3, content) => drop(check_pair(content.bytes()?)?),
            (4, content) => drop(content.varint()?),
            _ => {}
        }
    }
}

fn check_link(message: &[u8]) -> Result<(), DecodeError> {
    for field in Fields::new(message) {
        match field? {
            (1 | 2, content) => drop(content.bytes()?),
            (3, content) => drop(content.text_bytes()?),
            (4, content) => drop(check_pair(content.bytes()?)?),
            (5, content) => drop(content.varint()?),
            (6, content) => drop(content.fixed32()?),
            _ => {}
        }
    }
    Ok(())
}

fn check_status(message: &[u8]) -> Result<(), DecodeError> {
    for field in Fields::new(message) {
        match field? {
            (2, content) => drop(content.text_bytes()?),
            (3, content) => drop(content.varint()?),
            _ => {}
        }
    }
    Ok(())
}

/// Walks attributes to the end of what is nested in them.
fn check_attributes(mut attributes: Attributes<'_>) -> Result<(), DecodeError> {
    attributes.try_for_each(|pair| check_value(pair?.1))
}

/// Walks an attribute to the end of what is nested in it; whether it has a value.
#[inline(always)]
fn check_pair(message: &[u8]) -> Result<bool, DecodeError> {
    if is_plain_pair(message) {
        return Ok(true);
    }
    check_any_pair(message)
}

fn check_any_pair(message: &[u8]) -> Result<bool, DecodeError> {
    let (_, value) = key_value(message)?;
    value.map(check_value).transpose().map(|value| value.is_some())
}

/// The depth of values is bounded by the view.
fn check_value(value: AnyValue<'_>) -> Result<(), DecodeError> {
    match value {
        AnyValue::Array(array) => array.values().try_for_each(|value| check_value(value?)),
        AnyValue::KeyValues(pairs) => pairs.entries().try_for_each(|pair| check_value(pair?.1)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use lens_otlp::encode::{
        SPAN_ATTRIBUTES, Scope, SpanParts, put_key_value, put_request, put_scope_item,
    };
    use lens_otlp::wire::put_bytes;

    use super::*;

    fn span(trace_id: [u8; 16], attributes: &[u8]) -> Vec<u8> {
        let parts = SpanParts {
            trace_id,
            span_id: [2; 8],
            name: "n",
            start_nanos: 5,
            end_nanos: 6,
            attributes,
            ..SpanParts::default()
        };
        let mut message = Vec::new();
        parts.put(&mut message);
        message
    }

    fn request(spans: &[Vec<u8>]) -> Bytes {
        let mut items = Vec::new();
        for span in spans {
            put_scope_item(&mut items, span);
        }
        let mut out = Vec::new();
        put_request(
            &mut out,
            &[],
            std::iter::once((Scope { name: "s", version: "" }, items.as_slice())),
        );
        out.into()
    }

    #[test]
    fn malformed_spans_are_refused_alone_and_the_first_reason_is_told() {
        let mut good = Vec::new();
        put_key_value(&mut good, SPAN_ATTRIBUTES, "k", &1_i64);
        let mut without_value = Vec::new();
        put_bytes(&mut without_value, SPAN_ATTRIBUTES, b"\x0a\x01k");
        let mut not_text = Vec::new();
        put_key_value(&mut not_text, SPAN_ATTRIBUTES, "k", "v");
        *not_text.last_mut().unwrap() = 0xff;
        let mut spans = vec![span([1; 16], &good); 8];
        spans.insert(3, span([1; 16], &without_value));
        spans.insert(5, span([0; 16], &good));
        spans.push(span([1; 16], &not_text));
        let decoded = decode(&request(&spans), 7).unwrap();
        assert_eq!((decoded.spans.len(), decoded.refused), (8, 3));
        assert_eq!(decoded.reason, Some(Malformed::NoValue));
        let first = &decoded.spans[0];
        assert_eq!((first.start_nanos, first.ingest_seq), (5, 7));
        assert_eq!(first.view().unwrap().name, "n");
    }

    #[test]
    fn an_empty_value_is_a_value() {
        let mut attribute = Vec::new();
        put_bytes(&mut attribute, SPAN_ATTRIBUTES, b"\x0a\x01k\x12\x00");
        let decoded = decode(&request(&[span([1; 16], &attribute)]), 0).unwrap();
        assert_eq!((decoded.spans.len(), decoded.refused), (1, 0));
    }

    #[test]
    fn a_request_that_is_cut_off_is_refused_whole() {
        let request = request(&[span([1; 16], &[])]);
        assert!(decode(&request.slice(..request.len() - 1), 0).is_err());
    }
}
