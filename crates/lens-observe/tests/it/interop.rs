//! Senders of others, and our own.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lens_observe::{Accepted, Receiver, Refused, Signal};
use lens_otlp::client::{self, Client, MAX_REQUEST_BYTES, Outcome, Protocol, Sender, Target};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;

use crate::support::{PROTOBUF, grpc, http, options, request, send, start};

const PROTOCOLS: [Protocol; 3] = [Protocol::Grpc, Protocol::HttpProtobuf, Protocol::HttpJson];

fn open(receiver: &Receiver, protocol: Protocol, signal: client::Signal, gzip: bool) -> Sender {
    let path = match signal {
        client::Signal::Traces => "traces",
        client::Signal::Metrics => "metrics",
        client::Signal::Logs => "logs",
    };
    let target = Target {
        signal,
        endpoint: match protocol {
            Protocol::Grpc => format!("http://{}", grpc(receiver)),
            _ => format!("http://{}/v1/{path}", http(receiver)),
        },
        protocol,
        headers: Vec::new(),
        timeout: Duration::from_secs(20),
        gzip,
        certificate: None,
        client_identity: None,
        max_request_bytes: MAX_REQUEST_BYTES,
    };
    Client::start().expect("a thread").open(target).expect("a target")
}

#[test]
fn our_own_client_delivers_over_every_protocol_and_learns_that_it_is_observed() {
    for protocol in PROTOCOLS {
        for gzip in [false, true] {
            let (receiver, keeper) = start(options());
            let sender = open(&receiver, protocol, client::Signal::Traces, gzip);
            let body = Arc::new(request(1000));
            for _ in 0..3 {
                let outcome = sender.send(Arc::clone(&body));
                assert_eq!(outcome, Outcome::Accepted { rejected: 0 }, "{protocol:?} {gzip}");
            }
            assert_eq!(keeper.span_count(), 3000, "{protocol:?} {gzip}");
            let json = |request: &[u8]| lens_otlp::json::encode_trace_request(request).unwrap();
            assert!(json(&keeper.last().request) == json(&body), "{protocol:?} {gzip}");
            assert!(sender.is_observed(), "{protocol:?}");
            // One connection carried all three.
            assert_eq!(receiver.snapshot().connections_total, 1);
            for (signal, ours) in
                [(client::Signal::Metrics, Signal::Metrics), (client::Signal::Logs, Signal::Logs)]
            {
                let sender = open(&receiver, protocol, signal, gzip);
                assert_eq!(sender.send(Arc::default()), Outcome::Accepted { rejected: 0 });
                assert_eq!(keeper.last().signal, ours);
            }
        }
    }
}

#[test]
fn our_own_client_understands_partial_success_and_waits_when_asked() {
    for protocol in PROTOCOLS {
        let (receiver, keeper) = start(options());
        let sender = open(&receiver, protocol, client::Signal::Traces, false);
        let busy = Refused::Overloaded { retry_after: Duration::from_secs(1) };
        let partial = Accepted { rejected: 2, message: Some("two of them".to_owned()) };
        keeper.orders.lock().unwrap().extend([Some(Err(busy)), Some(Ok(partial))]);
        let begun = std::time::Instant::now();
        let outcome = sender.send(Arc::new(request(5)));
        assert_eq!(outcome, Outcome::Accepted { rejected: 2 }, "{protocol:?}");
        assert!(begun.elapsed() >= Duration::from_secs(1), "{protocol:?}");
        let trouble = sender.take_trouble().expect("a trouble").to_string();
        assert!(trouble.contains("two of them"), "{trouble}");
    }
}

#[test]
fn our_own_client_halves_what_is_too_large() {
    for protocol in PROTOCOLS {
        let limits = lens_observe::receiver::Limits { body_bytes: 60_000, ..Default::default() };
        let options = lens_observe::receiver::Options { limits, ..options() };
        let (receiver, keeper) = start(options);
        let sender = open(&receiver, protocol, client::Signal::Traces, false);
        let outcome = sender.send(Arc::new(request(1500)));
        assert_eq!(outcome, Outcome::Accepted { rejected: 0 }, "{protocol:?}");
        assert_eq!(keeper.span_count(), 1500, "{protocol:?}");
        assert!(keeper.requests.lock().unwrap().len() > 1, "{protocol:?}");
    }
}

