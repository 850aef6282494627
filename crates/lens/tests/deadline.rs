//! Shutdown keeps its time: what a slow exporter has not taken by then is counted, and metrics do not wait for it.
//! One test: a process sets telemetry up once.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use lens::config::{BatchSettings, ExporterKind, LensConfig, OtlpSettings, Signal};
use lens::metrics::Counter;
use lens::semconv::drop_reason;
use lens::{ExportOutcome, Group, SpanBatch, SpanExporter, managed_span};
use lens_testing::OtlpSink;

static WORK: Group = Group::new("work");
static GROUPS: &[&Group] = &[&WORK];
static REQUESTS: Counter = Counter::new("test.requests", "{request}", "Requests");
const BUDGET: Duration = Duration::from_secs(2);
const SPANS: u64 = 40;

/// Says that it was given a batch and waits for leave.
struct Blocked(mpsc::Sender<()>, mpsc::Receiver<()>);

impl SpanExporter for Blocked {
    fn export(&mut self, _batch: &SpanBatch) -> ExportOutcome {
        let _ = self.0.send(());
        match self.1.recv() {
            Ok(()) => ExportOutcome::Exported { rejected: 0 },
            Err(mpsc::RecvError) => ExportOutcome::Failed,
        }
    }
}

#[test]
fn what_is_not_on_its_way_at_the_deadline_is_dropped_and_counted() {
    lens::register("test", GROUPS, &[]);
    let sink = OtlpSink::start().expect("a sink");
    let (begun, begins) = mpsc::channel();
    let (leave, blocked) = mpsc::channel();
    let config = LensConfig {
        enabled: true,
        span_groups: "work".to_owned(),
        traces_exporter: ExporterKind::None,
        metrics_exporter: ExporterKind::Otlp,
        metrics_otlp: OtlpSettings {
            endpoint: sink.grpc_endpoint(),
            ..OtlpSettings::for_signal(Signal::Metrics)
        },
        batch: BatchSettings { max_batch_spans: Some(10), ..BatchSettings::default() },
        ..LensConfig::default()
    };
    let handle = lens::setup_telemetry_with(config, vec![Box::new(Blocked(begun, blocked))])
        .expect("starts");
    for _ in 0..SPANS {
        drop(managed_span!(WORK, "one of many"));
    }
    begins.recv().expect("a first batch is on its way");

    REQUESTS.add(1, &[]);
    let before = Instant::now();
    assert!(!handle.shutdown(BUDGET), "the exporter is not done");
    assert!((BUDGET..BUDGET * 10).contains(&before.elapsed()), "{:?}", before.elapsed());
    let metrics = sink.metric_names();
    assert!(metrics.contains(&"test.requests".to_owned()), "metrics arrive in time: {metrics:?}");
    leave.send(()).expect("the exporter waits");
    assert!(handle.shutdown(Duration::from_secs(20)), "nothing holds the thread up any more");
    assert!(begins.try_recv().is_err(), "a second batch was begun after the deadline");
    let snapshot = handle.snapshot();
    assert!(snapshot.exported > 0, "what was on its way arrives: {snapshot:?}");
    assert_eq!(snapshot.dropped, [(drop_reason::SHUT_DOWN, SPANS - snapshot.exported)]);
    assert!(snapshot.exported <= 10 && snapshot.queued == 0, "{snapshot:?}");
}
