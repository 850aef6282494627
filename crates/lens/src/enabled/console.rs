//! Spans and log records as JSON lines on stdout.
//!
//! A batch is written by one call while stdout is locked, and consists of whole lines, so lines of several threads
//! never mix.

mod logs;

pub(super) use logs::ConsoleLogs;

use std::fmt::Write as _;
use std::io::Write as _;

use lens_otlp::json::{put_hex, put_number, put_plain_attributes, put_text};
use lens_otlp::view::{EventView, LinkView, ResourceView, ScopeView, SpanView, resources};
use lens_otlp::wire::DecodeError;

use super::pipeline::{ExportOutcome, SpanBatch, SpanExporter};

/// Writes spans to stdout.
#[derive(Debug)]
pub(super) struct ConsoleSpans;

impl SpanExporter for ConsoleSpans {
    fn export(&mut self, batch: &SpanBatch) -> ExportOutcome {
        export(batch, put_lines)
    }
}

fn export(
    batch: &SpanBatch,
    put_lines: impl FnOnce(&mut String, &[u8]) -> Result<(), DecodeError>,
) -> ExportOutcome {
    let mut lines = String::with_capacity(batch.request().len() * 4);
    if put_lines(&mut lines, batch.request()).is_err() {
        return ExportOutcome::Rejected;
    }
    match write_lines(&lines) {
        Ok(()) => ExportOutcome::Exported { rejected: 0 },
        Err(_) => ExportOutcome::Failed,
    }
}

/// Writes whole lines at once.
pub(super) fn write_lines(lines: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(lines.as_bytes())?;
    stdout.flush()
}

pub(super) fn put_lines(out: &mut String, request: &[u8]) -> Result<(), DecodeError> {
    for resource in resources(request) {
        let resource = resource?;
        let mut tail = String::new();
        put_resource(&mut tail, &resource)?;
        for scope in resource.scopes() {
            let scope = scope?;
            for span in scope.spans() {
                put_span(out, &span?, &scope, &tail)?;
            }
        }
    }
    Ok(())
}

/// The end of every line of one resource.
pub(super) fn put_resource(
    out: &mut String,
    resource: &ResourceView<'_>,
) -> Result<(), DecodeError> {
    out.push_str(",\"resource\":{\"attributes\":");
    put_plain_attributes(out, resource.attributes())?;
    out.push_str("}}\n");
    Ok(())
}

pub(super) fn put_scope(out: &mut String, scope: &ScopeView<'_>) {
    out.push_str(",\"scope\":{\"name\":");
    put_text(out, scope.name);
    if !scope.version.is_empty() {
        out.push_str(",\"version\":");
        put_text(out, scope.version);
    }
    out.push('}');
}

pub(super) fn put_id(out: &mut String, name: &str, id: &[u8]) {
    let _ = write!(out, "\"{name}\":\"");
    put_hex(out, id);
    out.push('"');
}

fn put_span(
    out: &mut String,
    span: &SpanView<'_>,
    scope: &ScopeView<'_>,
    tail: &str,
) -> Result<(), DecodeError> {
    out.push_str("{\"type\":\"span\",\"name\":");
    put_text(out, span.name);
    out.push(',');
    put_id(out, "trace_id", span.trace_id);
    out.push(',');
    put_id(out, "span_id", span.span_id);
    out.push(',');
    if span.parent_id.is_empty() {
        out.push_str("\"parent_id\":null");
    } else {
        put_id(out, "parent_id", span.parent_id);
    }
    let _ = write!(out, ",\"kind\":\"{}\",\"start_time\":\"", span.kind_name());
    put_time(out, span.start_nanos);
    out.push_str("\",\"end_time\":\"");
    put_time(out, span.end_nanos);
    out.push_str("\",\"duration_ms\":");
    put_number(out, span.end_nanos.saturating_sub(span.start_nanos) as f64 / 1e6);
    let _ = write!(out, ",\"status\":{{\"status_code\":\"{}\"", span.status.as_str());
    if !span.status_message.is_empty() {
        out.push_str(",\"description\":");
        put_text(out, span.status_message);
    }
    out.push_str("},\"attributes\":");
    put_plain_attributes(out, span.attributes())?;
    out.push_str(",\"events\":[");
    for (at, event) in span.events().enumerate() {
        if at > 0 {
            out.push(',');
        }
        put_event(out, &event?)?;
    }
    out.push_str("],\"links\":[");
    for (at, link) in span.links().enumerate() {
        if at > 0 {
            out.push(',');
        }
        put_link(out, &link?)?;
    }
    out.push(']');
    put_dropped(out, span);
    if !span.trace_state.is_empty() {
        out.push_str(",\"trace_state\":");
        put_text(out, span.trace_state);
    }
    put_scope(out, scope);
    out.push_str(tail);
    Ok(())
}

fn put_dropped(out: &mut String, span: &SpanView<'_>) {
    let counts = [
        ("dropped_attributes", span.dropped_attributes),
        ("dropped_events", span.dropped_events),
        ("dropped_links", span.dropped_links),
    ];
    for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        let _ = write!(out, ",\"{name}\":{count}");
    }
}

fn put_dropped_attributes(out: &mut String, count: u64) {
    if count > 0 {
        let _ = write!(out, ",\"dropped_attributes\":{count}");
    }
}

fn put_event(out: &mut String, event: &EventView<'_>) -> Result<(), DecodeError> {
    out.push_str("{\"name\":");
    put_text(out, event.name);
    out.push_str(",\"timestamp\":\"");
    put_time(out, event.unix_nanos);
    out.push_str("\",\"attributes\":");
    put_plain_attributes(out, event.attributes())?;
    put_dropped_attributes(out, event.dropped_attributes);
    out.push('}');
    Ok(())
}

