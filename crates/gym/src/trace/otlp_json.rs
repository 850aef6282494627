//! OTLP/JSON trace documents: camelCase keys, hex ids, 64-bit integers as strings or numbers.

use serde::Deserialize;
use serde_json::{Map, Number, Value, json};

use super::span::{Kind, SpanDraft, SpanId, Status, TraceId};
use super::timestamp;

/// `ExportTraceServiceRequest` or `TracesData`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TracesDocument {
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ResourceSpans {
    resource: ResourceField,
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResourceField {
    attributes: Vec<KeyValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ScopeSpans {
    spans: Vec<OtlpSpan>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct OtlpSpan {
    trace_id: String,
    span_id: String,
    parent_span_id: String,
    name: String,
    kind: Value,
    start_time_unix_nano: Value,
    end_time_unix_nano: Value,
    attributes: Vec<KeyValue>,
    events: Vec<Event>,
    links: Vec<Link>,
    status: Option<StatusField>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Event {
    time_unix_nano: Value,
    name: String,
    attributes: Vec<KeyValue>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Link {
    trace_id: String,
    span_id: String,
    attributes: Vec<KeyValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct StatusField {
    code: Value,
    message: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct KeyValue {
    key: String,
    value: Value,
}

/// The spans of one resource.
pub struct ResourceDrafts {
    pub resource: Map<String, Value>,
    pub spans: Vec<SpanDraft>,
    /// Spans without valid ids or times.
    pub broken: usize,
}

impl TracesDocument {
    /// Its spans, resource by resource.
    pub fn into_drafts(self) -> impl Iterator<Item = ResourceDrafts> {
        self.resource_spans.into_iter().map(|group| {
            let mut spans = Vec::new();
            let mut broken = 0;
            for span in group.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                match span.into_draft() {
                    Some(draft) => spans.push(draft),
                    None => broken += 1,
                }
            }
            ResourceDrafts { resource: plain_map(group.resource.attributes), spans, broken }
        })
    }
}

impl OtlpSpan {
    fn into_draft(self) -> Option<SpanDraft> {
        let kind = match &self.kind {
            Value::String(name) => Kind::from_name(name),
            number => Kind::from_otlp(number.as_i64().unwrap_or(0)),
        };
        let status = self.status.unwrap_or_default();
        let code = match &status.code {
            Value::String(name) if name == "STATUS_CODE_ERROR" => Status::Error,
            Value::String(name) if name == "STATUS_CODE_OK" => Status::Ok,
            number if number.as_i64() == Some(2) => Status::Error,
            number if number.as_i64() == Some(1) => Status::Ok,
            _ => Status::Unset,
        };
        let events = self.events.into_iter().map(|event| {
            json!({
                "name": event.name,
                "timestamp": nanos(&event.time_unix_nano).map(timestamp::to_rfc3339),
                "attributes": plain_map(event.attributes),
            })
        });
        let links = self.links.into_iter().map(|link| {
            json!({
                "trace_id": link.trace_id,
                "span_id": link.span_id,
                "attributes": plain_map(link.attributes),
            })
        });
        Some(SpanDraft {
            trace_id: TraceId::parse(&self.trace_id)?,
            span_id: SpanId::parse(&self.span_id)?,
            parent_id: SpanId::parse(&self.parent_span_id),
            name: self.name,
            kind,
            start_nanos: nanos(&self.start_time_unix_nano).filter(|nanos| *nanos > 0)?,
            end_nanos: nanos(&self.end_time_unix_nano).filter(|nanos| *nanos > 0),
            status: code,
            status_description: Some(status.message),
            attributes: Value::Object(plain_map(self.attributes)).to_string().into_boxed_str(),
            events: array_text(events.collect()),
            links: array_text(links.collect()),
        })
    }
}

fn array_text(values: Vec<Value>) -> Box<str> {
    if values.is_empty() { "".into() } else { Value::Array(values).to_string().into_boxed_str() }
}

fn nanos(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.parse().ok(),
        number => number.as_u64(),
    }
}

fn plain_map(attributes: Vec<KeyValue>) -> Map<String, Value> {
    attributes.into_iter().map(|entry| (entry.key, plain(entry.value))).collect()
}

/// The JSON value that an `AnyValue` stands for. Depth is bounded by the JSON reader's own limit.
fn plain(any: Value) -> Value {
    let Value::Object(mut fields) = any else { return Value::Null };
    if let Some(text) = fields.remove("intValue") {
        return match &text {
            Value::String(digits) => digits
                .parse::<i64>()
                .map_or_else(|_| text.clone(), |n| Value::Number(Number::from(n))),
            _ => text,
        };
    }
    for key in ["stringValue", "boolValue", "doubleValue", "bytesValue"] {
        if let Some(value) = fields.remove(key) {
            return value;
        }
    }
    let values = |field: Option<Value>| match field {
        Some(Value::Object(mut list)) => match list.remove("values") {
            Some(Value::Array(values)) => values,
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    if fields.contains_key("arrayValue") {
        return values(fields.remove("arrayValue")).into_iter().map(plain).collect();
    }
    if fields.contains_key("kvlistValue") {
        let entries = values(fields.remove("kvlistValue")).into_iter();
        let entries = entries.filter_map(|entry| serde_json::from_value::<KeyValue>(entry).ok());
        return Value::Object(plain_map(entries.collect()));
    }
    Value::Null
}
