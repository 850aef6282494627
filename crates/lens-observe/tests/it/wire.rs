//! Answers to what may come over the wire.

use std::time::Duration;

use lens_observe::receiver::{Limits, Options, Reason, Token, Transport};
use lens_observe::{Accepted, Compression, Format, Refused, Signal};
use lens_otlp::encode::{SPAN_ATTRIBUTES, put_key_value};
use lens_otlp::wire::put_bytes;

use crate::support::{
    EXPORT, JSON, PROTOBUF, Reply, call, framed, grpc, gzip, http, options, request, request_of,
    send, span, start,
};

/// Ten spans, two of them malformed: an attribute with a key and no value, and no ids.
fn ten_with_two_malformed() -> Vec<u8> {
    let mut good = Vec::new();
    put_key_value(&mut good, SPAN_ATTRIBUTES, "k", "v");
    let mut without_value = Vec::new();
    put_bytes(&mut without_value, SPAN_ATTRIBUTES, b"\x0a\x01k");
    let mut spans: Vec<_> = (1..=8).map(|at| span(at, &good)).collect();
    spans.insert(2, span(9, &without_value));
    let mut without_ids = Vec::new();
    put_bytes(&mut without_ids, 5, b"a span");
    spans.insert(5, without_ids);
    request_of(&spans)
}

#[test]
fn of_ten_spans_two_malformed_ones_are_refused_and_eight_stored() {
    let (receiver, keeper) = start(options());
    let body = ten_with_two_malformed();
    let answer = send(http(&receiver), "POST", "/v1/traces", PROTOBUF, &body);
    assert_eq!((answer.status, keeper.span_count()), (200, 8));
    // partial_success { rejected_spans: 2, error_message: "…" }
    assert!(answer.body.starts_with(b"\x0a"), "{answer:?}");
    assert_eq!(&answer.body[2..4], b"\x08\x02");
    let reply = call(grpc(&receiver), EXPORT, &[], framed(0, &body));
    assert_eq!((reply.code.as_str(), keeper.span_count()), ("0", 16));
    assert_eq!(&reply.body[..], &answer.body[..]);
    assert!(String::from_utf8_lossy(&reply.body).contains("an attribute has no value"));
    let received = receiver.snapshot().of(Signal::Traces);
    assert_eq!((received.requests, received.items, received.rejected_items), (2, 16, 4));
}

#[test]
fn of_ten_spans_in_json_the_two_without_ids_are_refused() {
    let (receiver, keeper) = start(options());
    let spans: Vec<String> = (0..10)
        .map(|at| match at {
            3 | 7 => "{\"name\":\"lost\"}".to_owned(),
            _ => format!(
                "{{\"traceId\":\"0AF7651916CD43DD8448EB211C80319C\",\"spanId\":\"b7ad6b716920333{at}\",\
                 \"name\":\"kept\"}}"
            ),
        })
        .collect();
    let body =
        format!("{{\"resourceSpans\":[{{\"scopeSpans\":[{{\"spans\":[{}]}}]}}]}}", spans.join(","));
    let answer = send(http(&receiver), "POST", "/v1/traces", JSON, body.as_bytes());
    assert_eq!((answer.status, keeper.span_count()), (200, 8));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let partial = &answer.json()["partialSuccess"];
    assert_eq!(partial["rejectedSpans"], "2");
    assert!(partial["errorMessage"].as_str().unwrap().contains("trace id"), "{partial}");
    // Upper case is the same id.
    let spans = keeper.spans.lock().unwrap();
    assert_eq!(spans[0].trace_id.to_string(), "0af7651916cd43dd8448eb211c80319c");
}

#[test]
fn ids_in_base_64_are_refused_with_the_reason() {
    let (receiver, keeper) = start(options());
    let body = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[
        {"traceId":"CvdlGRbNQ92ESOshHIAxnA==","spanId":"t61rcWkgMzE=","name":"n"}]}]}]}"#;
    let answer = send(http(&receiver), "POST", "/v1/traces", JSON, body.as_bytes());
    assert_eq!((answer.status, keeper.span_count()), (400, 0));
    let message = answer.json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("traceId is not 32 hex digits"), "{message}");
    assert!(message.contains("base 64"), "{message}");
}

