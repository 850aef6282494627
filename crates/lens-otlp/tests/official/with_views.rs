//! Official messages, rebuilt from what our views read.

use lens_otlp::DecodeError;
use lens_otlp::view::{self, Attributes, ScopeView, SpanView, resources};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status, span};

/// Everything our views show of a request.
pub fn read(request: &[u8]) -> Result<ExportTraceServiceRequest, DecodeError> {
    let mut resource_spans = Vec::new();
    for resource in resources(request) {
        let resource = resource?;
        let scope_spans =
            resource.scopes().map(|scope| read_scope(&scope?)).collect::<Result<_, _>>()?;
        resource_spans.push(ResourceSpans {
            resource: Some(Resource {
                attributes: read_attributes(resource.attributes())?,
                ..Resource::default()
            }),
            scope_spans,
            schema_url: resource.schema_url.to_owned(),
        });
    }
    Ok(ExportTraceServiceRequest { resource_spans })
}

fn read_scope(scope: &ScopeView<'_>) -> Result<ScopeSpans, DecodeError> {
    Ok(ScopeSpans {
        scope: Some(InstrumentationScope {
            name: scope.name.to_owned(),
            version: scope.version.to_owned(),
            attributes: read_attributes(scope.attributes())?,
            dropped_attributes_count: 0,
        }),
        spans: scope.spans().map(|span| read_span(&span?)).collect::<Result<_, _>>()?,
        schema_url: scope.schema_url.to_owned(),
    })
}

fn read_span(span: &SpanView<'_>) -> Result<Span, DecodeError> {
    let events = span.events().map(|event| {
        let event = event?;
        Ok(span::Event {
            time_unix_nano: event.unix_nanos,
            name: event.name.to_owned(),
            attributes: read_attributes(event.attributes())?,
            dropped_attributes_count: event.dropped_attributes as u32,
        })
    });
    let links = span.links().map(|link| {
        let link = link?;
        Ok(span::Link {
            trace_id: link.trace_id.to_vec(),
            span_id: link.span_id.to_vec(),
            trace_state: link.trace_state.to_owned(),
            attributes: read_attributes(link.attributes())?,
            dropped_attributes_count: link.dropped_attributes as u32,
            flags: link.flags,
        })
    });
    Ok(Span {
        trace_id: span.trace_id.to_vec(),
        span_id: span.span_id.to_vec(),
        parent_span_id: span.parent_id.to_vec(),
        trace_state: span.trace_state.to_owned(),
        flags: span.flags,
        name: span.name.to_owned(),
        kind: span.kind as i32,
        start_time_unix_nano: span.start_nanos,
        end_time_unix_nano: span.end_nanos,
        attributes: read_attributes(span.attributes())?,
        dropped_attributes_count: span.dropped_attributes as u32,
        events: events.collect::<Result<_, DecodeError>>()?,
        dropped_events_count: span.dropped_events as u32,
        links: links.collect::<Result<_, DecodeError>>()?,
        dropped_links_count: span.dropped_links as u32,
        status: Some(Status { code: span.status as i32, message: span.status_message.to_owned() }),
    })
}

fn pair(key: &str, value: &view::AnyValue<'_>) -> Result<KeyValue, DecodeError> {
    Ok(KeyValue { key: key.to_owned(), value: Some(read_value(value)?), key_strindex: 0 })
}

fn read_attributes(attributes: Attributes<'_>) -> Result<Vec<KeyValue>, DecodeError> {
    attributes.map(|found| found.and_then(|(key, value)| pair(key, &value))).collect()
}

fn read_value(value: &view::AnyValue<'_>) -> Result<AnyValue, DecodeError> {
    let value = match value {
        view::AnyValue::Empty => return Ok(AnyValue { value: None }),
        view::AnyValue::String(text) => Value::StringValue((*text).to_owned()),
        view::AnyValue::Bool(value) => Value::BoolValue(*value),
        view::AnyValue::Int(value) => Value::IntValue(*value),
        view::AnyValue::Double(value) => Value::DoubleValue(*value),
        view::AnyValue::Bytes(bytes) => Value::BytesValue(bytes.to_vec()),
        view::AnyValue::Array(array) => Value::ArrayValue(ArrayValue {
            values: array.values().map(|value| read_value(&value?)).collect::<Result<_, _>>()?,
        }),
        view::AnyValue::KeyValues(entries) => Value::KvlistValue(KeyValueList {
            values: entries
                .entries()
                .map(|entry| entry.and_then(|(key, value)| pair(key, &value)))
                .collect::<Result<_, _>>()?,
        }),
    };
    Ok(AnyValue { value: Some(value) })
}
