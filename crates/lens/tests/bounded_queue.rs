//! A bound in spans, of a buffer that is full before the bound is reached. One test: a process sets telemetry up once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lens::config::{BatchSettings, ExporterKind, LensConfig};
use lens::semconv::drop_reason;
use lens::{ExportOutcome, Group, Span, SpanBatch, SpanExporter, managed_span};

static WORK: Group = Group::new("work");
static GROUPS: &[&Group] = &[&WORK];
const BUDGET: Duration = Duration::from_secs(20);
/// More than the buffer has room for.
const MOST: usize = 300;

static IS_HELD: AtomicBool = AtomicBool::new(true);

/// Keeps every batch back while it is held.
struct Held;

impl SpanExporter for Held {
    fn export(&mut self, _batch: &SpanBatch) -> ExportOutcome {
        while IS_HELD.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        ExportOutcome::Exported { rejected: 0 }
    }
}

/// Guarantees: what was admitted and then refused does not count as waiting, or the process would end up deaf.
#[test]
fn spans_are_taken_again_after_any_number_of_refusals() {
    lens::register("test", GROUPS, &[]);
    let config = LensConfig {
        enabled: true,
        span_groups: "work".to_owned(),
        traces_exporter: ExporterKind::None,
        metrics_exporter: ExporterKind::None,
        batch: BatchSettings {
            max_queue_bytes: 64 << 10,
            max_queue_spans: Some(MOST),
            ..BatchSettings::default()
        },
        ..LensConfig::default()
    };
    let handle = lens::setup_telemetry_with(config, vec![Box::new(Held)]).expect("starts");
    let dropped = |reason: &str| {
        let snapshot = handle.snapshot();
        let known = snapshot.dropped.iter().find(|(known, _)| *known == reason);
        known.map_or(0, |(_, count)| *count)
    };
    let let_all_out = || {
        IS_HELD.store(false, Ordering::Relaxed);
        assert!(handle.force_flush(BUDGET), "{:?}", handle.snapshot());
        assert_eq!(handle.snapshot().queued, 0);
        IS_HELD.store(true, Ordering::Relaxed);
    };

    for _ in 0..2 * MOST {
        let mut large = Span::start(&WORK, "large");
        large.update_name("n".repeat(100 << 10));
        // No string is long enough to shorten.
        for _ in 0..2 {
            large.set("key", "short");
        }
        large.end();
    }
    let too_large = dropped(drop_reason::TOO_LARGE);
    let exported = handle.snapshot().exported;
    drop(managed_span!(WORK, "after those that are too large"));
    let_all_out();
    assert_eq!(handle.snapshot().exported, exported + 1, "{too_large} were too large");

    let text = "t".repeat(2 << 10);
    for _ in 0..3 {
        for _ in 0..4 * MOST {
            drop(managed_span!(WORK, "one of many", "text" = text.as_str()));
        }
        let_all_out();
    }
    assert!(dropped(drop_reason::BUFFER_FULL) > 2 * MOST as u64, "{:?}", handle.snapshot());
    let exported = handle.snapshot().exported;
    for _ in 0..10 {
        drop(managed_span!(WORK, "after the flood"));
    }
    let_all_out();
    assert_eq!(handle.snapshot().exported, exported + 10);
    IS_HELD.store(false, Ordering::Relaxed);
    assert!(handle.shutdown(BUDGET));
}
