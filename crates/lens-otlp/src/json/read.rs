//! OTLP/JSON as protobuf bytes.

mod logs;
mod metrics;

use serde_json::Value;

pub use logs::decode_logs_request;
pub use metrics::decode_metrics_request;

use crate::base64;
use crate::encode::{
    EVENT_ATTRIBUTES, EncodeValue, LINK_ATTRIBUTES, RESOURCE_ATTRIBUTES, SPAN_ATTRIBUTES,
};
use crate::wire::{
    BYTES, Cursor, DecodeError, FIXED32, put_bytes, put_double, put_fixed64, put_message, put_tag,
    put_uint, put_varint, tag,
};

/// Deepest nesting of attribute values that is read.
const MAX_DEPTH: u8 = 32;

/// Appends one span, metric or log record.
type PutItem = fn(&mut Vec<u8>, &Value) -> Result<(), DecodeError>;

/// What the levels of a request are called.
struct Levels {
    resources: &'static str,
    scopes: &'static str,
    items: &'static str,
}

/// Reads an OTLP/JSON trace request into an encoded `ExportTraceServiceRequest`.
///
/// # Errors
///
/// When the text is no JSON or a known field has a value of the wrong kind.
pub fn decode_trace_request(json: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let levels = Levels { resources: "resourceSpans", scopes: "scopeSpans", items: "spans" };
    decode_request(json, &levels, put_span)
}

fn decode_request(json: &[u8], levels: &Levels, put_item: PutItem) -> Result<Vec<u8>, DecodeError> {
    let request: Value =
        serde_json::from_slice(json).map_err(|_| DecodeError::Json("the document"))?;
    if !request.is_object() {
        return Err(DecodeError::Json("the document"));
    }
    let mut out = Vec::with_capacity(json.len() / 2);
    let mut error = None;
    for resource in list(&request, levels.resources)? {
        nested(&mut out, 1, &mut error, |out| put_resource(out, resource, levels, put_item));
    }
    error.map_or(Ok(out), Err)
}

/// Writes a nested message; the first error of all is kept, what follows it does not matter.
fn nested(
    out: &mut Vec<u8>,
    field: u8,
    error: &mut Option<DecodeError>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), DecodeError>,
) {
    put_message(out, field, |out| {
        if let Err(found) = write(out) {
            error.get_or_insert(found);
        }
    });
}

fn list<'a>(object: &'a Value, name: &'static str) -> Result<&'a [Value], DecodeError> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(DecodeError::Json(name)),
    }
}

fn text<'a>(object: &'a Value, name: &'static str) -> Result<&'a str, DecodeError> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(DecodeError::Json(name)),
    }
}

/// A number, or a number in a string.
fn number(object: &Value, name: &'static str) -> Result<u64, DecodeError> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(0),
        Some(Value::String(text)) => text.parse().map_err(|_| DecodeError::Json(name)),
        Some(value) => value.as_u64().ok_or(DecodeError::Json(name)),
    }
}

fn put_text(
    out: &mut Vec<u8>,
    field: u8,
    object: &Value,
    name: &'static str,
) -> Result<(), DecodeError> {
    let text = text(object, name)?;
    if !text.is_empty() {
        put_bytes(out, field, text.as_bytes());
    }
    Ok(())
}

fn put_count(
    out: &mut Vec<u8>,
    field: u8,
    object: &Value,
    name: &'static str,
) -> Result<(), DecodeError> {
    let count = number(object, name)?;
    if count > 0 {
        put_uint(out, field, count);
    }
    Ok(())
}

fn put_id(
    out: &mut Vec<u8>,
    field: u8,
    object: &Value,
    name: &'static str,
    len: usize,
) -> Result<(), DecodeError> {
    let text = text(object, name)?;
    if text.is_empty() {
        return Ok(());
    }
    let digits = text.as_bytes();
    if digits.len() != 2 * len || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(DecodeError::NotHex { name, digits: 2 * len });
    }
    let value = |digit: u8| match digit {
        b'0'..=b'9' => digit - b'0',
        _ => digit.to_ascii_lowercase() - b'a' + 10,
    };
    let bytes: Vec<u8> =
        digits.chunks(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect();
    put_bytes(out, field, &bytes);
    Ok(())
}

