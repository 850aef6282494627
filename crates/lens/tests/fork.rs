//! A forked child is silent until it sets telemetry up itself, and then it is a process like any other.
//!
//! No test harness: `fork` copies the thread that calls it, and that is to be this program's main thread.

#![allow(unsafe_code)]
#![allow(clippy::print_stdout, reason = "it reports itself")]

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lens::config::{ExporterKind, LensConfig, Protocol, SpoolSettings};
use lens::{Group, Span, managed_span};
use lens_testing::{CollectedSpan, OtlpSink};

static JOB: Group = Group::new("job").long_lived();
static WORK: Group = Group::new("work");
static GROUPS: &[&Group] = &[&JOB, &WORK];
const LIMIT: Duration = Duration::from_secs(20);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [flag, folder] if flag == "--die" => die_before_the_child(Path::new(folder)),
        [flag, file] if flag == "--draw" => return draw_ids(Path::new(file)),
        _ => {}
    }
    child_is_silent_until_it_sets_up_and_its_parent_loses_nothing();
    println!("test child_is_silent_until_it_sets_up_and_its_parent_loses_nothing ... ok");
    parent_is_seen_to_be_dead_while_its_child_lives();
    println!("test parent_is_seen_to_be_dead_while_its_child_lives ... ok");
    four_workers_send_from_four_pids();
    println!("test four_workers_send_from_four_pids ... ok");
    eighty_thousand_ids_of_processes_and_forks_do_not_repeat();
    println!("test eighty_thousand_ids_of_processes_and_forks_do_not_repeat ... ok");
}

fn config(service: &str, folder: &Path, endpoint: &str) -> LensConfig {
    lens::register("fork", GROUPS, &[]);
    let mut config = LensConfig {
        enabled: true,
        service_name: service.to_owned(),
        span_groups: "all".to_owned(),
        metrics_exporter: ExporterKind::None,
        spool: SpoolSettings {
            ring_folder: Some(folder.to_owned()),
            overflow_folder: None,
            run_id: "run".to_owned(),
            ships_dead: false,
        },
        ..LensConfig::default()
    };
    config.traces_otlp.endpoint = format!("{endpoint}/v1/traces");
    config.traces_otlp.protocol = Protocol::HttpProtobuf;
    config
}

/// Runs `child` in a forked process; returns its id.
fn fork(child: impl FnOnce()) -> i32 {
    // SAFETY: the child calls nothing that another thread of the parent could hold for ever: telemetry releases its
    // own locks, and so does the C library; it ends by `_exit`.
    unsafe {
        match libc::fork() {
            0 => {
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
                libc::_exit(i32::from(outcome.is_err()))
            }
            pid => {
                assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
                pid
            }
        }
    }
}

fn wait_for(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: `status` is a place for one number.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

fn names(spans: &[CollectedSpan], service: &str) -> Vec<String> {
    let of_service = spans.iter().filter(|span| span.service() == service);
    let mut names: Vec<String> = of_service.map(|span| span.name.clone()).collect();
    names.sort();
    names
}

fn child_is_silent_until_it_sets_up_and_its_parent_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let sink = OtlpSink::start().expect("a sink");
    let endpoint = sink.http_endpoint();
    let parent =
        lens::setup_telemetry(config("parent", folder.path(), &endpoint)).expect("it starts");
    assert_eq!(parent.warnings(), Vec::<String>::new());
    let mut job = Some(Span::start(&JOB, "job"));
    let mut held = Some(Span::start(&WORK, "held"));
    drop(managed_span!(WORK, "before"));

    let pid = fork(|| {
        // Of the parent, and not the child's to tell.
        Span::start(&WORK, "silent").end();
        Span::start(&JOB, "silent, long").end();
        drop(held.take());
        assert!(parent.force_flush(LIMIT), "nothing to wait for");
        assert_eq!(parent.snapshot().ended, 0, "these are the parent's numbers");

        let child =
            lens::setup_telemetry(config("child", folder.path(), &endpoint)).expect("it starts");
        drop(job.take());
        for _ in 0..100 {
            drop(managed_span!(WORK, "of the child"));
        }
        let long = Span::start(&JOB, "long, of the child");
        let open: usize = lens::spools(folder.path()).iter().map(|spool| spool.open).sum();
        assert_eq!(open, 2, "the parent's job and the child's");
        long.end();
        assert_eq!(child.snapshot().ended, 101);
        assert!(child.shutdown(LIMIT));
        assert_eq!(child.snapshot().exported, 101);
    });
    // Meanwhile the parent goes on.
    for _ in 0..100 {
        drop(managed_span!(WORK, "meanwhile"));
    }
    assert_eq!(wait_for(pid), 0, "the child is content");
    let spools = lens::spools(folder.path());
    let [spool] = &spools[..] else { panic!("{spools:?}") };
    assert!(spool.is_alive && spool.pid == std::process::id(), "{spool:?}");
    assert_eq!(spool.open, 1, "the job is still open here");

    // The child ended copies; the spans end here.
    drop((job, held));
    drop(managed_span!(WORK, "after"));
    assert_eq!(parent.snapshot().ended, 104);
    assert!(parent.force_flush(LIMIT));
    assert_eq!(parent.snapshot().exported, 104);
    assert!(parent.shutdown(LIMIT));

    let spans = sink.spans();
    let mut expected = vec!["after", "before", "held", "job"];
    expected.extend(["meanwhile"; 100]);
    assert_eq!(names(&spans, "parent"), expected);
    let mut expected = vec!["long, of the child"];
    expected.extend(["of the child"; 100]);
    assert_eq!(names(&spans, "child"), expected);
    assert_eq!(spans.len(), 205, "nobody else spoke");
    let ids: BTreeSet<&String> = spans.iter().map(|span| &span.span_id).collect();
    assert_eq!(ids.len(), 205, "no id was drawn twice");
}