fn put_link(out: &mut String, link: &LinkView<'_>) -> Result<(), DecodeError> {
    out.push('{');
    put_id(out, "trace_id", link.trace_id);
    out.push(',');
    put_id(out, "span_id", link.span_id);
    out.push_str(",\"attributes\":");
    put_plain_attributes(out, link.attributes())?;
    put_dropped_attributes(out, link.dropped_attributes);
    out.push('}');
    Ok(())
}

/// RFC 3339, UTC, nanoseconds.
pub(super) fn put_time(out: &mut String, unix_nanos: u64) {
    let (seconds, nanos) = (unix_nanos / 1_000_000_000, unix_nanos % 1_000_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, so that the leap day ends a year.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let _ =
        write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z");
}

#[cfg(test)]
mod tests {
    use super::*;
    use lens_otlp::encode::{
        EVENT_ATTRIBUTES, LINK_ATTRIBUTES, RESOURCE_ATTRIBUTES, SPAN_ATTRIBUTES, Scope, SpanParts,
        StatusCode, put_key_value, put_link_with, put_request, put_scope_item,
    };

    #[test]
    fn time_is_rfc_3339_in_utc() {
        let cases = [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400_000_000_001, "2000-02-29T00:00:00.000000001Z"),
            (1_704_067_199_999_999_999, "2023-12-31T23:59:59.999999999Z"),
            (4_107_542_400_000_000_000, "2100-03-01T00:00:00.000000000Z"),
        ];
        for (nanos, expected) in cases {
            let mut out = String::new();
            put_time(&mut out, nanos);
            assert_eq!(out, expected);
        }
    }

    fn lines(change: impl FnOnce(&mut SpanParts<'_>)) -> Vec<serde_json::Value> {
        let mut span = SpanParts {
            trace_id: [0xab; 16],
            span_id: [1; 8],
            name: "POST /run\nnot a new line",
            kind: 2,
            start_nanos: 1_700_000_000_000_000_000,
            end_nanos: 1_700_000_000_001_500_000,
            ..SpanParts::default()
        };
        change(&mut span);
        let (mut message, mut items, mut resource, mut request) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        span.put(&mut message);
        put_scope_item(&mut items, &message);
        put_scope_item(&mut items, &message);
        put_key_value(&mut resource, RESOURCE_ATTRIBUTES, "service.name", "x");
        let scope = Scope { name: "gym", version: "1" };
        put_request(&mut request, &resource, std::iter::once((scope, items.as_slice())));
        let mut out = String::new();
        put_lines(&mut out, &request).expect("valid");
        assert!(out.ends_with('\n'));
        out.lines().map(|line| serde_json::from_str(line).expect("a JSON object a line")).collect()
    }

    #[test]
    fn span_is_one_line_with_its_trace_id_at_the_top() {
        let lines = lines(|_| {});
        assert_eq!(lines.len(), 2);
        let expected = serde_json::json!({
            "type": "span",
            "name": "POST /run\nnot a new line",
            "trace_id": "abababababababababababababababab",
            "span_id": "0101010101010101",
            "parent_id": null,
            "kind": "SERVER",
            "start_time": "2023-11-14T22:13:20.000000000Z",
            "end_time": "2023-11-14T22:13:20.001500000Z",
            "duration_ms": 1.5,
            "status": { "status_code": "UNSET" },
            "attributes": {},
            "events": [],
            "links": [],
            "scope": { "name": "gym", "version": "1" },
            "resource": { "attributes": { "service.name": "x" } },
        });
        assert_eq!(lines[0], expected);
    }

    #[test]
    fn events_and_links_are_told_with_what_they_dropped() {
        let (mut events, mut links) = (Vec::new(), Vec::new());
        lens_otlp::encode::put_event(&mut events, "e", 1_000_000_000, 2, |out| {
            put_key_value(out, EVENT_ATTRIBUTES, "attempt", &2);
        });
        put_link_with(&mut links, &[7; 16], &[8; 8], 1, 3, |out| {
            put_key_value(out, LINK_ATTRIBUTES, "why", "retry");
        });
        let lines = lines(|span| (span.events, span.links) = (events.leak(), links.leak()));
        let event = serde_json::json!({
            "name": "e",
            "timestamp": "1970-01-01T00:00:01.000000000Z",
            "attributes": { "attempt": 2 },
            "dropped_attributes": 2,
        });
        assert_eq!(lines[0]["events"], serde_json::json!([event]));
        let link = &lines[0]["links"][0];
        assert_eq!(
            (&link["dropped_attributes"], &link["attributes"]["why"]),
            (&3.into(), &"retry".into())
        );
    }

    #[test]
    fn numbers_json_lacks_are_strings_and_integers_are_exact() {
        let mut attributes = Vec::new();
        for (key, value) in [("nan", f64::NAN), ("up", f64::INFINITY), ("down", f64::NEG_INFINITY)]
        {
            put_key_value(&mut attributes, SPAN_ATTRIBUTES, key, &value);
        }
        put_key_value(&mut attributes, SPAN_ATTRIBUTES, "int", &i64::MAX);
        let lines = lines(|span| {
            span.attributes = attributes.leak();
            span.parent_id = Some([2; 8]);
            span.status = StatusCode::Error;
            span.status_message = "broke";
            span.dropped_events = 3;
        });
        let expected = serde_json::json!({
            "nan": "NaN", "up": "Infinity", "down": "-Infinity", "int": i64::MAX,
        });
        assert_eq!(lines[0]["attributes"], expected);
        assert_eq!(lines[0]["parent_id"], "0202020202020202");
        assert_eq!(lines[0]["status"]["description"], "broke");
        assert_eq!(lines[0]["dropped_events"], 3);
        assert!(lines[0].get("dropped_links").is_none());
    }
}
