//! The collector is away: what can be kept is kept in order, the rest is counted, and nobody waits for it.
//!
//! Telemetry is set up once per process, so each test runs itself again in a process of its own.

#[path = "collector/child.rs"]
mod child;
#[path = "collector/producer.rs"]
mod producer;

use std::path::Path;
use std::time::Duration;

use child::{Folder, in_child, wait_until};
use lens::config::{BatchSettings, ExporterKind, LensConfig, OtlpSettings, Protocol, Signal};
use lens::config::{SpoolSettings, signal_url};
use lens::semconv::drop_reason;
use lens::{PipelineSnapshot, TelemetryHandle};
use lens_testing::{OtlpSink, Reply};
use producer::{Pace, Producer};

/// Only a test that has failed takes so long.
const PATIENCE: Duration = Duration::from_secs(60);
const SLOT_BYTES: usize = 64 << 10;

fn config(sink: &OtlpSink, protocol: Protocol, slots: usize, spool: Option<&Path>) -> LensConfig {
    producer::register();
    let base = if protocol == Protocol::Grpc { sink.grpc_endpoint() } else { sink.http_endpoint() };
    LensConfig {
        enabled: true,
        span_groups: "work".to_owned(),
        traces_otlp: OtlpSettings {
            endpoint: signal_url(&base, protocol, Signal::Traces),
            protocol,
            // The budget of one request: after it the receiver counts as away.
            timeout: Duration::from_millis(300),
            ..OtlpSettings::for_signal(Signal::Traces)
        },
        metrics_exporter: ExporterKind::None,
        batch: BatchSettings {
            schedule_delay: Duration::from_millis(20),
            max_queue_bytes: slots * SLOT_BYTES,
            max_batch_bytes: 32 << 10,
            ..BatchSettings::default()
        },
        spool: SpoolSettings {
            overflow_folder: spool.map(Path::to_owned),
            run_id: "run".to_owned(),
            ..SpoolSettings::default()
        },
        ..LensConfig::default()
    }
}

fn dropped(snapshot: &PipelineSnapshot, reason: &str) -> u64 {
    snapshot.dropped.iter().find(|(known, _)| *known == reason).map_or(0, |(_, count)| *count)
}

fn assert_exact(snapshot: &PipelineSnapshot, ended: u64) {
    assert_eq!(snapshot.ended, ended, "{snapshot:?}");
    let gone = snapshot.exported + snapshot.rejected + snapshot.dropped_total();
    assert_eq!(gone + snapshot.spooled + snapshot.queued, ended, "{snapshot:?}");
}

/// Numbers of the spans that a sink accepted, in the order of arrival.
fn numbers(sink: &OtlpSink) -> Vec<u64> {
    let number = |span: lens_testing::CollectedSpan| span.attributes["number"].as_u64();
    sink.spans().into_iter().map(|span| number(span).expect("a number")).collect()
}

fn assert_delivered(sink: &OtlpSink, handle: &TelemetryHandle, ended: u64) {
    assert!(handle.force_flush(PATIENCE), "{:?}", handle.snapshot());
    let snapshot = handle.snapshot();
    assert_exact(&snapshot, ended);
    assert_eq!(snapshot.exported, ended, "{snapshot:?}");
    let numbers = numbers(sink);
    let first_wrong = numbers.iter().zip(0..).find(|(found, expected)| *found != expected);
    assert_eq!((first_wrong, numbers.len() as u64), (None, ended), "each once, in order");
}

/// The collector is back: waits until something arrives.
fn await_delivery(sink: &OtlpSink, handle: &TelemetryHandle) {
    // A flush does not sit out the pause before the next attempt.
    handle.force_flush(Duration::ZERO);
    wait_until("deliveries", || sink.counts().spans > 0);
}

/// The collector answers badly until spans had to go to files, then well.
fn survives(protocol: Protocol, bad: Reply) {
    let (folder, sink) = (Folder::new(), OtlpSink::start().expect("a sink"));
    sink.answer_all_with(Some(bad));
    let config = config(&sink, protocol, 8, Some(folder.path()));
    let handle = lens::setup_telemetry(config).expect("starts");
    let producer = Producer::start(&handle, Pace::WhatFits);
    wait_until("files and a failed request", || {
        let snapshot = handle.snapshot();
        snapshot.spooled > 2_000 && snapshot.export_failures > 0
    });
    assert!(!folder.chunks().is_empty(), "{:?}", handle.snapshot());
    assert_eq!(sink.counts().spans, 0, "nothing is taken for delivered");
    sink.answer_all_with(None);
    await_delivery(&sink, &handle);
    let ended = producer.stop();
    assert_delivered(&sink, &handle, ended);
    assert_eq!(folder.chunks(), Vec::<String>::new(), "files go when they are delivered");
    assert!(handle.shutdown(PATIENCE));
    assert_exact(&handle.snapshot(), ended);
    assert!(folder.is_empty(), "{:?}", folder.all());
}

