//! A request belongs to the trace it names: pipelined, on kept connections, and when cancelled.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::spans::{self, Span};
use crate::support::{Fleet, Start};

const CONSOLE: [(&str, &str); 3] = [
    ("NEMO_LENS_ENABLED", "1"),
    ("NEMO_GYM_OTEL_EXPORTER", "console"),
    ("NEMO_GYM_OTEL_SPAN_GROUPS", "all"),
];

fn fleet(arguments: &[&str]) -> Fleet {
    let mut all =
        vec!["--resources-server", "example_single_tool_call", "--model-type", "scripted_model"];
    all.extend_from_slice(arguments);
    Fleet::start(&Start { arguments: &all, environment: &CONSOLE })
}

fn trace_id(number: usize) -> String {
    format!("{:032x}", 0xabc_0000 + number)
}

fn request(path: &str, number: usize, connection: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: {connection}\r\n\
         traceparent: 00-{}-{:016x}-01\r\n\
         baggage: nemo.gym.rollout.id={number}-0,nemo.gym.task.index={number}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        trace_id(number),
        number + 1,
        body.len()
    )
}

/// Checks that every span of a trace carries the identity that its request named.
fn check(traces: &BTreeMap<String, Vec<Span>>, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let spans = traces.get(&trace_id(number)).unwrap_or_else(|| panic!("no trace {number}"));
        let outer = format!("{:016x}", number + 1);
        let roots = spans.iter().filter(|span| span.parent.as_deref() == Some(outer.as_str()));
        assert_eq!(roots.count(), 1, "trace {number}:\n{}", spans::render(spans));
        for span in spans {
            assert_eq!(span.attribute("nemo.gym.rollout.id"), &format!("{number}-0"), "{span:?}");
            assert_eq!(span.attribute("nemo.gym.task.index"), number, "{span:?}");
        }
    }
}

#[test]
fn pipelined_requests_keep_their_traces() {
    let mut fleet = fleet(&[]);
    let mut stream = TcpStream::connect(("127.0.0.1", fleet.port("example_single_tool_call")))
        .expect("connects");
    let mut requests = String::new();
    for number in 0..100 {
        let connection = if number == 99 { "close" } else { "keep-alive" };
        requests.push_str(&request("/get_weather", number, connection, r#"{"city":"Oslo"}"#));
    }
    stream.write_all(requests.as_bytes()).expect("sends");
    let mut answers = String::new();
    stream.read_to_string(&mut answers).expect("reads");
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 100);
    assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());
    let traces = spans::by_trace(spans::parse(&fleet.stdout()));
    check(&traces, 0..100);
    for number in 0..100 {
        assert_eq!(traces[&trace_id(number)].len(), 1);
    }
}

/// Guarantees: what was cancelled says so in its own trace, and the requests that follow on the
/// servers' kept connections do not inherit it.
#[test]
fn cancelled_requests_stay_in_their_own_traces() {
    let mut fleet = fleet(&[
        "++policy_model.responses_api_models.scripted_model.latency={kind: fixed, ms: 400}",
    ]);
    let agent = fleet.port("example_single_tool_call_simple_agent");
    let body = r#"{"responses_create_params":{"input":"Do I need a coat?","tools":[{"type":"function","name":"get_weather","description":"w","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false},"strict":true}]}}"#;
    let send = |number: usize, connection: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", agent)).expect("connects");
        let text = request("/run", number, connection, body);
        stream.write_all(text.as_bytes()).expect("sends");
        stream
    };
    let cancelled: Vec<TcpStream> = (0..40).map(|number| send(number, "keep-alive")).collect();
    // The model answers after 400 ms: these are cut off while it thinks.
    std::thread::sleep(Duration::from_millis(150));
    drop(cancelled);
    let kept: Vec<TcpStream> = (40..80).map(|number| send(number, "close")).collect();
    for mut stream in kept {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("reads");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());
    let traces = spans::by_trace(spans::parse(&fleet.stdout()));
    check(&traces, 0..80);
    let shape = |number: usize| {
        let text = spans::render(&traces[&trace_id(number)]);
        text.lines().map(|line| line.trim_start().to_owned()).collect::<Vec<_>>().len()
    };
    for number in 0..80 {
        let cut = traces[&trace_id(number)]
            .iter()
            .filter(|span| span.attribute("nemo.gym.cancelled") == true)
            .map(|span| span.name.as_str())
            .collect::<Vec<_>>();
        if number < 40 {
            assert!(
                cut.contains(&"POST /run") && cut.contains(&"gym.rollout"),
                "{number}: {cut:?}"
            );
        } else {
            assert!(cut.is_empty(), "{number} was not cancelled, but {cut:?}");
            assert_eq!(shape(number), shape(40), "trace {number}");
        }
    }
}
