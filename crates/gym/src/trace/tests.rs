//! What people see, from what programs wrote.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use lens_store::rollouts::Filter;
use lens_store::trace::{Span, Traces};
use serde_json::Value;

use super::read::{ReadError, ReadReport, Reading, read};
use super::*;
use crate::args::ExportFormat;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/reference").join(name)
}

fn read_fixture(name: &str) -> Reading {
    read(&[fixture(name)]).unwrap()
}

fn read_text(text: &str) -> Reading {
    let mut file = tempfile::NamedTempFile::with_suffix(".log").unwrap();
    file.write_all(text.as_bytes()).unwrap();
    read(&[file.path().to_owned()]).unwrap()
}

/// A span of our own console form; times in milliseconds after a fixed second.
struct Line<'a> {
    trace: u128,
    id: u64,
    parent: u64,
    name: &'a str,
    kind: &'a str,
    from: u64,
    to: u64,
    process: &'a str,
    extra: &'a str,
}

impl Default for Line<'_> {
    fn default() -> Self {
        Self {
            trace: 1,
            id: 1,
            parent: 0,
            name: "work",
            kind: "INTERNAL",
            from: 0,
            to: 100,
            process: "agent",
            extra: r#""status":{"status_code":"UNSET"},"attributes":{},"events":[],"links":[]"#,
        }
    }
}

impl Line<'_> {
    fn text(&self) -> String {
        let time = |millis: u64| {
            format!("2026-01-02T03:04:{:02}.{:03}000Z", 5 + millis / 1000, millis % 1000)
        };
        let parent =
            if self.parent == 0 { "null".to_owned() } else { format!("\"{:016x}\"", self.parent) };
        format!(
            r#"{{"type":"span","name":"{}","trace_id":"{:032x}","span_id":"{:016x}","parent_id":{parent},"kind":"{}","start_time":"{}","end_time":"{}",{},"resource":{{"attributes":{{"nemo.gym.server.name":"{}","process.pid":7}}}}}}"#,
            self.name,
            self.trace,
            self.id,
            self.kind,
            time(self.from),
            time(self.to),
            self.extra,
            self.process,
        )
    }
}