#[test]
fn what_came_is_handed_over_as_it_came_and_as_protobuf() {
    let (receiver, keeper) = start(options());
    let plain = request(3);
    let zipped = gzip(&plain);
    let zstd = zstd::encode_all(plain.as_slice(), 1).unwrap();
    for (name, compression, body) in [
        ("identity", Compression::Identity, &plain),
        ("gzip", Compression::Gzip, &zipped),
        ("zstd", Compression::Zstd, &zstd),
    ] {
        let headers = format!("{PROTOBUF}content-encoding: {name}\r\n");
        let answer = send(http(&receiver), "POST", "/v1/traces", &headers, body);
        assert_eq!((answer.status, answer.body.len()), (200, 0), "{name}");
        let flag = u8::from(compression != Compression::Identity);
        let reply = call(grpc(&receiver), EXPORT, &[("grpc-encoding", name)], framed(flag, body));
        assert_eq!((reply.code.as_str(), reply.body.len()), ("0", 0), "{name}");
        for incoming in keeper.requests.lock().unwrap().drain(..) {
            assert_eq!(
                (incoming.signal, incoming.encoding.format),
                (Signal::Traces, Format::Protobuf)
            );
            assert_eq!(incoming.encoding.compression, compression);
            assert!(incoming.body == body[..] && incoming.request == plain[..], "{name}");
        }
    }
    let json = lens_otlp::json::encode_trace_request(&plain).unwrap();
    let headers = format!("{JSON}content-encoding: gzip\r\n");
    let zipped = gzip(json.as_bytes());
    let answer = send(http(&receiver), "POST", "/v1/traces", &headers, &zipped);
    assert_eq!((answer.status, answer.body.as_slice()), (200, b"{}".as_slice()));
    let incoming = keeper.last();
    assert_eq!(
        (incoming.encoding.format, incoming.encoding.compression),
        (Format::Json, Compression::Gzip)
    );
    assert!(incoming.body == zipped);
    assert_eq!(lens_otlp::json::encode_trace_request(&incoming.request).unwrap(), json);
}

#[test]
fn two_gzip_members_in_one_body_give_all_spans() {
    let (receiver, keeper) = start(options());
    let (mut body, half) = (gzip(&request(2)), gzip(&request(3)));
    body.extend_from_slice(&half);
    let headers = format!("{PROTOBUF}content-encoding: gzip\r\n");
    assert_eq!(send(http(&receiver), "POST", "/v1/traces", &headers, &body).status, 200);
    assert_eq!(keeper.span_count(), 5);
    let reply = call(grpc(&receiver), EXPORT, &[("grpc-encoding", "gzip")], framed(1, &body));
    assert_eq!((reply.code.as_str(), keeper.span_count()), ("0", 10));
}

#[test]
fn an_unknown_encoding_is_refused_with_the_reason() {
    let (receiver, keeper) = start(options());
    let headers = format!("{PROTOBUF}content-encoding: br\r\n");
    let answer = send(http(&receiver), "POST", "/v1/traces", &headers, b"?");
    assert_eq!(answer.status, 415);
    assert_eq!(answer.header("content-type"), Some("application/x-protobuf"));
    assert!(answer.status_message().contains("\"br\""), "{}", answer.status_message());
    assert_eq!(answer.header("accept-encoding"), Some("gzip, zstd, identity"));
    let reply = call(grpc(&receiver), EXPORT, &[("grpc-encoding", "snappy")], framed(1, b"?"));
    assert_eq!(reply.code, "12");
    assert!(reply.message.contains("snappy") && reply.is_trailers_only(), "{reply:?}");
    assert_eq!(reply.headers["grpc-accept-encoding"], "identity,gzip,zstd");
    assert_eq!(receiver.snapshot().refused_for(Reason::Compression), 2);
    assert_eq!(keeper.requests.lock().unwrap().len(), 0);
}

