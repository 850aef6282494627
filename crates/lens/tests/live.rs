//! Work that is under way is seen by a receiver that says that it shows it. One test: a process sets telemetry up once.

use std::time::{Duration, Instant};

use lens::config::{ExporterKind, LensConfig, OtlpSettings, Signal};
use lens::logs::{Severity, emit};
use lens::semconv::live;
use lens::{Context, Group, Span, managed_span};
use lens_testing::{CollectedLog, OtlpSink};

static ROLLOUT: Group = Group::new("rollout").long_lived();
static WORK: Group = Group::new("work");
static GROUPS: &[&Group] = &[&ROLLOUT, &WORK];

const BUDGET: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_millis(50);
const ROLLOUT_ID: &str = "rollout.id";
const TOLD: &str = "test.told";

/// Waits for a record.
fn wait(sink: &OtlpSink, what: &str, found: impl Fn(&CollectedLog) -> bool) -> CollectedLog {
    let give_up = Instant::now() + BUDGET;
    loop {
        if let Some(log) = sink.logs().into_iter().find(&found) {
            return log;
        }
        assert!(Instant::now() < give_up, "{what} did not arrive: {:?}", sink.logs());
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

#[test]
fn open_spans_are_seen_while_they_run_where_the_receiver_shows_them() {
    lens::register("test", GROUPS, &[]);
    lens::promote_baggage_keys(&[ROLLOUT_ID]);
    let sink = OtlpSink::start().expect("a sink");
    let settings = |signal| OtlpSettings {
        endpoint: sink.grpc_endpoint(),
        ..OtlpSettings::for_signal(signal)
    };
    let mut config = LensConfig {
        enabled: true,
        span_groups: "all".to_owned(),
        traces_otlp: settings(Signal::Traces),
        logs_otlp: settings(Signal::Logs),
        metrics_exporter: ExporterKind::None,
        ..LensConfig::default()
    };
    config.batch.schedule_delay = SOON;
    config.log_batch.schedule_delay = SOON;
    config.live.heartbeat = Duration::from_millis(300);
    let handle = lens::setup_telemetry(config).expect("starts");

    let baggage = Context::current().with_baggage(&[(ROLLOUT_ID, "3-1".to_owned())]);
    let rollout = Span::build(&ROLLOUT, "rollout").parent(&baggage).start();
    let inside = baggage.with_span(&rollout);
    let short = Span::build(&WORK, "short").parent(&inside).start();
    drop(managed_span!(WORK, "work"));
    assert!(handle.force_flush(BUDGET));
    short.tell(TOLD, "nobody hears it", &[]);
    assert_eq!(handle.log_snapshot().buffer_bytes, 0, "nothing is begun for a plain receiver");
    assert!(sink.requests().iter().all(|request| !request.body.is_empty()), "nor is it asked");

    sink.observe(true);
    drop(managed_span!(WORK, "work"));
    let is = |event: &'static str, span: &Span| {
        let id = span.context().span_id().to_string();
        move |log: &CollectedLog| log.event_name == event && log.span_id == id
    };
    let opened = wait(&sink, "the open rollout", is(live::OPEN_EVENT, &rollout));
    assert_eq!(opened.trace_id, rollout.context().trace_id().to_string());
    assert_eq!((opened.body.as_str(), &opened.attributes[ROLLOUT_ID]), ("rollout", &"3-1".into()));
    assert_eq!(opened.attributes[live::SPAN_NAME], "rollout");
    assert_eq!(opened.attributes[live::SPAN_GROUP], "rollout");
    assert!(!opened.attributes.contains_key(live::SPAN_PARENT_ID), "{opened:?}");
    assert_eq!((opened.scope.0.as_str(), opened.severity.as_str()), ("test", "INFO"));

    let child = Span::build(&ROLLOUT, "model").parent(&inside).start();
    let opened = wait(&sink, "the open child", is(live::OPEN_EVENT, &child));
    let parent_id = rollout.context().span_id().to_string();
    assert_eq!(opened.attributes[live::SPAN_PARENT_ID], parent_id.as_str());
    let is_staged = |log: &CollectedLog| {
        is(live::HEARTBEAT_EVENT, &rollout)(log) && log.attributes.contains_key(live::SPAN_STAGE)
    };
    let beat = wait(&sink, "a heartbeat with a stage", is_staged);
    assert_eq!(beat.attributes[live::SPAN_STAGE], "model");
    assert_eq!(beat.attributes[ROLLOUT_ID], "3-1");
    let age_millis = beat.attributes[live::SPAN_AGE_MILLIS].as_u64().expect("a number");
    let rollout_start = sink.logs()[0].unix_nanos;
    assert_eq!(age_millis, (beat.unix_nanos - rollout_start) / 1_000_000);
    wait(&sink, "a heartbeat of the child", is(live::HEARTBEAT_EVENT, &child));

    // What happens in a span that is open is told at once, whatever its group.
    short.tell(TOLD, "it is tried again", &[("tries", 1_i64.into()), ("tries", 2_i64.into())]);
    let told = wait(&sink, "what is told", is(TOLD, &short));
    assert_eq!(told.trace_id, short.context().trace_id().to_string());
    assert_eq!((told.body.as_str(), &told.attributes["tries"]), ("it is tried again", &2.into()));
    assert_eq!(told.attributes[ROLLOUT_ID], "3-1");
    assert_eq!((told.scope.0.as_str(), told.attributes.len()), ("test", 2));
    short.tell(TOLD, "of another", &[(ROLLOUT_ID, "4-0".into())]);
    let told = wait(&sink, "what is told", |log| log.body == "of another");
    assert_eq!((&told.attributes[ROLLOUT_ID], told.attributes.len()), (&"4-0".into(), 1));

    // What has ended is told of no longer, what runs is.
    let child_id = child.context().span_id().to_string();
    child.end();
    assert!(handle.force_flush(BUDGET));
    let ended = sink.logs().iter().map(|log| log.unix_nanos).max().unwrap_or_default();
    let later = |log: &CollectedLog| log.unix_nanos > ended + 300_000_000;
    let beat = wait(&sink, "a later heartbeat", |log| {
        later(log) && is(live::HEARTBEAT_EVENT, &rollout)(log)
    });
    assert!(!beat.attributes.contains_key(live::SPAN_STAGE), "{beat:?}");
    assert!(!sink.logs().iter().any(|log| later(log) && log.span_id == child_id));

    // The program's own records are off all the while, and what is no long-lived span is not told of.
    assert!(!lens::logs::is_enabled());
    emit(Severity::Error, "nobody takes it", &[]);
    let short_id = short.context().span_id().to_string();
    drop((short, rollout));
    assert!(handle.shutdown(BUDGET));
    let events = [live::OPEN_EVENT, live::HEARTBEAT_EVENT];
    let is_event = |log: &CollectedLog| events.contains(&log.event_name.as_str());
    let others = |log: &&CollectedLog| log.event_name != TOLD;
    assert!(sink.logs().iter().filter(others).all(|log| is_event(log) && log.span_id != short_id));
    assert_eq!(sink.logs().len() - sink.logs().iter().filter(others).count(), 2);
    let snapshot = handle.log_snapshot();
    assert_eq!(snapshot.exported, sink.counts().logs, "{snapshot:?}");
}
