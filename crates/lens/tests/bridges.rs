//! What `tracing` and `log` say arrives with the ids of the span it was said in. One test: a process sets telemetry
//! up once.

use std::time::Duration;

use lens::config::{ExporterKind, LensConfig, OtlpSettings, Signal};
use lens::logs::{LogRecord, Severity, emit_record};
use lens::{Group, LogBridge, TracingLayer, managed_span};
use lens_testing::OtlpSink;
use tracing_subscriber::layer::SubscriberExt as _;

static WORK: Group = Group::new("work");
static GROUPS: &[&Group] = &[&WORK];
const BUDGET: Duration = Duration::from_secs(20);

#[test]
fn spans_and_events_of_other_libraries_join_the_trace() {
    lens::register("test", GROUPS, &[]);
    let subscriber = tracing_subscriber::registry().with(TracingLayer::new(tracing::Level::INFO));
    tracing::subscriber::set_global_default(subscriber).expect("the first");
    LogBridge::new(log::LevelFilter::Info, None).install().expect("the first");

    let sink = OtlpSink::start().expect("a sink");
    let settings = |signal| OtlpSettings {
        endpoint: sink.grpc_endpoint(),
        ..OtlpSettings::for_signal(signal)
    };
    let config = LensConfig {
        enabled: true,
        span_groups: "work".to_owned(),
        traces_otlp: settings(Signal::Traces),
        logs_otlp: settings(Signal::Logs),
        logs_exporter: ExporterKind::Otlp,
        metrics_exporter: ExporterKind::None,
        ..LensConfig::default()
    };
    let handle = lens::setup_telemetry(config).expect("starts");
    tracing::info_span!("not asked for").in_scope(|| ());
    assert!(handle.set_span_groups("work,tracing").is_empty());

    let ids = {
        let outer = managed_span!(WORK, "outer");
        let theirs = tracing::info_span!("theirs", size = 3, later = tracing::field::Empty);
        theirs.record("later", "set");
        theirs.in_scope(|| {
            drop(managed_span!(WORK, "inner"));
            tracing::warn!(target: "app::db", count = 2, "something {}", "odd");
            tracing::info!(name: "app.started", "with a name");
            tracing::debug!("below the level");
        });
        log::error!("plain {}", 1);
        emit_record(&LogRecord {
            severity: Severity::Info,
            body: "by hand",
            attributes: &[("k", 1.into()), ("k", 2.into())],
            event_name: "app.event",
            target: "app",
        });
        outer.context()
    };
    tracing::info!("outside");
    assert!(handle.force_flush(BUDGET));

    // The sink runs in this process, and what it is made of speaks `tracing` too.
    let mut spans = sink.spans();
    spans.retain(|span| span.trace_id == ids.trace_id().to_string());
    let span = |name: &str| spans.iter().find(|span| span.name == name).expect("it arrived");
    assert_eq!(spans.len(), 3, "{spans:?}");
    assert_eq!(span("theirs").parent_id.as_ref(), Some(&span("outer").span_id));
    assert_eq!(span("inner").parent_id.as_ref(), Some(&span("theirs").span_id));
    assert_eq!(span("theirs").attributes["size"], 3);
    assert_eq!(span("theirs").attributes["later"], "set");
    assert_eq!(span("theirs").scope, "tracing");

    let logs = sink.logs();
    let bodies: Vec<&str> = logs.iter().map(|log| log.body.as_str()).collect();
    // Those of one scope lie together.
    assert_eq!(bodies, ["something odd", "with a name", "plain 1", "outside", "by hand"]);
    let [odd, named, plain, outside, by_hand] = &logs[..] else { panic!("{logs:?}") };
    assert_eq!(odd.span_id, span("theirs").span_id);
    assert_eq!((odd.severity.as_str(), &odd.attributes["count"]), ("WARN", &2.into()));
    assert_eq!((odd.scope.0.as_str(), odd.scope.1.as_str()), ("app::db", ""));
    assert_eq!((odd.event_name.as_str(), odd.attributes.len()), ("", 1), "{odd:?}");
    assert_eq!((named.event_name.as_str(), &named.span_id), ("app.started", &odd.span_id));
    assert_eq!(plain.span_id, ids.span_id().to_string());
    assert_eq!(plain.trace_id, ids.trace_id().to_string());
    assert_eq!((plain.scope.0.as_str(), &plain.scope), ("bridges", &named.scope));
    assert_eq!((outside.span_id.as_str(), outside.trace_id.as_str()), ("", ""));
    assert_eq!((by_hand.event_name.as_str(), by_hand.scope.0.as_str()), ("app.event", "app"));
    assert_eq!((&by_hand.attributes["k"], &by_hand.span_id), (&2.into(), &plain.span_id));
    assert!(handle.shutdown(BUDGET));
    let snapshot = handle.log_snapshot();
    assert_eq!((snapshot.ended, snapshot.exported), (5, 5), "{snapshot:?}");
}