/// Waits at its stdin, and so does its child.
fn wait_at_stdin() {
    let _ = std::io::stdin().read(&mut [0]);
}

fn die_before_the_child(folder: &Path) -> ! {
    // Nobody listens there: what it ends stays in its ring.
    let _handle =
        lens::setup_telemetry(config("short", folder, "http://127.0.0.1:9")).expect("it starts");
    let _job = Span::start(&JOB, "job");
    drop(managed_span!(WORK, "work"));
    let child = fork(wait_at_stdin);
    println!("{child}");
    std::io::stdout().flush().expect("a reader");
    wait_at_stdin();
    std::process::abort();
}

fn parent_is_seen_to_be_dead_while_its_child_lives() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = std::env::current_exe().expect("a program");
    let mut parent = Command::new(program)
        .arg("--die")
        .arg(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(parent.stdout.take().expect("stdout"));
    std::io::BufRead::read_line(&mut stdout, &mut line).expect("it says who its child is");
    let child: u32 = line.trim().parse().expect("a pid");
    assert!(lens::spools(folder.path())[0].is_alive);

    parent.kill().expect("it can be killed");
    let stdin = parent.stdin.take();
    parent.wait().expect("it can be waited for");
    let state = std::fs::read_to_string(format!("/proc/{child}/stat")).expect("the child lives");
    assert!(!state.contains(") Z"), "{state}");
    let spools = lens::spools(folder.path());
    let [spool] = &spools[..] else { panic!("{spools:?}") };
    assert_eq!((spool.is_alive, spool.waiting, spool.open), (false, 1, 1), "{spool:?}");
    // This is what the child waits for.
    drop(stdin);
}

/// Forked by a process that has set telemetry up itself, as servers that load before they fork do.
fn four_workers_send_from_four_pids() {
    let folder = tempfile::tempdir().expect("a folder");
    let sink = OtlpSink::start().expect("a sink");
    let endpoint = sink.http_endpoint();
    let work = || {
        let worker =
            lens::setup_telemetry(config("worker", folder.path(), &endpoint)).expect("it starts");
        drop(managed_span!(WORK, "of a worker"));
        assert!(worker.shutdown(LIMIT));
    };
    let mut pids: Vec<i32> = (0..4).map(|_| fork(work)).collect();
    for pid in &pids {
        assert_eq!(wait_for(*pid), 0, "the worker is content");
    }
    let pid = |span: &CollectedSpan| span.resource["process.pid"].as_i64();
    let mut from: Vec<i32> =
        sink.spans().iter().filter_map(pid).filter_map(|pid| i32::try_from(pid).ok()).collect();
    pids.sort_unstable();
    from.sort_unstable();
    assert_eq!(from, pids);
}

const DRAWN: usize = 5_000;

/// Writes the ids of so many traces and spans.
fn draw_ids(file: &Path) {
    lens::register("fork", GROUPS, &[]);
    let config = LensConfig {
        enabled: true,
        span_groups: "all".to_owned(),
        traces_exporter: ExporterKind::Memory,
        metrics_exporter: ExporterKind::None,
        ..LensConfig::default()
    };
    let handle = lens::setup_telemetry(config).expect("it starts");
    let mut ids = String::new();
    for _ in 0..DRAWN {
        let context = Span::start(&WORK, "drawn").context();
        ids.push_str(&format!("{} {}\n", context.trace_id(), context.span_id()));
    }
    assert!(handle.shutdown(LIMIT));
    std::fs::write(file, ids).expect("a file");
}

fn eighty_thousand_ids_of_processes_and_forks_do_not_repeat() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = std::env::current_exe().expect("a program");
    let file = |kind: &str, number: usize| folder.path().join(format!("{kind}{number}"));
    let start = |number| {
        let mut command = Command::new(&program);
        command.arg("--draw").arg(file("process", number)).spawn().expect("it starts")
    };
    let mut processes: Vec<_> = (0..8).map(start).collect();
    let forks: Vec<i32> = (0..8).map(|number| fork(|| draw_ids(&file("fork", number)))).collect();
    assert!(processes.iter_mut().all(|process| process.wait().is_ok_and(|end| end.success())));
    assert!(forks.into_iter().all(|pid| wait_for(pid) == 0));
    let files = ["process", "fork"].map(|kind| (0..8).map(move |number| (kind, number)));
    let texts = files
        .into_iter()
        .flatten()
        .map(|(kind, number)| std::fs::read_to_string(file(kind, number)).expect("its ids"));
    let texts: Vec<String> = texts.collect();
    let lines = || texts.iter().flat_map(|text| text.lines());
    let traces: BTreeSet<&str> = lines().filter_map(|line| line.split(' ').next()).collect();
    let spans: BTreeSet<&str> = lines().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!((lines().count(), traces.len(), spans.len()), (80_000, 80_000, 80_000));
}