fn put_resource(
    out: &mut Vec<u8>,
    object: &Value,
    levels: &Levels,
    put_item: PutItem,
) -> Result<(), DecodeError> {
    let mut error = None;
    if let Some(resource) = object.get("resource") {
        nested(out, 1, &mut error, |out| put_attributes(out, RESOURCE_ATTRIBUTES, resource));
    }
    for scope in list(object, levels.scopes)? {
        nested(out, 2, &mut error, |out| put_scope(out, scope, levels, put_item));
    }
    put_text(out, 3, object, "schemaUrl")?;
    error.map_or(Ok(()), Err)
}

fn put_scope(
    out: &mut Vec<u8>,
    object: &Value,
    levels: &Levels,
    put_item: PutItem,
) -> Result<(), DecodeError> {
    let mut error = None;
    if let Some(scope) = object.get("scope") {
        nested(out, 1, &mut error, |out| {
            put_text(out, 1, scope, "name")?;
            put_text(out, 2, scope, "version")?;
            put_attributes(out, 3, scope)
        });
    }
    for item in list(object, levels.items)? {
        nested(out, 2, &mut error, |out| put_item(out, item));
    }
    put_text(out, 3, object, "schemaUrl")?;
    error.map_or(Ok(()), Err)
}

fn put_span(out: &mut Vec<u8>, span: &Value) -> Result<(), DecodeError> {
    let mut error = None;
    // In the order in which our own encoder writes: what has a fixed length, name, attributes, the rest.
    put_id(out, 1, span, "traceId", 16)?;
    put_id(out, 2, span, "spanId", 8)?;
    put_uint(out, 6, kind(span)?);
    put_fixed64(out, 7, number(span, "startTimeUnixNano")?);
    put_fixed64(out, 8, number(span, "endTimeUnixNano")?);
    put_flags(out, 16, span)?;
    put_id(out, 4, span, "parentSpanId", 8)?;
    put_text(out, 5, span, "name")?;
    put_attributes(out, SPAN_ATTRIBUTES, span)?;
    put_text(out, 3, span, "traceState")?;
    put_count(out, 10, span, "droppedAttributesCount")?;
    for event in list(span, "events")? {
        nested(out, 11, &mut error, |out| {
            put_fixed64(out, 1, number(event, "timeUnixNano")?);
            put_bytes(out, 2, text(event, "name")?.as_bytes());
            put_attributes(out, EVENT_ATTRIBUTES, event)?;
            put_count(out, 4, event, "droppedAttributesCount")
        });
    }
    put_count(out, 12, span, "droppedEventsCount")?;
    for link in list(span, "links")? {
        nested(out, 13, &mut error, |out| {
            put_id(out, 1, link, "traceId", 16)?;
            put_id(out, 2, link, "spanId", 8)?;
            put_text(out, 3, link, "traceState")?;
            put_attributes(out, LINK_ATTRIBUTES, link)?;
            put_count(out, 5, link, "droppedAttributesCount")?;
            put_flags(out, 6, link)
        });
    }
    put_count(out, 14, span, "droppedLinksCount")?;
    if let Some(status) = span.get("status").filter(|status| status.is_object()) {
        let code = status_code(status)?;
        let message = text(status, "message")?;
        if code > 0 || !message.is_empty() {
            nested(out, 15, &mut error, |out| {
                put_text(out, 2, status, "message")?;
                if code > 0 {
                    put_uint(out, 3, code);
                }
                Ok(())
            });
        }
    }
    error.map_or(Ok(()), Err)
}

fn put_flags(out: &mut Vec<u8>, field: u32, object: &Value) -> Result<(), DecodeError> {
    let flags = u32::try_from(number(object, "flags")?).map_err(|_| DecodeError::Json("flags"))?;
    if flags > 0 {
        put_tag(out, field, FIXED32);
        out.extend_from_slice(&flags.to_le_bytes());
    }
    Ok(())
}

