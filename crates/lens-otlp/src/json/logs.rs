//! Log records as OTLP/JSON.

use std::fmt::Write as _;

use super::write::{
    put_attributes, put_ids, put_optional_count, put_optional_text, put_request, put_text,
    put_value,
};
use crate::view::AnyValue;
use crate::view::logs::LogView;
use crate::wire::DecodeError;

/// An `ExportLogsServiceRequest` as OTLP/JSON.
///
/// # Errors
///
/// When the request is malformed anywhere.
pub fn encode_logs_request(request: &[u8]) -> Result<String, DecodeError> {
    put_request(request, ["resourceLogs", "scopeLogs", "logRecords"], put_record)
}

fn put_record(out: &mut String, record: &[u8]) -> Result<(), DecodeError> {
    let record = LogView::read(record)?;
    if record.trace_id.is_empty() && record.span_id.is_empty() {
        out.push('{');
    } else {
        put_ids(out, record.trace_id, record.span_id);
        out.push(',');
    }
    let _ = write!(
        out,
        "\"timeUnixNano\":\"{}\",\"observedTimeUnixNano\":\"{}\"",
        record.time_nanos, record.observed_nanos
    );
    put_optional_count(out, "severityNumber", record.severity_number);
    put_optional_text(out, "severityText", record.severity_text);
    if !matches!(record.body, AnyValue::Empty) {
        out.push_str(",\"body\":");
        put_value(out, &record.body)?;
    }
    out.push(',');
    put_attributes(out, record.attributes())?;
    put_optional_count(out, "droppedAttributesCount", record.dropped_attributes);
    put_optional_count(out, "flags", u64::from(record.flags));
    if !record.event_name.is_empty() {
        out.push_str(",\"eventName\":");
        put_text(out, record.event_name);
    }
    out.push('}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{LOG_ATTRIBUTES, LogParts, Scope, put_key_value, put_request};
    use crate::wire::put_bytes;

    fn encoded(parts: &LogParts<'_>) -> serde_json::Value {
        let mut record = Vec::new();
        parts.put(&mut record);
        let mut items = Vec::new();
        put_bytes(&mut items, 2, &record);
        let mut request = Vec::new();
        let scope = Scope { name: "gym", version: "1" };
        put_request(&mut request, &[], std::iter::once((scope, items.as_slice())));
        let json = encode_logs_request(&request).expect("valid request");
        let mut json: serde_json::Value = serde_json::from_str(&json).expect("valid JSON");
        let scope = &mut json["resourceLogs"][0]["scopeLogs"][0];
        assert_eq!(scope["scope"]["name"], "gym");
        scope["logRecords"][0].take()
    }

    #[test]
    fn record_has_the_fields_of_the_specification() {
        let mut attributes = Vec::new();
        put_key_value(&mut attributes, LOG_ATTRIBUTES, "count", &7_i64);
        let parts = LogParts {
            time_nanos: 1_700_000_000_000_000_001,
            observed_nanos: 1_700_000_000_000_000_002,
            severity_number: 9,
            severity_text: "INFO",
            body: "a \"message\"",
            attributes: &attributes,
            span: Some(([0xab; 16], [1; 8])),
            flags: 1,
            event_name: "happened",
        };
        let expected = serde_json::json!({
            "timeUnixNano": "1700000000000000001",
            "observedTimeUnixNano": "1700000000000000002",
            "severityNumber": 9,
            "severityText": "INFO",
            "body": {"stringValue": "a \"message\""},
            "attributes": [{"key": "count", "value": {"intValue": "7"}}],
            "traceId": "abababababababababababababababab",
            "spanId": "0101010101010101",
            "flags": 1,
            "eventName": "happened",
        });
        assert_eq!(encoded(&parts), expected);
    }

    #[test]
    fn record_without_a_span_has_no_ids() {
        let record = encoded(&LogParts { time_nanos: 1, ..LogParts::default() });
        assert!(record.get("traceId").is_none() && record.get("spanId").is_none(), "{record}");
        assert_eq!(record["timeUnixNano"], "1");
    }
}
