//! Log records from OTLP/JSON.

use serde_json::Value;

use super::{
    Levels, decode_request, nested, number, put_attributes, put_count, put_flags, put_id, put_text,
    put_value,
};
use crate::encode::LOG_ATTRIBUTES;
use crate::wire::{DecodeError, put_fixed64, put_uint};

/// Reads an OTLP/JSON logs request into an encoded `ExportLogsServiceRequest`.
///
/// # Errors
///
/// When the text is no JSON or a known field has a value of the wrong kind.
pub fn decode_logs_request(json: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let levels = Levels { resources: "resourceLogs", scopes: "scopeLogs", items: "logRecords" };
    decode_request(json, &levels, put_record)
}

fn put_record(out: &mut Vec<u8>, record: &Value) -> Result<(), DecodeError> {
    let mut error = None;
    put_fixed64(out, 1, number(record, "timeUnixNano")?);
    let severity = severity(record)?;
    if severity > 0 {
        put_uint(out, 2, severity);
    }
    put_text(out, 3, record, "severityText")?;
    if let Some(body) = record.get("body").filter(|body| !body.is_null()) {
        nested(out, 5, &mut error, |out| put_value(out, body, 0));
    }
    put_attributes(out, LOG_ATTRIBUTES, record)?;
    put_count(out, 7, record, "droppedAttributesCount")?;
    put_flags(out, 8, record)?;
    put_id(out, 9, record, "traceId", 16)?;
    put_id(out, 10, record, "spanId", 8)?;
    put_fixed64(out, 11, number(record, "observedTimeUnixNano")?);
    put_text(out, 12, record, "eventName")?;
    error.map_or(Ok(()), Err)
}

/// A number, or a name such as `SEVERITY_NUMBER_WARN2`.
fn severity(record: &Value) -> Result<u64, DecodeError> {
    const NAMES: [&str; 6] = ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"];
    const FIELD: &str = "severityNumber";
    let Some(Value::String(name)) = record.get(FIELD) else { return number(record, FIELD) };
    let name = name.strip_prefix("SEVERITY_NUMBER_").ok_or(DecodeError::Json(FIELD))?;
    if name == "UNSPECIFIED" {
        return Ok(0);
    }
    let level = name.trim_end_matches(|digit: char| digit.is_ascii_digit());
    let (at, step) = NAMES
        .iter()
        .position(|known| *known == level)
        .zip(match &name[level.len()..] {
            "" => Some(1),
            step => step.parse().ok().filter(|step| (2..=4).contains(step)),
        })
        .ok_or(DecodeError::Json(FIELD))?;
    Ok(at as u64 * 4 + step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{LogParts, Scope, put_key_value, put_request};
    use crate::json::encode_logs_request;
    use crate::view::AnyValue;
    use crate::view::logs::LogView;
    use crate::wire::put_bytes;

    #[test]
    fn records_survive_json_and_back() {
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
        let mut record = Vec::new();
        parts.put(&mut record);
        let mut items = Vec::new();
        put_bytes(&mut items, 2, &record);
        let mut request = Vec::new();
        let scope = Scope { name: "gym", version: "1" };
        put_request(&mut request, &[], std::iter::once((scope, items.as_slice())));
        let json = encode_logs_request(&request).unwrap();
        assert_eq!(decode_logs_request(json.as_bytes()), Ok(request));
    }

    fn read(json: &str) -> Result<Vec<u8>, DecodeError> {
        let mut record = Vec::new();
        put_record(&mut record, &serde_json::from_str(json).unwrap()).map(|()| record)
    }

    #[test]
    fn severities_may_be_names_and_bodies_anything() {
        for (name, expected) in [("TRACE", 1), ("WARN", 13), ("WARN2", 14), ("FATAL4", 24)] {
            let record = read(&format!("{{\"severityNumber\":\"SEVERITY_NUMBER_{name}\"}}"));
            assert_eq!(LogView::read(&record.unwrap()).unwrap().severity_number, expected);
        }
        for name in
            ["SEVERITY_NUMBER_LOUD", "SEVERITY_NUMBER_WARN5", "WARN", "SEVERITY_NUMBER_WARN1"]
        {
            assert!(read(&format!("{{\"severityNumber\":\"{name}\"}}")).is_err(), "{name}");
        }
        let record = read(r#"{"body":{"kvlistValue":{"values":[{"key":"k"}]}}}"#).unwrap();
        assert!(matches!(LogView::read(&record).unwrap().body, AnyValue::KeyValues(_)));
    }

    #[test]
    fn ids_in_base_64_are_refused_by_name() {
        let error = read(r#"{"traceId":"q6urq6urq6urq6urq6urqw=="}"#).unwrap_err();
        assert_eq!(error, DecodeError::NotHex { name: "traceId", digits: 32 });
    }
}
