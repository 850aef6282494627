//! The pipeline of a whole process, over OTLP/gRPC. One test: a process sets telemetry up once.

use std::time::Duration;

use lens::config::{BatchSettings, LensConfig, OtlpSettings, Signal, signal_url};
use lens::metrics::{Counter, Gauge, Histogram, UpDownCounter};
use lens::{Context, Group, PipelineSnapshot, SetupError, Span, Value, managed_span};
use lens_testing::{OtlpSink, Reply};

static WORK: Group = Group::new("work");
static QUIET: Group = Group::new("quiet");
static LATE: Group = Group::new("late");
static GROUPS: &[&Group] = &[&WORK, &QUIET];
static LATE_GROUPS: &[&Group] = &[&LATE];

static REQUESTS: Counter = Counter::new("test.requests", "{request}", "Requests");
static IN_FLIGHT: UpDownCounter = UpDownCounter::new("test.in_flight", "{request}", "In flight");
static SHARE: Gauge = Gauge::new("test.share", "1", "A share");
static DURATION: Histogram = Histogram::new("test.duration", "ms", "A duration");

const BUDGET: Duration = Duration::from_secs(20);

fn config(sink: &OtlpSink) -> LensConfig {
    let settings = |signal: Signal| {
        let defaults = OtlpSettings::for_signal(signal);
        let endpoint = signal_url(&sink.grpc_endpoint(), defaults.protocol, signal);
        OtlpSettings { endpoint, ..defaults }
    };
    LensConfig {
        enabled: true,
        service_name: "nemo-gym/test".to_owned(),
        resource_attributes: vec![("nemo.run.id".to_owned(), "r1".into())],
        span_groups: "WORK, qiet, late".to_owned(),
        traces_otlp: settings(Signal::Traces),
        metrics_otlp: settings(Signal::Metrics),
        batch: BatchSettings {
            schedule_delay: Duration::from_secs(3600),
            max_batch_spans: Some(100),
            ..BatchSettings::default()
        },
        metric_interval: Duration::from_secs(3600),
        ..LensConfig::default()
    }
}

fn accounted(snapshot: &PipelineSnapshot) -> u64 {
    snapshot.exported + snapshot.rejected + snapshot.dropped_total() + snapshot.queued
}

#[test]
fn every_span_of_a_process_is_accounted_for() {
    lens::register("test", GROUPS, &[]);
    assert!(!WORK.is_enabled(), "everything is off before setup");
    drop(managed_span!(WORK, "before setup"));
    assert!(Context::empty().with_baggage(&[("k", "v".to_owned())]).baggage("k").is_none());

    let off = lens::setup_telemetry(LensConfig::default()).expect("off is no error");
    assert!(!off.is_exporting() && off.shutdown(BUDGET));

    let sink = OtlpSink::start().expect("a sink");
    let handle = lens::setup_telemetry(config(&sink)).expect("telemetry starts");
    assert!(handle.is_exporting());
    let warning = "unknown span group \"qiet\" is ignored; did you mean \"quiet\"?";
    let late = "unknown span group \"late\" is ignored";
    let warnings = handle.warnings();
    assert!(
        warnings.len() == 2 && warnings[0] == warning && warnings[1].starts_with(late),
        "{warnings:?}"
    );
    let second = lens::setup_telemetry(config(&sink)).map(|_| ());
    assert_eq!(second, Err(SetupError::AlreadySetUp));
    assert!(WORK.is_enabled() && !QUIET.is_enabled());
    assert!(lens::is_span_group_enabled(" Work ") && !lens::is_span_group_enabled("quiet"));
    lens::register("later", LATE_GROUPS, &[]);
    assert!(LATE.is_enabled(), "the choice holds for groups registered after setup");

    // Spans of several threads, in batches of at most 100.
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                for _ in 0..100 {
                    let _outer = managed_span!(WORK, "outer");
                    drop(managed_span!(LATE, "inner"));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert!(handle.force_flush(BUDGET));
    let snapshot = handle.snapshot();
    assert_eq!((snapshot.ended, snapshot.exported, snapshot.queued), (800, 800, 0), "{snapshot:?}");
    let spans = sink.spans();
    assert_eq!(spans.len(), 800);
    assert!(sink.requests().iter().filter(|request| request.path.contains("Trace")).count() >= 8);
    let inner: Vec<_> = spans.iter().filter(|span| span.name == "inner").collect();
    for span in &inner {
        let parent = spans.iter().find(|parent| Some(&parent.span_id) == span.parent_id.as_ref());
        let parent = parent.expect("the parent arrived");
        assert_eq!((parent.name.as_str(), &parent.trace_id), ("outer", &span.trace_id));
        assert!(parent.start_nanos <= span.start_nanos && span.end_nanos <= parent.end_nanos);
    }
    assert_eq!((inner.len(), inner[0].scope.as_str()), (400, "later"));
    let resource = &spans[0].resource;
    assert_eq!(resource["service.name"], "nemo-gym/test");
    assert_eq!(resource["nemo.run.id"], "r1");
    assert_eq!(resource["dl.rank"], 0);
    assert_eq!(resource["dl.world_size"], 1);
    assert_eq!(resource["telemetry.sdk.language"], "rust");
    assert_eq!(resource["telemetry.sdk.name"], "lens");
    assert_eq!(resource["telemetry.sdk.version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(resource["process.pid"], std::process::id());
    assert!(resource.contains_key("service.instance.id") && resource.contains_key("host.name"));

    // Metrics of every kind, and the pipeline's own.
    REQUESTS.add(2, &[("route", Value::from_static("/run"))]);
    REQUESTS.bind(&[("route", Value::from("/run"))]).add(3);
    IN_FLIGHT.add(-1, &[]);
    SHARE.set(0.5, &[]);
    DURATION.bind(&[]).record(12.0);
    assert!(handle.force_flush(BUDGET));
    let names = sink.metric_names();
    for name in
        ["test.requests", "test.in_flight", "test.share", "test.duration", "lens.spans.ended"]
    {
        assert!(names.iter().any(|known| known == name), "{name} is missing in {names:?}");
    }

    // What a receiver refuses is rejected, not lost.
    sink.answer_with([Reply::Partial(1), Reply::Grpc(3)]);
    drop(managed_span!(WORK, "one of two"));
    drop(managed_span!(WORK, "two of two"));
    Span::start(&WORK, "three").end();
    let snapshot_open = handle.snapshot();
    assert_eq!((snapshot_open.ended, snapshot_open.queued), (803, 3));
    assert!(handle.force_flush(BUDGET));
    // Spans go out before metrics, so the first order met the spans and the second the metrics.
    let snapshot = handle.snapshot();
    assert_eq!((snapshot.rejected, snapshot.exported), (1, 802), "{snapshot:?}");

    // A span that is open at shutdown is counted when it ends.
    let open = Span::start(&WORK, "open at shutdown");
    drop(managed_span!(WORK, "last"));
    let spans_before = sink.counts().spans;
    assert!(handle.shutdown(BUDGET));
    assert!(!WORK.is_enabled() && !handle.is_exporting());
    assert_eq!(sink.counts().spans, spans_before + 1);
    open.end();
    assert!(handle.shutdown(BUDGET), "a second shutdown has nothing left to do");
    let snapshot = handle.snapshot();
    assert_eq!(snapshot.dropped, [(lens::semconv::drop_reason::SHUT_DOWN, 1)]);
    assert_eq!(accounted(&snapshot), snapshot.ended, "{snapshot:?}");
    assert!(handle.force_flush(BUDGET), "a flush after shutdown returns at once");
}
