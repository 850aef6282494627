//! `gym observe`, alone and beside a fleet: what arrived is stored, and every command answers alike from the folder and
//! from the process that fills it.

use serde_json::Value;

use crate::support::{Fleet, Observer, Start, gym, output, post, text, weather_rows};

fn asked(arguments: &[&str], source: &str) -> Value {
    let out = output(gym().args(arguments).arg("--json").arg(source));
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let mut document: Value = serde_json::from_slice(&out.stdout).expect("a document");
    // Says how the answer was found, which differs.
    document.as_object_mut().expect("an object").remove("read");
    document
}

#[test]
fn a_fleet_that_is_observed_is_stored_and_the_folder_answers_as_the_running_process_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("store");
    let observer = Observer::start(&store);
    let mut fleet = Fleet::start(&Start {
        arguments: &[
            "--resources-server",
            "example_single_tool_call",
            "--model-type",
            "scripted_model",
        ],
        environment: &[
            ("NEMO_LENS_ENABLED", "1"),
            ("NEMO_LENS_LIVE_EVENTS", "off"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", observer.url("grpc")),
        ],
    });
    let rows = weather_rows(fleet.folder.path());
    let mut run = fleet.eval_run(&[
        "--agent",
        "example_single_tool_call_simple_agent",
        "--input",
        rows.to_str().expect("text"),
        "--output",
        "out.jsonl",
        "--num-repeats",
        "2",
    ]);
    run.env("NEMO_LENS_ENABLED", "1").env("OTEL_EXPORTER_OTLP_ENDPOINT", observer.url("grpc"));
    run.env("NEMO_LENS_LIVE_EVENTS", "off");
    let ran = output(&mut run);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    assert_eq!(fleet.stop(), Some(0));
    let log = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[
        {"timeUnixNano":"1","body":{"stringValue":"said"}},
        {"timeUnixNano":"1","body":{"stringValue":"open"},"eventName":"gym.heartbeat"}]}]}]}"#;
    let url = observer.url("http");
    let answer = post(url, "/v1/logs", "application/json", log.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    let store = store.to_str().expect("text").to_owned();
    let questions: [&[&str]; 5] = [
        &["run", "list"],
        &["trace", "list"],
        &["trace", "report"],
        &["trace", "stragglers"],
        &["trace", "show", "--slowest", "2"],
    ];
    let from_process: Vec<Value> =
        questions.iter().map(|question| asked(question, observer.url("http"))).collect();
    assert_eq!(from_process[0]["runs"][0]["rollouts"], 10, "{}", from_process[0]);
    for (question, from_process) in questions.iter().zip(&from_process) {
        assert_eq!(&asked(question, &store), from_process, "{question:?} beside it");
    }
    assert_eq!(observer.stop(), Some(0));
    for (question, from_process) in questions.iter().zip(&from_process) {
        assert_eq!(&asked(question, &store), from_process, "{question:?} after it");
    }
    store_is_whole_can_be_sent_on_and_damage_is_named(&store);
}

