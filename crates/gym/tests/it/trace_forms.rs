//! One run in every form in which its spans can be read: each `gym trace` and `gym run` command gives one answer.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lens_store::trace::timestamp::to_rfc3339;
use serde_json::{Map, Value, json};

use crate::support::{Observer, post};

const MILLI: u64 = 1_000_000;
/// When the run begins, unless a store is to believe it.
const SECOND: u64 = 1_767_323_045_000_000_000;

/// A span of the run; times in milliseconds after `begin_nanos`.
struct Span {
    begin_nanos: u64,
    trace: u64,
    id: u64,
    parent: u64,
    name: &'static str,
    kind: &'static str,
    from: u64,
    to: u64,
    server: (&'static str, &'static str, &'static str),
    attributes: Map<String, Value>,
    attempts: Vec<Value>,
    failed: bool,
}

const DRIVER: (&str, &str, &str) = ("orchestrator", "orchestrator", "node-1");
const AGENT: (&str, &str, &str) = ("simple_agent", "responses_api_agents", "node-1");
const MODEL: (&str, &str, &str) = ("policy_model", "responses_api_models", "node-2");
const SEARCH: (&str, &str, &str) = ("search", "resources_servers", "node-1");
/// Where the slow searches are.
const FAR_SEARCH: (&str, &str, &str) = ("search", "resources_servers", "node-7");

/// Rollout `at`: usually 400 to 500 ms, of which its engine tells; the search of stragglers takes six seconds more.
fn rollout(
    begin_nanos: u64,
    run: &str,
    at: u64,
    slower: u64,
    is_straggler: bool,
    spans: &mut Vec<Span>,
) {
    let trace = 1 + at + 1000 * (u64::from_str_radix(&run[..2], 16).unwrap());
    let (task, repeat) = (at / 4, at % 4);
    let admission = at * 7 % 30;
    let decode = 300 + at * 37 % 100 + slower;
    let search = 20 + at * 13 % 20 + if is_straggler { 6000 } else { 0 };
    let start = 3 * at;
    let begun = start + admission;
    let model = begun + 5;
    let replied = model + decode + 60;
    let searched = replied + 5 + search;
    let end = searched + 10;
    let ids = json!({
        "nemo.gym.rollout.id": format!("{task}-{repeat}"),
        "nemo.gym.task.index": task,
        "nemo.gym.rollout.index": repeat,
        "nemo.gym.attempt.index": 0,
        "nemo.gym.collection.id": run,
    });
    let mut put = |id, parent, name, kind, (from, to), server, own: Value| {
        let mut attributes = ids.as_object().unwrap().clone();
        attributes.extend(own.as_object().unwrap().clone());
        let failed = attributes.contains_key("error.type");
        spans.push(Span {
            begin_nanos,
            trace,
            id,
            parent,
            name,
            kind,
            from,
            to,
            server,
            attributes,
            attempts: Vec::new(),
            failed,
        });
    };
    let outcome = if at % 11 == 10 {
        json!({ "nemo.gym.rollout.outcome": "failure", "error.type": "500" })
    } else {
        json!({ "nemo.gym.rollout.outcome": "success" })
    };
    let called = |name: &str| json!({ "nemo.gym.http.destination.server.name": name });
    put(1, 0, "gym.rollout.attempt", "INTERNAL", (start, end), DRIVER, outcome);
    put(2, 1, "HTTP POST", "CLIENT", (begun, end), DRIVER, called("simple_agent"));
    put(3, 2, "POST /run", "SERVER", (begun + 1, end - 1), AGENT, json!({}));
    put(4, 3, "gym.rollout", "INTERNAL", (begun + 2, end - 2), AGENT, json!({}));
    put(5, 4, "HTTP POST", "CLIENT", (model, replied), AGENT, called("policy_model"));
    put(6, 5, "POST /v1/responses", "SERVER", (model + 1, replied - 1), MODEL, json!({}));
    let engine = json!({
        "nemo.gym.model.queue_nanos": 10 * MILLI,
        "nemo.gym.model.prefill_nanos": 20 * MILLI,
        "nemo.gym.model.decode_nanos": decode * MILLI,
        "gen_ai.request.model": "tiny",
    });
    put(7, 6, "gym.model.responses", "INTERNAL", (model + 2, replied - 2), MODEL, engine);
    let mut called = called("search");
    called["http.request.resend_count"] = json!(1);
    put(8, 4, "HTTP POST", "CLIENT", (replied + 1, searched), AGENT, called);
    let server = if is_straggler { FAR_SEARCH } else { SEARCH };
    put(9, 8, "POST /search", "SERVER", (searched - search, searched - 1), server, json!({}));
    // The request waited for a connection and was sent again after a pause.
    let client = spans.iter_mut().rev().find(|span| span.id == 8).unwrap();
    client.attempts = vec![
        json!({ "nemo.gym.http.pool_wait_nanos": MILLI, "http.response.status_code": 503 }),
        json!({ "nemo.gym.http.backoff_nanos": MILLI }),
    ];
}

/// Two runs: in the second a slow search makes stragglers of twelve rollouts, and every reply takes 40 ms longer.
fn runs(begin_nanos: u64) -> Vec<Span> {
    let mut spans = Vec::new();
    for at in 0..60 {
        rollout(begin_nanos, "0a1b2c3d4e5f", at, 0, false, &mut spans);
        let is_straggler = at < 48 && at % 4 == 2;
        rollout(begin_nanos, "1f2e3d4c5b6a", at, 40, is_straggler, &mut spans);
    }
    spans
}

impl Span {
    fn nanos(&self) -> (u64, u64) {
        (self.begin_nanos + self.from * MILLI, self.begin_nanos + self.to * MILLI)
    }