#[test]
fn messages_of_the_official_definitions_are_understood_and_answers_too() {
    let (receiver, keeper) = start(options());
    let span = |id: &[u8]| Span {
        trace_id: vec![5; 16],
        span_id: id.to_vec(),
        name: "official".to_owned(),
        start_time_unix_nano: 17,
        ..Span::default()
    };
    let spans = vec![span(&[6; 8]), span(&[])];
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    let resource_spans = vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }];
    let body = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
    let answer = send(http(&receiver), "POST", "/v1/traces", PROTOBUF, &body);
    let response = ExportTraceServiceResponse::decode(answer.body.as_slice()).expect("a response");
    let partial = response.partial_success.expect("partial success");
    assert_eq!(partial.rejected_spans, 1);
    assert!(partial.error_message.contains("span id"), "{partial:?}");
    let spans = keeper.spans.lock().unwrap();
    assert_eq!((spans.len(), spans[0].start_nanos), (1, 17));
    assert_eq!(spans[0].view().unwrap().name, "official");
    for (path, body) in [
        ("/v1/logs", ExportLogsServiceRequest::default().encode_to_vec()),
        ("/v1/metrics", ExportMetricsServiceRequest::default().encode_to_vec()),
    ] {
        assert_eq!(send(http(&receiver), "POST", path, PROTOBUF, &body).status, 200, "{path}");
    }
}

/// A Python with what the sender needs; says so when the test is skipped for want of one.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn python() -> Option<PathBuf> {
    let chosen = std::env::var_os("GYM_TEST_PYTHON");
    let python = PathBuf::from(chosen.unwrap_or_else(|| "python3".into()));
    let import = "import grpc, opentelemetry.proto";
    let found = Command::new(&python).args(["-c", import]).stderr(Stdio::null()).status();
    if found.is_ok_and(|status| status.success()) {
        return Some(python);
    }
    assert!(
        std::env::var_os("GYM_TEST_REQUIRE_OPTIONAL").is_none(),
        "{} has no grpc and opentelemetry.proto, and optional tools are required",
        python.display()
    );
    eprintln!("SKIPPED: set GYM_TEST_PYTHON to one that has grpc and opentelemetry.proto");
    None
}

#[test]
fn a_sender_in_python_is_understood_and_understands() {
    let Some(python) = python() else { return };
    let (receiver, keeper) = start(options());
    let busy = Refused::Overloaded { retry_after: Duration::from_secs(2) };
    // The fifth request is the one that is refused.
    keeper.orders.lock().unwrap().extend([None, None, None, None, Some(Err(busy))]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/otlp_sender.py");
    let output = Command::new(python)
        .arg(script)
        .args([grpc(&receiver).to_string(), http(&receiver).to_string()])
        .stderr(Stdio::inherit())
        .output()
        .expect("python");
    let answers: serde_json::Value = serde_json::from_slice(&output.stdout).expect("answers");
    assert_eq!(answers["partial"][0], 2, "{answers}");
    assert!(answers["partial"][1].as_str().unwrap().contains("span id"), "{answers}");
    assert_eq!(
        (&answers["whole"], &answers["logs"], &answers["metrics"]),
        (&0.into(), &0.into(), &0.into())
    );
    let busy = serde_json::json!(["RESOURCE_EXHAUSTED", "too much is waiting to be stored", true]);
    assert_eq!(answers["busy"], busy);
    assert_eq!(answers["unknown"], "UNIMPLEMENTED");
    assert_eq!(answers["http"], serde_json::json!([200, 1]));
    assert_eq!(answers["base64"][0], 400);
    assert!(answers["base64"][1].as_str().unwrap().contains("base 64"), "{answers}");
    assert_eq!(keeper.span_count(), 8 + 20_000 + 2);
}
