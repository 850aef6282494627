//! Off is off, and what a setting of the pipeline promises is seen from outside.
//!
//! Telemetry is set up once per process, so each test runs itself again in a process of its own.

#[allow(dead_code, reason = "shared with the tests of collectors")]
#[path = "collector/child.rs"]
mod child;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use child::{Folder, in_child, wait_until};
use lens::config::{ExporterKind, LensConfig, SpoolSettings};
use lens::metrics::Counter;
use lens::{ExportOutcome, Exporters, Group, MetricExporter, Span, env_vars};
use lens_otlp::view::metrics::MetricView;
use lens_testing::{OtlpSink, Reply};

/// Only a test that has failed takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

static WORK: Group = Group::new("work");
static GROUPS: &[&Group] = &[&WORK];
static REQUESTS: Counter = Counter::new("test.requests", "{request}", "Requests");

fn register() {
    lens::register("test", GROUPS, &[("default", &["work"])]);
}

fn end_spans(count: u64) {
    for _ in 0..count {
        Span::start(&WORK, "one").end();
    }
}

/// The config that variables give a program, besides those that switch it on and name the receiver.
fn config_of(endpoint: &str, more: &[(&str, &str)]) -> LensConfig {
    register();
    let enabled = format!("{}{}", env_vars::NEMO_LENS, env_vars::suffix::ENABLED);
    let basic = [(enabled.as_str(), "1"), (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, endpoint)];
    let variables: BTreeMap<String, String> = basic
        .iter()
        .chain(more)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let (config, warnings) = LensConfig::from_env_map(&variables, &[env_vars::NEMO_LENS]);
    assert_eq!(warnings, []);
    config
}

/// Names of this process's threads.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux").filter_map(Result::ok);
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    let mut names: Vec<_> = tasks.filter_map(name).map(|name| name.trim().to_owned()).collect();
    names.sort();
    names
}

/// A port at which nobody may knock.
fn silent_port() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("it can be asked");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    (listener, endpoint)
}

