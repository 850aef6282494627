//! Official messages and spans, written by our encoder.

use std::time::{SystemTime, UNIX_EPOCH};

use lens_otlp::encode::{
    ArrayValue, BytesValue, EVENT_ATTRIBUTES, EncodeValue, FLAG_HAS_IS_REMOTE, FLAG_IS_REMOTE,
    RESOURCE_ATTRIBUTES, SPAN_ATTRIBUTES, Scope, SpanParts, StatusCode, put_event, put_key_value,
    put_link, put_request, put_scope_item,
};
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status};
use opentelemetry::{Array, InstrumentationScope, KeyValue as ApiKeyValue, Value as ApiValue};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanData;

/// A value on its way through our encoder.
enum Any {
    Text(String),
    Bool(bool),
    Int(i64),
    Double(f64),
    Bytes(Vec<u8>),
    Array(Vec<Any>),
}

impl EncodeValue for Any {
    fn value_len(&self) -> usize {
        match self {
            Self::Text(value) => value.value_len(),
            Self::Bool(value) => value.value_len(),
            Self::Int(value) => value.value_len(),
            Self::Double(value) => value.value_len(),
            Self::Bytes(value) => BytesValue(value).value_len(),
            Self::Array(values) => ArrayValue(values).value_len(),
        }
    }

    fn write_value(&self, out: &mut lens_otlp::wire::Cursor<'_>) {
        match self {
            Self::Text(value) => value.write_value(out),
            Self::Bool(value) => value.write_value(out),
            Self::Int(value) => value.write_value(out),
            Self::Double(value) => value.write_value(out),
            Self::Bytes(value) => BytesValue(value).write_value(out),
            Self::Array(values) => ArrayValue(values).write_value(out),
        }
    }
}

impl From<&Value> for Any {
    fn from(value: &Value) -> Self {
        match value {
            Value::StringValue(value) => Self::Text(value.clone()),
            Value::BoolValue(value) => Self::Bool(*value),
            Value::IntValue(value) => Self::Int(*value),
            Value::DoubleValue(value) => Self::Double(*value),
            Value::BytesValue(value) => Self::Bytes(value.clone()),
            Value::ArrayValue(array) => {
                let values = array.values.iter().filter_map(|value| value.value.as_ref());
                Self::Array(values.map(Self::from).collect())
            }
            other => panic!("our encoder has no {other:?}"),
        }
    }
}

impl From<&ApiValue> for Any {
    fn from(value: &ApiValue) -> Self {
        match value {
            ApiValue::String(value) => Self::Text(value.as_str().to_owned()),
            ApiValue::Bool(value) => Self::Bool(*value),
            ApiValue::I64(value) => Self::Int(*value),
            ApiValue::F64(value) => Self::Double(*value),
            ApiValue::Array(Array::String(values)) => Self::Array(
                values.iter().map(|value| Self::Text(value.as_str().to_owned())).collect(),
            ),
            ApiValue::Array(Array::Bool(values)) => {
                Self::Array(values.iter().copied().map(Self::Bool).collect())
            }
            ApiValue::Array(Array::I64(values)) => {
                Self::Array(values.iter().copied().map(Self::Int).collect())
            }
            ApiValue::Array(Array::F64(values)) => {
                Self::Array(values.iter().copied().map(Self::Double).collect())
            }
            other => panic!("our encoder has no {other:?}"),
        }
    }
}

fn put_pairs(out: &mut Vec<u8>, field: u8, pairs: &[KeyValue]) {
    for pair in pairs {
        let value = pair.value.as_ref().and_then(|value| value.value.as_ref()).expect("a value");
        put_key_value(out, field, &pair.key, &Any::from(value));
    }
}

fn put_api_pairs<'a>(
    out: &mut Vec<u8>,
    field: u8,
    pairs: impl Iterator<Item = (&'a str, &'a ApiValue)>,
) {
    for (key, value) in pairs {
        put_key_value(out, field, key, &Any::from(value));
    }
}

