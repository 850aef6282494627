//! The doctor names what keeps telemetry from arriving, and what to change.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Output;

use gym_telemetry::env_vars;
use lens_testing::tls::{Authority, TlsFront};
use lens_testing::{OtlpSink, Reply, Signal};
use serde_json::Value;

use crate::support::{gym, output, text};

/// Three signals over HTTP to one place.
fn on<'a>(endpoint: &'a str, protocol: &'a str) -> Vec<(&'static str, &'a str)> {
    vec![
        (env_vars::ENABLED, "1"),
        (env_vars::LOGS_ENABLED, "1"),
        (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, endpoint),
        (env_vars::OTEL_EXPORTER_OTLP_PROTOCOL, protocol),
    ]
}

struct Asked {
    code: Option<i32>,
    output: Output,
    folder: String,
}

impl Asked {
    /// What it said, without what is different every time.
    fn said(&self) -> String {
        let text = text(&self.output.stdout).replace(&self.folder, "DIR");
        let mut out = String::new();
        for line in text.lines() {
            let mut line = after(line, "127.0.0.1:", char::is_numeric, "PORT");
            line = after(&line, "localhost:", char::is_numeric, "PORT");
            line = after(&line, " in ", |it| it.is_ascii_digit() || "µmns.".contains(it), "TIME");
            line = after(&line, "look for trace ", |it| it != ' ', "ID");
            line = after(&line, "can be written, ", char::is_numeric, "N");
            out.push_str(&line);
            out.push('\n');
        }
        out
    }
}

/// Replaces what follows `marker` as long as `is_part` holds; only where something does.
fn after(line: &str, marker: &str, is_part: impl Fn(char) -> bool, with: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(marker) {
        let (head, tail) = rest.split_at(at + marker.len());
        // A word that only begins like a number stays.
        let is_value = tail.chars().next().is_some_and(|it| it.is_ascii_hexdigit());
        let end = tail.find(|it| !is_part(it)).unwrap_or(tail.len());
        out.push_str(head);
        if end > 0 && is_value {
            out.push_str(with);
            rest = &tail[end..];
        } else {
            rest = tail;
        }
    }
    out + rest
}

fn ask(variables: &[(&str, &str)], arguments: &[&str]) -> Asked {
    let folder = tempfile::tempdir().expect("a folder");
    let memory = folder.path().join("memory");
    let mut command = gym();
    command.arg("doctor").args(["--timeout", "2"]).args(arguments).current_dir(folder.path());
    command.env_remove("XDG_RUNTIME_DIR").env(env_vars::SPOOL_DIR, memory);
    let output = output(command.envs(variables.iter().copied()));
    let folder = folder.path().to_string_lossy().into_owned();
    Asked { code: output.status.code(), output, folder }
}

/// Asks about a receiver that does not take what is sent.
fn ask_in_vain(variables: &[(&str, &str)]) -> String {
    let asked = ask(variables, &[]);
    assert_eq!(asked.code, Some(1), "{} {}", asked.said(), text(&asked.output.stderr));
    asked.said()
}

#[test]
fn a_span_a_metric_and_a_log_record_are_delivered() {
    let sink = OtlpSink::start().expect("a sink");
    for (endpoint, protocol) in
        [(sink.http_endpoint(), "http/protobuf"), (sink.grpc_endpoint(), "grpc")]
    {
        let before = sink.counts();
        let asked = ask(&on(&endpoint, protocol), &[]);
        assert_eq!(asked.code, Some(0), "{}", asked.said());
        let counts = sink.counts();
        assert_eq!(counts.spans, before.spans + 1, "{protocol}");
        assert_eq!(counts.logs, before.logs + 1, "{protocol}");
        assert_eq!(counts.metrics, before.metrics + 1, "{protocol}");
        if protocol == "grpc" {
            insta::assert_snapshot!("delivered", asked.said());
        }
    }
    let (spans, logs) = (sink.spans(), sink.logs());
    assert_eq!(spans[0].trace_id, logs[0].trace_id, "one trace to look for");
    assert!(spans[0].service().ends_with("/doctor"), "{}", spans[0].service());
    assert_eq!(sink.metric_names(), [lens::semconv::PROBE]);
}

