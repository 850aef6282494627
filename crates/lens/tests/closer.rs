//! Spans that are open when telemetry shuts down. One test: a process sets telemetry up once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use lens::config::{ExporterKind, LensConfig, OtlpSettings, Signal};
use lens::semconv::{TRUNCATED, drop_reason};
use lens::{Context, Group, Span};
use lens_testing::{CollectedSpan, OtlpSink};

static ROLLOUT: Group = Group::new("rollout").long_lived();
static WORK: Group = Group::new("work");
static GROUPS: &[&Group] = &[&ROLLOUT, &WORK];

const THREADS: usize = 3;
/// So many fit into the buffer.
const MOST: usize = 20_000;
const BUDGET: Duration = Duration::from_secs(20);
const STEP: &str = "step";

fn is_truncated(span: &CollectedSpan) -> bool {
    let is_marked = span.attributes.get(TRUNCATED) == Some(&true.into());
    let events: Vec<_> = span.events.iter().filter(|event| event.name == TRUNCATED).collect();
    assert_eq!(events.len(), usize::from(is_marked), "attribute and event go together: {span:?}");
    assert!(events.iter().all(|event| event.unix_nanos <= span.end_nanos), "{span:?}");
    is_marked
}

/// Begins and ends spans until it is told to stop; gives the ids of all, and the last of them open.
fn churn(stop: &AtomicBool, ready: &mpsc::Sender<()>) -> (Vec<String>, Span) {
    let mut ids = Vec::new();
    loop {
        let span = Span::start(&ROLLOUT, "churn");
        if !span.is_recording() {
            return (ids, span);
        }
        ids.push(span.context().span_id().to_string());
        if ids.len() == 100 {
            ready.send(()).expect("the test waits");
        }
        if stop.load(Ordering::Relaxed) || ids.len() == MOST {
            return (ids, span);
        }
        span.end();
    }
}

#[test]
fn spans_open_at_shutdown_are_ended_innermost_first_and_arrive_once() {
    lens::register("test", GROUPS, &[]);
    let sink = OtlpSink::start().expect("a sink");
    let rings = tempfile::tempdir().expect("a folder");
    let mut config = LensConfig {
        enabled: true,
        span_groups: "all".to_owned(),
        metrics_exporter: ExporterKind::None,
        traces_otlp: OtlpSettings {
            endpoint: sink.grpc_endpoint(),
            ..OtlpSettings::for_signal(Signal::Traces)
        },
        ..LensConfig::default()
    };
    config.spool.ring_folder = Some(rings.path().to_owned());
    let handle = lens::setup_telemetry(config).expect("starts");

    // Agent, model, verify, and what is no long-lived span.
    let mut outer = Span::start(&ROLLOUT, "outer");
    outer.set(STEP, 1);
    let mut open: Vec<(&str, Span)> = Vec::new();
    let mut context = Context::current().with_span(&outer);
    open.push(("outer", outer));
    for name in ["middle", "inner"] {
        let mut span = Span::build(&ROLLOUT, name).parent(&context).start();
        span.set_ok();
        context = context.with_span(&span);
        open.push((name, span));
    }
    let short = Span::build(&WORK, "short").parent(&context).start();

    static STOP: AtomicBool = AtomicBool::new(false);
    let (ready, is_ready) = mpsc::channel();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let ready = ready.clone();
            std::thread::spawn(move || churn(&STOP, &ready))
        })
        .collect();
    (0..THREADS).for_each(|_| is_ready.recv().expect("it runs"));
    assert!(handle.shutdown(BUDGET));
    STOP.store(true, Ordering::Relaxed);
    let churned: Vec<_> =
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();

    let spans = sink.spans();
    let mut by_id: HashMap<&str, Vec<&CollectedSpan>> = HashMap::new();
    for span in &spans {
        by_id.entry(&span.span_id).or_default().push(span);
    }
    assert!(by_id.values().all(|copies| copies.len() == 1), "each arrives once");
    let mut last_end = 0;
    let order: Vec<&str> = (spans.iter().filter(|span| span.name != "churn"))
        .map(|span| {
            assert!(is_truncated(span) && span.status.as_str() == "UNSET", "{span:?}");
            assert!(span.end_nanos >= last_end.max(span.start_nanos), "{span:?}");
            last_end = span.end_nanos;
            span.name.as_str()
        })
        .collect();
    assert_eq!(order, ["inner", "middle", "outer"]);
    for (name, span) in &open {
        let arrived = by_id[span.context().span_id().to_string().as_str()][0];
        assert_eq!((arrived.name.as_str(), arrived.scope.as_str()), (*name, "test"));
        assert!(!arrived.attributes.contains_key(STEP), "known as it began: {arrived:?}");
    }
    for (ids, _last) in &churned {
        // All but what began while the groups went off.
        let missing = ids.iter().filter(|id| !by_id.contains_key(id.as_str())).count();
        assert!(missing <= 1, "{missing} of {} are missing", ids.len());
    }
    let snapshot = handle.snapshot();
    // One that was on its way into the buffer at the very end stays there, for whoever looks.
    let kept = snapshot.spooled;
    let gone = snapshot.exported + snapshot.dropped_total() + kept;
    assert!(snapshot.ended == gone && kept <= THREADS as u64, "{snapshot:?}");
    assert_eq!(snapshot.exported as usize, spans.len(), "{snapshot:?}");

    // Their own code comes too late, and that is no loss; the short one is one.
    let dropped = snapshot.dropped_total();
    drop(open);
    assert_eq!(handle.snapshot().dropped_total(), dropped);
    short.end();
    let snapshot = handle.snapshot();
    let shut_down = snapshot.dropped.iter().find(|(why, _)| *why == drop_reason::SHUT_DOWN);
    assert_eq!(shut_down.map(|(_, count)| *count), Some(dropped + 1), "{snapshot:?}");
    let left = std::fs::read_dir(rings.path().join("nemo-gym")).map_or(0, Iterator::count);
    assert_eq!(left, usize::from(kept > 0), "nothing else is left for others");
}