fn nobody_came(listener: &TcpListener) -> bool {
    matches!(listener.accept(), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

fn starts_nothing(variables: &[(&str, &str)], change: impl FnOnce(&mut LensConfig)) {
    let (folder, (listener, endpoint)) = (Folder::new(), silent_port());
    let mut config = config_of(&endpoint, variables);
    config.spool = SpoolSettings {
        ring_folder: Some(folder.path().join("rings")),
        overflow_folder: Some(folder.path().join("files")),
        ..SpoolSettings::default()
    };
    change(&mut config);
    let before = threads();
    let handle = lens::setup_telemetry(config).expect("off is no error");
    end_spans(100);
    REQUESTS.add(1, &[]);
    lens::logs::emit(lens::logs::Severity::Error, "unheard", &[]);
    assert_eq!(threads(), before);
    assert!(!handle.is_exporting() && handle.force_flush(PATIENCE) && handle.shutdown(PATIENCE));
    assert_eq!(threads(), before);
    assert!(nobody_came(&listener), "a connection was made");
    assert_eq!(folder.all(), Vec::<std::path::PathBuf>::new());
    assert!(!folder.path().join("rings").exists() && !folder.path().join("files").exists());
}

#[test]
fn three_exporters_that_are_none_start_nothing() {
    in_child("three_exporters_that_are_none_start_nothing", || {
        let none = [
            (env_vars::OTEL_TRACES_EXPORTER, "none"),
            (env_vars::OTEL_METRICS_EXPORTER, "none"),
            (env_vars::OTEL_LOGS_EXPORTER, "none"),
        ];
        starts_nothing(&none, |_| {});
    });
}

#[test]
fn the_kill_switch_starts_nothing() {
    in_child("the_kill_switch_starts_nothing", || {
        starts_nothing(&[(env_vars::OTEL_SDK_DISABLED, "true")], |_| {});
    });
}

#[test]
fn without_a_group_there_is_no_span_pipeline() {
    in_child("without_a_group_there_is_no_span_pipeline", || {
        let no_metrics = [(env_vars::OTEL_METRICS_EXPORTER, "none")];
        starts_nothing(&no_metrics, |config| config.span_groups = " , ".to_owned());
    });
}

#[test]
fn without_a_group_metrics_are_all_that_runs() {
    in_child("without_a_group_metrics_are_all_that_runs", || {
        let (folder, sink) = (Folder::new(), OtlpSink::start().expect("a sink"));
        let mut config = config_of(&sink.grpc_endpoint(), &[]);
        config.span_groups = String::new();
        config.spool.ring_folder = Some(folder.path().join("rings"));
        let handle = lens::setup_telemetry(config).expect("starts");
        end_spans(100);
        REQUESTS.add(1, &[]);
        // A thread names itself once it runs.
        let own = || -> Vec<String> {
            threads().into_iter().filter(|name| name.starts_with("lens-")).collect()
        };
        wait_until("two threads", || own() == ["lens-metrics", "lens-otlp"]);
        assert!(handle.shutdown(PATIENCE));
        assert!(sink.metric_names().contains(&"test.requests".to_owned()));
        assert!(sink.spans().is_empty() && !folder.path().join("rings").exists());
    });
}

#[test]
fn full_batches_leave_without_waiting_for_the_delay() {
    in_child("full_batches_leave_without_waiting_for_the_delay", || {
        let sink = OtlpSink::start().expect("a sink");
        let slow = [
            (env_vars::OTEL_METRICS_EXPORTER, "none"),
            (env_vars::OTEL_BSP_SCHEDULE_DELAY, "60000"),
            (env_vars::OTEL_BSP_MAX_EXPORT_BATCH_SIZE, "512"),
        ];
        let config = config_of(&sink.grpc_endpoint(), &slow);
        let handle = lens::setup_telemetry(config).expect("starts");
        end_spans(2_000);
        wait_until("three full batches", || sink.counts().spans >= 3 * 512);
        let sizes = sink
            .requests()
            .into_iter()
            .map(|request| lens_testing::decode(&request.body).expect("a request").len());
        let sizes: Vec<usize> = sizes.collect();
        assert_eq!(sizes[..3], [512; 3], "{sizes:?}");
        assert!(handle.shutdown(PATIENCE));
        assert_eq!(sink.counts().spans, 2_000);
    });
}

#[test]
fn an_export_takes_no_longer_than_its_own_timeout() {
    in_child("an_export_takes_no_longer_than_its_own_timeout", || {
        let sink = OtlpSink::start().expect("a sink");
        sink.answer_all_with(Some(Reply::Hang));
        let short = [
            (env_vars::OTEL_METRICS_EXPORTER, "none"),
            (env_vars::OTEL_BSP_SCHEDULE_DELAY, "1"),
            (env_vars::OTEL_BSP_EXPORT_TIMEOUT, "100"),
        ];
        let config = config_of(&sink.grpc_endpoint(), &short);
        let general = config.traces_otlp.timeout;
        let handle = lens::setup_telemetry(config).expect("starts");
        let before = Instant::now();
        end_spans(1);
        wait_until("a failure", || handle.snapshot().export_failures > 0);
        assert!(before.elapsed() < general, "{:?}", before.elapsed());
        sink.answer_all_with(None);
        assert!(handle.shutdown(PATIENCE));
    });
}

#[test]
fn an_export_of_metrics_takes_no_longer_than_its_own_timeout() {
    in_child("an_export_of_metrics_takes_no_longer_than_its_own_timeout", || {
        let sink = OtlpSink::start().expect("a sink");
        sink.answer_with([Reply::Hang]);
        let short = [
            (env_vars::OTEL_TRACES_EXPORTER, "none"),
            (env_vars::OTEL_METRIC_EXPORT_INTERVAL, "20"),
            (env_vars::OTEL_METRIC_EXPORT_TIMEOUT, "100"),
        ];
        let config = config_of(&sink.grpc_endpoint(), &short);
        let general = config.metrics_otlp.timeout;
        let before = Instant::now();
        let handle = lens::setup_telemetry(config).expect("starts");
        REQUESTS.add(1, &[]);
        wait_until("the next export", || sink.counts().metrics > 0);
        assert!(before.elapsed() < general, "{:?}", before.elapsed());
        assert!(handle.shutdown(PATIENCE));
    });
}

#[test]
fn values_are_as_long_as_their_limit() {
    in_child("values_are_as_long_as_their_limit", || {
        let sink = OtlpSink::start().expect("a sink");
        let limit = [(env_vars::OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT, "3")];
        let handle =
            lens::setup_telemetry(config_of(&sink.grpc_endpoint(), &limit)).expect("starts");
        let mut span = Span::start(&WORK, "a name is no value");
        span.set("long", "äbcdef");
        span.set("short", "ab");
        span.end();
        assert!(handle.shutdown(PATIENCE));
        let [span] = &sink.spans()[..] else { panic!("one span") };
        assert_eq!((span.text("long"), span.text("short")), ("äbc", "ab"));
        assert_eq!(span.name, "a name is no value");
    });
}

/// Pages of this process in memory, in bytes.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number");
    pages * 4096
}

#[test]
fn memory_is_flat_after_a_hundred_thousand_spans_past_shutdown() {
    in_child("memory_is_flat_after_a_hundred_thousand_spans_past_shutdown", || {
        let sink = OtlpSink::ack_only().expect("a sink");
        let config = config_of(&sink.grpc_endpoint(), &[]);
        let handle = lens::setup_telemetry(config).expect("starts");
        end_spans(1_000);
        let open: Vec<Span> = (0..1_000).map(|_| Span::start(&WORK, "open")).collect();
        assert!(handle.shutdown(PATIENCE));
        drop(open);
        end_spans(1_000);
        let before = resident_bytes();
        end_spans(100_000);
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 1 << 20, "{grown} bytes more");
        assert_eq!(handle.snapshot().exported, 1_000);
        assert_eq!(handle.snapshot().dropped_total(), 1_000, "what was open then is counted");
    });
}