fn store_is_whole_can_be_sent_on_and_damage_is_named(store: &str) {
    let spans = asked(&["store", "info"], store)["tables"]["spans"]["rows"].as_u64();
    assert!(spans > Some(100), "{spans:?}");
    assert_eq!(asked(&["store", "verify"], store)["faults"], serde_json::json!([]));
    let compacted = output(gym().args(["store", "compact", store]));
    assert_eq!(compacted.status.code(), Some(0), "{}", text(&compacted.stderr));
    assert_eq!(output(gym().args(["store", "compact", "nowhere"])).status.code(), Some(2));

    let sink = lens_testing::OtlpSink::start().expect("a sink");
    let replayed =
        output(gym().args(["store", "replay", store, "--to", sink.grpc_endpoint().as_str()]));
    assert_eq!(replayed.status.code(), Some(0), "{}", text(&replayed.stderr));
    let tables = &asked(&["store", "info"], store)["tables"];
    let rows = |table: &str| tables[table]["rows"].as_u64();
    assert!(rows("logs") == Some(2) && rows("points") > Some(0), "{tables}");
    let counts = sink.counts();
    assert_eq!(Some(counts.spans), spans);
    // Each point is a metric of its own. What was under way then is not told as if it were now.
    assert_eq!((counts.logs, Some(counts.metrics)), (1, rows("points")));
    assert_eq!(sink.logs()[0].body, "said");
    let said = format!("sent {} metric points to {}", counts.metrics, sink.grpc_endpoint());
    assert!(text(&replayed.stderr).contains(&said), "{}", text(&replayed.stderr));
    let sink = lens_testing::OtlpSink::start().expect("a sink");
    let url = sink.http_endpoint();
    let some = ["--signals", "logs", "--protocol", "http/protobuf", "--to", url.as_str()];
    let replayed = output(gym().args(["store", "replay", store]).args(some));
    assert_eq!(replayed.status.code(), Some(0), "{}", text(&replayed.stderr));
    assert_eq!((sink.counts().spans, sink.counts().metrics), (0, 0));
    assert_eq!(sink.counts().logs, 1);
    sink.answer_all_with(Some(lens_testing::Reply::Http(404)));
    let replayed = output(gym().args(["store", "replay", store]).args(some));
    assert_eq!(replayed.status.code(), Some(1));
    assert!(text(&replayed.stderr).contains("hint: --signals"), "{}", text(&replayed.stderr));
    let closed = format!("http://127.0.0.1:{}", lens_testing::free_port());
    let refused =
        output(gym().args(["store", "replay", store, "--timeout", "6", "--to", closed.as_str()]));
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    // Who waits is told why before it is over, and once.
    let waiting = format!("waiting for {closed}: the connection was refused");
    assert_eq!(text(&refused.stderr).matches(&waiting).count(), 1, "{}", text(&refused.stderr));
    assert_eq!(text(&refused.stderr).matches("caused by: the connection was refused").count(), 1);

    let files = asked(&["store", "files"], store);
    let files = files["files"].as_array().expect("files");
    let file = files.iter().find(|file| file["table"] == "spans").expect("a file of spans");
    let path = file["path"].as_str().expect("a path");
    let mut bytes = std::fs::read(path).expect("its bytes");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(path, &bytes).expect("damage");
    let verified = output(gym().args(["store", "verify", store]));
    assert_eq!(verified.status.code(), Some(1));
    assert!(text(&verified.stdout).starts_with(path), "{}", text(&verified.stdout));
    // Without its footer it cannot be read at all; what is whole is sent all the same.
    bytes[middle..].fill(0);
    std::fs::write(path, &bytes).expect("damage");
    let sink = lens_testing::OtlpSink::start().expect("a sink");
    let url = sink.grpc_endpoint();
    let replayed = output(gym().args([
        "store",
        "replay",
        store,
        "--signals",
        "logs,traces,metrics",
        "--to",
        &url,
    ]));
    assert_eq!(replayed.status.code(), Some(1), "{}", text(&replayed.stderr));
    assert!(text(&replayed.stderr).contains(path), "{}", text(&replayed.stderr));
    assert_eq!((sink.counts().logs, sink.counts().spans), (1, 0));
}

#[test]
fn a_run_that_observes_itself_leaves_a_store_and_no_process_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let rows = weather_rows(folder.path());
    let port = lens_testing::free_port();
    let mut run = gym();
    run.args(["eval", "run", "--observe", "--resources-server", "example_single_tool_call"])
        .args([
            "--model-type",
            "scripted_model",
            "--agent",
            "example_single_tool_call_simple_agent",
        ])
        .arg("--input")
        .arg(&rows)
        .args(["--output", "out.jsonl"])
        .arg(format!("++head_server={{host: 127.0.0.1, port: {port}}}"))
        .current_dir(folder.path());
    let ran = output(&mut run);
    let said = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(0), "{said}");
    assert!(said.contains("Observing: gym run watch http://127.0.0.1:"), "{said}");
    let store = folder.path().join("gym-store");
    let listed = asked(&["run", "list"], store.to_str().expect("text"));
    assert_eq!(listed["runs"][0]["rollouts"], 5, "{listed}");
    // Whoever is next finds nobody writing.
    let observer = Observer::start(&store);
    let second = output(
        gym()
            .args([
                "observe",
                "--listen-grpc",
                "127.0.0.1:0",
                "--listen-http",
                "127.0.0.1:0",
                "--dir",
            ])
            .arg(&store),
    );
    assert_eq!(second.status.code(), Some(2), "one process writes at a time");
    assert_eq!(observer.stop(), Some(0));
}

