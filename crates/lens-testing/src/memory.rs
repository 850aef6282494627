//! The spans of a closure.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use lens::TelemetryHandle;
use lens::config::{ExporterKind, LensConfig};

use crate::collected::{CollectedSpan, decode};

static HANDLE: OnceLock<TelemetryHandle> = OnceLock::new();
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn handle() -> &'static TelemetryHandle {
    HANDLE.get_or_init(|| {
        let config = LensConfig {
            enabled: true,
            service_name: "test".to_owned(),
            span_groups: String::new(),
            traces_exporter: ExporterKind::Memory,
            metrics_exporter: ExporterKind::Memory,
            ..LensConfig::default()
        };
        match lens::setup_telemetry(config) {
            Ok(handle) => handle,
            Err(error) => panic!("telemetry cannot be collected: {error}"),
        }
    })
}

/// Runs a closure with every registered group on and returns the spans that ended meanwhile, oldest start first.
///
/// Telemetry is set up at the first call and belongs to the process, so closures run one at a time, and a test binary
/// that uses this must not set telemetry up itself.
pub fn collect<R>(run: impl FnOnce() -> R) -> (R, Vec<CollectedSpan>) {
    collect_groups("all,tracing", run)
}

/// Like [`collect`], with chosen groups.
pub fn collect_groups<R>(groups: &str, run: impl FnOnce() -> R) -> (R, Vec<CollectedSpan>) {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let handle = handle();
    let budget = Duration::from_secs(10);
    let flush = || assert!(handle.force_flush(budget), "spans were not flushed in time");
    flush();
    drop(handle.memory().take());
    handle.set_span_groups(groups);
    let result = run();
    handle.set_span_groups("");
    flush();
    let batches = handle.memory().take();
    let mut spans: Vec<CollectedSpan> = Vec::new();
    for batch in batches {
        match decode(batch.request()) {
            Ok(decoded) => spans.extend(decoded),
            Err(error) => panic!("the exporter was given a malformed request: {error}"),
        }
    }
    spans.sort_by_key(|span| span.start_nanos);
    (result, spans)
}