    fn span_id(&self, id: u64) -> String {
        format!("{:016x}", self.trace * 100 + id)
    }

    fn resource(&self) -> Map<String, Value> {
        let (name, kind, host) = self.server;
        let value = json!({
            "service.name": format!("nemo-gym/{name}"),
            "nemo.gym.server.name": name,
            "nemo.gym.server.type": kind,
            "host.name": host,
            "process.pid": 7,
            "nemo.run.id": "fleet",
        });
        value.as_object().unwrap().clone()
    }

    /// When an attempt began: right away, and 3 ms later.
    fn attempt_nanos(&self, at: usize) -> u64 {
        self.nanos().0 + 2 * at as u64 * MILLI
    }

    fn status(&self) -> &'static str {
        if self.failed { "ERROR" } else { "UNSET" }
    }

    fn console(&self) -> Value {
        let (from, to) = self.nanos();
        let events: Vec<Value> = self
            .attempts
            .iter()
            .enumerate()
            .map(|(at, attributes)| {
                json!({
                    "name": "nemo.gym.http.attempt",
                    "timestamp": to_rfc3339(self.attempt_nanos(at)),
                    "attributes": attributes,
                })
            })
            .collect();
        json!({
            "type": "span",
            "name": self.name,
            "trace_id": format!("{:032x}", self.trace),
            "span_id": self.span_id(self.id),
            "parent_id": (self.parent > 0).then(|| self.span_id(self.parent)),
            "kind": self.kind,
            "start_time": to_rfc3339(from),
            "end_time": to_rfc3339(to),
            "status": { "status_code": self.status() },
            "attributes": self.attributes,
            "events": events,
            "links": [],
            "scope": { "name": "nemo.gym" },
            "resource": { "attributes": self.resource() },
        })
    }

    fn reference(&self) -> Value {
        let mut line = self.console();
        let hex = |value: &Value| json!(format!("0x{}", value.as_str().unwrap()));
        let fields = line.as_object_mut().unwrap();
        for gone in ["type", "scope"] {
            fields.remove(gone);
        }
        let (trace, span) = (fields.remove("trace_id").unwrap(), fields.remove("span_id").unwrap());
        fields["kind"] = json!(format!("SpanKind.{}", self.kind));
        if !fields["parent_id"].is_null() {
            fields["parent_id"] = hex(&fields["parent_id"]);
        }
        fields.insert(
            "context".to_owned(),
            json!({ "trace_id": hex(&trace), "span_id": hex(&span), "trace_state": "[]" }),
        );
        line
    }

    fn otlp(&self) -> Value {
        let (from, to) = self.nanos();
        let events: Vec<Value> = self
            .attempts
            .iter()
            .enumerate()
            .map(|(at, attributes)| {
                json!({
                    "name": "nemo.gym.http.attempt",
                    "timeUnixNano": self.attempt_nanos(at).to_string(),
                    "attributes": otlp_attributes(attributes.as_object().unwrap()),
                })
            })
            .collect();
        let span = json!({
            "traceId": format!("{:032x}", self.trace),
            "spanId": self.span_id(self.id),
            "parentSpanId": if self.parent > 0 { self.span_id(self.parent) } else { String::new() },
            "name": self.name,
            "kind": format!("SPAN_KIND_{}", self.kind),
            "startTimeUnixNano": from.to_string(),
            "endTimeUnixNano": to.to_string(),
            "attributes": otlp_attributes(&self.attributes),
            "events": events,
            "status": { "code": if self.failed { 2 } else { 0 } },
        });
        json!({ "resourceSpans": [{
            "resource": { "attributes": otlp_attributes(&self.resource()) },
            "scopeSpans": [{ "scope": { "name": "nemo.gym" }, "spans": [span] }],
        }] })
    }
}

