//! The client against a receiver over real connections.

#![cfg(feature = "client")]

use std::sync::Arc;
use std::time::Duration;

use lens_otlp::client::{Client, MAX_REQUEST_BYTES, Outcome, Protocol, Sender, Signal, Target};
use lens_otlp::encode::{
    RESOURCE_ATTRIBUTES, Scope, SpanParts, put_key_value, put_request, put_scope_item,
};
use lens_testing::{OtlpSink, Reply};

const PROTOCOLS: [Protocol; 3] = [Protocol::Grpc, Protocol::HttpProtobuf, Protocol::HttpJson];

fn request(spans: u8) -> Arc<Vec<u8>> {
    let mut items = Vec::new();
    for at in 1..=spans {
        let span = SpanParts {
            trace_id: [at; 16],
            span_id: [at; 8],
            name: "a span",
            kind: 1,
            start_nanos: 1,
            end_nanos: 2,
            ..SpanParts::default()
        };
        let mut message = Vec::new();
        span.put(&mut message);
        put_scope_item(&mut items, &message);
    }
    let mut resource = Vec::new();
    put_key_value(&mut resource, RESOURCE_ATTRIBUTES, "service.name", "client-test");
    let mut out = Vec::new();
    put_request(&mut out, &resource, std::iter::once((Scope::default(), items.as_slice())));
    Arc::new(out)
}

fn target(sink: &OtlpSink, protocol: Protocol) -> Target {
    Target {
        signal: Signal::Traces,
        endpoint: match protocol {
            Protocol::Grpc => sink.grpc_endpoint(),
            _ => format!("{}/v1/traces", sink.http_endpoint()),
        },
        protocol,
        headers: Vec::new(),
        timeout: Duration::from_secs(10),
        gzip: false,
        certificate: None,
        client_identity: None,
        max_request_bytes: MAX_REQUEST_BYTES,
    }
}

fn open(target: Target) -> Sender {
    Client::start().expect("a thread").open(target).expect("a valid target")
}

#[test]
fn every_protocol_delivers_the_same_spans() {
    for protocol in PROTOCOLS {
        for gzip in [false, true] {
            let sink = OtlpSink::start().expect("a sink");
            let mut target = target(&sink, protocol);
            target.gzip = gzip;
            target.headers = vec![("x-api-key".to_owned(), "s3cret".to_owned())];
            let sender = open(target);
            for _ in 0..3 {
                assert_eq!(
                    sender.send(request(2)),
                    Outcome::Accepted { rejected: 0 },
                    "{protocol:?} {gzip}"
                );
            }
            let spans = sink.spans();
            assert_eq!(spans.len(), 6, "{protocol:?} {gzip}");
            assert_eq!(spans[0].trace_id, "01".repeat(16));
            assert_eq!(spans[0].service(), "client-test");
            let headers = &sink.requests()[0].headers;
            assert!(headers.contains(&("x-api-key".to_owned(), "s3cret".to_owned())));
        }
    }
}

#[test]
fn retryable_answers_are_retried_until_accepted() {
    let orders = [
        (Protocol::Grpc, Reply::Grpc(14)),
        (Protocol::Grpc, Reply::Http(503)),
        (Protocol::HttpProtobuf, Reply::Http(429)),
        (Protocol::HttpJson, Reply::Http(502)),
    ];
    for (protocol, reply) in orders {
        let sink = OtlpSink::start().expect("a sink");
        sink.answer_with([reply, reply]);
        let outcome = open(target(&sink, protocol)).send(request(1));
        assert_eq!(outcome, Outcome::Accepted { rejected: 0 }, "{protocol:?} {reply:?}");
        assert_eq!(sink.tries(), 3, "{protocol:?} {reply:?}");
    }
}

#[test]
fn final_refusals_are_not_retried() {
    let orders = [
        (Protocol::Grpc, Reply::Grpc(3)),
        (Protocol::Grpc, Reply::Grpc(8)),
        (Protocol::HttpProtobuf, Reply::Http(400)),
        (Protocol::HttpProtobuf, Reply::Http(500)),
    ];
    for (protocol, reply) in orders {
        let sink = OtlpSink::start().expect("a sink");
        sink.answer_with([reply]);
        let sender = open(target(&sink, protocol));
        assert_eq!(sender.send(request(1)), Outcome::Refused, "{protocol:?} {reply:?}");
        assert_eq!(sender.send(request(1)), Outcome::Accepted { rejected: 0 });
        assert_eq!(sink.tries(), 2, "{protocol:?} {reply:?}");
    }
}

