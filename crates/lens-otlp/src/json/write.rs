//! Messages as JSON text.

use std::fmt::Write as _;

use super::put_hex;
use crate::view::{AnyValue, Attributes, EventView, LinkView, ScopeView, SpanView};
use crate::wire::DecodeError;

/// Appends a JSON string.
pub fn put_text(out: &mut String, text: &str) {
    out.push('"');
    // Nearly no text has anything to escape: looked for in all of it at once, which takes vectors.
    if text.bytes().fold(true, |is_plain, byte| is_plain & is_plain_byte(byte)) {
        out.push_str(text);
        out.push('"');
        return;
    }
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0..=0x1f | 0x7f => "",
            _ => continue,
        };
        out.push_str(&text[plain..at]);
        plain = at + 1;
        if escape.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\u{byte:04x}");
        } else {
            out.push_str(escape);
        }
    }
    out.push_str(&text[plain..]);
    out.push('"');
}

/// Whether a byte of a text is the same in a JSON string.
#[inline]
pub const fn is_plain_byte(byte: u8) -> bool {
    byte >= 0x20 && byte != 0x7f && byte != b'"' && byte != b'\\'
}

/// Appends a double; what JSON has no number for becomes `"NaN"`, `"Infinity"` or `"-Infinity"`.
pub fn put_number(out: &mut String, value: f64) {
    if value.is_nan() {
        out.push_str("\"NaN\"");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "\"Infinity\"" } else { "\"-Infinity\"" });
    } else {
        let _ = write!(out, "{value:?}");
    }
}

/// Appends a value as plain JSON: integers exact, bytes as hex.
///
/// # Errors
///
/// When the value is malformed; what was appended is then no JSON.
pub fn put_plain_value(out: &mut String, value: &AnyValue<'_>) -> Result<(), DecodeError> {
    match value {
        AnyValue::Empty => out.push_str("null"),
        AnyValue::String(text) => put_text(out, text),
        AnyValue::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        AnyValue::Int(value) => {
            let _ = write!(out, "{value}");
        }
        AnyValue::Double(value) => put_number(out, *value),
        AnyValue::Bytes(bytes) => {
            out.push('"');
            put_hex(out, bytes);
            out.push('"');
        }
        AnyValue::Array(array) => {
            out.push('[');
            for (at, value) in array.values().enumerate() {
                comma(out, at);
                put_plain_value(out, &value?)?;
            }
            out.push(']');
        }
        AnyValue::KeyValues(entries) => put_plain_attributes(out, entries.entries())?,
    }
    Ok(())
}

/// Appends attributes as one JSON object.
///
/// # Errors
///
/// When an attribute is malformed; what was appended is then no JSON.
pub fn put_plain_attributes<'a>(
    out: &mut String,
    attributes: impl Iterator<Item = Result<(&'a str, AnyValue<'a>), DecodeError>>,
) -> Result<(), DecodeError> {
    out.push('{');
    for (at, pair) in attributes.enumerate() {
        let (key, value) = pair?;
        comma(out, at);
        put_text(out, key);
        out.push(':');
        put_plain_value(out, &value)?;
    }
    out.push('}');
    Ok(())
}

pub(super) fn comma(out: &mut String, at: usize) {
    if at > 0 {
        out.push(',');
    }
}

pub(super) fn put_list<T>(
    out: &mut String,
    name: &str,
    items: impl Iterator<Item = Result<T, DecodeError>>,
    mut put: impl FnMut(&mut String, T) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let _ = write!(out, "\"{name}\":[");
    for (at, item) in items.enumerate() {
        comma(out, at);
        put(out, item?)?;
    }
    out.push(']');
    Ok(())
}

pub(super) fn put_attributes(
    out: &mut String,
    attributes: Attributes<'_>,
) -> Result<(), DecodeError> {
    put_list(out, "attributes", attributes, |out, (key, value)| put_key_value(out, key, &value))
}

fn put_key_value(out: &mut String, key: &str, value: &AnyValue<'_>) -> Result<(), DecodeError> {
    out.push_str("{\"key\":");
    put_text(out, key);
    out.push_str(",\"value\":");
    put_value(out, value)?;
    out.push('}');
    Ok(())
}

pub(super) fn put_value(out: &mut String, value: &AnyValue<'_>) -> Result<(), DecodeError> {
    match value {
        AnyValue::Empty => out.push('{'),
        AnyValue::String(text) => {
            out.push_str("{\"stringValue\":");
            put_text(out, text);
        }
        AnyValue::Bool(value) => {
            let _ = write!(out, "{{\"boolValue\":{value}");
        }
        AnyValue::Int(value) => {
            let _ = write!(out, "{{\"intValue\":\"{value}\"");
        }
        AnyValue::Double(value) => {
            out.push_str("{\"doubleValue\":");
            put_number(out, *value);
        }
        AnyValue::Bytes(bytes) => {
            out.push_str("{\"bytesValue\":\"");
            put_base64(out, bytes);
            out.push('"');
        }
        AnyValue::Array(array) => {
            out.push_str("{\"arrayValue\":{");
            put_list(out, "values", array.values(), |out, value| put_value(out, &value))?;
            out.push('}');
        }
        AnyValue::KeyValues(entries) => {
            out.push_str("{\"kvlistValue\":{");
            put_list(out, "values", entries.entries(), |out, (key, value)| {
                put_key_value(out, key, &value)
            })?;
            out.push('}');
        }
    }
    out.push('}');
    Ok(())
}

