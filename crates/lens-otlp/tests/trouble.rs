//! Common mistakes are recognised by what the receiver says, and receivers of every kind are reached.

#![cfg(feature = "client")]

use std::io::{Read as _, Write as _};
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use lens_otlp::client::{
    Client, MAX_REQUEST_BYTES, Outcome, Protocol, Sender, Signal, Target, Trouble,
};
use lens_otlp::encode::{Scope, SpanParts, put_request, put_scope_item};
use lens_testing::tls::{Authority, TlsFront};
use lens_testing::{OtlpSink, Reply};

const ACCEPTED: Outcome = Outcome::Accepted { rejected: 0 };

fn request(spans: u64) -> Arc<Vec<u8>> {
    let mut items = Vec::new();
    for at in 1..=spans {
        let name = format!("span {at}");
        let span = SpanParts {
            trace_id: [1; 16],
            span_id: at.to_be_bytes(),
            name: &name,
            kind: 1,
            start_nanos: 1,
            end_nanos: 2,
            ..SpanParts::default()
        };
        let mut message = Vec::new();
        span.put(&mut message);
        put_scope_item(&mut items, &message);
    }
    let mut out = Vec::new();
    put_request(&mut out, &[], std::iter::once((Scope::default(), items.as_slice())));
    Arc::new(out)
}

fn target(endpoint: &str, protocol: Protocol) -> Target {
    Target {
        signal: Signal::Traces,
        endpoint: match protocol {
            Protocol::Grpc => endpoint.to_owned(),
            _ => format!("{endpoint}/v1/traces"),
        },
        protocol,
        headers: Vec::new(),
        timeout: Duration::from_secs(20),
        gzip: false,
        certificate: None,
        client_identity: None,
        max_request_bytes: MAX_REQUEST_BYTES,
    }
}

fn open(target: Target) -> Sender {
    Client::start().expect("a thread").open(target).expect("a valid target")
}

/// What is told of a request that has no chance.
fn trouble(mut target: Target) -> Trouble {
    target.timeout = Duration::from_millis(1500);
    let sender = open(target);
    let outcome = sender.send(request(1));
    assert!(matches!(outcome, Outcome::Failed { .. } | Outcome::Refused), "{outcome:?}");
    let trouble = sender.take_trouble().expect("a reason");
    assert_eq!(sender.take_trouble(), None);
    trouble
}

#[test]
fn http_spoken_to_a_port_of_grpc_is_recognised() {
    let sink = OtlpSink::start().expect("a sink");
    for protocol in [Protocol::HttpProtobuf, Protocol::HttpJson] {
        assert_eq!(trouble(target(&sink.grpc_endpoint(), protocol)), Trouble::GrpcPort);
    }
}

#[test]
fn grpc_spoken_to_a_port_of_http_is_recognised() {
    // What servers of HTTP/1.1 say to the greeting of HTTP/2.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().filter_map(Result::ok) {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    assert_eq!(trouble(target(&endpoint, Protocol::Grpc)), Trouble::HttpPort);
}

#[test]
fn https_spoken_to_a_port_without_tls_is_recognised() {
    let sink = OtlpSink::start().expect("a sink");
    let secure = |endpoint: String| endpoint.replacen("http", "https", 1);
    let http = target(&secure(sink.http_endpoint()), Protocol::HttpProtobuf);
    assert_eq!(trouble(http), Trouble::NotTls);
    assert_eq!(trouble(target(&secure(sink.grpc_endpoint()), Protocol::Grpc)), Trouble::NotTls);
}

#[test]
fn http_spoken_to_a_port_with_tls_is_recognised() {
    let (authority, sink) = (Authority::new(), OtlpSink::start().expect("a sink"));
    let (grpc, http) = sink.addresses();
    let front = TlsFront::start(&authority, http, false);
    let plain = format!("http://127.0.0.1:{}", front.port());
    assert_eq!(trouble(target(&plain, Protocol::HttpProtobuf)), Trouble::WantsTls);
    let front = TlsFront::start(&authority, grpc, false);
    let plain = format!("http://127.0.0.1:{}", front.port());
    assert_eq!(trouble(target(&plain, Protocol::Grpc)), Trouble::WantsTls);
}

