//! Limits of a sandbox hold, nothing is left behind, and nothing of a command is exported.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gym_server::sandbox::local::LocalSandbox;
use gym_server::sandbox::{
    self, Command, Ended, Limits, LocalProcesses, Output, Provider, Retries, SandboxError,
};
use gym_telemetry::semconv::{self, metric, span};
use lens::TelemetryHandle;
use lens::config::{ExporterKind, LensConfig, OtlpSettings, Protocol, Signal, signal_url};
use lens_otlp::metrics::Number;
use lens_otlp::view::metrics::MetricView;
use lens_otlp::view::{AnyValue, resources};
use lens_testing::OtlpSink;

const PATIENCE: Duration = Duration::from_secs(20);

/// Limits that stop only what is stuck.
fn ample() -> Limits {
    Limits { wall: PATIENCE, ..Limits::default() }
}

async fn run_below(folder: &Path, text: &str, limits: Limits) -> Output {
    let provider = LocalProcesses::below(folder);
    let mut sandbox = sandbox::start(&provider, Retries::default()).await.expect("a sandbox");
    let output = sandbox.exec(&Command::shell(text), &limits).await.expect("it runs");
    sandbox.stop().await;
    output
}

async fn run(text: &str, limits: Limits) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let output = run_below(folder.path(), text, limits).await;
    assert_eq!(entries(folder.path()), 0, "its folder is gone");
    output
}

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).expect("a folder").count()
}

/// Whether a process has `text` on its command line. A zombie has none.
fn runs(text: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("readable").filter_map(Result::ok);
    processes.into_iter().any(|process| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        line.windows(text.len()).any(|part| part == text.as_bytes())
    })
}

async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_command_runs_in_a_folder_of_its_own_and_is_told_apart_from_its_complaints() {
    let output = run("echo out; echo err >&2; echo x > file; ls; exit 41", ample()).await;
    assert_eq!(output.stdout.bytes, b"out\nfile\n");
    assert_eq!(output.stderr.bytes, b"err\n");
    assert_eq!((output.return_code, output.ended), (41, Ended::Exited));
    assert!(!output.stdout.is_truncated && !output.stderr.is_truncated);
}

#[tokio::test]
async fn a_command_sees_no_variable_of_the_server() {
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "there is one to see");
    let output = run("env | cut -d= -f1 | sort", ample()).await;
    let names = String::from_utf8(output.stdout.bytes).expect("text");
    let expected = ["GYM_SANDBOX_ID", "HOME", "LANG", "LC_ALL", "PATH", "PWD", "TMPDIR"];
    for name in names.lines() {
        assert!(expected.contains(&name) || ["OLDPWD", "SHLVL", "_"].contains(&name), "{name}");
    }
}

#[tokio::test]
async fn files_outlive_a_command_but_not_the_sandbox() {
    let folder = tempfile::tempdir().expect("a folder");
    let provider = LocalProcesses::below(folder.path());
    let mut sandbox = sandbox::start(&provider, Retries::default()).await.expect("a sandbox");
    for (text, stdout) in [("echo kept > file", ""), ("cat file", "kept\n")] {
        let output = sandbox.exec(&Command::shell(text), &ample()).await.expect("it runs");
        assert_eq!(output.stdout.bytes, stdout.as_bytes());
    }
    assert_eq!(entries(folder.path()), 1);
    drop(sandbox);
    wait_until("its folder is gone", || entries(folder.path()) == 0).await;
}

#[tokio::test]
async fn at_the_end_of_its_wall_clock_a_command_and_all_that_it_started_are_killed() {
    let limits = Limits { wall: Duration::from_millis(300), ..Limits::default() };
    let since = Instant::now();
    let output = run("echo begun; sleep 61001.5 & sleep 61001.5", limits).await;
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    assert_eq!(output.ended, Ended::TimedOut);
    assert_eq!(output.return_code, 128 + 9);
    assert_eq!(output.stdout.bytes, b"begun\n", "what it said before is kept");
    wait_until("nothing runs", || !runs("61001.5")).await;
}

#[tokio::test]
async fn a_command_that_computes_too_long_is_killed_and_told_so() {
    let limits = Limits { cpu: Duration::from_secs(1), ..ample() };
    let output = run("while :; do :; done", limits).await;
    assert_eq!(output.ended, Ended::OutOfCpu, "{output:?}");
}

#[tokio::test]
async fn a_command_gets_no_more_memory_than_its_limit() {
    // One line of zeros is held whole.
    let needs =
        |mebibytes: u32| format!("head -c {} /dev/zero | tail -n 1 > /dev/null", mebibytes << 20);
    let limits = Limits { memory_bytes: 100 << 20, ..ample() };
    assert_ne!(run(&needs(300), limits).await.return_code, 0);
    assert_eq!(run(&needs(10), limits).await.return_code, 0);
}