#[derive(Default)]
struct Seen {
    requests: Mutex<Vec<Arc<Vec<u8>>>>,
    is_shut_down: AtomicBool,
}

struct Mine(Arc<Seen>);

impl MetricExporter for Mine {
    fn export(&mut self, request: &Arc<Vec<u8>>) -> ExportOutcome {
        self.0.requests.lock().expect("not poisoned").push(Arc::clone(request));
        ExportOutcome::Exported { rejected: 0 }
    }

    fn shut_down(&mut self) {
        self.0.is_shut_down.store(true, Ordering::Relaxed);
    }
}

struct Panics;

impl MetricExporter for Panics {
    fn export(&mut self, _request: &Arc<Vec<u8>>) -> ExportOutcome {
        std::panic::resume_unwind(Box::new("on purpose"));
    }
}

/// Guarantees: an exporter of the program's own needs no other exporter, and one that panics costs the others nothing.
#[test]
fn metrics_go_to_exporters_of_the_program_too() {
    in_child("metrics_go_to_exporters_of_the_program_too", || {
        let seen = Arc::new(Seen::default());
        let config = LensConfig {
            enabled: true,
            traces_exporter: ExporterKind::None,
            metrics_exporter: ExporterKind::None,
            ..LensConfig::default()
        };
        let exporters = Exporters {
            metrics: vec![Box::new(Panics), Box::new(Mine(Arc::clone(&seen)))],
            ..Exporters::default()
        };
        let handle = lens::setup_telemetry_with_exporters(config, exporters).expect("starts");
        assert!(handle.is_exporting());
        REQUESTS.add(3, &[]);
        assert!(handle.force_flush(PATIENCE));
        let count = || seen.requests.lock().expect("not poisoned").len();
        assert_eq!(count(), 1);
        assert!(!seen.is_shut_down.load(Ordering::Relaxed));
        assert!(handle.shutdown(PATIENCE));
        assert_eq!((count(), seen.is_shut_down.load(Ordering::Relaxed)), (2, true));
        let requests = seen.requests.lock().expect("not poisoned");
        let mut names = Vec::new();
        for resource in lens_otlp::view::resources(&requests[1]) {
            for scope in resource.expect("well formed").scopes() {
                for item in scope.expect("well formed").items() {
                    let metric = MetricView::read(item.expect("well formed")).expect("a metric");
                    names.push(metric.name.to_owned());
                }
            }
        }
        assert!(names.contains(&"test.requests".to_owned()), "{names:?}");
    });
}

#[test]
fn what_a_short_command_ended_arrives() {
    in_child("what_a_short_command_ended_arrives", || {
        let sink = OtlpSink::start().expect("a sink");
        let slow = [(env_vars::OTEL_BSP_SCHEDULE_DELAY, "60000")];
        let handle =
            lens::setup_telemetry(config_of(&sink.grpc_endpoint(), &slow)).expect("starts");
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(50) {
            end_spans(1);
            std::thread::park_timeout(Duration::from_millis(1));
        }
        REQUESTS.add(1, &[]);
        assert!(handle.shutdown(PATIENCE));
        let snapshot = handle.snapshot();
        assert_eq!((snapshot.exported, sink.counts().spans), (snapshot.ended, snapshot.ended));
        assert!(sink.metric_names().contains(&"test.requests".to_owned()));
    });
}