#[test]
fn the_switch_that_is_off_is_named_and_nothing_is_sent() {
    let sink = OtlpSink::start().expect("a sink");
    let endpoint = sink.http_endpoint();
    let mut variables = on(&endpoint, "http/protobuf");
    variables[0].1 = "0";
    let by_variable = ask_in_vain(&variables);
    variables[0].1 = "1";
    variables.push((env_vars::OTEL_SDK_DISABLED, "true"));
    let by_kill_switch = ask_in_vain(&variables);
    let unreadable = ask_in_vain(&[(env_vars::ENABLED, "maybe")]);
    let by_nobody = ask_in_vain(&[]);
    let in_block = ask(&[], &["+telemetry.enabled=false"]);
    assert_eq!(in_block.code, Some(1));
    let off = [by_nobody, by_variable, by_kill_switch, unreadable, in_block.said()].join("----\n");
    insta::assert_snapshot!("off", off);
    assert_eq!(sink.tries(), 0);
}

#[test]
fn a_closed_port_is_told_from_a_receiver_that_is_wrong() {
    let port = lens_testing::free_port();
    insta::assert_snapshot!(
        "closed",
        ask_in_vain(&on(&format!("http://127.0.0.1:{port}"), "grpc"))
    );
}

#[test]
fn the_port_of_the_other_protocol_is_recognised() {
    let sink = OtlpSink::start().expect("a sink");
    insta::assert_snapshot!(
        "http_on_grpc",
        ask_in_vain(&on(&sink.grpc_endpoint(), "http/protobuf"))
    );
    // What servers of HTTP/1.1 say to the greeting of HTTP/2.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().filter_map(Result::ok) {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    insta::assert_snapshot!("grpc_on_http", ask_in_vain(&on(&endpoint, "grpc")));
}

#[test]
fn tls_against_none_and_none_against_tls_are_recognised() {
    let (authority, sink) = (Authority::new(), OtlpSink::start().expect("a sink"));
    let secure = sink.http_endpoint().replacen("http", "https", 1);
    insta::assert_snapshot!("https_on_plain", ask_in_vain(&on(&secure, "http/protobuf")));
    let front = TlsFront::start(&authority, sink.addresses().1, false);
    let plain = format!("http://127.0.0.1:{}", front.port());
    insta::assert_snapshot!("http_on_tls", ask_in_vain(&on(&plain, "http/protobuf")));
}

#[test]
fn a_certificate_that_is_not_trusted_or_not_there_is_told_with_its_setting() {
    let (authority, sink) = (Authority::new(), OtlpSink::start().expect("a sink"));
    let front = TlsFront::start(&authority, sink.addresses().1, false);
    let endpoint = format!("https://localhost:{}", front.port());
    let mut variables = on(&endpoint, "http/protobuf");
    insta::assert_snapshot!("not_trusted", ask_in_vain(&variables));
    let certificate = authority.certificate();
    variables
        .push((env_vars::OTEL_EXPORTER_OTLP_CERTIFICATE, certificate.to_str().expect("utf-8")));
    assert_eq!(ask(&variables, &[]).code, Some(0), "{}", ask(&variables, &[]).said());
    variables.pop();
    variables.push((env_vars::OTEL_EXPORTER_OTLP_CERTIFICATE, "/not/there.pem"));
    insta::assert_snapshot!("no_certificate", ask_in_vain(&variables));
}

#[test]
fn answers_that_refuse_are_told_with_what_they_mean() {
    let sink = OtlpSink::start().expect("a sink");
    let endpoint = sink.http_endpoint();
    let http = on(&endpoint, "http/protobuf");
    for (name, reply) in [
        ("unauthorised", Reply::Http(401)),
        ("forbidden", Reply::Http(403)),
        ("not_found", Reply::Http(404)),
        ("unavailable", Reply::Http(503)),
        ("partial", Reply::Partial(1)),
    ] {
        sink.answer_all_with(Some(reply));
        insta::assert_snapshot!(name, ask_in_vain(&http));
    }
    let endpoint = sink.grpc_endpoint();
    let grpc = on(&endpoint, "grpc");
    for (name, reply) in [
        ("grpc_unauthenticated", Reply::GrpcSaying(16, "no token")),
        ("grpc_unimplemented", Reply::Grpc(12)),
    ] {
        sink.answer_all_with(Some(reply));
        insta::assert_snapshot!(name, ask_in_vain(&grpc));
    }
}