#[tokio::test]
async fn a_command_writes_no_larger_file_than_its_limit() {
    let limits = Limits { file_bytes: 1 << 20, ..ample() };
    let output = run("head -c 3000000 /dev/zero > file; wc -c < file", limits).await;
    assert_eq!(output.stdout.bytes, b"1048576\n", "{output:?}");
}

#[tokio::test]
async fn output_beyond_the_limit_is_thrown_away_and_the_command_goes_on() {
    let limits = Limits { output_bytes: 1000, ..ample() };
    let output = run("yes | head -c 1000000; yes | head -c 999 >&2; exit 3", limits).await;
    assert_eq!(output.stdout.bytes.len(), 1000);
    assert!(output.stdout.is_truncated);
    assert_eq!(output.stderr.bytes.len(), 999);
    assert!(!output.stderr.is_truncated);
    assert_eq!(output.return_code, 3, "it was not held up");
}

#[tokio::test]
async fn what_a_command_leaves_in_the_background_ends_with_it() {
    let since = Instant::now();
    let output = run("sleep 61002.5 & echo done", ample()).await;
    assert_eq!(output.stdout.bytes, b"done\n");
    assert!(since.elapsed() < Duration::from_secs(10), "nobody waited for it");
    wait_until("nothing runs", || !runs("61002.5")).await;
}

#[tokio::test]
async fn what_leaves_the_process_group_ends_with_the_sandbox() {
    let output = run("setsid sleep 61003.5 > /dev/null 2>&1 & sleep 0.2; echo done", ample()).await;
    assert_eq!(output.stdout.bytes, b"done\n");
    wait_until("nothing runs", || !runs("61003.5")).await;
}

#[tokio::test]
async fn a_cancelled_caller_leaves_nothing_running() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_owned();
    let text = "sleep 61004.5 & sleep 61004.5";
    let task = tokio::spawn(async move { run_below(&path, text, ample()).await });
    wait_until("it runs", || runs("61004.5")).await;
    task.abort();
    assert!(task.await.is_err(), "it was cancelled");
    wait_until("nothing runs", || !runs("61004.5")).await;
    wait_until("its folder is gone", || entries(folder.path()) == 0).await;
}

#[tokio::test]
async fn a_program_that_is_not_there_is_a_return_code() {
    let provider = LocalProcesses::default();
    let mut sandbox = sandbox::start(&provider, Retries::default()).await.expect("a sandbox");
    let command = Command::new("no-such-program", ["--flag"]);
    let output = sandbox.exec(&command, &ample()).await.expect("it runs");
    assert_eq!(output.return_code, 127);
}

/// Fails so often before it makes a sandbox.
struct Flaky {
    failures: AtomicU32,
    provider: LocalProcesses,
}

impl Flaky {
    fn new(failures: u32) -> Self {
        Self { failures: failures.into(), provider: LocalProcesses::default() }
    }
}

impl Provider for Flaky {
    type Running = LocalSandbox;

    fn name(&self) -> &'static str {
        "flaky"
    }

    async fn create(&self) -> Result<LocalSandbox, SandboxError> {
        let left = self.failures.load(Ordering::Relaxed);
        if left == 0 {
            return self.provider.create().await;
        }
        self.failures.store(left - 1, Ordering::Relaxed);
        Err(SandboxError::Create(std::io::ErrorKind::ResourceBusy.into()))
    }
}

const SOON: Retries = Retries { tries: 3, pause: Duration::from_millis(1) };
/// In every command of the test below.
const CONTENT: &str = "s3cr3t-content";

fn telemetry() -> &'static (OtlpSink, TelemetryHandle) {
    static SET_UP: OnceLock<(OtlpSink, TelemetryHandle)> = OnceLock::new();
    SET_UP.get_or_init(|| {
        let sink = OtlpSink::start().expect("a sink");
        let settings = |signal| OtlpSettings {
            endpoint: signal_url(&sink.http_endpoint(), Protocol::HttpProtobuf, signal),
            protocol: Protocol::HttpProtobuf,
            ..OtlpSettings::for_signal(signal)
        };
        gym_telemetry::groups::register();
        let handle = lens::setup_telemetry(LensConfig {
            enabled: true,
            span_groups: gym_telemetry::groups::name::ALL.to_owned(),
            traces_otlp: settings(Signal::Traces),
            metrics_otlp: settings(Signal::Metrics),
            logs_otlp: settings(Signal::Logs),
            logs_exporter: ExporterKind::Otlp,
            ..LensConfig::default()
        });
        let handle = handle.expect("telemetry");
        lens::install_bridges();
        (sink, handle)
    })
}

