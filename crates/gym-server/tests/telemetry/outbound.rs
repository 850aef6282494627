//! Outbound requests: their attempts, their waits, and what became of them.

use std::collections::BTreeMap;
use std::time::Duration;

use gym_server::client::{Client, ClientConfig, ClientError, Patience, Policy, PoolLimits};
use gym_server::instance::Endpoint;
use gym_telemetry::semconv;
use lens_otlp::encode::StatusCode;
use lens_testing::{CollectedSpan, free_port};
use serde_json::Value;

use crate::{BUSY, NOT_FOUND, OK, all_spans, count, points, server, telemetry};

/// CLIENT spans of requests to a port.
fn spans(port: u16) -> Vec<CollectedSpan> {
    let mut spans = all_spans();
    spans.retain(|span| {
        span.kind == "CLIENT" && span.attributes.get(semconv::SERVER_PORT) == Some(&port.into())
    });
    spans
}

fn client(patience: Patience, client_spans: bool) -> Client {
    let limits = PoolLimits { total: 2, per_host: 1, ..PoolLimits::default() };
    Client::new(ClientConfig { patience, client_spans, limits, ..ClientConfig::default() })
}

fn number(attributes: &BTreeMap<String, Value>, key: &str) -> i64 {
    attributes.get(key).and_then(Value::as_i64).unwrap_or_default()
}

const TIMES: [&str; 4] = [
    semconv::HTTP_POOL_WAIT_NANOS,
    semconv::HTTP_CONNECT_NANOS,
    semconv::HTTP_TIME_TO_FIRST_BYTE_NANOS,
    semconv::HTTP_BACKOFF_NANOS,
];

#[tokio::test]
async fn each_attempt_of_a_repeated_request_has_its_times_and_its_reason_and_the_span_their_sums() {
    telemetry();
    let port = server(vec![None, Some(BUSY), Some(""), Some(OK)]);
    let endpoint = Endpoint::gym("flaky", "127.0.0.1", port);
    let client = client(Patience::default(), true);
    // Holds the only connection until it gives up: the first attempt waits for it.
    let holds = client.post(&endpoint, "/held").limit(Duration::from_millis(60)).send();
    let asks = async {
        tokio::task::yield_now().await;
        client.post(&endpoint, "/x?hidden=1").policy(Policy::Model).send().await
    };
    let (held, reply) = tokio::join!(holds, asks);
    assert!(matches!(held, Err(ClientError::OutOfTime { .. })), "{held:?}");
    assert_eq!(reply.expect("a reply").status, 200);
    let mut spans = spans(port);
    spans.retain(|span| !span.text(semconv::URL_FULL).ends_with("/held"));
    let [span] = &spans[..] else { panic!("one request, one span: {spans:#?}") };
    let attempts: Vec<_> = span.events.iter().map(|event| &event.attributes).collect();
    assert_eq!(attempts.len(), 3, "{span:#?}");
    let reasons = attempts.iter().map(|a| a.get(semconv::HTTP_ATTEMPT_REASON));
    assert_eq!(reasons.collect::<Vec<_>>(), [Some(&"status".into()), Some(&"reset".into()), None]);
    let statuses = attempts.iter().map(|a| number(a, semconv::HTTP_RESPONSE_STATUS_CODE));
    assert_eq!(statuses.collect::<Vec<_>>(), [503, 0, 200]);
    let millis = |attempt: usize, key| number(attempts[attempt], key) / 1_000_000;
    assert!(millis(0, semconv::HTTP_POOL_WAIT_NANOS) >= 40, "{span:#?}");
    assert_eq!(millis(0, semconv::HTTP_BACKOFF_NANOS), 0);
    assert!(millis(1, semconv::HTTP_BACKOFF_NANOS) >= 99, "{span:#?}");
    assert!(millis(2, semconv::HTTP_BACKOFF_NANOS) >= 199, "{span:#?}");
    for attempt in &attempts {
        assert!(number(attempt, semconv::HTTP_CONNECT_NANOS) > 0, "{span:#?}");
        assert!(number(attempt, semconv::HTTP_TIME_TO_FIRST_BYTE_NANOS) > 0, "{span:#?}");
    }
    for key in TIMES {
        let sum: i64 = attempts.iter().map(|attempt| number(attempt, key)).sum();
        assert_eq!(number(&span.attributes, key), sum, "{key}");
    }
    assert_eq!(number(&span.attributes, semconv::HTTP_REQUEST_RESEND_COUNT), 2);
    assert_eq!(span.status, StatusCode::Unset);
    for reason in ["status", "reset"] {
        let wanted = [(semconv::HTTP_ATTEMPT_REASON, reason)];
        assert_eq!(count("gym.http.retry_total", &wanted), 1, "{reason}");
    }
}