#[test]
fn every_refusal_over_http_has_its_status_and_reason() {
    let limits =
        lens_observe::receiver::Limits { body_bytes: 1000, json_values: 100, ..Default::default() };
    let token = Token::new("s3cret");
    let (receiver, keeper) = start(Options { token, limits, ..options() });
    let to = http(&receiver);
    let bearer = "authorization: Bearer s3cret\r\n";
    let with = |headers: &str| format!("{headers}{bearer}");
    let many = format!("{{\"a\":[{}1]}}", "1,".repeat(200));
    let many = many.as_bytes();
    let (json, protobuf, text) = (with(JSON), with(PROTOBUF), with("content-type: text/plain\r\n"));
    let zipped = format!("{protobuf}content-encoding: gzip\r\n");
    let ok = b"{}".as_slice();
    let large = [b' '; 2000];
    for (method, path, headers, body, status, reason) in [
        ("POST", "/v1/trace", &*json, ok, 404, "nothing is served at /v1/trace;"),
        ("GET", "/v1/traces", &*json, b"", 405, "POST"),
        ("POST", "/v1/logs", JSON, ok, 401, "a token is needed"),
        (
            "POST",
            "/v1/logs",
            &*format!("{JSON}authorization: Bearer s3cres\r\n"),
            ok,
            401,
            "not the right",
        ),
        (
            "POST",
            "/v1/logs",
            &*format!("{JSON}authorization: Bearer s3cretx\r\n"),
            ok,
            401,
            "not the right",
        ),
        (
            "POST",
            "/v1/logs",
            &*format!("{JSON}authorization: Basic s3cret\r\n"),
            ok,
            401,
            "not the right",
        ),
        ("POST", "/v1/traces", &*text, ok, 415, "application/x-protobuf"),
        ("POST", "/v1/traces", bearer, ok, 415, "application/x-protobuf"),
        ("POST", "/v1/traces", &*json, b"{", 400, "not an OTLP request"),
        ("POST", "/v1/metrics", &*json, b"[]", 400, "not an OTLP request"),
        ("POST", "/v1/traces", &*protobuf, b"\x0a\xff", 400, "ends inside a field"),
        ("POST", "/v1/traces", &*zipped, b"no gzip", 400, "cannot be decompressed"),
        ("POST", "/v1/traces", &*json, &large, 413, "larger than max"),
        ("POST", "/v1/traces", &*json, many, 413, "more than 100 values"),
        ("POST", "/v1/traces", &*json, ok, 200, ""),
        ("POST", "/v1/logs", &*json, ok, 200, ""),
        ("POST", "/v1/metrics", &*json, ok, 200, ""),
    ] {
        let answer = send(to, method, path, headers, body);
        let what = format!("{method} {path} {headers:?}: {answer:?}");
        assert_eq!(answer.status, status, "{what}");
        assert_eq!(answer.header("x-gym-observe"), Some("1"), "{what}");
        let is_protobuf = headers.contains("x-protobuf");
        let message = match is_protobuf {
            true => answer.status_message(),
            false => answer.json()["message"].as_str().unwrap_or_default().to_owned(),
        };
        assert!(message.contains(reason), "{what}");
        let allow = (status == 405).then_some("POST");
        assert_eq!(answer.header("allow"), allow, "{what}");
        let challenge = (status == 401).then_some("Bearer");
        assert_eq!(answer.header("www-authenticate"), challenge, "{what}");
    }
    assert_eq!(keeper.requests.lock().unwrap().len(), 3);
    assert_eq!(receiver.snapshot().refused_for(Reason::Credentials), 4);
}

#[test]
fn every_refusal_over_grpc_is_trailers_only_with_code_and_reason() {
    let token = Token::new("s3cret");
    let (receiver, _) = start(Options { token, ..options() });
    let to = grpc(&receiver);
    let auth = ("authorization", "bearer s3cret");
    let check = |reply: Reply, code: &str, reason: &str| {
        assert_eq!(reply.code, code, "{reply:?}");
        assert!(reply.message.contains(reason) && reply.is_trailers_only(), "{reply:?}");
        assert_eq!(reply.headers["x-gym-observe"], "1");
        assert!(!reply.headers.contains_key("grpc-status-details-bin"), "{reply:?}");
    };
    let unknown = "/opentelemetry.proto.collector.trace.v1.TraceService/Import";
    check(call(to, unknown, &[auth], framed(0, b"")), "12", "there is no method");
    check(call(to, EXPORT, &[], framed(0, b"")), "16", "a token is needed");
    check(call(to, EXPORT, &[auth], framed(0, b"\x0a\xff")), "3", "ends inside a field");
    check(call(to, EXPORT, &[auth], Vec::new()), "3", "no message");
    check(call(to, EXPORT, &[auth], vec![0, 0, 0, 0, 9, 1]), "3", "shorter");
    let two = [framed(0, b""), framed(0, b"")].concat();
    check(call(to, EXPORT, &[auth], two), "3", "one message");
    let fine = call(to, EXPORT, &[auth], framed(0, &request(1)));
    assert_eq!((fine.code.as_str(), &fine.headers["x-gym-observe"]), ("0", &"1".parse().unwrap()));
}