#[test]
fn nothing_is_lost_while_the_port_is_closed() {
    in_child("nothing_is_lost_while_the_port_is_closed", || {
        let (folder, sink) = (Folder::new(), OtlpSink::start().expect("a sink"));
        let config = config(&sink, Protocol::Grpc, 8, Some(folder.path()));
        let (grpc, http) = sink.addresses();
        drop(sink);
        let handle = lens::setup_telemetry(config).expect("starts");
        let producer = Producer::start(&handle, Pace::WhatFits);
        wait_until("files and a failed request", || {
            let snapshot = handle.snapshot();
            snapshot.spooled > 2_000 && snapshot.export_failures > 0
        });
        let sink = OtlpSink::start_at(grpc, http).expect("the same ports");
        await_delivery(&sink, &handle);
        let ended = producer.stop();
        assert_delivered(&sink, &handle, ended);
        assert!(handle.shutdown(PATIENCE));
        assert!(folder.is_empty(), "{:?}", folder.all());
    })
    .said_once("the connection was refused");
}

/// Nobody listens, and the process ends long before the budget of an export is spent.
fn ends_at_once(protocol: Protocol, wait_for_a_failure: bool) {
    let (folder, sink) = (Folder::new(), OtlpSink::start().expect("a sink"));
    let mut config = config(&sink, protocol, 8, Some(folder.path()));
    config.traces_otlp.timeout = 3 * PATIENCE;
    config.metrics_exporter = ExporterKind::Otlp;
    config.metrics_otlp = OtlpSettings {
        endpoint: signal_url(&sink.grpc_endpoint(), Protocol::Grpc, Signal::Metrics),
        timeout: 3 * PATIENCE,
        ..OtlpSettings::for_signal(Signal::Metrics)
    };
    drop(sink);
    let handle = lens::setup_telemetry(config).expect("starts");
    producer::end_spans(0..100);
    if wait_for_a_failure {
        // Tries go on, with pauses that grow.
        assert!(!handle.force_flush(Duration::from_millis(500)), "nobody is there");
    }
    let before = std::time::Instant::now();
    assert!(handle.shutdown(PATIENCE), "the threads have ended");
    assert!(before.elapsed() < PATIENCE / 10, "{:?}", before.elapsed());
    let snapshot = handle.snapshot();
    assert_exact(&snapshot, 100);
    assert_eq!(snapshot.spooled, 100, "{snapshot:?}");
    assert!(!folder.chunks().is_empty(), "{:?}", folder.all());
}

#[test]
fn with_a_closed_port_a_short_process_ends_at_once_and_keeps_its_spans() {
    let name = "with_a_closed_port_a_short_process_ends_at_once_and_keeps_its_spans";
    in_child(name, || ends_at_once(Protocol::Grpc, false))
        .said_once("traces cannot be delivered to");
}

#[test]
fn with_a_closed_port_shutdown_does_not_wait_for_the_next_try() {
    let name = "with_a_closed_port_shutdown_does_not_wait_for_the_next_try";
    in_child(name, || ends_at_once(Protocol::HttpProtobuf, true))
        .said_once("traces cannot be delivered to");
}

#[test]
fn nothing_is_lost_while_the_collector_hangs() {
    let name = "nothing_is_lost_while_the_collector_hangs";
    in_child(name, || survives(Protocol::Grpc, Reply::Hang))
        .said_once("there was no answer in time");
}

#[test]
fn nothing_is_lost_while_the_collector_hangs_over_http() {
    let name = "nothing_is_lost_while_the_collector_hangs_over_http";
    in_child(name, || survives(Protocol::HttpProtobuf, Reply::Hang));
}

#[test]
fn nothing_is_lost_when_the_collector_asks_for_time() {
    let name = "nothing_is_lost_when_the_collector_asks_for_time";
    in_child(name, || survives(Protocol::HttpProtobuf, Reply::HttpAfter(429, "1")))
        .said_once("the receiver answered HTTP 429");
}

#[test]
fn nothing_is_lost_while_a_proxy_says_that_it_is_unavailable() {
    let name = "nothing_is_lost_while_a_proxy_says_that_it_is_unavailable";
    in_child(name, || survives(Protocol::Grpc, Reply::Http(503)));
}

#[test]
fn nothing_is_lost_while_the_collector_says_that_it_is_unavailable() {
    let name = "nothing_is_lost_while_the_collector_says_that_it_is_unavailable";
    in_child(name, || survives(Protocol::Grpc, Reply::Grpc(14)));
}