fn spans(lines: &[Line<'_>]) -> Vec<Span> {
    let text: String = lines.iter().map(|line| line.text() + "\n").collect();
    read_text(&text).spans
}

fn assemble(lines: &[Line<'_>]) -> Traces {
    Traces::assemble(spans(lines))
}

/// Names and processes, indented; no ids, no times.
fn shape(traces: &Traces, trace: usize) -> String {
    let tree = &traces.traces[trace].tree;
    tree.nodes
        .iter()
        .map(|node| {
            let span = &traces.spans[node.span];
            let indent = "  ".repeat(node.depth);
            format!("{indent}{} [{}]\n", span.name, span.resource.instance)
        })
        .collect()
}

fn first_timeline(traces: &Traces, canvas: &Canvas) -> String {
    timeline(traces, traces.whole(0), canvas)
}

#[test]
fn the_references_lines_its_raw_stdout_and_otlp_json_give_the_same_tree() {
    let shapes = ["rollout_trace.jsonl", "rollout_trace.raw_stdout.txt", "rollout_trace.otlp.json"]
        .map(|name| {
            let reading = read_fixture(name);
            assert_eq!(reading.report.spans, 46, "{name}");
            assert_eq!(reading.report.other + reading.report.broken, 0, "{name}");
            let traces = Traces::assemble(reading.spans);
            assert_eq!(traces.traces.len(), 1, "{name}");
            shape(&traces, 0)
        });
    insta::assert_snapshot!(shapes[0], @r"
    POST /run [example_single_tool_call_simple_agent]
      gym.rollout [example_single_tool_call_simple_agent]
        HTTP POST [example_single_tool_call_simple_agent]
          POST /seed_session [example_single_tool_call]
        HTTP POST [example_single_tool_call_simple_agent]
          POST /v1/responses [example_single_tool_call_simple_agent]
            gym.agent.responses [example_single_tool_call_simple_agent]
              HTTP POST [example_single_tool_call_simple_agent]
                POST /v1/responses [policy_model]
                  gym.model.responses [policy_model]
              HTTP POST [example_single_tool_call_simple_agent]
                POST /get_weather [example_single_tool_call]
              HTTP POST [example_single_tool_call_simple_agent]
                POST /v1/responses [policy_model]
                  gym.model.responses [policy_model]
        HTTP POST [example_single_tool_call_simple_agent]
          POST /verify [example_single_tool_call]
            gym.verify [example_single_tool_call]
    ");
    assert_eq!(shapes[1], shapes[0]);
    assert_eq!(shapes[2], shapes[0]);
}

#[test]
fn a_timeline_in_a_pipe_has_bars_and_no_colour() {
    let traces = Traces::assemble(read_fixture("rollout_trace.otlp.json").spans);
    insta::assert_snapshot!(first_timeline(&traces, &Canvas::PLAIN));
}

#[test]
fn a_narrow_terminal_gets_no_bars_and_no_line_is_wider_than_it() {
    let traces = Traces::assemble(read_fixture("rollout_trace.jsonl").spans);
    let canvas = Canvas { width: Some(64), colour: false };
    let text = first_timeline(&traces, &canvas);
    let body: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("POST")).collect();
    assert_eq!(body.len(), 18);
    assert!(body.iter().all(|line| line.chars().count() <= 64 && !line.contains('█')), "{text}");
    assert!(body.iter().any(|line| line.contains("gym.model.responses ")), "{text}");
}

#[test]
fn a_wide_terminal_is_used_to_its_edge_and_not_beyond() {
    let traces = Traces::assemble(read_fixture("rollout_trace.jsonl").spans);
    let width = |columns| {
        let canvas = Canvas { width: Some(columns), colour: false };
        let text = first_timeline(&traces, &canvas);
        let body = text.lines().skip_while(|line| !line.starts_with("POST"));
        body.map(|line| line.chars().count()).max().unwrap()
    };
    assert_eq!([80, 90, 99, 100, 110].map(width), [80, 90, 99, 100, 110]);
    assert!(width(70) < 60, "no bars where names would hardly be read");
}

#[test]
fn colour_changes_nothing_but_the_escapes() {
    let traces = Traces::assemble(read_fixture("spans.jsonl").spans);
    let canvas = Canvas { width: Some(120), colour: true };
    let coloured = first_timeline(&traces, &canvas);
    assert!(coloured.contains("\u{1b}[31m"), "an error is red");
    let mut plain = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    plain.push_str(rest);
    assert_eq!(plain, first_timeline(&traces, &Canvas { width: Some(120), colour: false }));
}

#[test]
fn errors_retries_statuses_and_cancelled_requests_are_marked() {
    let attempt = |status: u16| {
        format!(
            r#"{{"name":"nemo.gym.http.attempt","timestamp":"2026-01-02T03:04:05Z","attributes":{{"http.response.status_code":{status}}}}}"#
        )
    };
    let retried = format!(
        r#""status":{{"status_code":"UNSET"}},"attributes":{{"nemo.gym.http.backoff_nanos":40000000,"server.address":"10.0.0.1","server.port":8000}},"events":[{},{},{}]"#,
        attempt(429),
        attempt(503),
        attempt(200)
    );
    let traces = assemble(&[
        Line { name: "gym.rollout", to: 1000, ..Line::default() },
        Line {
            id: 2,
            parent: 1,
            name: "HTTP POST",
            kind: "CLIENT",
            to: 100,
            extra: &retried,
            ..Line::default()
        },
        Line {
            id: 3,
            parent: 1,
            name: "HTTP POST",
            kind: "CLIENT",
            from: 200,
            to: 300,
            extra: r#""status":{"status_code":"ERROR","description":"reply has status 500"},"attributes":{"http.response.status_code":500,"error.type":"500","url.full":"http://h:1/verify?secret=1"}"#,
            ..Line::default()
        },
        Line {
            id: 4,
            parent: 3,
            name: "POST /verify",
            kind: "SERVER",
            from: 210,
            to: 290,
            process: "weather",
            extra: r#""status":{"status_code":"ERROR"},"attributes":{"nemo.gym.cancelled":true},"events":[{"name":"exception","attributes":{"exception.type":"ValueError"}}]"#,
            ..Line::default()
        },
        Line {
            id: 5,
            parent: 1,
            name: "POST /missing",
            kind: "SERVER",
            from: 400,
            to: 410,
            extra: r#""attributes":{"http.status_code":404,"nemo.span.truncated":true}"#,
            ..Line::default()
        },
    ]);
    insta::assert_snapshot!(first_timeline(&traces, &Canvas::PLAIN));
}

#[test]
fn spans_whose_parent_is_missing_and_circles_are_shown_once_with_a_mark() {
    let traces = assemble(&[
        Line { id: 1, parent: 2, name: "a", ..Line::default() },
        Line { id: 2, parent: 1, name: "b", from: 10, ..Line::default() },
        Line { id: 3, parent: 3, name: "own parent", from: 20, ..Line::default() },
        Line { id: 4, parent: 99, name: "orphan", from: 30, ..Line::default() },
        Line { id: 5, parent: 4, name: "below the orphan", from: 31, ..Line::default() },
    ]);
    let text = first_timeline(&traces, &Canvas { width: Some(80), colour: false });
    insta::assert_snapshot!(text, @r"
    trace 00000000000000000000000000000001 · 100ms · 5 spans in 1 process · 2026-01-02 03:04:05.030 UTC

    orphan              agent    70ms       ───────────  parent 0000000000000063 no…
    └ below the orphan  agent    69ms       ███████████
    a                   agent   100ms  ██──────────────  its own ancestor
    └ b                 agent    90ms    ██████████████
    own parent          agent    80ms     █████████████  its own ancestor
    ");
}

#[test]
fn a_trace_of_twenty_thousand_levels_is_drawn() {
    let lines: Vec<Line<'_>> =
        (1..=20_000).map(|id| Line { id, parent: id - 1, ..Line::default() }).collect();
    let traces = assemble(&lines);
    let text = first_timeline(&traces, &Canvas::PLAIN);
    assert!(text.contains("⋯ 19999 deep ─ work"));
}

#[test]
fn a_server_whose_clock_is_ahead_is_drawn_inside_its_request() {
    let traces = assemble(&[
        Line { name: "HTTP POST", kind: "CLIENT", from: 100, to: 200, ..Line::default() },
        Line {
            id: 2,
            parent: 1,
            name: "POST /run",
            kind: "SERVER",
            from: 350,
            to: 430,
            process: "far",
            ..Line::default()
        },
        Line { id: 3, parent: 2, from: 360, to: 420, process: "far", ..Line::default() },
    ]);
    let tree = &traces.traces[0].tree;
    let starts: Vec<u64> = tree
        .nodes
        .iter()
        .map(|node| (node.start_nanos - tree.nodes[0].start_nanos) / 1_000_000)
        .collect();
    assert_eq!(starts, [0, 20, 30]);
    let own: Vec<u64> = tree.nodes.iter().map(|node| node.self_nanos / 1_000_000).collect();
    assert_eq!(own, [20, 20, 60]);
    let text = first_timeline(&traces, &Canvas::PLAIN);
    assert_eq!(text.matches("clock differs, drawn 230ms earlier").count(), 1, "{text}");
}

#[test]
fn self_time_counts_overlapping_children_once_and_ignores_what_sticks_out() {
    let traces = assemble(&[
        Line::default(),
        Line { id: 2, parent: 1, from: 10, to: 60, ..Line::default() },
        Line { id: 3, parent: 1, from: 40, to: 80, ..Line::default() },
        Line { id: 4, parent: 1, from: 90, to: 500, ..Line::default() },
        Line { id: 5, parent: 1, from: 300, to: 400, ..Line::default() },
    ]);
    assert_eq!(traces.traces[0].tree.nodes[0].self_nanos, 20_000_000);
}

#[test]
fn the_last_line_of_a_killed_writer_costs_only_itself() {
    let whole = Line::default().text();
    let torn = Line { id: 2, ..Line::default() }.text();
    let reading = read_text(&format!("{whole}\n{}", &torn[..torn.len() / 2]));
    assert_eq!(
        reading.report,
        ReadReport { files: 1, records: 2, spans: 1, torn: 1, ..ReadReport::default() }
    );
}

#[test]
fn a_line_that_was_cut_off_and_gone_on_with_keeps_the_second_record() {
    let torn = Line { id: 2, ..Line::default() }.text();
    let whole = Line { id: 3, ..Line::default() }.text();
    let reading = read_text(&format!("{}{whole}\n{}\n", &torn[..40], Line::default().text()));
    assert_eq!((reading.report.spans, reading.report.torn, reading.report.broken), (2, 1, 0));
}

#[test]
fn a_log_that_starts_in_the_middle_of_a_line_is_still_a_log() {
    let whole = Line::default().text();
    let reading = read_text(&format!("{{\"type\":\"span\",\"trace_id\n{whole}\n"));
    assert_eq!(reading.report.spans, 1);
}

#[test]
fn other_text_metrics_and_logs_are_counted_not_shown() {
    let text = format!(
        "starting up\n{{\"reward\": 1.0}}\n(weather) {}\n{{\"type\":\"metric\",\"name\":\"m\"}}\n{{\"type\":\"log\",\"name\":\"l\",\"trace_id\":\"{:032x}\",\"span_id\":\"{:016x}\",\"body\":\"x\"}}\n",
        Line::default().text(),
        1,
        1
    );
    let reading = read_text(&text);
    assert_eq!(
        reading.report,
        ReadReport {
            files: 1,
            records: 5,
            spans: 1,
            other: 2,
            metrics: 1,
            logs: 1,
            ..ReadReport::default()
        }
    );
    assert_eq!(
        reading.report.sentence(),
        "read 1 span from 1 file; skipped 1 metric record, 1 log record, 2 other lines"
    );
}

#[test]
fn a_span_that_lacks_what_a_span_needs_is_reported_with_its_place() {
    let reading =
        read_text(&format!("{}\n", Line::default().text().replace("2026-01-02T", "soon ")));
    assert_eq!(reading.report.broken, 1);
    assert!(reading.report.first_broken.unwrap().ends_with(".log:1"));
}

#[test]
fn the_owners_word_about_a_span_beats_what_was_recovered_for_it() {
    let recovered =
        Line { to: 50, extra: r#""attributes":{"nemo.span.truncated":true}"#, ..Line::default() };
    let traces = assemble(&[recovered, Line::default()]);
    assert_eq!(traces.spans.len(), 1);
    assert!(!traces.spans[0].is_truncated);
}

#[test]
fn a_directory_is_read_with_the_directories_in_it_and_every_file_once() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("logs")).unwrap();
    let log = directory.path().join("logs/a.log");
    std::fs::write(&log, Line::default().text()).unwrap();
    std::fs::write(directory.path().join("picture.png"), "not looked at").unwrap();
    let reading = read(&[directory.path().to_owned(), log]).unwrap();
    assert_eq!(
        reading.report,
        ReadReport { files: 1, records: 1, spans: 1, ..ReadReport::default() }
    );
}

#[test]
fn a_path_that_is_not_there_and_a_directory_without_logs_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("gone.log");
    let error = read(std::slice::from_ref(&missing)).unwrap_err();
    assert!(matches!(&error, ReadError::Missing { path } if *path == missing));
    let error = read(&[directory.path().to_owned()]).unwrap_err();
    assert!(matches!(error, ReadError::EmptyDirectory { .. }));
}

#[test]
fn what_show_prints_as_json_can_be_read_again() {
    let traces = Traces::assemble(read_fixture("rollout_trace.otlp.json").spans);
    let document = show_document(&traces, &[traces.whole(0)], None, &Value::Null);
    for text in [document.to_string(), serde_json::to_string_pretty(&document).unwrap()] {
        let again = Traces::assemble(read_text(&text).spans);
        assert_eq!(shape(&again, 0), shape(&traces, 0));
        assert_eq!(again.traces[0].duration_nanos(), traces.traces[0].duration_nanos());
    }
}

/// A rollout of an attempt that waited `wait` ms for its slot.
fn rollout_lines(trace: u128, id: &str, wait: u64, work: u64) -> [String; 2] {
    let attributes = format!(r#""attributes":{{"nemo.gym.rollout.id":"{id}"}}"#);
    [
        Line {
            trace,
            id: 1,
            name: "gym.rollout.attempt",
            to: wait + work,
            extra: &attributes,
            process: "orchestrator",
            ..Line::default()
        }
        .text(),
        Line {
            trace,
            id: 2,
            parent: 1,
            name: "HTTP POST",
            kind: "CLIENT",
            from: wait,
            to: wait + work,
            extra: &attributes,
            process: "orchestrator",
        }
        .text(),
    ]
}

fn three_rollouts() -> Source {
    let lines = [
        rollout_lines(0xabc1, "0-0", 500, 10),
        rollout_lines(0xabc2, "0-1", 0, 300),
        rollout_lines(0xdef3, "0-1-a1", 20, 200),
    ];
    source_of(read_text(&lines.concat().join("\n")).spans)
}

fn source_of(spans: Vec<Span>) -> Source {
    Source::of(Reading { spans, ..Reading::default() }, Vec::new())
}

fn chosen(source: &Source, choice: Choice<'_>) -> Result<Chosen, NotFound> {
    choose(source, choice, &Filter::default()).map_err(|error| match error {
        Unanswered::NotFound(missing) => missing,
        Unanswered::Source(error) => panic!("{error}"),
    })
}

#[test]
fn the_slowest_rollout_is_not_the_one_that_waited_longest_for_its_slot() {
    let source = three_rollouts();
    let traces = source.all().unwrap();
    let slowest: Vec<_> = traces
        .slowest_first()
        .iter()
        .map(|(_, r)| (r.id.as_deref().unwrap(), r.duration_nanos / 1_000_000))
        .collect();
    assert_eq!(slowest, [("0-1", 300), ("0-1-a1", 200), ("0-0", 10)]);
    let chosen = chosen(&source, Choice::Slowest(2)).unwrap();
    assert_eq!(chosen.sections.len(), 2);
    let text = timeline(&traces, chosen.sections[1], &Canvas::PLAIN);
    assert!(text.starts_with("rollout 0-1-a1 · trace "), "{text}");
    assert!(text.contains(" · 200ms after 20ms of waiting for a slot · "), "{text}");
}

#[test]
fn the_summary_says_how_much_was_waiting_for_a_slot() {
    let traces = three_rollouts().all().unwrap();
    let all: Vec<_> = (0..3).map(|at| traces.whole(at)).collect();
    let summary = summarise(&traces, &all);
    assert_eq!((summary.rollouts, summary.admission_nanos), (3, 520_000_000));
    let text = summary_table(&summary, &Canvas::PLAIN);
    assert!(
        text.ends_with("\n520ms of the self time of gym.rollout.attempt was waiting for a slot\n"),
        "{text}"
    );
}

#[test]
fn a_rollout_is_found_with_all_its_attempts_and_a_trace_by_its_prefix() {
    let source = three_rollouts();
    assert_eq!(chosen(&source, Choice::Rollout("0-1")).unwrap().sections.len(), 2);
    assert_eq!(chosen(&source, Choice::Rollout("0-1-a1")).unwrap().sections.len(), 1);
    let prefix = format!("0x{}", "0".repeat(28) + "DEF");
    assert_eq!(chosen(&source, Choice::Trace(&prefix)).unwrap().sections.len(), 1);
    let chosen = chosen(&source, Choice::Obvious).unwrap();
    assert_eq!(
        chosen.remark.unwrap(),
        "this is the slowest of 3 rollouts (300ms); choose with --rollout, --trace or --slowest N"
    );
}

#[test]
fn what_is_not_there_is_answered_with_what_is_most_like_it() {
    let source = three_rollouts();
    let message = |choice: Choice<'_>| chosen(&source, choice).unwrap_err().to_string();
    assert_eq!(
        message(Choice::Rollout("1-1")),
        "no rollout \"1-1\" in these files; closest: 0-1, 0-1-a1, 0-0"
    );
    assert!(
        message(Choice::Trace(&format!("{:032x}", 0xdef4)))
            .contains(&format!("closest: {:032x}", 0xdef3))
    );
    assert!(message(Choice::Trace("0000")).starts_with("3 traces start with \"0000\": "));
}

#[test]
fn a_foreign_trace_with_many_rollouts_shows_each_by_itself() {
    let attributes = |id: &str| format!(r#""attributes":{{"nemo.gym.rollout.id":"{id}"}}"#);
    let (first, second) = (attributes("0-0"), attributes("0-1"));
    let source = source_of(spans(&[
        Line { name: "training step", to: 900, process: "trainer", ..Line::default() },
        Line {
            id: 2,
            parent: 1,
            name: "POST /run",
            kind: "SERVER",
            to: 300,
            extra: &first,
            ..Line::default()
        },
        Line { id: 3, parent: 2, name: "gym.rollout", to: 299, extra: &first, ..Line::default() },
        Line {
            id: 4,
            parent: 1,
            name: "POST /run",
            kind: "SERVER",
            from: 300,
            to: 400,
            extra: &second,
            ..Line::default()
        },
    ]));
    let traces = source.all().unwrap();
    assert_eq!(traces.rollouts().count(), 2);
    let chosen = chosen(&source, Choice::Rollout("0-0")).unwrap();
    let text = timeline(&traces, chosen.sections[0], &Canvas::PLAIN);
    assert!(text.contains("\nPOST /run  "), "{text}");
    assert!(text.contains("\n└─ gym.rollout  "), "{text}");
    assert!(!text.contains("training step"), "{text}");
}

#[test]
fn two_instances_of_one_role_are_told_apart_by_name() {
    let typed = |name: &str| {
        Line { process: name, ..Line::default() }
            .text()
            .replace("\"process.pid\":7", "\"nemo.gym.server.type\":\"responses_api_models\"")
    };
    let both = format!(
        "{}\n{}\n",
        typed("policy"),
        typed("judge")
            .replace("\"span_id\":\"0000000000000001\"", "\"span_id\":\"0000000000000002\"")
    );
    let traces = Traces::assemble(read_text(&both).spans);
    let text = first_timeline(&traces, &Canvas::PLAIN);
    assert!(text.contains("work  policy") && text.contains("work  judge"), "{text}");
    let one = Traces::assemble(read_text(&typed("policy")).spans);
    let text = first_timeline(&one, &Canvas::PLAIN);
    assert!(
        text.contains("model server = policy") && text.contains("work  model server"),
        "{text}"
    );
}

#[test]
fn the_list_is_sorted_by_start_and_counts() {
    let traces = three_rollouts().all().unwrap();
    insta::assert_snapshot!(list_table(&traces, &Canvas::PLAIN), @r"
    TRACE                             ROOT                 ROLLOUT  START (UTC)              DURATION  SPANS  PROCESSES  ERRORS
    0000000000000000000000000000abc1  gym.rollout.attempt  0-0      2026-01-02 03:04:05.000     510ms      2          1       -
    0000000000000000000000000000abc2  gym.rollout.attempt  0-1      2026-01-02 03:04:05.000     300ms      2          1       -
    0000000000000000000000000000def3  gym.rollout.attempt  0-1-a1   2026-01-02 03:04:05.000     220ms      2          1       -
    ");
}

#[test]
fn the_summary_shows_where_the_time_went() {
    let traces = Traces::assemble(read_fixture("rollout_trace.jsonl").spans);
    let summary = summarise(&traces, &[traces.whole(0)]);
    insta::assert_snapshot!(summary_table(&summary, &Canvas::PLAIN));
}

/// Guarantees: with spans that follow one another nothing is counted twice and nothing is lost.
#[test]
fn self_times_of_nested_sequential_spans_sum_to_the_root() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for _ in 0..50 {
        let mut lines = vec![Line { to: 40_000, ..Line::default() }];
        let mut open = vec![(1, 0, 40_000)];
        while let Some((parent, from, to)) = open.pop() {
            let mut at = from;
            while lines.len() < 200 && at < to && next(4) > 0 {
                let start = at + next(to - at + 1);
                let end = start + next(to - start + 1);
                let id = lines.len() as u64 + 1;
                lines.push(Line { id, parent, from: start, to: end, ..Line::default() });
                open.push((id, start, end));
                at = end;
            }
        }
        let traces = assemble(&lines);
        let summary = summarise(&traces, &[traces.whole(0)]);
        let own: u64 = summary.rows.iter().map(|row| row.self_nanos).sum();
        assert_eq!(own, 40_000_000_000);
    }
}

/// Guarantees: the bands of what other software wrote add up too, and are the same when its spans come in another form.
#[test]
fn bands_of_a_rollout_of_the_reference_add_up_and_are_the_same_in_every_form() {
    let report = |spans| {
        let source = source_of(spans);
        let rows = source.rows(&Filter::default()).unwrap();
        Report::of(&source, rows).unwrap().table(&Canvas::PLAIN)
    };
    for name in ["rollout_trace.jsonl", "rollout_trace.raw_stdout.txt", "rollout_trace.otlp.json"] {
        let reading = read_fixture(name);
        let table = report(reading.spans.clone());
        if name == "rollout_trace.jsonl" {
            insta::assert_snapshot!(table, @r"
            where the time of 1 rollout went: 115ms of wall clock, a rollout takes 115ms (p50), 115ms (p95) without its wait for a slot

            BAND         SHARE  TOTAL    P50    P95    MAX  MOST IN
            setup         2.1%  2.4ms  2.4ms  2.4ms  2.4ms  56df3a62b30ceeba4e2593603ed363ba
            network       6.3%  7.3ms  7.3ms  7.3ms  7.3ms  56df3a62b30ceeba4e2593603ed363ba
            model        38.8%   45ms   45ms   45ms   45ms  56df3a62b30ceeba4e2593603ed363ba
            tool          1.9%  2.2ms  2.2ms  2.2ms  2.2ms  56df3a62b30ceeba4e2593603ed363ba
            verify        5.3%  6.2ms  6.2ms  6.2ms  6.2ms  56df3a62b30ceeba4e2593603ed363ba
            agent        45.6%   53ms   53ms   53ms   53ms  56df3a62b30ceeba4e2593603ed363ba
            wall clock  100.0%  115ms  115ms  115ms  115ms  56df3a62b30ceeba4e2593603ed363ba
            ");
        }
        let traces = Traces::assemble(reading.spans);
        let shown = show_document(&traces, &[traces.whole(0)], None, &Value::Null).to_string();
        assert_eq!(report(read_text(&shown).spans), table, "{name}");
    }
}

/// Guarantees: what a view leaves out is not lost to other software.
#[test]
fn an_export_has_the_spans_that_a_timeline_folds_away() {
    let spans = read_fixture("rollout_trace.jsonl").spans;
    let count = spans.len();
    let chosen = Chosen::everything(source_of(spans).all().unwrap());
    let nodes = chosen.traces.traces.iter().map(|trace| trace.tree.nodes.len()).sum::<usize>();
    assert!(nodes < count, "some are folded");
    let mut out = Vec::new();
    let written = export(&chosen.traces, &chosen.sections, ExportFormat::OtlpJson, &mut out);
    assert_eq!(written.unwrap(), count);
    assert_eq!(read_text(std::str::from_utf8(&out).unwrap()).spans.len(), count);
}
