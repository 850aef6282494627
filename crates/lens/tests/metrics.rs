//! Metrics as a collector gets them: temporality, exemplars, last values, and what the pipeline says about itself.
//!
//! Telemetry is set up once per process, so each test runs itself again in a process of its own.

#[allow(dead_code)]
#[path = "collector/child.rs"]
mod child;

use std::time::Duration;

use lens::config::{
    ExemplarFilter, ExporterKind, HistogramAggregation, LensConfig, MetricSettings, OtlpSettings,
    Protocol, TemporalityPreference, signal_url,
};
use lens::logs::{Severity, emit};
use lens::metrics::{Counter, Gauge, Histogram, UpDownCounter};
use lens::{Group, TelemetryHandle, managed_span};
use lens_otlp::metrics::Number;
use lens_otlp::view::metrics::{Data, MetricView};
use lens_otlp::view::resources;
use lens_testing::{OtlpSink, Signal};

const PATIENCE: Duration = Duration::from_secs(60);

static WORK: Group = Group::new("work");
static GROUPS: &[&Group] = &[&WORK];
static REQUESTS: Counter = Counter::new("test.requests", "1", "");
static OPEN: UpDownCounter = UpDownCounter::new("test.open", "1", "");
static SHARE: Gauge = Gauge::new("test.share", "1", "");
static LENGTH: Histogram = Histogram::with_bounds("test.length", "ms", "", &[1.0, 10.0]);

fn start(sink: &OtlpSink, metrics: MetricSettings) -> TelemetryHandle {
    lens::register("test", GROUPS, &[]);
    let settings = |signal| OtlpSettings {
        endpoint: signal_url(&sink.grpc_endpoint(), Protocol::Grpc, signal),
        ..OtlpSettings::for_signal(signal)
    };
    let config = LensConfig {
        enabled: true,
        span_groups: "work".to_owned(),
        traces_otlp: settings(lens::config::Signal::Traces),
        metrics_otlp: settings(lens::config::Signal::Metrics),
        logs_otlp: settings(lens::config::Signal::Logs),
        logs_exporter: ExporterKind::Otlp,
        metric_interval: PATIENCE,
        metrics,
        ..LensConfig::default()
    };
    lens::setup_telemetry(config).expect("starts")
}

