//! A full buffer drops the newest spans and counts every one. One test: a process sets telemetry up once.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use lens::config::{BatchSettings, ExporterKind, LensConfig};
use lens::semconv::drop_reason;
use lens::{ExportOutcome, Group, Span, SpanBatch, SpanExporter, managed_span};

static WORK: Group = Group::new("work");
static GROUPS: &[&Group] = &[&WORK];
const KEYS: [&str; 3] = ["a", "b", "c"];

/// Waits for leave before each batch.
struct Blocked(mpsc::Receiver<ExportOutcome>);

impl SpanExporter for Blocked {
    fn export(&mut self, _batch: &SpanBatch) -> ExportOutcome {
        self.0.recv().unwrap_or(ExportOutcome::Failed)
    }
}

#[test]
fn callers_never_wait_for_a_blocked_exporter() {
    lens::register("test", GROUPS, &[]);
    let (leave, blocked) = mpsc::channel();
    let config = LensConfig {
        enabled: true,
        span_groups: "work".to_owned(),
        traces_exporter: ExporterKind::None,
        metrics_exporter: ExporterKind::None,
        batch: BatchSettings { max_queue_bytes: 64 << 10, ..BatchSettings::default() },
        ..LensConfig::default()
    };
    let handle =
        lens::setup_telemetry_with(config, vec![Box::new(Blocked(blocked))]).expect("starts");
    let before = Instant::now();
    for _ in 0..10_000 {
        drop(managed_span!(WORK, "one of many"));
    }
    assert!(before.elapsed() < Duration::from_secs(10));
    let mut large = Span::start(&WORK, "large");
    for at in 0..1_000 {
        // No string is long enough to shorten.
        large.set(KEYS[at % KEYS.len()], "short");
    }
    large.update_name("n".repeat(100 << 10));
    large.end();

    let snapshot = handle.snapshot();
    assert_eq!((snapshot.ended, snapshot.exported, snapshot.rejected), (10_001, 0, 0));
    let dropped = |reason: &str| {
        snapshot.dropped.iter().find(|(known, _)| *known == reason).map_or(0, |(_, count)| *count)
    };
    assert_eq!(dropped(drop_reason::TOO_LARGE), 1);
    assert!(dropped(drop_reason::BUFFER_FULL) > 9_000, "{snapshot:?}");
    assert_eq!(snapshot.queued + snapshot.dropped_total(), 10_001);
    assert!(snapshot.queued > 300, "what fits is kept: {snapshot:?}");

    assert!(!handle.force_flush(Duration::from_millis(20)), "a flush gives up in time");
    leave.send(ExportOutcome::Failed).expect("the exporter waits");
    drop(leave);
    assert!(handle.shutdown(Duration::from_secs(20)));
    let after = handle.snapshot();
    assert_eq!((after.queued, after.exported), (0, 0));
    let failed = after.dropped.iter().find(|(reason, _)| *reason == drop_reason::EXPORT_FAILED);
    assert_eq!(failed.map(|(_, count)| *count), Some(snapshot.queued), "{after:?}");
}