/// Appends base 64 with padding.
pub fn put_base64(out: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0_u32, |group, byte| group << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let digit = DIGITS[(group >> (18 - 6 * at) & 63) as usize];
            out.push(if at <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
}

/// An `ExportTraceServiceRequest` as OTLP/JSON.
///
/// # Errors
///
/// When the request is malformed anywhere.
pub fn encode_trace_request(request: &[u8]) -> Result<String, DecodeError> {
    let put = |out: &mut String, span: &[u8]| put_span(out, SpanView::read(span)?);
    put_request(request, ["resourceSpans", "scopeSpans", "spans"], put)
}

/// A request of any signal: its names for resources, scopes and items, and how an item is written.
pub(super) fn put_request(
    request: &[u8],
    [resources, scopes, items]: [&str; 3],
    put_item: impl Fn(&mut String, &[u8]) -> Result<(), DecodeError>,
) -> Result<String, DecodeError> {
    let mut out = String::with_capacity(request.len() * 2);
    out.push('{');
    put_list(&mut out, resources, crate::view::resources(request), |out, resource| {
        out.push_str("{\"resource\":{");
        put_attributes(out, resource.attributes())?;
        out.push_str("},");
        put_list(out, scopes, resource.scopes(), |out, scope| {
            put_scope(out, &scope)?;
            put_list(out, items, scope.items(), &put_item)?;
            put_optional_text(out, "schemaUrl", scope.schema_url);
            out.push('}');
            Ok(())
        })?;
        put_optional_text(out, "schemaUrl", resource.schema_url);
        out.push('}');
        Ok(())
    })?;
    out.push('}');
    Ok(out)
}

fn put_scope(out: &mut String, scope: &ScopeView<'_>) -> Result<(), DecodeError> {
    out.push_str("{\"scope\":{\"name\":");
    put_text(out, scope.name);
    put_optional_text(out, "version", scope.version);
    if scope.attributes().next().is_some() {
        out.push(',');
        put_attributes(out, scope.attributes())?;
    }
    out.push_str("},");
    Ok(())
}

pub(super) fn put_optional_text(out: &mut String, name: &str, text: &str) {
    if !text.is_empty() {
        let _ = write!(out, ",\"{name}\":");
        put_text(out, text);
    }
}

pub(super) fn put_optional_count(out: &mut String, name: &str, count: u64) {
    if count > 0 {
        let _ = write!(out, ",\"{name}\":{count}");
    }
}

pub(super) fn put_ids(out: &mut String, trace_id: &[u8], span_id: &[u8]) {
    out.push_str("{\"traceId\":\"");
    put_id(out, trace_id, 16);
    out.push_str("\",\"spanId\":\"");
    put_id(out, span_id, 8);
    out.push('"');
}

/// An id; nothing for one that has not the length of its kind, as no reader takes it for one.
pub(super) fn put_id(out: &mut String, id: &[u8], len: usize) {
    if id.len() == len {
        put_hex(out, id);
    }
}

fn put_span(out: &mut String, span: SpanView<'_>) -> Result<(), DecodeError> {
    put_ids(out, span.trace_id, span.span_id);
    put_optional_text(out, "traceState", span.trace_state);
    if !span.parent_id.is_empty() {
        out.push_str(",\"parentSpanId\":\"");
        put_id(out, span.parent_id, 8);
        out.push('"');
    }
    out.push_str(",\"name\":");
    put_text(out, span.name);
    let _ = write!(
        out,
        ",\"kind\":{},\"startTimeUnixNano\":\"{}\",\"endTimeUnixNano\":\"{}\",",
        span.kind, span.start_nanos, span.end_nanos
    );
    put_attributes(out, span.attributes())?;
    put_optional_count(out, "droppedAttributesCount", span.dropped_attributes);
    out.push(',');
    put_list(out, "events", span.events(), put_event)?;
    put_optional_count(out, "droppedEventsCount", span.dropped_events);
    out.push(',');
    put_list(out, "links", span.links(), put_link)?;
    put_optional_count(out, "droppedLinksCount", span.dropped_links);
    let _ = write!(out, ",\"status\":{{\"code\":{}", span.status as u8);
    put_optional_text(out, "message", span.status_message);
    let _ = write!(out, "}},\"flags\":{}}}", span.flags);
    Ok(())
}

fn put_event(out: &mut String, event: EventView<'_>) -> Result<(), DecodeError> {
    let _ = write!(out, "{{\"timeUnixNano\":\"{}\",\"name\":", event.unix_nanos);
    put_text(out, event.name);
    out.push(',');
    put_attributes(out, event.attributes())?;
    put_optional_count(out, "droppedAttributesCount", event.dropped_attributes);
    out.push('}');
    Ok(())
}

fn put_link(out: &mut String, link: LinkView<'_>) -> Result<(), DecodeError> {
    put_ids(out, link.trace_id, link.span_id);
    put_optional_text(out, "traceState", link.trace_state);
    out.push(',');
    put_attributes(out, link.attributes())?;
    put_optional_count(out, "droppedAttributesCount", link.dropped_attributes);
    let _ = write!(out, ",\"flags\":{}}}", link.flags);
    Ok(())
}