/// What `read` makes of the metric of a name in each export, oldest first.
fn exported<T>(sink: &OtlpSink, name: &str, read: impl Fn(&MetricView<'_>) -> T) -> Vec<T> {
    let mut found = Vec::new();
    for request in sink.requests() {
        if request.signal != Signal::Metrics {
            continue;
        }
        for resource in resources(&request.body) {
            for scope in resource.expect("valid").scopes() {
                for item in scope.expect("valid").items() {
                    let metric = MetricView::read(item.expect("valid")).expect("valid");
                    if metric.name == name {
                        found.push(read(&metric));
                    }
                }
            }
        }
    }
    found
}

/// The value of the only point, or 0 without one; and 1 for deltas, 2 for totals.
fn sum(metric: &MetricView<'_>) -> (i64, u64) {
    let Data::Sum { temporality, .. } = metric.data else { panic!("{:?}", metric.data) };
    let value = match metric.number_points().next().map(|point| point.expect("valid").value) {
        Some(Some(Number::Int(value))) => value,
        _ => 0,
    };
    (value, temporality)
}

fn count(metric: &MetricView<'_>) -> (u64, u64) {
    let Data::Histogram { temporality } = metric.data else { panic!("{:?}", metric.data) };
    let point = metric.histogram_points().next().expect("a point").expect("valid");
    (point.count, temporality)
}

fn two_rounds(preference: TemporalityPreference) -> OtlpSink {
    let sink = OtlpSink::start().expect("a sink");
    let metrics = MetricSettings { temporality: preference, ..MetricSettings::default() };
    let handle = start(&sink, metrics);
    static TOTAL: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    Counter::observable("test.observed", "1", "", || {
        vec![(Vec::new(), TOTAL.load(std::sync::atomic::Ordering::Relaxed))]
    });
    for _ in 0..2 {
        REQUESTS.add(3, &[]);
        OPEN.add(2, &[]);
        LENGTH.record(5.0, &[]);
        TOTAL.fetch_add(4, std::sync::atomic::Ordering::Relaxed);
        assert!(handle.force_flush(PATIENCE));
    }
    sink
}

const DELTA: u64 = 1;
const CUMULATIVE: u64 = 2;

#[test]
fn totals_are_cumulative_unless_something_else_is_preferred() {
    child::in_child("totals_are_cumulative_unless_something_else_is_preferred", || {
        let sink = two_rounds(TemporalityPreference::Cumulative);
        assert_eq!(exported(&sink, "test.requests", sum), [(3, CUMULATIVE), (6, CUMULATIVE)]);
        assert_eq!(exported(&sink, "test.observed", sum), [(4, CUMULATIVE), (8, CUMULATIVE)]);
        assert_eq!(exported(&sink, "test.open", sum), [(2, CUMULATIVE), (4, CUMULATIVE)]);
        assert_eq!(exported(&sink, "test.length", count), [(1, CUMULATIVE), (2, CUMULATIVE)]);
    });
}

#[test]
fn deltas_hold_for_everything_but_sums_that_shrink() {
    child::in_child("deltas_hold_for_everything_but_sums_that_shrink", || {
        let sink = two_rounds(TemporalityPreference::Delta);
        assert_eq!(exported(&sink, "test.requests", sum), [(3, DELTA), (3, DELTA)]);
        assert_eq!(exported(&sink, "test.observed", sum), [(4, DELTA), (4, DELTA)]);
        assert_eq!(exported(&sink, "test.open", sum), [(2, CUMULATIVE), (4, CUMULATIVE)]);
        assert_eq!(exported(&sink, "test.length", count), [(1, DELTA), (1, DELTA)]);
        let times = exported(&sink, "test.requests", |metric| {
            let point = metric.number_points().next().expect("a point").expect("valid");
            (point.start_nanos, point.end_nanos)
        });
        assert_eq!(times[0].1, times[1].0, "one begins where the other ends");
    });
}

#[test]
fn low_memory_keeps_totals_that_are_asked_for() {
    child::in_child("low_memory_keeps_totals_that_are_asked_for", || {
        let sink = two_rounds(TemporalityPreference::LowMemory);
        assert_eq!(exported(&sink, "test.requests", sum), [(3, DELTA), (3, DELTA)]);
        assert_eq!(exported(&sink, "test.observed", sum), [(4, CUMULATIVE), (8, CUMULATIVE)]);
        assert_eq!(exported(&sink, "test.open", sum), [(2, CUMULATIVE), (4, CUMULATIVE)]);
        assert_eq!(exported(&sink, "test.length", count), [(1, DELTA), (1, DELTA)]);
    });
}

/// Trace ids of the exemplars of `test.length` in hex, by export.
fn exemplars(sink: &OtlpSink) -> Vec<Vec<String>> {
    exported(sink, "test.length", |metric| {
        let point = metric.histogram_points().next().expect("a point").expect("valid");
        let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        point.exemplars().map(|exemplar| hex(exemplar.expect("valid").trace_id)).collect()
    })
}

#[test]
fn bucket_carries_the_trace_of_a_recorded_span() {
    child::in_child("bucket_carries_the_trace_of_a_recorded_span", || {
        let sink = OtlpSink::start().expect("a sink");
        let handle = start(&sink, MetricSettings::default());
        LENGTH.record(0.5, &[]);
        let trace = {
            let span = managed_span!(WORK, "slow");
            LENGTH.record(500.0, &[]);
            LENGTH.record(600.0, &[]);
            span.context().trace_id().to_string()
        };
        assert!(handle.force_flush(PATIENCE));
        LENGTH.record(0.5, &[]);
        assert!(handle.force_flush(PATIENCE));
        assert_eq!(exemplars(&sink), [vec![trace.clone()], Vec::new()], "one a bucket");
        assert!(sink.spans().iter().any(|span| span.trace_id == trace), "it can be opened");
    });
}

#[test]
fn exemplars_without_a_trace_are_kept_when_all_are() {
    child::in_child("exemplars_without_a_trace_are_kept_when_all_are", || {
        let sink = OtlpSink::start().expect("a sink");
        let all = ExemplarFilter::AlwaysOn;
        let handle = start(&sink, MetricSettings { exemplars: all, ..Default::default() });
        LENGTH.record(0.5, &[]);
        assert!(handle.force_flush(PATIENCE));
        assert_eq!(exemplars(&sink), [[""]]);
    });
}

#[test]
fn no_exemplars_are_kept_when_they_are_off() {
    child::in_child("no_exemplars_are_kept_when_they_are_off", || {
        let sink = OtlpSink::start().expect("a sink");
        let off = ExemplarFilter::AlwaysOff;
        let handle = start(&sink, MetricSettings { exemplars: off, ..Default::default() });
        let _span = managed_span!(WORK, "slow");
        LENGTH.record(0.5, &[]);
        assert!(handle.force_flush(PATIENCE));
        assert_eq!(exemplars(&sink), [[""; 0]]);
    });
}

#[test]
fn exponential_histogram_takes_what_is_far_apart_and_counts_what_is_no_number() {
    let name = "exponential_histogram_takes_what_is_far_apart_and_counts_what_is_no_number";
    child::in_child(name, || {
        let sink = OtlpSink::start().expect("a sink");
        let histogram = HistogramAggregation::Exponential;
        let handle = start(&sink, MetricSettings { histogram, ..Default::default() });
        for value in [0.0, f64::from_bits(1), f64::MAX, f64::INFINITY, f64::NAN] {
            LENGTH.record(value, &[("kind", "far".into())]);
        }
        assert!(handle.force_flush(PATIENCE));
        let seen = exported(&sink, "test.length", |metric| {
            let point = metric.exponential_points().next().expect("a point").expect("valid");
            let (key, _) = point.attributes().next().expect("an attribute").expect("valid");
            (point.count, point.zero_count, point.sum, key.to_owned())
        });
        assert_eq!(seen, [(3, 1, Some(f64::MAX), "kind".to_owned())]);
        let dropped = exported(&sink, lens::semconv::pipeline::MEASUREMENTS_DROPPED, sum);
        assert_eq!(dropped, [(2, CUMULATIVE)]);
    });
}

#[test]
fn last_values_are_exported_at_the_end_however_long_the_interval() {
    child::in_child("last_values_are_exported_at_the_end_however_long_the_interval", || {
        let sink = OtlpSink::start().expect("a sink");
        let handle = start(&sink, MetricSettings::default());
        REQUESTS.add(3, &[]);
        SHARE.set(0.5, &[]);
        assert!(handle.shutdown(PATIENCE));
        assert_eq!(exported(&sink, "test.requests", sum), [(3, CUMULATIVE)]);
        assert_eq!(exported(&sink, "test.share", |_| ()).len(), 1);
    });
}

#[test]
fn pipeline_tells_what_became_of_spans_log_records_and_exports() {
    child::in_child("pipeline_tells_what_became_of_spans_log_records_and_exports", || {
        use lens::semconv::pipeline as names;
        let sink = OtlpSink::start().expect("a sink");
        let handle = start(&sink, MetricSettings::default());
        drop(managed_span!(WORK, "one"));
        emit(Severity::Info, "one", &[]);
        assert!(handle.force_flush(PATIENCE));
        let last = |name: &str| exported(&sink, name, sum).pop();
        for name in
            [names::SPANS_ENDED, names::SPANS_EXPORTED, names::LOGS_ENDED, names::LOGS_EXPORTED]
        {
            assert_eq!(last(name), Some((1, CUMULATIVE)), "{name}");
        }
        for name in [names::SPANS_QUEUED, names::LOGS_QUEUED] {
            let value = exported(&sink, name, |metric| {
                metric.number_points().next().expect("a point").expect("valid").value
            });
            assert_eq!(value, [Some(Number::Double(0.0))], "{name}");
        }
        assert_eq!(last(names::EXPORT_FAILURES), Some((0, CUMULATIVE)));
        // One point a signal; the export of metrics itself is told by the next.
        let points = |metric: &MetricView<'_>| {
            metric.histogram_points().map(|point| point.expect("valid").count).sum::<u64>()
        };
        assert_eq!(exported(&sink, names::EXPORT_DURATION, points), [2]);

        sink.answer_with([lens_testing::Reply::Grpc(3)]);
        drop(managed_span!(WORK, "refused"));
        assert!(handle.force_flush(PATIENCE));
        assert_eq!(last(names::EXPORT_FAILURES), Some((1, CUMULATIVE)));
        assert_eq!(last(names::SPANS_DROPPED), Some((1, CUMULATIVE)));
    });
}
