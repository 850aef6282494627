//! What Prometheus reads.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lens_observe::Receiver;
use lens_observe::receiver::{Options, Token};
use lens_otlp::encode::{RESOURCE_ATTRIBUTES, Scope, put_key_value, put_request};
use lens_otlp::metrics::{
    HISTOGRAM_POINT_ATTRIBUTES, HistogramPoint, Identity, Interval, Number, NumberPoint,
    POINT_ATTRIBUTES, Temporality, put_gauge, put_histogram, put_sum,
};
use lens_testing::free_port;

use crate::support::{Answer, PROTOBUF, http, options, request, send, start};

/// Whether a tool of Prometheus is there; says so when a test is skipped for want of one.
fn is_there(tool: &str) -> bool {
    let found = Command::new(tool)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !found {
        assert!(
            std::env::var_os("GYM_TEST_REQUIRE_OPTIONAL").is_none(),
            "there is no {tool} (Debian package `prometheus`), and optional tools are required"
        );
        skipped(tool);
    }
    found
}

#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn skipped(tool: &str) {
    eprintln!("SKIPPED: there is no {tool} (Debian package `prometheus`)");
}

/// A metric of the reference page.
struct Row {
    name: String,
    kind: String,
    unit: String,
    attributes: Vec<String>,
}

/// Every metric that a fleet writes.
fn rows() -> Vec<Row> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    let page = std::fs::read_to_string(page).expect("the reference page");
    let table = page.split("<!-- metrics: begin -->").nth(1).expect("a table");
    let table = table.split("<!-- metrics: end -->").next().expect("its end");
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let rows: Vec<Row> = rows
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let attributes = cells[5].split('`').skip(1).step_by(2).map(str::to_owned).collect();
            let code = |at: usize| cells[at].trim_matches('`').to_owned();
            Row { name: code(1), kind: code(2), unit: code(3), attributes }
        })
        .collect();
    assert!(rows.len() > 40, "{} metrics are on the page", rows.len());
    rows
}

/// A request with a point of each.
fn metrics_request(rows: &[Row]) -> Vec<u8> {
    let interval = Interval { start_nanos: 1, end_nanos: 2 };
    let cumulative = Temporality::Cumulative;
    let mut items = Vec::new();
    for row in rows {
        let identity = Identity { name: &row.name, unit: &row.unit, description: "What it is." };
        let field = match row.kind.as_str() {
            "histogram" => HISTOGRAM_POINT_ATTRIBUTES,
            _ => POINT_ATTRIBUTES,
        };
        let mut attributes = Vec::new();
        for key in &row.attributes {
            put_key_value(&mut attributes, field, key, "some \"value\"");
        }
        let attributes = &attributes;
        let number = [NumberPoint { attributes, value: Number::Int(3), exemplars: &[] }];
        match row.kind.as_str() {
            "counter" => {
                put_sum(&mut items, &identity, interval, cumulative, true, number.into_iter());
            }
            "up-down counter" => {
                put_sum(&mut items, &identity, interval, cumulative, false, number.into_iter());
            }
            "gauge" => put_gauge(&mut items, &identity, interval, number.into_iter()),
            "histogram" => {
                let buckets = &[1, 2, 0];
                let point = HistogramPoint {
                    attributes,
                    count: 3,
                    sum: 120.0,
                    buckets,
                    min_max: None,
                    exemplars: &[],
                };
                let (bounds, points) = ([50.0, 100.0], [point].into_iter());
                put_histogram(&mut items, &identity, interval, cumulative, &bounds, points);
            }
            other => panic!("{other} is no kind of metric"),
        }
    }
    let mut resource = Vec::new();
    for (key, value) in [("service.name", "gym"), ("service.instance.id", "1"), ("host.name", "h")]
    {
        put_key_value(&mut resource, RESOURCE_ATTRIBUTES, key, value);
    }
    let mut out = Vec::new();
    let scope = Scope { name: "gym", version: "1" };
    put_request(&mut out, &resource, std::iter::once((scope, items.as_slice())));
    out
}

fn send_everything(receiver: &Receiver, headers: &str) {
    let headers = format!("{PROTOBUF}{headers}");
    let to = http(receiver);
    let metrics = metrics_request(&rows());
    assert_eq!(send(to, "POST", "/v1/metrics", &headers, &metrics).status, 200);
    assert_eq!(send(to, "POST", "/v1/traces", &headers, &request(3)).status, 200);
    // Refused, which the receiver counts.
    assert_eq!(send(to, "POST", "/v1/nothing", &headers, b"").status, 404);
}

fn page(receiver: &Receiver, headers: &str) -> String {
    let answer = send(http(receiver), "GET", "/metrics", headers, b"");
    assert_eq!(answer.status, 200, "{answer:?}");
    String::from_utf8(answer.body).unwrap()
}