fn kind(span: &Value) -> Result<u64, DecodeError> {
    let Some(Value::String(name)) = span.get("kind") else { return number(span, "kind") };
    match name.as_str() {
        "SPAN_KIND_UNSPECIFIED" => Ok(0),
        "SPAN_KIND_INTERNAL" => Ok(1),
        "SPAN_KIND_SERVER" => Ok(2),
        "SPAN_KIND_CLIENT" => Ok(3),
        "SPAN_KIND_PRODUCER" => Ok(4),
        "SPAN_KIND_CONSUMER" => Ok(5),
        _ => Err(DecodeError::Json("kind")),
    }
}

fn status_code(status: &Value) -> Result<u64, DecodeError> {
    let Some(Value::String(name)) = status.get("code") else { return number(status, "code") };
    match name.as_str() {
        "STATUS_CODE_UNSET" => Ok(0),
        "STATUS_CODE_OK" => Ok(1),
        "STATUS_CODE_ERROR" => Ok(2),
        _ => Err(DecodeError::Json("code")),
    }
}

fn put_attributes(out: &mut Vec<u8>, field: u8, object: &Value) -> Result<(), DecodeError> {
    for pair in list(object, "attributes")? {
        put_pair(out, field, pair, 0)?;
    }
    Ok(())
}

fn put_pair(out: &mut Vec<u8>, field: u8, pair: &Value, depth: u8) -> Result<(), DecodeError> {
    let mut value = Vec::new();
    put_value(&mut value, pair.get("value").unwrap_or(&Value::Null), depth)?;
    crate::encode::put_key_value(out, field, text(pair, "key")?, &Encoded(&value));
    Ok(())
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

/// Appends the content of an `AnyValue`.
fn put_value(out: &mut Vec<u8>, value: &Value, depth: u8) -> Result<(), DecodeError> {
    if depth > MAX_DEPTH {
        return Err(DecodeError::Depth);
    }
    let Some((name, content)) = value.as_object().and_then(|object| object.iter().next()) else {
        return Ok(());
    };
    match (name.as_str(), content) {
        ("stringValue", Value::String(text)) => put_bytes(out, 1, text.as_bytes()),
        ("boolValue", Value::Bool(value)) => put_uint(out, 2, u64::from(*value)),
        ("intValue", Value::String(text)) => {
            let number = text.parse::<i64>().map_err(|_| DecodeError::Json("intValue"))?;
            put_uint(out, 3, number as u64);
        }
        ("intValue", content) => {
            let number = content.as_i64().ok_or(DecodeError::Json("intValue"))?;
            put_uint(out, 3, number as u64);
        }
        ("doubleValue", content) => put_double(out, 4, double(content)?),
        ("bytesValue", Value::String(text)) => {
            put_bytes(out, 7, &base64::decode(text).ok_or(DecodeError::Json("bytesValue"))?)
        }
        ("arrayValue", content) => {
            let mut items = Vec::new();
            for item in list(content, "values")? {
                let mut value = Vec::new();
                put_value(&mut value, item, depth + 1)?;
                put_bytes(&mut items, 1, &value);
            }
            put_bytes(out, 5, &items);
        }
        ("kvlistValue", content) => {
            let mut items = Vec::new();
            for pair in list(content, "values")? {
                put_pair(&mut items, 1, pair, depth + 1)?;
            }
            out.push(tag(6, BYTES));
            put_varint(out, items.len() as u64);
            out.extend_from_slice(&items);
        }
        ("stringValue" | "boolValue" | "bytesValue", _) => return Err(DecodeError::Json("value")),
        _ => {}
    }
    Ok(())
}

fn double(content: &Value) -> Result<f64, DecodeError> {
    match content {
        Value::String(text) => match text.as_str() {
            "NaN" => Ok(f64::NAN),
            "Infinity" => Ok(f64::INFINITY),
            "-Infinity" => Ok(f64::NEG_INFINITY),
            text => text.parse().map_err(|_| DecodeError::Json("doubleValue")),
        },
        content => content.as_f64().ok_or(DecodeError::Json("doubleValue")),
    }
}
