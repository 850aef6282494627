//! Spans that were read as JSON, encoded.

use std::sync::Arc;

use lens_otlp::encode::{
    EVENT_ATTRIBUTES, EncodeValue, LINK_ATTRIBUTES, RESOURCE_ATTRIBUTES, SPAN_ATTRIBUTES,
    SpanParts, put_event, put_key_value, put_link_with,
};
use lens_otlp::wire::{Cursor, put_bytes, put_double, put_message, put_uint};
use lens_store::ids::{SpanId, TraceId};
use lens_store::raw::{Origin, RawResource, RawSpan};
use lens_store::trace::{Kind, Status, timestamp};
use serde_json::{Map, Value};

/// What a record says of a span.
pub struct Draft {
    pub trace_id: TraceId,
    pub span_id: SpanId,
    pub parent_id: Option<SpanId>,
    pub trace_state: String,
    pub name: String,
    pub kind: Kind,
    pub start_nanos: u64,
    /// `None`: still open.
    pub end_nanos: Option<u64>,
    pub status: Status,
    pub status_description: String,
    pub attributes: Map<String, Value>,
    pub events: Vec<Value>,
    pub links: Vec<Value>,
    pub dropped_attributes: u32,
    pub dropped_events: u32,
    pub dropped_links: u32,
}

/// Values that are nested deeper become text: what reads spans goes no deeper.
const MAX_DEPTH: u8 = 16;

impl Draft {
    /// The span of this draft, of this origin.
    pub fn encode(&self, origin: Arc<Origin>) -> RawSpan {
        let (mut attributes, mut events, mut links) = (Vec::new(), Vec::new(), Vec::new());
        put_attributes(&mut attributes, SPAN_ATTRIBUTES, &self.attributes);
        for event in &self.events {
            let at = event.get("timestamp").and_then(Value::as_str).and_then(timestamp::parse);
            let name = event.get("name").and_then(Value::as_str).unwrap_or_default();
            put_event(&mut events, name, at.unwrap_or(0), dropped(event), |out| {
                put_attributes_of(out, EVENT_ATTRIBUTES, event);
            });
        }
        for link in &self.links {
            // The reference puts the ids one level down.
            let context = link.get("context").unwrap_or(link);
            let text = |key: &str| context.get(key).and_then(Value::as_str);
            let ids = (
                text("trace_id").and_then(TraceId::parse),
                text("span_id").and_then(SpanId::parse),
            );
            if let (Some(trace_id), Some(span_id)) = ids {
                let (trace_id, span_id) = (trace_id.to_bytes(), span_id.to_bytes());
                put_link_with(&mut links, &trace_id, &span_id, 0, dropped(link), |out| {
                    put_attributes_of(out, LINK_ATTRIBUTES, link);
                });
            }
        }
        let parts = SpanParts {
            trace_id: self.trace_id.to_bytes(),
            span_id: self.span_id.to_bytes(),
            trace_state: &self.trace_state,
            parent_id: self.parent_id.map(SpanId::to_bytes),
            name: &self.name,
            kind: self.kind.to_otlp(),
            start_nanos: self.start_nanos,
            end_nanos: self.end_nanos.unwrap_or(0),
            attributes: &attributes,
            events: &events,
            links: &links,
            status: self.status,
            status_message: &self.status_description,
            dropped_attributes: self.dropped_attributes,
            dropped_events: self.dropped_events,
            dropped_links: self.dropped_links,
            flags: 0,
        };
        let mut message = Vec::with_capacity(parts.encoded_len());
        parts.put(&mut message);
        RawSpan {
            trace_id: self.trace_id,
            span_id: self.span_id,
            start_nanos: self.start_nanos,
            message: message.into(),
            origin,
            ingest_seq: 0,
        }
    }
}

fn dropped(record: &Value) -> u32 {
    let count = record.get("dropped_attributes").and_then(Value::as_u64).unwrap_or(0);
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The process and scope of a record.
pub fn origin(resource: &Map<String, Value>, scope: Option<(&str, &str)>) -> Origin {
    let mut message = Vec::new();
    put_attributes(&mut message, RESOURCE_ATTRIBUTES, resource);
    let resource = Arc::new(RawResource { message: message.into(), schema_url: "".into() });
    let mut message = Vec::new();
    if let Some((name, version)) = scope {
        for (field, text) in [(1, name), (2, version)] {
            if !text.is_empty() {
                put_bytes(&mut message, field, text.as_bytes());
            }
        }
    }
    Origin { resource, scope: message.into(), schema_url: "".into() }
}

fn put_attributes_of(out: &mut Vec<u8>, field: u8, record: &Value) {
    if let Some(attributes) = record.get("attributes").and_then(Value::as_object) {
        put_attributes(out, field, attributes);
    }
}

fn put_attributes(out: &mut Vec<u8>, field: u8, attributes: &Map<String, Value>) {
    for (key, value) in attributes {
        match value {
            Value::String(text) => put_key_value(out, field, key, text.as_str()),
            Value::Bool(is) => put_key_value(out, field, key, is),
            Value::Number(number) => match number.as_i64() {
                Some(integer) => put_key_value(out, field, key, &integer),
                None => put_key_value(out, field, key, &number.as_f64().unwrap_or(f64::NAN)),
            },
            nested => {
                let mut value = Vec::new();
                put_value(&mut value, nested, 0);
                put_key_value(out, field, key, &Encoded(&value));
            }
        }
    }
}

/// The content of an `AnyValue`.
fn put_value(out: &mut Vec<u8>, value: &Value, depth: u8) {
    match value {
        Value::Array(_) | Value::Object(_) if depth == MAX_DEPTH => {
            put_bytes(out, 1, value.to_string().as_bytes());
        }
        Value::Null => {}
        Value::String(text) => put_bytes(out, 1, text.as_bytes()),
        Value::Bool(is) => put_uint(out, 2, u64::from(*is)),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => put_uint(out, 3, integer.cast_unsigned()),
            None => put_double(out, 4, number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::Array(items) => put_message(out, 5, |out| {
            for item in items {
                put_message(out, 1, |out| put_value(out, item, depth + 1));
            }
        }),
        Value::Object(entries) => put_message(out, 6, |out| {
            for (key, value) in entries {
                put_message(out, 1, |out| {
                    put_bytes(out, 1, key.as_bytes());
                    put_message(out, 2, |out| put_value(out, value, depth + 1));
                });
            }
        }),
    }
}

/// An `AnyValue` that is already encoded.
struct Encoded<'a>(&'a [u8]);

impl EncodeValue for Encoded<'_> {
    fn value_len(&self) -> usize {
        self.0.len()
    }
    fn write_value(&self, out: &mut Cursor<'_>) {
        out.slice(self.0);
    }
}
