//! `gym run watch` and `gym trace search` as they ask a running `gym observe`.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use gym_telemetry::semconv;
use lens::semconv::live;
use lens_otlp::encode::{
    LOG_ATTRIBUTES, LogParts, RESOURCE_ATTRIBUTES, Scope, SpanParts, put_key_value, put_request,
    put_scope_item,
};

use crate::support::post;

const GYM: &str = env!("CARGO_BIN_EXE_gym");

/// A `gym observe` that ends with the test.
struct Observe {
    child: Child,
    url: String,
    _dir: tempfile::TempDir,
}

impl Observe {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(GYM)
            .args(["observe", "--json", "--until-stdin-closes", "--dir"])
            .arg(dir.path().join("store"))
            .args(["--listen-grpc", "127.0.0.1:0", "--listen-http", "127.0.0.1:0"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        let url = ready["http"][0].as_str().unwrap().to_owned();
        Self { child, url, _dir: dir }
    }

    fn send(&self, path: &str, item: &[u8]) {
        let (mut resource, mut items, mut body) = (Vec::new(), Vec::new(), Vec::new());
        for (key, value) in
            [(semconv::SERVER_NAME, "weather"), (semconv::SERVER_TYPE, "resources_servers")]
        {
            put_key_value(&mut resource, RESOURCE_ATTRIBUTES, key, value);
        }
        put_scope_item(&mut items, item);
        let scopes = std::iter::once((Scope::default(), items.as_slice()));
        put_request(&mut body, &resource, scopes);
        let answer = post(&self.url, path, "application/x-protobuf", &body);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

impl Drop for Observe {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Exit code, stdout and stderr.
fn gym(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(GYM).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_rollout_that_hangs_is_watched_and_spans_that_ended_are_searched() {
    let observe = Observe::start();
    let watch = ["run", "watch", &observe.url, "--once"];
    let (code, stdout, stderr) = gym(&watch);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert_eq!(stderr, "no rollout is under way\n");

    let now_nanos = lens::now_unix_nanos();
    let mut attributes = Vec::new();
    for (key, value) in [
        (live::SPAN_NAME, "POST /verify"),
        (live::SPAN_GROUP, "server"),
        (semconv::ROLLOUT_ID, "7-11"),
        (semconv::COLLECTION_ID, "aaaabbbbcccc"),
    ] {
        put_key_value(&mut attributes, LOG_ATTRIBUTES, key, value);
    }
    put_key_value(&mut attributes, LOG_ATTRIBUTES, live::SPAN_AGE_MILLIS, &3_600_000_i64);
    let mut record = Vec::new();
    let parts = LogParts {
        time_nanos: now_nanos,
        observed_nanos: now_nanos,
        attributes: &attributes,
        span: Some(([1; 16], [2; 8])),
        event_name: live::HEARTBEAT_EVENT,
        ..LogParts::default()
    };
    parts.put(&mut record);
    observe.send("/v1/logs", &record);
    let (code, stdout, stderr) = gym(&watch);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("stalled 60 min in verify, server weather"), "{stdout}");
    assert!(stdout.contains("7-11") && stdout.contains("aaaabbbbcccc"), "{stdout}");
    assert_eq!(stderr, "1 under way: 1 stalled\n");
    let (code, ..) = gym(&["run", "watch", &observe.url, "--once", "--run", "other"]);
    assert_eq!(code, Some(1));
    let (_, stdout, _) = gym(&["run", "watch", &observe.url, "--once", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(told["rollouts"][0]["mark"], "stalled");

    let mut span = Vec::new();
    let parts = SpanParts {
        trace_id: [3; 16],
        span_id: [4; 8],
        name: "POST /verify",
        kind: 2,
        start_nanos: now_nanos,
        end_nanos: now_nanos + 2_000_000_000,
        ..SpanParts::default()
    };
    parts.put(&mut span);
    observe.send("/v1/traces", &span);
    let (code, stdout, stderr) =
        gym(&["trace", "search", "{ kind = server && duration > 1s }", &observe.url]);
    let told = format!("asked {}\nlooked at 1 span\n", observe.url);
    assert_eq!((code, stderr), (Some(0), told));
    assert!(stdout.contains(&"03".repeat(16)) && stdout.contains("2.00s"), "{stdout}");
    let numbers = "{} | max_over_time(duration) by (name)";
    let (code, stdout, _) = gym(&["trace", "search", numbers, &observe.url]);
    assert_eq!((code, stdout.contains("POST /verify  2.00s")), (Some(0), true), "{stdout}");

    let (code, _, stderr) = gym(&["run", "watch", "http://127.0.0.1:1", "--once"]);
    assert_eq!(code, Some(2));
    assert!(
        stderr.starts_with("error: no `gym observe` answers at http://127.0.0.1:1"),
        "{stderr}"
    );
}
