//! Log records as JSON lines; one that was made outside of every span has no ids.

use std::fmt::Write as _;

use lens_otlp::json::{put_plain_attributes, put_plain_value, put_text};
use lens_otlp::view::logs::LogView;
use lens_otlp::view::{AnyValue, ScopeView, resources};
use lens_otlp::wire::DecodeError;

use super::{export, put_dropped_attributes, put_id, put_resource, put_scope, put_time};
use crate::enabled::pipeline::{ExportOutcome, SpanBatch, SpanExporter};
use crate::semconv;

/// Writes log records to stdout.
#[derive(Debug)]
pub(in crate::enabled) struct ConsoleLogs;

impl SpanExporter for ConsoleLogs {
    fn export(&mut self, batch: &SpanBatch) -> ExportOutcome {
        export(batch, put_lines)
    }
}

fn put_lines(out: &mut String, request: &[u8]) -> Result<(), DecodeError> {
    for resource in resources(request) {
        let resource = resource?;
        let mut tail = String::new();
        put_resource(&mut tail, &resource)?;
        for scope in resource.scopes() {
            let scope = scope?;
            for record in scope.items() {
                put_record(out, &LogView::read(record?)?, &scope, &tail)?;
            }
        }
    }
    Ok(())
}

/// What the record is about: its event, else its target, which is its scope where it has one of its own.
fn name<'a>(record: &LogView<'a>, scope: &ScopeView<'a>) -> Result<&'a str, DecodeError> {
    if !record.event_name.is_empty() {
        return Ok(record.event_name);
    }
    for attribute in record.attributes() {
        if let (semconv::LOG_TARGET, AnyValue::String(target)) = attribute? {
            return Ok(target);
        }
    }
    Ok(scope.name)
}

fn put_record<'a>(
    out: &mut String,
    record: &LogView<'a>,
    scope: &ScopeView<'a>,
    tail: &str,
) -> Result<(), DecodeError> {
    out.push_str("{\"type\":\"log\",\"name\":");
    put_text(out, name(record, scope)?);
    out.push(',');
    if !record.trace_id.is_empty() {
        put_id(out, "trace_id", record.trace_id);
        out.push(',');
        put_id(out, "span_id", record.span_id);
        out.push(',');
    }
    out.push_str("\"time\":\"");
    put_time(out, if record.time_nanos > 0 { record.time_nanos } else { record.observed_nanos });
    out.push_str("\",\"severity_text\":");
    put_text(out, record.severity_text);
    let _ = write!(out, ",\"severity_number\":{},\"body\":", record.severity_number);
    put_plain_value(out, &record.body)?;
    out.push_str(",\"attributes\":");
    put_plain_attributes(out, record.attributes())?;
    put_dropped_attributes(out, record.dropped_attributes);
    put_scope(out, scope);
    out.push_str(tail);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lens_otlp::encode::{
        LOG_ATTRIBUTES, LogParts, RESOURCE_ATTRIBUTES, Scope, put_key_value, put_request,
        put_scope_item,
    };

    fn line(parts: LogParts<'_>) -> serde_json::Value {
        let (mut message, mut items, mut resource, mut request) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        parts.put(&mut message);
        put_scope_item(&mut items, &message);
        put_key_value(&mut resource, RESOURCE_ATTRIBUTES, "service.name", "x");
        let scope = Scope { name: "lens", version: "" };
        put_request(&mut request, &resource, std::iter::once((scope, items.as_slice())));
        let mut out = String::new();
        put_lines(&mut out, &request).expect("valid");
        assert_eq!(out.matches('\n').count(), 1, "{out}");
        serde_json::from_str(&out).expect("a JSON object")
    }

    #[test]
    fn record_is_one_line_with_the_ids_of_its_span_at_the_top() {
        let mut attributes = Vec::new();
        put_key_value(&mut attributes, LOG_ATTRIBUTES, semconv::LOG_TARGET, "app::db");
        put_key_value(&mut attributes, LOG_ATTRIBUTES, "rows", &3_i64);
        let parts = LogParts {
            time_nanos: 1_700_000_000_000_000_000,
            observed_nanos: 1,
            severity_number: 13,
            severity_text: "WARN",
            body: "slow\nquery",
            attributes: &attributes,
            span: Some(([0xab; 16], [1; 8])),
            flags: 1,
            event_name: "",
        };
        let expected = serde_json::json!({
            "type": "log",
            "name": "app::db",
            "trace_id": "abababababababababababababababab",
            "span_id": "0101010101010101",
            "time": "2023-11-14T22:13:20.000000000Z",
            "severity_text": "WARN",
            "severity_number": 13,
            "body": "slow\nquery",
            "attributes": { "log.target": "app::db", "rows": 3 },
            "scope": { "name": "lens" },
            "resource": { "attributes": { "service.name": "x" } },
        });
        assert_eq!(line(parts.clone()), expected);
        let event = line(LogParts { event_name: "gym.heartbeat", ..parts });
        assert_eq!(event["name"], "gym.heartbeat", "the event's name comes first");
    }

    #[test]
    fn record_outside_of_every_span_has_no_ids() {
        let line = line(LogParts { body: "hello", ..LogParts::default() });
        assert_eq!((&line["body"], &line["name"]), (&"hello".into(), &"lens".into()));
        assert!(line.get("trace_id").is_none() && line.get("span_id").is_none(), "{line}");
    }
}