#[test]
fn what_a_receiver_says_about_refused_items_is_told() {
    let sink = OtlpSink::start().expect("a sink");
    for (endpoint, protocol) in
        [(sink.grpc_endpoint(), Protocol::Grpc), (sink.http_endpoint(), Protocol::HttpProtobuf)]
    {
        let sender = open(target(&endpoint, protocol));
        sink.answer_with([Reply::Partial(2)]);
        assert_eq!(sender.send(request(3)), Outcome::Accepted { rejected: 2 });
        let told = sender.take_trouble().expect("a reason").to_string();
        assert_eq!(told, "the receiver refused 2 of the items of a request (as ordered)");
        assert_eq!(sender.send(request(3)), ACCEPTED);
        assert_eq!(sender.take_trouble(), None);
    }
}

#[test]
fn a_message_without_refused_items_is_no_alarm() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().filter_map(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(head.as_bytes());
            // partial_success { error_message: "hmm" }
            let _ = stream.write_all(b"\x0a\x05\x12\x03hmm");
        }
    });
    let sender = open(target(&endpoint, Protocol::HttpProtobuf));
    assert_eq!(sender.send(request(1)), ACCEPTED);
    assert_eq!(sender.take_trouble(), None);
}

#[test]
fn a_missing_path_and_missing_credentials_are_recognised() {
    let sink = OtlpSink::start().expect("a sink");
    let mut bare = target(&sink.http_endpoint(), Protocol::HttpProtobuf);
    bare.endpoint = sink.http_endpoint();
    let missing = Trouble::NoSuchPath { path: "/".to_owned(), status: "HTTP 404".to_owned() };
    assert_eq!(trouble(bare), missing);

    sink.answer_with([Reply::Http(401), Reply::Http(403), Reply::GrpcSaying(16, "no%20token")]);
    let credentials = |protocol, endpoint: String, said: &str| {
        assert_eq!(trouble(target(&endpoint, protocol)), Trouble::Credentials(said.to_owned()));
    };
    credentials(Protocol::HttpProtobuf, sink.http_endpoint(), "HTTP 401");
    credentials(Protocol::Grpc, sink.grpc_endpoint(), "HTTP 403");
    credentials(Protocol::Grpc, sink.grpc_endpoint(), "gRPC status 16: no token");
}

#[test]
fn nobody_there_is_told_from_no_such_host() {
    let sink = OtlpSink::start().expect("a sink");
    let endpoint = sink.grpc_endpoint();
    drop(sink);
    assert_eq!(trouble(target(&endpoint, Protocol::Grpc)), Trouble::ConnectionRefused);
    let unknown = target("http://no-such-host.invalid:4317", Protocol::Grpc);
    assert_eq!(trouble(unknown), Trouble::NoSuchHost("no-such-host.invalid".to_owned()));
}

#[test]
fn waiting_is_as_long_as_the_receiver_asks_for() {
    for (protocol, reply, least) in [
        (Protocol::HttpProtobuf, Reply::HttpAfter(429, "1"), 1000),
        (Protocol::Grpc, Reply::GrpcPushback(14, Duration::from_millis(700)), 700),
        (Protocol::Grpc, Reply::GrpcRetryInfo(8, Duration::from_millis(700)), 700),
    ] {
        let sink = OtlpSink::start().expect("a sink");
        let endpoint = match protocol {
            Protocol::Grpc => sink.grpc_endpoint(),
            _ => sink.http_endpoint(),
        };
        sink.answer_with([reply, reply]);
        let mut target = target(&endpoint, protocol);
        target.timeout = Duration::from_millis(least / 2);
        let sender = open(target);
        let asked = Some(Duration::from_millis(least));
        // The budget does not cover it, so whoever sends is told.
        assert_eq!(sender.send(request(1)), Outcome::Failed { not_before: asked }, "{reply:?}");
        assert_eq!(sink.tries(), 1, "{reply:?}");
    }
}

