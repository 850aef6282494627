//! What a process with exporter `console` writes to stdout.

use std::process::Command;
use std::time::Duration;

use lens::config::{ExporterKind, LensConfig};
use lens::logs::{LogRecord, Severity, emit, emit_record};
use lens::{Group, managed_span};

const CHILD: &str = "LENS_TEST_CONSOLE";

static WORK: Group = Group::new("work");
static GROUPS: &[&Group] = &[&WORK];

fn child() {
    lens::register("test", GROUPS, &[]);
    let config = LensConfig {
        enabled: true,
        span_groups: "work".to_owned(),
        traces_exporter: ExporterKind::Console,
        metrics_exporter: ExporterKind::None,
        logs_exporter: ExporterKind::Console,
        ..LensConfig::default()
    };
    let handle = lens::setup_telemetry(config).expect("starts");
    emit(Severity::Info, "outside", &[]);
    {
        let _span = managed_span!(WORK, "work");
        emit(Severity::Warn, "two\nlines", &[(lens::semconv::LOG_TARGET, "app".into())]);
    }
    assert!(handle.shutdown(Duration::from_secs(20)));
    assert_eq!((handle.log_snapshot().exported, handle.log_snapshot().queued), (2, 0));
}

fn child_with_logs_alone() {
    let config = LensConfig {
        enabled: true,
        traces_exporter: ExporterKind::None,
        metrics_exporter: ExporterKind::None,
        logs_exporter: ExporterKind::Console,
        ..LensConfig::default()
    };
    let handle = lens::setup_telemetry(config).expect("starts");
    assert!(handle.is_exporting() && lens::logs::is_enabled());
    emit_record(&LogRecord {
        severity: Severity::Error,
        body: "alone",
        attributes: &[],
        event_name: "app.event",
        target: "app",
    });
    assert!(handle.shutdown(Duration::from_secs(20)) && !handle.is_exporting());
}

fn lines(test: &str) -> (Vec<serde_json::Value>, String) {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("a child");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    // The test harness writes lines of its own, and one in front of the first.
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str(&line[line.find('{')?..]).ok())
        .collect();
    (lines, text)
}

#[test]
fn process_that_exports_log_records_alone_is_exporting() {
    if std::env::var_os(CHILD).is_some() {
        return child_with_logs_alone();
    }
    let (lines, text) = lines("process_that_exports_log_records_alone_is_exporting");
    assert_eq!(lines.len(), 1, "{text}");
    assert_eq!(
        (&lines[0]["name"], &lines[0]["scope"]["name"]),
        (&"app.event".into(), &"app".into())
    );
}

#[test]
fn log_records_are_lines_beside_those_of_spans() {
    if std::env::var_os(CHILD).is_some() {
        return child();
    }
    let (lines, text) = lines("log_records_are_lines_beside_those_of_spans");
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).collect::<Vec<_>>();
    let (spans, logs) = (of("span"), of("log"));
    assert_eq!((spans.len(), logs.len()), (1, 2), "{text}");
    let (outside, inside) = (logs[0], logs[1]);
    assert_eq!((&outside["body"], outside.get("trace_id")), (&"outside".into(), None));
    assert_eq!((&inside["body"], &inside["name"]), (&"two\nlines".into(), &"app".into()));
    assert_eq!(inside["severity_text"], "WARN");
    assert_eq!(
        (&inside["trace_id"], &inside["span_id"]),
        (&spans[0]["trace_id"], &spans[0]["span_id"])
    );
}