#[tokio::test]
async fn requests_that_queue_for_a_connection_are_measured_once_each_without_spans_too() {
    telemetry();
    let (slow, other) = (server(vec![None, Some(OK)]), server(vec![None, None]));
    let slow = Endpoint::gym("slow", "127.0.0.1", slow);
    let other_port = other;
    let other = Endpoint::gym("other", "127.0.0.1", other);
    let client = client(Patience::default(), false);
    let limit = Duration::from_millis;
    let (held, served, gave_up, elsewhere, no_room) = tokio::join!(
        client.get(&slow, "/held").limit(limit(60)).send(),
        client.get(&slow, "/served").send(),
        client.get(&slow, "/given-up").limit(limit(20)).send(),
        client.get(&other, "/held").limit(limit(60)).send(),
        async {
            let third = Endpoint::gym("third", "127.0.0.1", other_port.wrapping_add(1));
            client.get(&third, "/given-up").limit(limit(20)).send().await
        },
    );
    assert!(held.is_err() && gave_up.is_err() && elsewhere.is_err() && no_room.is_err());
    assert_eq!(served.expect("served").status, 200);
    let metric = "gym.http.connection_pool.queue_duration_ms";
    let queued = |destination, constraint, outcome| {
        count(
            metric,
            &[
                (semconv::HTTP_DESTINATION_SERVER_NAME, destination),
                (semconv::HTTP_POOL_QUEUE_CONSTRAINT, constraint),
                (semconv::HTTP_POOL_ATTEMPT_OUTCOME, outcome),
            ],
        )
    };
    assert_eq!(queued("slow", "per_host", "ok"), 1);
    assert_eq!(queued("slow", "per_host", "abandoned"), 1);
    assert_eq!(queued("third", "total", "abandoned"), 1);
    let to = |name| [(semconv::HTTP_DESTINATION_SERVER_NAME, name)];
    assert_eq!(count(metric, &to("slow")), 2);
    assert_eq!(count(metric, &to("other")), 0, "it did not queue");
    let points = points(metric);
    let bounds = &points[0].bounds;
    assert_eq!((bounds.first(), bounds.last()), (Some(&0.01), Some(&30_000.0)));
    let opened = "gym.http.connection_pool.connect_total";
    assert_eq!(count(opened, &to("slow")), 2);
    assert_eq!(count(opened, &to("other")), 1);
    assert_eq!(count("http.client.request.duration", &to("slow")), 3);
    assert!(spans(slow.port()).is_empty(), "spans of requests are off");
}

#[tokio::test]
async fn a_request_is_measured_with_its_status_or_its_error_whatever_became_of_it() {
    telemetry();
    let port = server(vec![Some(OK), Some(OK), Some(NOT_FOUND), None]);
    let endpoint = Endpoint::gym("measured", "127.0.0.1", port);
    let client = client(Patience { servers: Duration::ZERO, ..Patience::default() }, true);
    for expected in [200, 200, 404] {
        assert_eq!(client.post(&endpoint, "/x").send().await.expect("a reply").status, expected);
    }
    let dropped = client.post(&endpoint, "/x").send();
    assert!(tokio::time::timeout(Duration::from_millis(50), dropped).await.is_err());
    let nobody = free_port();
    let refused = Endpoint::model(&format!("http://127.0.0.1:{nobody}/v1")).expect("a URL");
    let error = client.get(&refused, "/models").send().await.expect_err("nobody listens");
    assert_eq!(error.error_type(), "connection_refused");
    let port_text = port.to_string();
    let measured = |more: &[(&str, &str)]| {
        let mut wanted = vec![
            (semconv::HTTP_REQUEST_METHOD, "POST"),
            (semconv::SERVER_ADDRESS, "127.0.0.1"),
            (semconv::SERVER_PORT, &port_text),
            (semconv::HTTP_DESTINATION_SERVER_NAME, "measured"),
        ];
        wanted.extend_from_slice(more);
        count("http.client.request.duration", &wanted)
    };
    assert_eq!(measured(&[]), 4);
    assert_eq!(measured(&[(semconv::HTTP_RESPONSE_STATUS_CODE, "200")]), 2);
    let failed = [(semconv::HTTP_RESPONSE_STATUS_CODE, "404"), (semconv::ERROR_TYPE, "404")];
    assert_eq!(measured(&failed), 1);
    assert_eq!(measured(&[(semconv::ERROR_TYPE, "cancelled")]), 1);
    let nobody = nobody.to_string();
    let refused = [
        (semconv::HTTP_REQUEST_METHOD, "GET"),
        (semconv::SERVER_PORT, nobody.as_str()),
        (semconv::HTTP_DESTINATION_KIND, "model"),
        (semconv::ERROR_TYPE, "connection_refused"),
    ];
    assert_eq!(count("http.client.request.duration", &refused), 1);
    let of_status =
        |path: &str| spans(port).into_iter().find(|span| span.text("error.type") == path);
    let not_found = of_status("404").expect("a span");
    assert_eq!(not_found.status, StatusCode::Error, "from 400 on it is the caller's error");
    let reason = not_found.events[0].attributes.get(semconv::HTTP_ATTEMPT_REASON);
    assert_eq!(reason, Some(&"status".into()));
}

#[tokio::test]
async fn the_limit_of_a_request_and_the_silence_of_a_model_are_told_apart() {
    telemetry();
    let port = server(vec![None, None]);
    let slow = Endpoint::gym("limited", "127.0.0.1", port);
    let model = Endpoint::model(&format!("http://127.0.0.1:{port}/v1")).expect("a URL");
    let model_silence = Duration::from_millis(40);
    let client = client(Patience { model_silence, ..Patience::default() }, true);
    let limited = client.post(&slow, "/x").limit(Duration::from_millis(30)).send().await;
    let limited = limited.expect_err("out of time");
    assert!(matches!(limited, ClientError::OutOfTime { .. }), "{limited:?}");
    let silent = client.post(&model, "/x").policy(Policy::Model).send().await.expect_err("silent");
    assert!(matches!(silent, ClientError::Idle { .. }), "{silent:?}");
    let mut told: Vec<_> = spans(port)
        .into_iter()
        .map(|span| {
            let reason = span.events[0].attributes[semconv::HTTP_ATTEMPT_REASON].clone();
            (span.text(semconv::ERROR_TYPE).to_owned(), reason)
        })
        .collect();
    told.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(
        told,
        [
            ("idle_timeout".to_owned(), "timeout".into()),
            ("request_timeout".to_owned(), "timeout".into())
        ]
    );
    assert!(count("gym.http.timeout_total", &[(semconv::HTTP_INTERNAL, "true")]) >= 1);
    assert_eq!(count("gym.http.timeout_total", &[(semconv::HTTP_INTERNAL, "false")]), 1);
}
