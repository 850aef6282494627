//! What a server and its client tell about themselves, received over the wire.

mod inbound;
mod outbound;
mod rollout;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gym_server::http::{ServeOptions, Server, Service};
use gym_server::instance::Endpoint;
use gym_telemetry::secret::SecretUrl;
use gym_telemetry::{Protocol, TelemetryConfig, TelemetryHandle};
use lens_testing::{CollectedSpan, OtlpSink, Signal};
use serde_json::Value;
use tokio::sync::watch;

/// Telemetry belongs to the process: every test has destinations of its own.
fn telemetry() -> &'static (OtlpSink, TelemetryHandle) {
    static STARTED: OnceLock<(OtlpSink, TelemetryHandle)> = OnceLock::new();
    STARTED.get_or_init(|| {
        // It has a runtime of its own, which a test that has one cannot start.
        let sink = std::thread::spawn(OtlpSink::start).join().expect("no panic").expect("a sink");
        let block = TelemetryConfig {
            enabled: true,
            otlp_endpoint: Some(SecretUrl::new(sink.http_endpoint())),
            otlp_protocol: Some(Protocol::HttpProtobuf),
            written: ["enabled", "otlp_endpoint", "otlp_protocol"].into(),
            ..TelemetryConfig::default()
        };
        gym_telemetry::configure_telemetry_env(Some(&block));
        let handle = gym_telemetry::init_telemetry(None, None, &[]).expect("telemetry is on");
        (sink, handle)
    })
}

fn flush() -> &'static OtlpSink {
    let (sink, handle) = telemetry();
    assert!(handle.force_flush(Duration::from_secs(20)), "flushed in time");
    sink
}

/// Spans that were received so far.
fn all_spans() -> Vec<CollectedSpan> {
    flush().spans()
}

/// One point of a metric as it was last told.
#[derive(Debug)]
struct Point {
    attributes: BTreeMap<String, String>,
    /// Sum of a counter, number of measurements of a histogram.
    count: u64,
    /// Of a histogram.
    sum: f64,
    bounds: Vec<f64>,
}

fn points(metric: &str) -> Vec<Point> {
    let mut last = Vec::new();
    for request in flush().requests() {
        if request.signal != Signal::Metrics {
            continue;
        }
        let json = lens_otlp::json::encode_metrics_request(&request.body).expect("well-formed");
        let json: Value = serde_json::from_str(&json).expect("JSON");
        let found = array(&json, "resourceMetrics")
            .flat_map(|resource| array(resource, "scopeMetrics"))
            .flat_map(|scope| array(scope, "metrics"))
            .find(|found| found["name"] == metric);
        if let Some(found) = found {
            let data = if found["sum"].is_null() { &found["histogram"] } else { &found["sum"] };
            last = array(data, "dataPoints").map(point).collect();
        }
    }
    last
}

fn array<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value[key].as_array().into_iter().flatten()
}

fn point(point: &Value) -> Point {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let attributes = array(point, "attributes").map(|pair| {
        let value = pair["value"].as_object().and_then(|value| value.values().next());
        (text(&pair["key"]), value.map(text).unwrap_or_default())
    });
    let count = if point["count"].is_null() { &point["asInt"] } else { &point["count"] };
    Point {
        attributes: attributes.collect(),
        count: text(count).parse().expect("a count"),
        sum: point["sum"].as_f64().unwrap_or_default(),
        bounds: array(point, "explicitBounds").filter_map(Value::as_f64).collect(),
    }
}

/// Sum of the points that have all these attributes.
fn count(metric: &str, wanted: &[(&str, &str)]) -> u64 {
    let has = |point: &Point| {
        wanted.iter().all(|(key, value)| point.attributes.get(*key).is_some_and(|v| v == value))
    };
    points(metric).iter().filter(|point| has(point)).map(|point| point.count).sum()
}

/// Answers one connection after the other; an empty answer closes it, `None` keeps it silent.
fn server(answers: Vec<Option<&'static str>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        let mut silent = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().expect("a connection");
            read_request(&mut stream);
            match answer {
                Some(text) => stream.write_all(text.as_bytes()).expect("sends"),
                None => silent.push(stream),
            }
        }
        // Open as long as the test.
        std::mem::forget((listener, silent));
    });
    port
}

fn read_request(stream: &mut TcpStream) {
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        let read = stream.read(&mut buffer).expect("reads");
        request.extend_from_slice(&buffer[..read]);
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
const NOT_FOUND: &str = "HTTP/1.1 404 NF\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
const BUSY: &str = "HTTP/1.1 503 Busy\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";

struct Running {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server ends");
        }
    }
}

impl Running {
    fn endpoint(&self) -> Endpoint {
        Endpoint::gym("echo", "127.0.0.1", self.address.port())
    }
}

fn run(service: Service, workers: usize) -> Running {
    let server = Server::bind("127.0.0.1", 0).expect("a free port");
    let address = server.address();
    let (stop, stopped) = watch::channel(false);
    let thread = std::thread::spawn(move || {
        let options =
            ServeOptions { workers, grace: Duration::from_millis(50), ..Default::default() };
        server.serve(Arc::new(service), &options, stopped).expect("serves");
    });
    Running { address, stop, thread: Some(thread) }
}
