//! What the server layer and the client do with trace context, by the rules of W3C Trace Context levels 1 and 2.
//!
//! The service is the one that the W3C test harness is run against; every rule that the harness looks at is here too,
//! and some about several headers that it leaves open.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::exchange::{answer, post, read_request};
use crate::support::example;

const TRACE: &str = "12345678901234567890123456789012";
const PARENT: &str = "00-12345678901234567890123456789012-1234567890123456-00";
const SAMPLED: &str = "00-12345678901234567890123456789012-1234567890123456-01";

/// The service in a process of its own.
struct Service {
    child: Child,
    address: String,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl Service {
    /// Starts it with spans on.
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(environment: &[(&str, &str)]) -> Self {
        let mut child = example("trace_context")
            .arg("0")
            .env("NEMO_GYM_OTEL_ENABLED", "1")
            .env("NEMO_GYM_OTEL_EXPORTER", "console")
            .env("OTEL_BSP_SCHEDULE_DELAY", "20")
            .env("OTEL_METRIC_EXPORT_INTERVAL", "50")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the service starts");
        let stdout = lines(child.stdout.take().expect("a pipe"));
        let stderr = lines(child.stderr.take().expect("a pipe"));
        let line = stderr.recv_timeout(PATIENCE).expect("a line");
        let address = line.strip_prefix("listening on http://").expect("an address");
        let address = address.strip_suffix(PATH).expect("the path").to_owned();
        Self { child, address, stdout, stderr }
    }

    fn order(&self, arguments: &str) -> String {
        format!(r#"[{{"url": "http://{}{PATH}", "arguments": {arguments}}}]"#, self.address)
    }

    /// Trace ids of the next spans that it exports.
    fn next_trace_ids(&self, count: usize) -> Vec<String> {
        let mut found = Vec::new();
        while found.len() < count {
            let line = self.stdout.recv_timeout(PATIENCE).expect("a span");
            let line: Value = serde_json::from_str(&line).expect("JSON");
            found.extend(line["trace_id"].as_str().map(str::to_owned));
        }
        found
    }
}

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn lines(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const PATH: &str = "/test";

/// Trace context as a call of the service carried it.
#[derive(Debug)]
struct Sent {
    trace_id: String,
    parent_id: String,
    flags: u8,
    tracestate: Vec<String>,
}

impl Sent {
    fn read(head: &str) -> Self {
        let values = |name: &str| -> Vec<String> {
            let fields = head.lines().filter_map(|line| line.split_once(':'));
            let fields = fields.filter(|(known, _)| known.eq_ignore_ascii_case(name));
            fields.map(|(_, value)| value.trim().to_owned()).collect()
        };
        let traceparent = values("traceparent");
        assert_eq!(traceparent.len(), 1, "{head}");
        let parts: Vec<&str> = traceparent[0].split('-').collect();
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        assert_eq!((parts[0], &lengths[..]), ("00", &[2, 32, 16, 2][..]), "{head}");
        let is_hex = |text: &str| text.bytes().all(|byte| b"0123456789abcdef".contains(&byte));
        assert!(parts.iter().all(|part| is_hex(part)), "{head}");
        assert!(parts[1].bytes().any(|byte| byte != b'0'), "{head}");
        assert!(parts[2].bytes().any(|byte| byte != b'0'), "{head}");
        let members = values("tracestate").join(",");
        let members = members.split(',').map(str::trim).filter(|member| !member.is_empty());
        Self {
            trace_id: parts[1].to_owned(),
            parent_id: parts[2].to_owned(),
            flags: u8::from_str_radix(parts[3], 16).expect("hex"),
            tracestate: members.map(str::to_owned).collect(),
        }
    }
}

/// Whom the service is told to call.
struct Peer {
    order: String,
    thread: JoinHandle<Vec<String>>,
}

impl Peer {
    fn listen(host: &str, calls: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let order = format!(r#"{{"url": "http://{host}:{port}/call", "arguments": []}}"#);
        let thread = std::thread::spawn(move || {
            let mut heads = Vec::new();
            while heads.len() < calls {
                let (mut stream, _) = listener.accept().expect("a connection");
                if let Some(request) = read_request(&mut stream) {
                    answer(&mut stream, "200 OK", "{}");
                    heads.push(request.split("\r\n\r\n").next().unwrap_or_default().to_owned());
                }
            }
            heads
        });
        Self { order, thread }
    }

    /// Heads of the requests that came.
    fn heads(self) -> Vec<String> {
        self.thread.join().expect("the calls came")
    }
}

impl Service {
    /// Sends a request with these header lines, has `calls` calls made, and returns what those carried.
    fn calls_after(&self, headers: &[&str], calls: usize) -> Vec<Sent> {
        let peer = Peer::listen("127.0.0.1", calls);
        let body = format!("[{}]", vec![peer.order.clone(); calls].join(","));
        self.post(headers, &body);
        peer.heads().iter().map(|head| Sent::read(head)).collect()
    }

    fn post(&self, headers: &[&str], body: &str) {
        post(&self.address, PATH, headers, body);
    }

    fn call_after(&self, headers: &[&str]) -> Sent {
        self.calls_after(headers, 1).remove(0)
    }

    fn members_after(&self, states: &[&str]) -> Vec<String> {
        let parent = format!("traceparent: {PARENT}");
        let mut headers = vec![parent];
        headers.extend(states.iter().map(|state| format!("tracestate: {state}")));
        let lines: Vec<&str> = headers.iter().map(String::as_str).collect();
        let sent = self.call_after(&lines);
        assert_eq!(sent.trace_id, TRACE, "{states:?}");
        sent.tracestate
    }
}

#[test]
fn a_request_without_context_begins_a_trace() {
    let service = Service::start();
    let sent = service.call_after(&[]);
    assert_ne!(sent.trace_id, TRACE);
    assert!(sent.tracestate.is_empty());
    // A trace of our own: sampled, and its id is random.
    assert_eq!(sent.flags, 3);
}

#[test]
fn a_valid_parent_is_continued_by_another_span() {
    let service = Service::start();
    let accepted = [
        format!("traceparent: {SAMPLED}"),
        format!("TraceParent: {SAMPLED}"),
        format!("TrAcEpArEnT: {SAMPLED}"),
        format!("TRACEPARENT: {SAMPLED}"),
        format!("traceparent:  {SAMPLED}"),
        format!("traceparent:\t{SAMPLED}"),
        format!("traceparent: {SAMPLED} "),
        format!("traceparent: \t {SAMPLED} \t"),
        "traceparent: cc-12345678901234567890123456789012-1234567890123456-01".to_owned(),
        "traceparent: cc-12345678901234567890123456789012-1234567890123456-01-what-comes"
            .to_owned(),
    ];
    for header in &accepted {
        let sent = service.call_after(&[header]);
        assert_eq!(sent.trace_id, TRACE, "{header}");
        assert_ne!(sent.parent_id, "1234567890123456", "{header}");
        assert_eq!(sent.flags, 1, "{header}");
    }
}

#[test]
fn an_invalid_parent_begins_a_trace() {
    let service = Service::start();
    let refused = [
        "trace-parent: 00-12345678901234567890123456789012-1234567890123456-01",
        "trace.parent: 00-12345678901234567890123456789012-1234567890123456-01",
        "traceparent: 00-12345678901234567890123456789012-1234567890123456-01.",
        "traceparent: 00-12345678901234567890123456789012-1234567890123456-01-what-comes",
        "traceparent: cc-12345678901234567890123456789012-1234567890123456-01.what-comes",
        "traceparent: ff-12345678901234567890123456789012-1234567890123456-01",
        "traceparent: .0-12345678901234567890123456789012-1234567890123456-01",
        "traceparent: 0.-12345678901234567890123456789012-1234567890123456-01",
        "traceparent: 000-12345678901234567890123456789012-1234567890123456-01",
        "traceparent: 0000-12345678901234567890123456789012-1234567890123456-01",
        "traceparent: 0-12345678901234567890123456789012-1234567890123456-01",
        "traceparent: 00-00000000000000000000000000000000-1234567890123456-01",
        "traceparent: 00-.2345678901234567890123456789012-1234567890123456-01",
        "traceparent: 00-1234567890123456789012345678901.-1234567890123456-01",
        "traceparent: 00-123456789012345678901234567890123-1234567890123456-01",
        "traceparent: 00-1234567890123456789012345678901-1234567890123456-01",
        "traceparent: 00-12345678901234567890123456789012-0000000000000000-01",
        "traceparent: 00-12345678901234567890123456789012-.234567890123456-01",
        "traceparent: 00-12345678901234567890123456789012-123456789012345.-01",
        "traceparent: 00-12345678901234567890123456789012-12345678901234567-01",
        "traceparent: 00-12345678901234567890123456789012-123456789012345-01",
        "traceparent: 00-12345678901234567890123456789012-1234567890123456-.0",
        "traceparent: 00-12345678901234567890123456789012-1234567890123456-0.",
        "traceparent: 00-12345678901234567890123456789012-1234567890123456-001",
        "traceparent: 00-12345678901234567890123456789012-1234567890123456-1",
        "traceparent: 00-12345678901234567890123456789012 -1234567890123456-01",
        "traceparent: 00-1234567890123456789012345678901A-1234567890123456-01",
    ];
    for header in refused {
        let sent = service.call_after(&[header, "tracestate: foo=1"]);
        assert_ne!(sent.trace_id, TRACE, "{header}");
        assert!(!sent.trace_id.starts_with("123456789012345678901"), "{header}");
        assert!(sent.tracestate.is_empty(), "{header}");
    }
}

#[test]
fn two_parents_are_none() {
    let service = Service::start();
    let other = "traceparent: 00-12345678901234567890123456789011-1234567890123456-01";
    let sent = service.call_after(&[other, &format!("traceparent: {SAMPLED}")]);
    assert!(!sent.trace_id.starts_with("1234567890123456789012345678901"), "{sent:?}");
}

#[test]
fn flags_are_passed_on_as_they_came() {
    let service = Service::start();
    for flags in 0..4 {
        let header = format!("traceparent: 00-{TRACE}-1234567890123456-{flags:02x}");
        assert_eq!(service.call_after(&[&header]).flags, flags, "{header}");
    }
}

#[test]
fn each_call_has_a_parent_of_its_own() {
    let service = Service::start();
    for (header, same_trace) in [
        (format!("traceparent: {SAMPLED}"), true),
        ("x-none: 1".to_owned(), false),
        ("traceparent: 00-00000000000000000000000000000000-1234567890123456-01".to_owned(), false),
    ] {
        let calls = service.calls_after(&[&header], 3);
        let mut parents: Vec<&str> = calls.iter().map(|sent| sent.parent_id.as_str()).collect();
        parents.sort_unstable();
        parents.dedup();
        assert_eq!(parents.len(), 3, "{header}");
        assert_eq!(calls.iter().all(|sent| sent.trace_id == TRACE), same_trace, "{header}");
        assert!(calls.iter().all(|sent| sent.trace_id == calls[0].trace_id), "{header}");
    }
}

#[test]
fn state_of_vendors_is_passed_on() {
    let service = Service::start();
    assert_eq!(service.members_after(&["foo=1,bar=2"]), ["foo=1", "bar=2"]);
    let parent = format!("traceparent: {PARENT}");
    for name in ["TraceState", "TrAcEsTaTe", "TRACESTATE"] {
        let sent = service.call_after(&[&parent, &format!("{name}: foo=1")]);
        assert_eq!(sent.tracestate, ["foo=1"], "{name}");
    }
    for name in ["trace-state", "trace.state"] {
        let sent = service.call_after(&[&parent, &format!("{name}: foo=1")]);
        assert!(sent.tracestate.is_empty(), "{name}");
    }
    assert!(service.call_after(&["tracestate: foo=1,bar=2"]).tracestate.is_empty());
}

#[test]
fn several_headers_of_state_are_one_in_the_order_of_arrival() {
    let service = Service::start();
    assert!(service.members_after(&[""]).is_empty());
    assert_eq!(service.members_after(&["foo=1", ""]), ["foo=1"]);
    assert_eq!(service.members_after(&["", "foo=1"]), ["foo=1"]);
    let members = service.members_after(&["foo=1,bar=2", "rojo=1,congo=2", "baz=3"]);
    assert_eq!(members, ["foo=1", "bar=2", "rojo=1", "congo=2", "baz=3"]);
    assert_eq!(service.members_after(&["a=1,,b=2"]), ["a=1", "b=2"]);
}

#[test]
fn of_a_repeated_key_the_first_member_stays() {
    let service = Service::start();
    for states in [&["foo=1,foo=1"][..], &["foo=1,foo=2"], &["foo=1", "foo=1"], &["foo=1", "foo=2"]]
    {
        assert_eq!(service.members_after(states), ["foo=1"], "{states:?}");
    }
}

#[test]
fn every_allowed_character_is_kept() {
    let service = Service::start();
    let key = "abcdefghijklmnopqrstuvwxyz0123456789_-*/";
    let value: String =
        (0x20_u8..=0x7e).filter(|byte| !b",=".contains(byte)).map(char::from).collect();
    for key in [key.to_owned(), format!("{key}@a-z0-9_-*/")] {
        let member = format!("{key}={value}");
        assert_eq!(service.members_after(&[&member]), [member]);
    }
}

#[test]
fn white_space_around_members_does_not_count() {
    let service = Service::start();
    for state in ["foo=1 \t , \t bar=2, \t baz=3", "foo=1\t \t,\t \tbar=2,\t \tbaz=3"] {
        assert_eq!(service.members_after(&[state]), ["foo=1", "bar=2", "baz=3"], "{state:?}");
    }
    for state in [" foo=1", "\tfoo=1", "foo=1 ", "foo=1\t", "\t foo=1 \t"] {
        assert_eq!(service.members_after(&[state]), ["foo=1"], "{state:?}");
    }
}

#[test]
fn state_with_an_invalid_member_is_discarded_whole() {
    let service = Service::start();
    let many = |from: usize, to: usize| -> String {
        (from..=to).map(|at| format!("bar{at:02}={at:02}")).collect::<Vec<_>>().join(",")
    };
    for states in [
        &["foo =1"][..],
        &["FOO=1"],
        &["foo.bar=1"],
        &["@foo=1,bar=2"],
        &["foo=bar=baz"],
        &["foo=,bar=3"],
        &["foo=1", &format!("{}=1", "z".repeat(257))],
        &[&many(1, 20), &many(21, 33)],
    ] {
        assert!(service.members_after(states).is_empty(), "{states:?}");
    }
}

#[test]
fn state_at_its_limits_is_kept() {
    let service = Service::start();
    for state in ["foo@=1,bar=2", "foo@@bar=1,bar=2", "foo@bar@baz=1,bar=2"] {
        assert_eq!(service.members_after(&[state]).len(), 2, "{state}");
    }
    let many = (1..=32).map(|at| format!("bar{at:02}={at:02}")).collect::<Vec<_>>().join(",");
    assert_eq!(service.members_after(&[&many]).len(), 32);
    let keys = [
        "z".repeat(256),
        format!("{}@{}", "t".repeat(241), "v".repeat(14)),
        format!("t@{}", "v".repeat(15)),
    ];
    for key in keys {
        assert_eq!(service.members_after(&["foo=1", &format!("{key}=1")]).len(), 2, "{key}");
    }
    // 512 characters are what everybody must pass on, not the most that anybody may.
    let long: Vec<String> = (0..20).map(|at| format!("key{at:02}={}", "v".repeat(28))).collect();
    assert_eq!(service.members_after(&[&long.join(",")]), long);
}

/// Guarantees: a service that has telemetry off, between two that have it on, leaves no hole in the trace.
#[test]
fn one_silent_service_in_the_middle_leaves_the_trace_whole() {
    let (first, last) = (Service::start(), Service::start());
    let silent = Service::start_with(&[("OTEL_SDK_DISABLED", "true")]);
    let peer = Peer::listen("127.0.0.1", 1);
    let orders = silent.order(&last.order(&format!("[{}]", peer.order)));
    first.post(&["tracestate: v=1", &format!("traceparent: {SAMPLED}")], &orders);
    let heads = peer.heads();
    let sent = Sent::read(&heads[0]);
    assert_eq!((sent.trace_id.as_str(), sent.tracestate), (TRACE, vec!["v=1".to_owned()]));
    assert_eq!(first.next_trace_ids(2), [TRACE, TRACE]);
    assert_eq!(last.next_trace_ids(2), [TRACE, TRACE]);
    assert!(silent.stdout.try_recv().is_err());
}

#[test]
fn a_trace_that_is_not_sampled_stays_so_through_three_services() {
    let services = [Service::start(), Service::start(), Service::start()];
    let run = |parent: &str| {
        let peer = Peer::listen("127.0.0.1", 1);
        let orders = services[1].order(&services[2].order(&format!("[{}]", peer.order)));
        services[0].post(&[&format!("traceparent: {parent}")], &orders);
        Sent::read(&peer.heads()[0])
    };
    let unsampled = run("00-aaaabbbbccccddddaaaabbbbccccdddd-1234567890123456-00");
    assert_eq!(
        (unsampled.trace_id.as_str(), unsampled.flags),
        ("aaaabbbbccccddddaaaabbbbccccdddd", 0)
    );
    assert_eq!(run(&format!("00-{TRACE}-1234567890123456-03")).flags, 3);
    // Spans leave in the order in which they end, so those of the first trace would stand before these.
    for service in &services {
        assert_eq!(service.next_trace_ids(2), [TRACE, TRACE]);
    }
}

#[test]
fn a_third_party_gets_context_only_when_it_is_listed() {
    let service = Service::start();
    for (host, gets) in [("127.0.0.1", true), ("localhost", false)] {
        let peer = Peer::listen(host, 1);
        service.post(
            &[&format!("traceparent: {SAMPLED}"), "baggage: k=v"],
            &format!("[{}]", peer.order),
        );
        let head = peer.heads().remove(0).to_ascii_lowercase();
        assert_eq!(head.contains("traceparent:"), gets, "{host}: {head}");
        assert!(!head.contains("baggage:"), "{host}: {head}");
    }
}

#[test]
fn what_is_refused_is_counted_and_two_parents_are_said_once() {
    let service = Service::start();
    let parent = format!("traceparent: {SAMPLED}");
    for headers in
        [&[parent.as_str(), parent.as_str()][..], &[&parent, &parent], &["traceparent: 00-x"]]
    {
        service.post(headers, "[]");
    }
    loop {
        let line = service.stdout.recv_timeout(PATIENCE).expect("a metric");
        let line: Value = serde_json::from_str(&line).expect("JSON");
        if line["name"] == "lens.parents.refused" && line["points"][0]["value"] == 3 {
            break;
        }
    }
    let said: Vec<String> = service.stderr.try_iter().collect();
    let said: Vec<&String> =
        said.iter().filter(|line| line.contains("more than one traceparent")).collect();
    assert_eq!(said.len(), 1, "{said:?}");
}
