//! Spans that are not ended by their own code, because their process ends first.
//!
//! Such a span has the attribute `nemo.span.truncated`, an event of the same name at its end, and never the status OK.
//! What is still open when telemetry shuts down, or when a process is found dead, is ended from its start record and
//! has what was known of it when it began. A program that drops its own work at its end says so first, with
//! [`begin_truncation`]; then those spans keep what was set on them.

use std::sync::atomic::{AtomicBool, Ordering};

use lens_otlp::encode::{SPAN_ATTRIBUTES, put_event, put_key_value};
use lens_otlp::wire::put_fixed64;

use crate::semconv::TRUNCATED;

/// Field number of `Span.end_time_unix_nano`.
const END_TIME: u8 = 8;

static BEGUN: AtomicBool = AtomicBool::new(false);

/// From now on, spans of long-lived groups that end are marked as truncated: what is left is dropped, not done.
///
/// For a program that gives its work time to finish, and drops the rest before it shuts telemetry down.
pub fn begin_truncation() {
    BEGUN.store(true, Ordering::Relaxed);
}

pub(super) fn has_begun() -> bool {
    BEGUN.load(Ordering::Relaxed)
}

/// A forked child begins anew.
pub(super) fn forget() {
    BEGUN.store(false, Ordering::Relaxed);
}

/// Ends a span that is known as it began.
pub(super) fn truncate(message: &mut Vec<u8>, end_nanos: u64) {
    // The last of a field counts.
    put_fixed64(message, END_TIME, end_nanos);
    put_key_value(message, SPAN_ATTRIBUTES, TRUNCATED, &true);
    put_event(message, TRUNCATED, end_nanos, 0, |_| {});
}
