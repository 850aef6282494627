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
