//! Telemetry that exports does not tell of itself. One test: a process sets telemetry up once.
//!
//! The receiver is a plain thread, because what [`lens_testing::OtlpSink`] is made of speaks `tracing` itself.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lens::config::{ExporterKind, LensConfig, Protocol};
use lens::{ExportOutcome, Group, LogBridge, SpanBatch, SpanExporter, TracingLayer, managed_span};
use tracing_subscriber::layer::SubscriberExt as _;

static WORK: Group = Group::new("work").long_lived();
static GROUPS: &[&Group] = &[&WORK];
static PATHS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static EXPORTS: AtomicUsize = AtomicUsize::new(0);

const BUDGET: Duration = Duration::from_secs(20);
const EVERY: Duration = Duration::from_millis(100);

/// Answers everything that one connection asks.
fn answer(mut stream: TcpStream) {
    let (mut got, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let head = got.windows(4).position(|window| window == b"\r\n\r\n");
        let request = head.and_then(|head| {
            let text = String::from_utf8_lossy(&got[..head]).to_ascii_lowercase();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: "))?;
            let end = head + 4 + length.trim().parse::<usize>().ok()?;
            (got.len() >= end).then(|| (text.split(' ').nth(1).unwrap_or_default().to_owned(), end))
        });
        if let Some((path, end)) = request {
            got.drain(..end);
            PATHS.lock().expect("no panic").push(path);
            if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").is_err() {
                return;
            }
            continue;
        }
        match stream.read(&mut buffer) {
            Ok(len) if len > 0 => got.extend_from_slice(&buffer[..len]),
            _ => return,
        }
    }
}

/// An exporter that talks, as those of others may.
struct Talkative;

impl SpanExporter for Talkative {
    fn export(&mut self, _: &SpanBatch) -> ExportOutcome {
        log::error!("exported");
        tracing::error_span!("export").in_scope(|| tracing::error!("exported"));
        EXPORTS.fetch_add(1, Ordering::Relaxed);
        ExportOutcome::Exported { rejected: 0 }
    }
}

#[test]
fn process_at_rest_that_exports_ten_times_a_second_makes_neither_spans_nor_records() {
    let subscriber = tracing_subscriber::registry().with(TracingLayer::new(tracing::Level::TRACE));
    tracing::subscriber::set_global_default(subscriber).expect("the first");
    LogBridge::new(log::LevelFilter::Trace, None).install().expect("the first");
    lens::register("test", GROUPS, &[]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(stream));
        }
    });
    let mut config = LensConfig {
        enabled: true,
        span_groups: "all,tracing".to_owned(),
        logs_exporter: ExporterKind::Otlp,
        metric_interval: EVERY,
        ..LensConfig::default()
    };
    for (otlp, path) in [
        (&mut config.traces_otlp, "traces"),
        (&mut config.metrics_otlp, "metrics"),
        (&mut config.logs_otlp, "logs"),
    ] {
        otlp.protocol = Protocol::HttpProtobuf;
        otlp.endpoint = format!("{endpoint}/v1/{path}");
    }
    for batch in [&mut config.batch, &mut config.log_batch] {
        batch.schedule_delay = EVERY;
    }
    let handle = lens::setup_telemetry_with(config, vec![Box::new(Talkative)]).expect("starts");
    drop(managed_span!(WORK, "work"));
    log::info!("work");
    assert!(handle.force_flush(BUDGET));
    let count = |path: &str| PATHS.lock().expect("no panic").iter().filter(|p| *p == path).count();
    let arrived = |path| count(path) > 0;
    assert!(arrived("/v1/traces") && arrived("/v1/logs") && EXPORTS.load(Ordering::Relaxed) > 0);

    // At rest, as far as others see: only metrics go out.
    let before = (handle.snapshot(), handle.log_snapshot());
    let (metrics, give_up) = (count("/v1/metrics"), Instant::now() + BUDGET);
    while count("/v1/metrics") < metrics + 10 {
        assert!(Instant::now() < give_up, "metrics go out");
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let after = (handle.snapshot(), handle.log_snapshot());
    assert_eq!((after.0.ended, after.1.ended), (before.0.ended, before.1.ended));
    assert_eq!((before.0.ended, before.1.ended), (1, 1));
    assert!(handle.shutdown(BUDGET));
}