/// What a metric last said of a provider: a number, or count and bounds of a histogram.
fn measured(sink: &OtlpSink, name: &str, provider: &str) -> (Option<i64>, u64, Vec<f64>) {
    let mut found = (None, 0, Vec::new());
    for request in sink.requests() {
        let scopes = resources(&request.body).flatten().flat_map(|it| it.scopes().flatten());
        if request.signal != lens_testing::Signal::Metrics {
            continue;
        }
        for item in scopes.flat_map(|scope| scope.items().flatten()) {
            let view = MetricView::read(item).expect("a metric");
            if view.name != name {
                continue;
            }
            let is_provider = |mut attributes: lens_otlp::view::Attributes<'_>| {
                attributes.any(|pair| {
                    matches!(pair, Ok((key, AnyValue::String(value)))
                        if key == semconv::SANDBOX_PROVIDER && value == provider)
                })
            };
            for point in view.number_points().flatten().filter(|it| is_provider(it.attributes())) {
                found.0 = match point.value {
                    Some(Number::Int(value)) => Some(value),
                    _ => None,
                };
            }
            for point in view.histogram_points().flatten().filter(|it| is_provider(it.attributes()))
            {
                (found.1, found.2) = (point.count, point.bounds().collect());
            }
        }
    }
    found
}

/// Starts, runs, fails and is cancelled; the sandbox still runs.
async fn rehearse() -> sandbox::Sandbox<LocalSandbox> {
    let mut sandbox = sandbox::start(&Flaky::new(2), SOON).await.expect("the third try");
    let text = format!("echo {CONTENT}; echo {CONTENT} >&2; exit 41");
    sandbox.exec(&Command::shell(&text), &ample()).await.expect("it runs");
    let text = format!("echo {CONTENT}; sleep 61005.5");
    let limits = Limits { wall: Duration::from_millis(100), ..Limits::default() };
    sandbox.exec(&Command::shell(&text), &limits).await.expect("it runs");
    let command = Command::new(CONTENT, [CONTENT]);
    sandbox.exec(&command, &ample()).await.expect("it runs");
    assert!(!format!("{command:?}").contains(CONTENT));
    let (command, limits) = (Command::shell(&text), ample());
    let cancelled = sandbox.exec(&command, &limits);
    assert!(tokio::time::timeout(Duration::from_millis(100), cancelled).await.is_err());
    let error = sandbox::start(&Flaky::new(9), SOON).await.expect_err("it never comes");
    assert_eq!(error.error_type(), semconv::value::sandbox_error::CREATE);
    sandbox
}

#[test]
fn spans_and_metrics_say_how_it_went_and_nothing_of_what_was_run() {
    let (sink, handle) = telemetry();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let sandbox = runtime.block_on(rehearse());
    let flush = || handle.force_flush(PATIENCE);
    assert!(flush());
    assert_eq!(measured(sink, metric::SANDBOX_ACTIVE, "flaky").0, Some(1));
    runtime.block_on(sandbox.stop());
    assert!(flush());
    assert_eq!(measured(sink, metric::SANDBOX_ACTIVE, "flaky").0, Some(0));
    assert_eq!(measured(sink, metric::SANDBOX_CREATE_RETRY, "flaky").0, Some(4));
    let (_, starts, bounds) = measured(sink, metric::SANDBOX_STARTUP_DURATION, "flaky");
    assert_eq!(starts, 1, "what never started took no time to start");
    assert_eq!((bounds.first(), bounds.last()), (Some(&250.0), Some(&1_800_000.0)));
    assert_eq!(measured(sink, metric::SANDBOX_EXEC_DURATION, "flaky").1, 3);

    let spans = sink.spans();
    let mut told: Vec<String> = spans
        .iter()
        .filter(|span| span.text(semconv::SANDBOX_PROVIDER) == "flaky")
        .map(|span| {
            let attributes = span.attributes.iter();
            let attributes: Vec<String> =
                attributes.map(|(key, value)| format!("{key}={value}")).collect();
            format!("{} {}", span.name, attributes.join(" "))
        })
        .collect();
    told.sort();
    insta::assert_snapshot!(told.join("\n"), @r#"
    gym.sandbox.exec error.type="timeout" nemo.gym.sandbox.error_type="timeout" nemo.gym.sandbox.provider="flaky" nemo.gym.sandbox.return_code=137
    gym.sandbox.exec nemo.gym.cancelled=true nemo.gym.sandbox.provider="flaky"
    gym.sandbox.exec nemo.gym.sandbox.provider="flaky" nemo.gym.sandbox.return_code=127
    gym.sandbox.exec nemo.gym.sandbox.provider="flaky" nemo.gym.sandbox.return_code=41
    gym.sandbox.start error.type="create_failed" nemo.gym.sandbox.error_type="create_failed" nemo.gym.sandbox.provider="flaky"
    gym.sandbox.start nemo.gym.sandbox.provider="flaky"
    "#);
    assert!(spans.iter().any(|span| span.name == span::SANDBOX_START));

    let requests = sink.requests();
    for signal in [lens_testing::Signal::Traces, lens_testing::Signal::Metrics] {
        assert!(requests.iter().any(|request| request.signal == signal));
    }
    for request in requests {
        let parts = request.body.windows(CONTENT.len());
        assert_eq!(parts.filter(|part| *part == CONTENT.as_bytes()).count(), 0);
    }
}