#[test]
fn an_intake_that_has_no_room_asks_to_be_tried_again() {
    let (receiver, keeper) = start(options());
    let after = Duration::from_millis(2500);
    for (refused, status, code) in [
        (Refused::Overloaded { retry_after: after }, 429, "8"),
        (Refused::DiskFull { retry_after: after }, 429, "8"),
        (Refused::Failed { reason: "the log is gone".to_owned(), retry_after: after }, 503, "14"),
    ] {
        keeper
            .orders
            .lock()
            .unwrap()
            .extend([Some(Err(refused.clone())), Some(Err(refused.clone()))]);
        let answer = send(http(&receiver), "POST", "/v1/traces", PROTOBUF, &request(1));
        assert_eq!((answer.status, answer.header("retry-after")), (status, Some("3")));
        assert_eq!(answer.status_message(), refused.to_string());
        let reply = call(grpc(&receiver), EXPORT, &[], framed(0, &request(1)));
        assert_eq!((reply.code.as_str(), &*reply.message), (code, &*refused.to_string()));
        // RetryInfo { retry_delay: 2.5 s } inside a google.rpc.Status.
        let details = reply.headers["grpc-status-details-bin"].to_str().unwrap();
        assert!(reply.is_trailers_only() && !details.ends_with('='), "{details}");
    }
    assert_eq!(receiver.snapshot().refused_for(Reason::DiskFull), 2);
}

#[test]
fn a_request_waits_a_while_for_an_intake_without_room() {
    let busy = || Some(Err(Refused::Overloaded { retry_after: Duration::from_secs(1) }));
    let (receiver, keeper) = start(Options { limits: Limits::default(), ..options() });
    keeper.orders.lock().unwrap().extend([busy(), busy(), None, busy(), None]);
    let answer = send(http(&receiver), "POST", "/v1/traces", PROTOBUF, &request(2));
    assert_eq!(answer.status, 200);
    assert!(keeper.last().is_again, "its intake knows that it was there");
    assert_eq!(call(grpc(&receiver), EXPORT, &[], framed(0, &request(1))).code, "0");
    assert_eq!(call(grpc(&receiver), EXPORT, &[], framed(0, &request(1))).code, "0");
    assert!(!keeper.last().is_again);
    assert_eq!((keeper.span_count(), receiver.snapshot().refused_for(Reason::Overloaded)), (4, 0));

    let room_timeout = Duration::from_millis(20);
    let limits = Limits { room_timeout, ..Limits::default() };
    let (receiver, keeper) = start(Options { limits, ..options() });
    keeper.orders.lock().unwrap().extend(std::iter::repeat_with(busy).take(1000));
    let begun = std::time::Instant::now();
    let answer = send(http(&receiver), "POST", "/v1/traces", PROTOBUF, &request(1));
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")));
    assert!(begun.elapsed() >= room_timeout);
    assert_eq!(receiver.snapshot().refused_for(Reason::Overloaded), 1);
}

#[test]
fn partial_success_has_the_three_outcomes() {
    let (receiver, keeper) = start(options());
    for (rejected, message, protobuf, json) in [
        (0, None, "", "{}"),
        (0, Some("hm"), "\x0a\x04\x12\x02hm", r#"{"partialSuccess":{"errorMessage":"hm"}}"#),
        (
            3,
            Some("no"),
            "\x0a\x06\x08\x03\x12\x02no",
            r#"{"partialSuccess":{"rejectedDataPoints":"3","errorMessage":"no"}}"#,
        ),
    ] {
        let accepted = Accepted { rejected, message: message.map(str::to_owned) };
        keeper.orders.lock().unwrap().extend([Some(Ok(accepted.clone())), Some(Ok(accepted))]);
        let answer = send(http(&receiver), "POST", "/v1/metrics", PROTOBUF, b"");
        assert_eq!((answer.status, answer.body.as_slice()), (200, protobuf.as_bytes()));
        let answer = send(http(&receiver), "POST", "/v1/metrics", JSON, b"{}");
        assert_eq!((answer.status, answer.body.as_slice()), (200, json.as_bytes()));
    }
}

#[test]
fn either_port_understands_either_protocol() {
    let (receiver, keeper) = start(options());
    let reply = call(http(&receiver), EXPORT, &[], framed(0, &request(1)));
    assert_eq!(reply.code, "0");
    let answer = send(grpc(&receiver), "POST", "/v1/traces", PROTOBUF, &request(2));
    assert_eq!((answer.status, keeper.span_count()), (200, 3));
    let received = receiver.snapshot().received;
    let of = |transport| {
        let found =
            received.iter().find(|(signal, by, _)| *signal == Signal::Traces && *by == transport);
        found.map(|(.., received)| received.items)
    };
    assert_eq!((of(Transport::Grpc), of(Transport::Http)), (Some(1), Some(2)));
}