#[test]
fn nothing_is_lost_while_the_collector_is_exhausted() {
    let name = "nothing_is_lost_while_the_collector_is_exhausted";
    let busy = Reply::GrpcRetryInfo(8, Duration::from_millis(400));
    in_child(name, || survives(Protocol::Grpc, busy));
}

#[test]
fn nothing_is_lost_while_answers_break_off() {
    let name = "nothing_is_lost_while_answers_break_off";
    in_child(name, || survives(Protocol::HttpProtobuf, Reply::CutOff));
}

#[test]
fn nothing_is_lost_while_calls_break_off() {
    let name = "nothing_is_lost_while_calls_break_off";
    in_child(name, || survives(Protocol::Grpc, Reply::CutOff));
}

#[test]
fn nothing_is_lost_while_answers_mean_nothing() {
    let name = "nothing_is_lost_while_answers_mean_nothing";
    in_child(name, || survives(Protocol::Grpc, Reply::Garbage));
}

#[test]
fn a_slow_collector_gets_everything_in_order() {
    in_child("a_slow_collector_gets_everything_in_order", || {
        let (folder, sink) = (Folder::new(), OtlpSink::start().expect("a sink"));
        sink.answer_all_with(Some(Reply::Slow(Duration::from_millis(120))));
        let mut config = config(&sink, Protocol::Grpc, 8, Some(folder.path()));
        config.traces_otlp.timeout = PATIENCE;
        let handle = lens::setup_telemetry(config).expect("starts");
        let producer = Producer::start(&handle, Pace::WhatFits);
        wait_until("files and deliveries", || {
            handle.snapshot().spooled > 2_000 && sink.counts().spans > 0
        });
        sink.answer_all_with(None);
        let ended = producer.stop();
        assert_delivered(&sink, &handle, ended);
        assert!(handle.shutdown(PATIENCE));
        assert!(folder.is_empty(), "{:?}", folder.all());
    });
}

#[test]
fn what_the_collector_rejects_is_counted_as_rejected() {
    in_child("what_the_collector_rejects_is_counted_as_rejected", || {
        let sink = OtlpSink::start().expect("a sink");
        let orders = [Reply::PartialSaying(0, "a remark"), Reply::PartialSaying(3, "no names")];
        sink.answer_with(orders.into_iter().chain([Reply::Grpc(3), Reply::Partial(1)]));
        let handle = lens::setup_telemetry(config(&sink, Protocol::Grpc, 8, None)).expect("starts");
        for round in 0..4 {
            producer::end_spans(round * 10..(round + 1) * 10);
            assert!(handle.force_flush(PATIENCE));
        }
        let snapshot = handle.snapshot();
        assert_exact(&snapshot, 40);
        assert_eq!((snapshot.rejected, snapshot.exported), (14, 26), "{snapshot:?}");
        assert_eq!(sink.tries(), 4, "nothing is sent again");
        assert!(handle.shutdown(PATIENCE));
    })
    .said_in_all(&[
        ": the receiver refused 3 of the items of a request (no names); ",
        "the receiver answered gRPC status 3",
    ]);
}

#[test]
fn requests_that_are_too_large_are_delivered_in_pieces() {
    in_child("requests_that_are_too_large_are_delivered_in_pieces", || {
        let sink = OtlpSink::start().expect("a sink");
        sink.answer_all_with(Some(Reply::UpTo(4 << 10)));
        let handle = lens::setup_telemetry(config(&sink, Protocol::Grpc, 8, None)).expect("starts");
        producer::end_spans(0..500);
        assert_delivered(&sink, &handle, 500);
        assert!(sink.counts().requests > 4);
        assert!(handle.shutdown(PATIENCE));
    });
}

#[test]
fn without_files_a_full_ring_drops_the_newest_and_counts_them() {
    in_child("without_files_a_full_ring_drops_the_newest_and_counts_them", || {
        let sink = OtlpSink::start().expect("a sink");
        sink.answer_all_with(Some(Reply::Hang));
        let handle = lens::setup_telemetry(config(&sink, Protocol::Grpc, 4, None)).expect("starts");
        let producer = Producer::start(&handle, Pace::Unbridled);
        // The producer goes on: nobody waits for the collector.
        wait_until("drops", || dropped(&handle.snapshot(), drop_reason::BUFFER_FULL) > 50_000);
        let ended = producer.stop();
        let snapshot = handle.snapshot();
        assert_exact(&snapshot, ended);
        assert_eq!((snapshot.spooled, snapshot.exported), (0, 0), "{snapshot:?}");
        assert!(snapshot.queued > 0, "{snapshot:?}");

        sink.answer_all_with(None);
        assert!(handle.force_flush(PATIENCE));
        let snapshot = handle.snapshot();
        assert_exact(&snapshot, ended);
        let buffer_full = dropped(&snapshot, drop_reason::BUFFER_FULL);
        assert_eq!((snapshot.exported, snapshot.queued), (ended - buffer_full, 0), "{snapshot:?}");
        let numbers = numbers(&sink);
        assert_eq!(numbers.len() as u64, snapshot.exported);
        assert_eq!(numbers.first(), Some(&0), "the oldest stay");
        assert!(numbers.is_sorted_by(|earlier, later| earlier < later), "each once, in order");
        assert!(handle.shutdown(PATIENCE));
    })
    .said_once("the buffer is full");
}