#[test]
fn a_wait_for_ever_is_no_wait_for_ever() {
    let sink = OtlpSink::start().expect("a sink");
    sink.answer_with([Reply::HttpAfter(503, "18446744073709551615")]);
    let outcome = open(target(&sink.http_endpoint(), Protocol::HttpProtobuf)).send(request(1));
    assert_eq!(outcome, Outcome::Failed { not_before: Some(Duration::from_secs(3600)) });
}

#[test]
fn what_is_too_large_is_halved_until_it_passes() {
    for protocol in [Protocol::Grpc, Protocol::HttpProtobuf, Protocol::HttpJson] {
        let sink = OtlpSink::start().expect("a sink");
        let endpoint = match protocol {
            Protocol::Grpc => sink.grpc_endpoint(),
            _ => sink.http_endpoint(),
        };
        sink.answer_all_with(Some(Reply::UpTo(2000)));
        let sender = open(target(&endpoint, protocol));
        assert_eq!(sender.send(request(100)), ACCEPTED, "{protocol:?}");
        let names: Vec<_> = sink.spans().into_iter().map(|span| span.name).collect();
        assert!(names.iter().cloned().eq((1..=100).map(|at| format!("span {at}"))), "{names:?}");
        // The limit is known from then on: nothing is refused again.
        let refused = sink.tries() - sink.counts().requests;
        assert!(refused > 0, "{protocol:?}");
        assert_eq!(sender.send(request(100)), ACCEPTED, "{protocol:?}");
        assert_eq!(sink.tries() - sink.counts().requests, refused, "{protocol:?}");
    }
}

#[test]
fn what_no_receiver_takes_is_rejected_alone() {
    let sink = OtlpSink::start().expect("a sink");
    sink.answer_all_with(Some(Reply::UpTo(10)));
    let sender = open(target(&sink.grpc_endpoint(), Protocol::Grpc));
    assert_eq!(sender.send(request(3)), Outcome::Accepted { rejected: 3 });
    assert!(matches!(sender.take_trouble(), Some(Trouble::Status(_) | Trouble::TooLarge(_))));
}

#[test]
fn large_requests_are_split_before_they_are_sent() {
    let sink = OtlpSink::start().expect("a sink");
    let mut target = target(&sink.grpc_endpoint(), Protocol::Grpc);
    target.max_request_bytes = 1000;
    assert_eq!(open(target).send(request(100)), ACCEPTED);
    assert_eq!(sink.counts().spans, 100);
    assert_eq!(sink.tries(), sink.counts().requests);
    assert!(sink.requests().iter().all(|request| request.body.len() <= 1000));
}

#[test]
fn pieces_that_arrived_are_not_sent_again() {
    let sink = OtlpSink::start().expect("a sink");
    let mut target = target(&sink.grpc_endpoint(), Protocol::Grpc);
    target.max_request_bytes = 1000;
    target.timeout = Duration::from_millis(300);
    sink.answer_with([Reply::Accept, Reply::Accept, Reply::Hang]);
    let (sender, whole) = (open(target), request(100));
    assert_eq!(sender.send(Arc::clone(&whole)), Outcome::Failed { not_before: None });
    let arrived = sink.counts().spans;
    assert!((1..100).contains(&arrived), "{arrived}");
    assert_eq!(sender.send(whole), ACCEPTED);
    let names: Vec<_> = sink.spans().into_iter().map(|span| span.name).collect();
    assert!(names.iter().cloned().eq((1..=100).map(|at| format!("span {at}"))), "{names:?}");
}