#[test]
fn received_metrics_span_durations_and_own_counters_are_on_one_page() {
    let (receiver, _) = start(options());
    send_everything(&receiver, "");
    let text = page(&receiver, "");
    for line in [
        "gym_rollout_duration_seconds_bucket{job=\"gym\",instance=\"1\",otel_scope_name=\"gym\",\
         otel_scope_version=\"1\",le=\"0.05\"} 1\n",
        "target_info{job=\"gym\",instance=\"1\",host_name=\"h\"} 1\n",
        "traces_span_metrics_duration_seconds_count{service_name=\"wire-test\",span_name=\"a span\",\
         span_kind=\"SPAN_KIND_INTERNAL\",status_code=\"STATUS_CODE_UNSET\"} 3\n",
        "gym_observe_items_total{signal=\"traces\",transport=\"http\"} 3\n",
        "gym_observe_refused_requests_total{transport=\"http\",reason=\"no_such_path\"} 1\n",
        "gym_observe_refused_points_total{reason=\"unsupported\"} 0\n",
        "gym_observe_in_flight_limit_bytes 268435456\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let open = page(&receiver, "accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n");
    assert!(open.contains("# {trace_id=\"07070707070707070707070707070707\""), "{open}");
    assert!(open.ends_with("# EOF\n"));
}

#[test]
fn the_page_is_read_with_get_and_with_the_token() {
    let token = Token::new("s3cret");
    let (receiver, _) = start(Options { token, ..options() });
    let get = |method: &str, headers: &str| -> Answer {
        send(http(&receiver), method, "/metrics", headers, b"")
    };
    assert_eq!(get("GET", "").status, 401);
    let bearer = "authorization: Bearer s3cret\r\n";
    let answer = get("POST", bearer);
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")));
    let answer = get("GET", bearer);
    assert_eq!(answer.status, 200);
    let kind = Some("text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(answer.header("content-type"), kind);
    assert!(get("HEAD", bearer).body.is_empty());
}

/// Guarantees: every metric that a fleet writes comes out as Prometheus wants metrics to be.
#[test]
fn promtool_has_nothing_to_say() {
    if !is_there("promtool") {
        return;
    }
    let (receiver, _) = start(options());
    send_everything(&receiver, "");
    let text = page(&receiver, "");
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

struct Prometheus {
    child: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn scraping(receiver: &Receiver, token: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("prometheus.yml");
        let target = http(receiver);
        let text = format!(
            "global: {{scrape_interval: 500ms, scrape_timeout: 400ms}}\n\
             scrape_configs:\n\
             - job_name: observe\n  honor_labels: true\n  authorization: {{credentials: {token}}}\n\
             \x20 static_configs: [{{targets: ['{target}']}}]\n"
        );
        std::fs::write(&config, text).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--enable-feature=exemplar-storage")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, address, _folder: folder }
    }

    /// The answer to a query once it has a result.
    fn ask(&self, path: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut last = String::new();
        while Instant::now() < deadline {
            // Another process, whose progress cannot be waited for.
            std::thread::sleep(Duration::from_millis(100));
            if std::net::TcpStream::connect(self.address).is_err() {
                continue;
            }
            let answer = send(self.address, "GET", path, "", b"");
            last = String::from_utf8_lossy(&answer.body).into_owned();
            if answer.status == 200 && last.contains("\"success\"") && !last.contains(":[]") {
                return last;
            }
        }
        panic!("{path}: {last}");
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_prometheus_scrapes_the_page_with_exemplars() {
    if !is_there("prometheus") {
        return;
    }
    let token = Token::new("s3cret");
    let (receiver, _) = start(Options { token, ..options() });
    send_everything(&receiver, "authorization: Bearer s3cret\r\n");
    let prometheus = Prometheus::scraping(&receiver, "s3cret");
    let up = prometheus.ask("/api/v1/query?query=up==1");
    assert!(up.contains("\"job\":\"observe\""), "{up}");
    let count = prometheus.ask("/api/v1/query?query=gym_rollout_duration_seconds_count");
    assert!(count.contains("\"instance\":\"1\"") && count.contains(",\"3\"]"), "{count}");
    let calls = prometheus.ask("/api/v1/query?query=traces_span_metrics_calls_total");
    assert!(calls.contains(",\"3\"]"), "{calls}");
    let exemplars = prometheus.ask(
        "/api/v1/query_exemplars?query=traces_span_metrics_duration_seconds_bucket&start=0&end=4000000000",
    );
    assert!(exemplars.contains(&"07".repeat(16)), "{exemplars}");
}