fn otlp_attributes(attributes: &Map<String, Value>) -> Value {
    let pair = |(key, value): (&String, &Value)| {
        let value = match value {
            Value::String(text) => json!({ "stringValue": text }),
            number => json!({ "intValue": number.to_string() }),
        };
        json!({ "key": key, "value": value })
    };
    attributes.iter().map(pair).collect()
}

/// Name of the file in the folder of its form: answers name what they were asked about.
const FILE: &str = "run.jsonl";

/// The run as console lines of ours, console lines of the reference, and OTLP JSON, each in a folder.
fn written(folder: &Path) -> [PathBuf; 3] {
    written_of(&runs(SECOND), folder)
}

fn written_of(spans: &[Span], folder: &Path) -> [PathBuf; 3] {
    type Form = fn(&Span) -> Value;
    let forms: [(&str, Form); 3] =
        [("ours", Span::console), ("reference", Span::reference), ("otlp", Span::otlp)];
    forms.map(|(name, form)| {
        let folder = folder.join(name);
        std::fs::create_dir(&folder).unwrap();
        let lines: Vec<String> = spans.iter().map(|span| form(span).to_string()).collect();
        std::fs::write(folder.join(FILE), lines.join("\n")).unwrap();
        folder
    })
}

fn gym(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gym")).args(arguments).current_dir(folder).output().unwrap()
}