#[test]
fn addresses_of_ipv6_are_reached() {
    let any = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    // A host without IPv6 has nothing to test.
    let Ok(sink) = OtlpSink::start_at(any, any) else { return };
    assert!(sink.grpc_endpoint().starts_with("http://[::1]:"), "{}", sink.grpc_endpoint());
    for (protocol, endpoint) in
        [(Protocol::Grpc, sink.grpc_endpoint()), (Protocol::HttpProtobuf, sink.http_endpoint())]
    {
        assert_eq!(open(target(&endpoint, protocol)).send(request(1)), ACCEPTED, "{protocol:?}");
    }
}

#[test]
fn tls_is_spoken_to_a_receiver_of_a_trusted_authority() {
    let (authority, sink) = (Authority::new(), OtlpSink::start().expect("a sink"));
    let (grpc, http) = sink.addresses();
    for (protocol, behind) in [(Protocol::Grpc, grpc), (Protocol::HttpProtobuf, http)] {
        let front = TlsFront::start(&authority, behind, false);
        let endpoint = format!("https://localhost:{}", front.port());
        let mut target = target(&endpoint, protocol);
        target.certificate = Some(authority.certificate());
        target.gzip = true;
        let sender = open(target);
        for _ in 0..2 {
            assert_eq!(sender.send(request(1)), ACCEPTED, "{protocol:?}");
        }
    }
    assert_eq!(sink.counts().spans, 4);
}

/// Guarantees: what the machine trusts is trusted. A variable holds for a whole process, so the test runs itself again.
#[test]
fn receiver_of_an_authority_that_the_machine_trusts_is_trusted() {
    const ENDPOINT: &str = "LENS_TEST_ENDPOINT";
    if let Ok(endpoint) = std::env::var(ENDPOINT) {
        let sender = open(target(&endpoint, Protocol::Grpc));
        assert_eq!(sender.send(request(1)), ACCEPTED, "{:?}", sender.take_trouble());
        return;
    }
    let (authority, sink) = (Authority::new(), OtlpSink::start().expect("a sink"));
    let front = TlsFront::start(&authority, sink.addresses().0, false);
    let output = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "receiver_of_an_authority_that_the_machine_trusts_is_trusted"])
        .env(ENDPOINT, format!("https://localhost:{}", front.port()))
        .env("SSL_CERT_FILE", authority.certificate())
        .output()
        .expect("a child");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(sink.counts().spans, 1);
}

#[test]
fn receiver_of_an_unknown_authority_is_not_trusted() {
    let (authority, sink) = (Authority::new(), OtlpSink::start().expect("a sink"));
    let front = TlsFront::start(&authority, sink.addresses().0, false);
    let endpoint = format!("https://localhost:{}", front.port());
    let built_in = trouble(target(&endpoint, Protocol::Grpc));
    assert!(matches!(&built_in, Trouble::Tls(why) if why.contains("UnknownIssuer")), "{built_in}");

    let mut other = target(&endpoint, Protocol::Grpc);
    let stranger = Authority::new();
    other.certificate = Some(stranger.certificate());
    let other = trouble(other);
    assert!(matches!(&other, Trouble::Tls(_)), "{other}");

    let wrong_name = format!("https://127.0.0.1:{}", front.port());
    let mut named = target(&wrong_name, Protocol::Grpc);
    named.certificate = Some(authority.certificate());
    let named = trouble(named);
    assert!(matches!(&named, Trouble::Tls(why) if why.contains("not valid for name")), "{named}");
    assert_eq!(sink.tries(), 0);
}

#[test]
fn a_receiver_that_wants_a_certificate_gets_it() {
    let (authority, sink) = (Authority::new(), OtlpSink::start().expect("a sink"));
    let front = TlsFront::start(&authority, sink.addresses().0, true);
    let endpoint = format!("https://localhost:{}", front.port());
    let mut target = target(&endpoint, Protocol::Grpc);
    target.certificate = Some(authority.certificate());
    let anonymous = trouble(target.clone());
    assert_ne!(anonymous, Trouble::TimedOut);
    assert_eq!(sink.tries(), 0, "{anonymous}");
    target.client_identity = Some(authority.client());
    assert_eq!(open(target).send(request(1)), ACCEPTED);
}