#[test]
fn an_address_that_is_none_is_named_with_its_option_and_leaves_no_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("store");
    for (option, value, why) in [
        ("--listen-grpc", "here", "there is no port"),
        ("--listen-http", "https://127.0.0.1:0", "does not speak TLS"),
    ] {
        let refused = output(gym().args(["observe", option, value, "--dir"]).arg(&dir));
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
        let said = text(&refused.stderr);
        assert!(said.contains(&format!("error: {option} \"{value}\"")), "{said}");
        assert!(said.contains(why), "{said}");
        assert!(!dir.exists());
    }
}

#[test]
fn telemetry_that_goes_elsewhere_is_said_when_it_was_to_be_observed() {
    let folder = tempfile::tempdir().expect("a folder");
    let rows = weather_rows(folder.path());
    let port = lens_testing::free_port();
    let mut run = gym();
    run.args(["eval", "run", "--observe", "--limit", "1"])
        .args(["--resources-server", "example_single_tool_call", "--model-type", "scripted_model"])
        .args(["--agent", "example_single_tool_call_simple_agent", "--input"])
        .arg(&rows)
        .args(["--output", "out.jsonl"])
        .arg(format!("++head_server={{host: 127.0.0.1, port: {port}}}"))
        .env("OTEL_TRACES_EXPORTER", "none")
        .current_dir(folder.path());
    let ran = output(&mut run);
    let said = text(&ran.stderr);
    assert!(
        said.contains(
            "--observe will see no spans: traces_enabled is false (OTEL_TRACES_EXPORTER)"
        ),
        "{said}"
    );
}

/// Guarantees: whoever has the credentials that its fleets send may ask, nobody else.
#[test]
fn an_observer_with_a_token_is_asked_with_the_credentials_that_fleets_send() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "s3cret\n").expect("a file");
    let observer = Observer::start_with(
        &folder.path().join("store"),
        &["--token-file", token.to_str().expect("text")],
    );
    let ask = |headers: &str| {
        let mut list = gym();
        list.args(["run", "list", "--json", observer.url("http")]);
        output(list.env("OTEL_EXPORTER_OTLP_HEADERS", headers))
    };
    for headers in ["", "authorization=Bearer%20wrong"] {
        let refused = ask(headers);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains("answers 401"), "{said}");
        assert!(said.contains("OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20TOKEN"), "{said}");
        assert!(!said.contains("wrong"), "credentials are not told: {said}");
    }
    let other = folder.path().join("other");
    let from = Observer::start(&other);
    let span = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"00000000000000000000000000000001",
        "spanId":"0000000000000001","name":"sent on","startTimeUnixNano":"1","endTimeUnixNano":"2"}]}]}]}"#;
    let answer = post(from.url("http"), "/v1/traces", "application/json", span.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(from.stop(), Some(0));
    for transport in ["grpc", "http"] {
        let replay = |headers: &str| {
            let mut replay = gym();
            replay.args([
                "store",
                "replay",
                "--signals",
                "traces",
                "--to",
                observer.url(transport),
            ]);
            replay.args(["--protocol", if transport == "grpc" { "grpc" } else { "http/protobuf" }]);
            output(replay.arg(&other).env("OTEL_EXPORTER_OTLP_HEADERS", headers))
        };
        assert_eq!(replay("").status.code(), Some(1));
        let sent = replay("authorization=Bearer%20s3cret");
        assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
    }
    let answered = ask("authorization=Bearer%20s3cret");
    assert_eq!(
        answered.status.code(),
        Some(1),
        "no rollout was received: {}",
        text(&answered.stderr)
    );
}