/// Stdout.
fn answer(arguments: &[&str], folder: &Path) -> String {
    let output = gym(arguments, folder);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Everything that can be asked.
const QUESTIONS: [&[&str]; 16] = [
    &["trace", "list", FILE],
    &["trace", "show", FILE, "--slowest", "2"],
    &["trace", "show", FILE, "--rollout", "5-1", "--run", "1f2e"],
    &["trace", "show", FILE, "--trace", "0x00000000000000000000000000002713", "--summary"],
    &["trace", "report", FILE],
    &["trace", "report", FILE, "--run", "1f", "--slowest", "3"],
    &["trace", "report", FILE, "--task", "5", "--agent", "simple_agent"],
    &["trace", "report", FILE, "--outcome", "failure"],
    &["trace", "diff", "run.jsonl@run=0a1b", "@run=1f2e"],
    &["trace", "diff", "run.jsonl@task=3", "run.jsonl@task=3"],
    &["trace", "stragglers", FILE],
    &["trace", "stragglers", FILE, "--run", "0a1b2c3d4e5f"],
    &["run", "list", FILE],
    &["run", "show", FILE, "--run", "1f"],
    &["trace", "export", FILE, "-o", "-", "--format", "perfetto", "--slowest", "2"],
    &["trace", "search", "{ duration > 5s && name = \"POST /search\" }", FILE],
];

/// Without the blanks between columns.
fn words(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}

/// Without what tells the files that were read.
fn without_read(text: &str) -> Value {
    let mut value: Value = serde_json::from_str(text).unwrap();
    value.as_object_mut().unwrap().remove("read");
    value
}

#[test]
fn every_form_of_a_run_gives_the_same_answers() {
    let folder = tempfile::tempdir().unwrap();
    let [ours, reference, otlp] = written(folder.path());
    // What was exported is one more form.
    let exported = folder.path().join("exported");
    std::fs::create_dir(&exported).unwrap();
    answer(&["trace", "export", FILE, "-o", "../exported/run.jsonl"], &ours);
    for (at, question) in QUESTIONS.into_iter().enumerate() {
        let expected = answer(question, &ours);
        assert!(!expected.is_empty(), "{question:?}");
        for other in [&reference, &otlp, &exported] {
            assert_eq!(answer(question, other), expected, "{question:?} of {}", other.display());
        }
        if question.contains(&"export") || question.contains(&"search") {
            continue;
        }
        // One other form is enough here: the text said that all agree.
        let as_json = [question, &["--json"]].concat();
        let expected = without_read(&answer(&as_json, &ours));
        let other = [&reference, &otlp, &exported][at % 3];
        let found = without_read(&answer(&as_json, other));
        assert_eq!(found, expected, "{as_json:?} of {}", other.display());
    }
}

/// Guarantees: what a fleet sent answers like what it printed: from the store's files, from its log, and over HTTP.
#[test]
fn a_store_gives_the_same_answers_as_files() {
    let folder = tempfile::tempdir().unwrap();
    let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let seconds = hour_ago.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let spans = runs(seconds * 1_000_000_000);
    let [ours, ..] = written_of(&spans, folder.path());
    let stored = folder.path().join("stored");
    std::fs::create_dir(&stored).unwrap();
    let observer = Observer::start(&stored.join(FILE));
    let url = observer.url("http").to_owned();
    let requests: Vec<Value> =
        spans.iter().map(|span| span.otlp()["resourceSpans"][0].clone()).collect();
    // Spans of a trace come in several requests.
    for requests in requests.chunks(100) {
        let body = json!({ "resourceSpans": requests }).to_string();
        let answer = post(&url, "/v1/traces", "application/json", body.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let expected: Vec<String> = QUESTIONS.iter().map(|asked| answer(asked, &ours)).collect();
    let same = |folder: &Path, name: &str| {
        for (question, expected) in QUESTIONS.iter().zip(&expected) {
            let named: Vec<String> = question.iter().map(|word| word.replace(FILE, name)).collect();
            let named: Vec<&str> = named.iter().map(String::as_str).collect();
            let found = answer(&named, folder).replace(name, FILE);
            if question.contains(&"export") {
                // Column files do not keep the order of attributes.
                let document = |text: &str| serde_json::from_str::<Value>(text).unwrap();
                assert_eq!(document(&found), document(expected), "{question:?} of {name}");
                continue;
            }
            // Columns are as wide as names.
            assert_eq!(words(&found), words(expected), "{question:?} of {name}");
        }
    };
    same(folder.path(), &url);
    same(&stored, FILE);
    // Now from its files.
    assert_eq!(observer.stop(), Some(0));
    same(&stored, FILE);
}

#[test]
fn spans_are_exported_as_the_columns_of_a_store_and_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let [ours, ..] = written(folder.path());
    answer(&["trace", "export", FILE, "-o", "spans.parquet", "--format", "parquet"], &ours);
    let spans = lens_store::segment::SpanReader::open(&ours.join("spans.parquet")).unwrap();
    assert_eq!(spans.rows(), 1080);
    let trace = lens_store::ids::TraceId::parse(&format!("{:032x}", 0x2713)).unwrap();
    assert_eq!(spans.trace(trace).unwrap().len(), 9);
}

#[test]
fn what_differs_between_two_runs_is_named_with_its_size_and_its_chance() {
    let folder = tempfile::tempdir().unwrap();
    let [ours, ..] = written(folder.path());
    insta::assert_snapshot!(answer(&["trace", "diff", "run.jsonl@run=0a1b", "@run=1f2e"], &ours));
    insta::assert_snapshot!(answer(&["trace", "diff", "run.jsonl@run=0a1b", "@run=0a1b"], &ours));
}

#[test]
fn stragglers_are_named_with_what_explains_them_and_what_they_share() {
    let folder = tempfile::tempdir().unwrap();
    let [ours, ..] = written(folder.path());
    insta::assert_snapshot!(answer(&["trace", "stragglers", FILE], &ours));
    insta::assert_snapshot!(answer(&["trace", "stragglers", FILE, "--run", "0a1b"], &ours));
}

#[test]
fn runs_are_listed_and_one_is_summed_up() {
    let folder = tempfile::tempdir().unwrap();
    let [ours, ..] = written(folder.path());
    insta::assert_snapshot!(answer(&["run", "list", FILE], &ours));
    insta::assert_snapshot!(answer(&["run", "show", FILE, "--run", "1f2e"], &ours));
    insta::assert_snapshot!(answer(
        &["trace", "report", FILE, "--run", "1f", "--slowest", "3"],
        &ours
    ));
}

#[test]
fn what_is_not_there_exits_1_and_what_cannot_be_understood_2() {
    let folder = tempfile::tempdir().unwrap();
    let [ours, ..] = written(folder.path());
    let ended = |arguments: &[&str]| {
        let output = gym(arguments, &ours);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = error.lines().find(|line| line.starts_with("error")).unwrap_or_default();
        format!("{} {last}", output.status.code().unwrap())
    };
    let ends = [
        ended(&["run", "show", FILE]),
        ended(&["run", "show", FILE, "--run", "zz"]),
        ended(&["trace", "diff", "run.jsonl@run=zz", FILE]),
        ended(&["trace", "diff", "run.jsonl@colour=red", FILE]),
        ended(&["trace", "diff", "@run=0a", "@run=1f"]),
        ended(&["trace", "stragglers", FILE, "--agent", "nobody"]),
        ended(&["trace", "export", FILE, "--trace", "ffff", "-o", "-"]),
        ended(&["trace", "export", FILE, "-o", "/nowhere/at/all.json"]),
        ended(&["trace", "stragglers", "/nowhere/at/all"]),
    ];
    insta::assert_snapshot!(ends.join("\n"));
}