#[test]
fn partial_success_says_how_many_were_rejected() {
    for protocol in PROTOCOLS {
        let sink = OtlpSink::start().expect("a sink");
        sink.answer_with([Reply::Partial(2)]);
        let outcome = open(target(&sink, protocol)).send(request(3));
        assert_eq!(outcome, Outcome::Accepted { rejected: 2 }, "{protocol:?}");
    }
}

#[test]
fn words_of_a_partial_success_are_read_and_without_rejected_items_no_trouble() {
    for protocol in PROTOCOLS {
        let sink = OtlpSink::start().expect("a sink");
        let remark = "old names, but fine";
        sink.answer_with([Reply::PartialSaying(0, remark), Reply::PartialSaying(3, "no names")]);
        let sender = open(target(&sink, protocol));
        assert_eq!(sender.send(request(3)), Outcome::Accepted { rejected: 0 }, "{protocol:?}");
        assert_eq!(sender.take_trouble(), None, "{protocol:?}");
        assert_eq!(sender.send(request(3)), Outcome::Accepted { rejected: 3 }, "{protocol:?}");
        let trouble = sender.take_trouble().expect("a trouble").to_string();
        assert_eq!(
            trouble, "the receiver refused 3 of the items of a request (no names)",
            "{protocol:?}"
        );
        assert_eq!(sink.tries(), 2, "nothing is sent again");
    }
}

#[test]
fn receiver_that_hangs_costs_no_more_than_the_budget() {
    for protocol in [Protocol::Grpc, Protocol::HttpProtobuf] {
        let sink = OtlpSink::start().expect("a sink");
        sink.answer_with([Reply::Hang]);
        let mut target = target(&sink, protocol);
        target.timeout = Duration::from_millis(200);
        let sender = open(target);
        let before = std::time::Instant::now();
        assert_eq!(sender.send(request(1)), Outcome::Failed { not_before: None }, "{protocol:?}");
        assert!(before.elapsed() < Duration::from_secs(5));
        assert_eq!(sender.send(request(1)), Outcome::Accepted { rejected: 0 }, "{protocol:?}");
    }
}

#[test]
fn who_waits_long_is_told_once_and_who_does_not_never() {
    let sink = OtlpSink::start().expect("a sink");
    let mut target = target(&sink, Protocol::HttpProtobuf);
    target.timeout = Duration::from_millis(300);
    let sender = open(target);
    let send = |slow: Duration| {
        let mut told = 0;
        let outcome = sender.send_or_tell(request(1), slow, || {
            told += 1;
            // What is told may wait itself, and so take the wake-up of the outcome.
            std::thread::park_timeout(Duration::from_secs(1));
        });
        (told, outcome)
    };
    assert_eq!(send(Duration::from_secs(5)), (0, Outcome::Accepted { rejected: 0 }));
    sink.answer_with([Reply::Hang]);
    assert_eq!(send(Duration::from_millis(10)), (1, Outcome::Failed { not_before: None }));
}

#[test]
fn receiver_that_is_gone_costs_no_more_than_the_budget() {
    let sink = OtlpSink::start().expect("a sink");
    let mut target = target(&sink, Protocol::Grpc);
    drop(sink);
    target.timeout = Duration::from_millis(300);
    assert_eq!(open(target).send(request(1)), Outcome::Failed { not_before: None });
}

#[test]
fn unusable_targets_are_refused_with_the_reason() {
    let sink = OtlpSink::start().expect("a sink");
    let client = Client::start().expect("a thread");
    let message = |change: fn(&mut Target)| {
        let mut target = target(&sink, Protocol::Grpc);
        change(&mut target);
        client.open(target).expect_err("refused").to_string()
    };
    assert_eq!(
        message(|target| target.endpoint = "ftp://x".to_owned()),
        "endpoint \"ftp://x\" is not an http:// or https:// address"
    );
    let secret =
        message(|target| target.headers = vec![("k".to_owned(), "bad\nsecret".to_owned())]);
    assert_eq!(secret, "header \"k\" cannot be sent");
    let missing = message(|target| {
        target.endpoint = "https://localhost".to_owned();
        target.certificate = Some("/nonexistent.pem".into());
    });
    assert_eq!(missing, "certificates in \"/nonexistent.pem\" cannot be used");
}
