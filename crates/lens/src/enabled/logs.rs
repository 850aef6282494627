//! Log records: encoded by the thread that logs, with the ids of its current span, into a ring of their own.
//!
//! A storm of log records fills that ring and drops the newest of them; it cannot take room from spans. Bridges from
//! logging libraries end here.

use lens_otlp::encode::{LOG_ATTRIBUTES, LogParts, put_key_value};

use super::clock;
use super::context::Context;
use super::pipeline::{self, writer};
use super::value::Value;

pub use crate::severity::Severity;

/// Whether anybody takes log records.
#[inline]
pub fn is_enabled() -> bool {
    pipeline::logs().is_some()
}

/// Records `body` at the current span; costs one load when nobody takes log records.
///
/// The last attribute of a key wins.
pub fn emit(severity: Severity, body: &str, attributes: &[(&'static str, Value)]) {
    let Some(pipeline) = pipeline::logs() else { return };
    let mut encoded = Vec::new();
    for (at, (key, value)) in attributes.iter().enumerate() {
        if !attributes[at + 1..].iter().any(|(later, _)| later == key) {
            put_key_value(&mut encoded, LOG_ATTRIBUTES, key, value);
        }
    }
    let span = Context::with_current(Context::span_context);
    let now = clock::now_unix_nanos();
    let ids = (span.trace_id().to_bytes(), span.span_id().to_bytes());
    let parts = LogParts {
        time_nanos: now,
        observed_nanos: now,
        severity_number: severity as u8,
        severity_text: severity.as_str(),
        body,
        attributes: &encoded,
        span: span.is_valid().then_some(ids),
        flags: u32::from(span.flags()),
        event_name: "",
    };
    let mut record = Vec::with_capacity(body.len() + encoded.len() + 96);
    parts.put(&mut record);
    writer::push_encoded(pipeline, 0, &record);
}
