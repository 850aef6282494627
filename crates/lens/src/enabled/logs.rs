//! Log records: encoded by the thread that logs, with the ids of its current span, into a ring of their own.
//!
//! A storm of log records fills that ring and drops the newest of them; it cannot take room from spans. Bridges from
//! logging libraries end here. What a record is about is its instrumentation scope, as far as there are not too many
//! of them; then it is the attribute [`LOG_TARGET`].

use std::sync::atomic::{AtomicBool, Ordering};

use lens_otlp::encode::{LOG_ATTRIBUTES, LogParts, put_key_value};

use super::context::Context;
use super::pipeline::{self, Pipeline, writer};
use super::value::Value;
use super::{clock, group};
use crate::semconv::LOG_TARGET;

pub use crate::log_record::LogRecord;
pub use crate::severity::Severity;

/// Whether the program's records are taken; the pipeline may be there for live events alone.
static TAKEN: AtomicBool = AtomicBool::new(false);

pub(super) fn set_taken(taken: bool) {
    TAKEN.store(taken, Ordering::Relaxed);
}

fn taker() -> Option<&'static Pipeline> {
    if TAKEN.load(Ordering::Relaxed) { pipeline::logs() } else { None }
}

/// Whether anybody takes log records.
#[inline]
pub fn is_enabled() -> bool {
    taker().is_some()
}

/// Records `body` at the current span; costs one load when nobody takes log records.
///
/// The last attribute of a key wins.
pub fn emit(severity: Severity, body: &str, attributes: &[(&'static str, Value)]) {
    emit_record(&LogRecord { severity, body, attributes, event_name: "", target: "" });
}

/// The last of a key wins.
pub(super) fn put_attributes(out: &mut Vec<u8>, attributes: &[(&'static str, Value)]) {
    for (at, (key, value)) in attributes.iter().enumerate() {
        if !attributes[at + 1..].iter().any(|(later, _)| later == key) {
            put_key_value(out, LOG_ATTRIBUTES, key, value);
        }
    }
}

/// Makes a record at the current span; costs one load when nobody takes log records.
pub fn emit_record(record: &LogRecord<'_>) {
    let Some(pipeline) = taker() else { return };
    let LogRecord { severity, body, attributes, event_name, target } = *record;
    let scope = group::scope_of_target(target);
    let mut encoded = Vec::new();
    put_attributes(&mut encoded, attributes);
    if scope.is_none() {
        put_key_value(&mut encoded, LOG_ATTRIBUTES, LOG_TARGET, target);
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
        event_name,
    };
    let mut bytes = Vec::with_capacity(body.len() + encoded.len() + 96);
    parts.put(&mut bytes);
    writer::push_encoded(pipeline, scope.unwrap_or(0), &bytes);
}
