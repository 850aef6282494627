//! Log records in numbers and sizes that are too large. One test: a process sets telemetry up once.

use std::time::Duration;

use lens::config::{BatchSettings, ExporterKind, LensConfig, OtlpSettings, Signal};
use lens::logs::{Severity, emit};
use lens::semconv::drop_reason;
use lens::{Group, managed_span};
use lens_testing::OtlpSink;

static WORK: Group = Group::new("work");
static GROUPS: &[&Group] = &[&WORK];

const BUDGET: Duration = Duration::from_secs(60);
const STORM: usize = 1_000_000;
const SPANS: u64 = 20_000;

#[test]
fn too_many_log_records_and_one_too_large_cost_neither_spans_nor_their_neighbours() {
    lens::register("test", GROUPS, &[]);
    let (spans, logs) = (OtlpSink::ack_only().expect("one"), OtlpSink::ack_only().expect("two"));
    let settings = |sink: &OtlpSink, signal| OtlpSettings {
        endpoint: sink.grpc_endpoint(),
        ..OtlpSettings::for_signal(signal)
    };
    let handle = lens::setup_telemetry(LensConfig {
        enabled: true,
        span_groups: "work".to_owned(),
        traces_otlp: settings(&spans, Signal::Traces),
        logs_otlp: settings(&logs, Signal::Logs),
        logs_exporter: ExporterKind::Otlp,
        metrics_exporter: ExporterKind::None,
        log_batch: BatchSettings { max_queue_bytes: 256 << 10, ..BatchSettings::for_logs() },
        ..LensConfig::default()
    });
    let handle = handle.expect("starts");

    // One of 30 MiB among a thousand.
    let huge = "x".repeat(30 << 20);
    for nth in 0..1_000 {
        emit(Severity::Info, if nth == 500 { &huge } else { "small" }, &[]);
    }
    assert!(handle.force_flush(BUDGET));
    assert_eq!(logs.counts().logs, 999);
    let snapshot = handle.log_snapshot();
    assert_eq!(snapshot.dropped, [(drop_reason::TOO_LARGE, 1)]);
    assert_eq!((snapshot.exported, snapshot.ended), (999, 1_000), "{snapshot:?}");

    std::thread::scope(|scope| {
        scope.spawn(|| {
            for nth in 0..STORM {
                emit(Severity::Error, "it fails again", &[("nth", nth.into())]);
            }
        });
        scope.spawn(|| {
            for _ in 0..SPANS {
                drop(managed_span!(WORK, "work"));
                std::thread::yield_now();
            }
        });
    });
    assert!(handle.shutdown(BUDGET));
    let snapshot = handle.snapshot();
    assert_eq!((snapshot.exported, snapshot.dropped_total()), (SPANS, 0), "{snapshot:?}");
    assert_eq!(spans.counts().spans, SPANS);
    let snapshot = handle.log_snapshot();
    assert_eq!(snapshot.ended, 1_000 + STORM as u64, "{snapshot:?}");
    assert_eq!(snapshot.exported + snapshot.dropped_total(), snapshot.ended, "{snapshot:?}");
    assert_eq!(logs.counts().logs, snapshot.exported);
}