/// Spans of scopes as a request.
fn frame(resource: &[u8], scopes: &[(String, String, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    let scopes =
        scopes.iter().map(|(name, version, items)| (Scope { name, version }, items.as_slice()));
    put_request(&mut out, resource, scopes);
    out
}

fn put_span(items: &mut Vec<u8>, parts: &SpanParts<'_>) {
    let mut message = Vec::new();
    parts.put(&mut message);
    assert_eq!(message.len(), parts.encoded_len(), "{parts:?}");
    put_scope_item(items, &message);
}

/// A request of one resource.
pub fn encode(request: &ExportTraceServiceRequest) -> Vec<u8> {
    let spans = &request.resource_spans[0];
    let mut resource = Vec::new();
    put_pairs(
        &mut resource,
        RESOURCE_ATTRIBUTES,
        &spans.resource.as_ref().expect("a resource").attributes,
    );
    let scopes: Vec<_> = spans
        .scope_spans
        .iter()
        .map(|scope_spans| {
            let scope = scope_spans.scope.as_ref().expect("a scope");
            let mut items = Vec::new();
            for span in &scope_spans.spans {
                put_message(&mut items, span);
            }
            (scope.name.clone(), scope.version.clone(), items)
        })
        .collect();
    frame(&resource, &scopes)
}

fn put_message(items: &mut Vec<u8>, span: &Span) {
    let (mut attributes, mut events, mut links) = (Vec::new(), Vec::new(), Vec::new());
    put_pairs(&mut attributes, SPAN_ATTRIBUTES, &span.attributes);
    for event in &span.events {
        put_event(
            &mut events,
            &event.name,
            event.time_unix_nano,
            event.dropped_attributes_count,
            |out| {
                put_pairs(out, EVENT_ATTRIBUTES, &event.attributes);
            },
        );
    }
    for link in &span.links {
        put_link(&mut links, &id(&link.trace_id), &id(&link.span_id), link.flags);
    }
    let status = span.status.as_ref().expect("a status");
    let parts = SpanParts {
        trace_id: id(&span.trace_id),
        span_id: id(&span.span_id),
        trace_state: &span.trace_state,
        parent_id: (!span.parent_span_id.is_empty()).then(|| id(&span.parent_span_id)),
        name: &span.name,
        kind: span.kind as u8,
        start_nanos: span.start_time_unix_nano,
        end_nanos: span.end_time_unix_nano,
        attributes: &attributes,
        dropped_attributes: span.dropped_attributes_count,
        events: &events,
        dropped_events: span.dropped_events_count,
        links: &links,
        dropped_links: span.dropped_links_count,
        status: StatusCode::from_number(status.code as u64),
        status_message: &status.message,
        flags: span.flags,
    };
    put_span(items, &parts);
}

fn id<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("the length of an id")
}

fn nanos(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).expect("after the epoch").as_nanos() as u64
}

fn flags(context: &SpanContext, remote: bool) -> u32 {
    let remote = if remote { FLAG_IS_REMOTE } else { 0 };
    u32::from(context.trace_flags().to_u8()) | FLAG_HAS_IS_REMOTE | remote
}

/// Spans of the official SDK, scopes in the order of their first span.
pub fn encode_span_data(spans: &[SpanData], resource: &Resource) -> Vec<u8> {
    let mut encoded_resource = Vec::new();
    let pairs = resource.iter().map(|(key, value)| (key.as_str(), value));
    put_api_pairs(&mut encoded_resource, RESOURCE_ATTRIBUTES, pairs);
    let mut scopes: Vec<(&InstrumentationScope, Vec<u8>)> = Vec::new();
    for span in spans {
        let at = scopes.iter().position(|(scope, _)| **scope == span.instrumentation_scope);
        let at = at.unwrap_or_else(|| {
            scopes.push((&span.instrumentation_scope, Vec::new()));
            scopes.len() - 1
        });
        put_span_data(&mut scopes[at].1, span);
    }
    let scopes: Vec<_> = scopes
        .into_iter()
        .map(|(scope, items)| {
            (scope.name().to_owned(), scope.version().unwrap_or_default().to_owned(), items)
        })
        .collect();
    frame(&encoded_resource, &scopes)
}

fn pairs(attributes: &[ApiKeyValue]) -> impl Iterator<Item = (&str, &ApiValue)> {
    attributes.iter().map(|pair| (pair.key.as_str(), &pair.value))
}

fn put_span_data(items: &mut Vec<u8>, span: &SpanData) {
    let (mut attributes, mut events, mut links) = (Vec::new(), Vec::new(), Vec::new());
    put_api_pairs(&mut attributes, SPAN_ATTRIBUTES, pairs(&span.attributes));
    for event in &span.events.events {
        let dropped = event.dropped_attributes_count;
        put_event(&mut events, &event.name, nanos(event.timestamp), dropped, |out| {
            put_api_pairs(out, EVENT_ATTRIBUTES, pairs(&event.attributes));
        });
    }
    for link in &span.links.links {
        let context = &link.span_context;
        let flags = flags(context, context.is_remote());
        put_link(&mut links, &context.trace_id().to_bytes(), &context.span_id().to_bytes(), flags);
    }
    let trace_state = span.span_context.trace_state().header();
    let (status, status_message) = match &span.status {
        Status::Unset => (StatusCode::Unset, ""),
        Status::Ok => (StatusCode::Ok, ""),
        Status::Error { description } => (StatusCode::Error, &**description),
    };
    let parts = SpanParts {
        trace_id: span.span_context.trace_id().to_bytes(),
        span_id: span.span_context.span_id().to_bytes(),
        trace_state: &trace_state,
        parent_id: (span.parent_span_id != SpanId::INVALID).then(|| span.parent_span_id.to_bytes()),
        name: &span.name,
        kind: match span.span_kind {
            SpanKind::Internal => 1,
            SpanKind::Server => 2,
            SpanKind::Client => 3,
            SpanKind::Producer => 4,
            SpanKind::Consumer => 5,
        },
        start_nanos: nanos(span.start_time),
        end_nanos: nanos(span.end_time),
        attributes: &attributes,
        dropped_attributes: span.dropped_attributes_count,
        events: &events,
        dropped_events: span.events.dropped_count,
        links: &links,
        dropped_links: span.links.dropped_count,
        status,
        status_message,
        flags: flags(&span.span_context, span.parent_span_is_remote),
    };
    put_span(items, &parts);
}