#[test]
fn a_base_with_the_path_of_a_signal_is_told_even_where_it_is_taken() {
    let sink = OtlpSink::start().expect("a sink");
    let endpoint = format!("{}/v1/traces", sink.http_endpoint());
    sink.answer_all_with(Some(Reply::Http(404)));
    insta::assert_snapshot!("doubled", ask_in_vain(&on(&endpoint, "http/protobuf")));
    // grpc has no use for a path.
    sink.answer_all_with(None);
    let endpoint = format!("{}/v1/traces", sink.grpc_endpoint());
    let asked = ask(&on(&endpoint, "grpc"), &[]);
    assert_eq!(asked.code, Some(0), "{}", asked.said());
    assert!(asked.said().contains("which grpc does not use"), "{}", asked.said());
}

#[test]
fn a_receiver_that_does_not_answer_is_given_up() {
    let sink = OtlpSink::start().expect("a sink");
    sink.answer_all_with(Some(Reply::Hang));
    insta::assert_snapshot!("hangs", ask_in_vain(&on(&sink.http_endpoint(), "http/protobuf")));
}

#[test]
fn the_console_needs_nobody_and_odd_settings_are_told() {
    let console = ask(
        &[
            (env_vars::ENABLED, "1"),
            (env_vars::EXPORTER, "console"),
            (env_vars::SPAN_GROUPS, "defualt,verify"),
            (env_vars::OTEL_METRICS_EXPORTER, "none"),
            (env_vars::EXPORT_STRATEGY, "single_rank"),
            (env_vars::EXPORT_RANK, "3"),
            (env_vars::OTEL_EXPORTER_OTLP_TIMEOUT, "soon"),
        ],
        &["+telemetry.otlp_endpont=x"],
    );
    assert_eq!(console.code, Some(0), "{}", console.said());
    insta::assert_snapshot!("console", console.said());
    let nothing = ask_in_vain(&[
        (env_vars::ENABLED, "1"),
        (env_vars::TRACES_ENABLED, "0"),
        (env_vars::METRICS_ENABLED, "0"),
    ]);
    assert!(nothing.contains("traces    – off"), "{nothing}");
}

#[test]
fn the_block_counts_as_everywhere() {
    let sink = OtlpSink::start().expect("a sink");
    let endpoint = format!("+telemetry.otlp_endpoint={}", sink.http_endpoint());
    let block = ["+telemetry.enabled=true", "+telemetry.otlp_protocol=http/protobuf", &endpoint];
    let asked = ask(&[], &[&block[..], &["--json"]].concat());
    assert_eq!(asked.code, Some(0), "{}", text(&asked.output.stdout));
    let document: Value = serde_json::from_slice(&asked.output.stdout).expect("a JSON document");
    assert_eq!(document["delivered"], true);
    assert_eq!(document["telemetry"]["origin"], "`telemetry:` block");
    let signals = document["signals"].as_array().expect("a list");
    assert_eq!(signals[0]["state"], "delivered");
    assert_eq!(signals[0]["endpoint_origin"], "`telemetry:` block");
    assert_eq!(signals[0]["endpoint"], format!("{}/v1/traces", sink.http_endpoint()));
    assert_eq!(signals[2]["state"], "off");
    assert_eq!(signals[2]["origin"], "default");
    let traces = sink.requests();
    assert!(traces.iter().any(|request| request.signal == Signal::Traces));
}

#[test]
fn a_spool_that_cannot_be_written_is_told_and_headers_are_not() {
    let sink = OtlpSink::start().expect("a sink");
    let file = tempfile::NamedTempFile::new().expect("a file");
    let endpoint = sink.http_endpoint();
    let mut variables = on(&endpoint, "http/protobuf");
    variables.push((env_vars::SPOOL_DIR, file.path().to_str().expect("utf-8")));
    variables.push((env_vars::OTEL_EXPORTER_OTLP_HEADERS, "authorization=Bearer s3cr3t"));
    let asked = ask(&variables, &[]);
    let said = asked.said();
    assert_eq!(asked.code, Some(0), "{said}");
    assert!(said.contains("cannot be written: "), "{said}");
    assert!(said.contains("authorization=****") && !said.contains("s3cr3t"), "{said}");
}

#[test]
fn a_config_that_cannot_be_read_is_no_diagnosis() {
    let asked = ask(&[], &["--config", "missing.yaml"]);
    assert_eq!(asked.code, Some(2));
    assert!(asked.output.stdout.is_empty());
    assert!(text(&asked.output.stderr).contains("missing.yaml"));
}