#[test]
fn a_spent_budget_of_files_is_said_once_and_its_price_counted() {
    in_child("a_spent_budget_of_files_is_said_once_and_its_price_counted", || {
        let (folder, sink) = (Folder::new(), OtlpSink::start().expect("a sink"));
        sink.answer_all_with(Some(Reply::Hang));
        let mut config = config(&sink, Protocol::Grpc, 4, Some(folder.path()));
        config.batch.max_spool_bytes = 200 << 10;
        let handle = lens::setup_telemetry(config).expect("starts");
        let producer = Producer::start(&handle, Pace::Unbridled);
        wait_until("files and drops", || {
            let snapshot = handle.snapshot();
            snapshot.spooled > 0 && dropped(&snapshot, drop_reason::BUFFER_FULL) > 50_000
        });
        let ended = producer.stop();
        assert_exact(&handle.snapshot(), ended);
        assert!(folder.bytes() <= 200 << 10, "{}", folder.bytes());

        sink.answer_all_with(None);
        assert!(handle.force_flush(PATIENCE));
        let snapshot = handle.snapshot();
        assert_exact(&snapshot, ended);
        let lost = dropped(&snapshot, drop_reason::BUFFER_FULL);
        assert_eq!(snapshot.exported, ended - lost, "what was kept arrives: {snapshot:?}");
        let numbers = numbers(&sink);
        assert_eq!(numbers.len() as u64, snapshot.exported);
        assert!(numbers.is_sorted_by(|earlier, later| earlier < later), "each once, in order");
        assert!(handle.shutdown(PATIENCE));
        assert!(folder.is_empty(), "{:?}", folder.all());
    })
    .said_once("the spool is full");
}

#[test]
fn the_next_process_delivers_what_a_shutdown_could_not() {
    let name = "the_next_process_delivers_what_a_shutdown_could_not";
    const SPANS: u64 = 700;
    if let Some(context) = child::context(name) {
        // The child: its part, the collector's ports and the folder.
        let [part, grpc, folder] = context.as_slice() else { panic!("{context:?}") };
        let unused = OtlpSink::start().expect("a sink");
        let mut config = config(&unused, Protocol::Grpc, 8, Some(Path::new(folder)));
        config.traces_otlp.endpoint.clone_from(grpc);
        // Longer than the shutdown: that is what ends the wait for the collector.
        config.traces_otlp.timeout = PATIENCE;
        config.spool.run_id.clone_from(part);
        let handle = lens::setup_telemetry(config).expect("starts");
        if part == "first" {
            producer::end_spans(0..SPANS);
            assert!(handle.shutdown(Duration::from_secs(2)), "ends by its deadline");
            let snapshot = handle.snapshot();
            assert_exact(&snapshot, SPANS);
            assert_eq!((snapshot.spooled, snapshot.queued), (SPANS, 0), "{snapshot:?}");
        } else {
            producer::end_spans(SPANS..SPANS + 1);
            assert!(handle.force_flush(PATIENCE));
            assert!(handle.shutdown(PATIENCE));
            let snapshot = handle.snapshot();
            assert_eq!((snapshot.recovered, snapshot.exported), (SPANS, 1), "{snapshot:?}");
        }
        return;
    }
    let (folder, sink) = (Folder::new(), OtlpSink::start().expect("a sink"));
    let run = |part: &str| {
        let folder = folder.path().to_str().expect("text");
        child::run(name, &[part, &sink.grpc_endpoint(), folder]);
    };
    sink.answer_all_with(Some(Reply::Hang));
    run("first");
    assert_eq!(sink.counts().spans, 0);
    assert!(!folder.chunks().is_empty());
    sink.answer_all_with(None);
    run("second");
    let numbers = numbers(&sink);
    assert!(numbers.iter().copied().eq(0..=SPANS), "each once, in order: {numbers:?}");
    assert!(folder.is_empty(), "{:?}", folder.all());
}
