//! Off is off in a whole fleet: no connection, no thread, no file.

use std::io::ErrorKind;
use std::net::TcpListener;

use gym_telemetry::env_vars;

use crate::support::{Fleet, Start, output, weather_rows};

/// Names of a process's threads, sorted.
fn threads(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    let names = tasks.filter_map(Result::ok).filter_map(name);
    let mut names: Vec<String> = names.map(|name| name.trim().to_owned()).collect();
    names.sort();
    names
}

/// Threads of every process of a fleet that ran five rollouts.
fn threads_of_fleet(environment: &[(&str, &str)]) -> Vec<Vec<String>> {
    let mut fleet = Fleet::start(&Start {
        arguments: &[
            "--resources-server",
            "example_single_tool_call",
            "--model-type",
            "scripted_model",
        ],
        environment,
    });
    let input = weather_rows(fleet.folder.path());
    let mut run = fleet.eval_run(&[
        "--input",
        input.to_str().expect("utf-8"),
        "--output",
        "out.jsonl",
        "--agent",
        "example_single_tool_call_simple_agent",
    ]);
    let run = output(run.envs(environment.iter().copied()));
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let mut pids = vec![fleet.child.id()];
    for instance in fleet.instances() {
        let name = instance["process_name"].as_str().expect("a name");
        pids.push(fleet.pid(name));
    }
    let threads = pids.into_iter().map(threads).collect();
    assert!(!fleet.spool().exists(), "a buffer was made");
    assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());
    assert!(!fleet.spool().exists(), "a buffer was made");
    assert_eq!(fleet.stdout(), "");
    threads
}

/// Guarantees: each way to switch everything off costs what telemetry that was never asked for costs.
#[test]
fn a_fleet_that_is_off_makes_no_connection_no_thread_and_no_file() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("it can be asked");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let on = [
        (env_vars::ENABLED, "1"),
        (env_vars::LOGS_ENABLED, "1"),
        (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, endpoint.as_str()),
    ];
    let none = [
        (env_vars::OTEL_TRACES_EXPORTER, "none"),
        (env_vars::OTEL_METRICS_EXPORTER, "none"),
        (env_vars::OTEL_LOGS_EXPORTER, "none"),
    ];
    let no_group = [
        (env_vars::SPAN_GROUPS, ","),
        (env_vars::METRICS_ENABLED, "0"),
        (env_vars::LOGS_ENABLED, "0"),
    ];
    let disabled = [(env_vars::OTEL_SDK_DISABLED, "true")];
    let cases: [&[(&str, &str)]; 3] = [&none, &disabled, &no_group];
    let (never_asked, others) = std::thread::scope(|scope| {
        let never_asked = scope.spawn(|| threads_of_fleet(&[]));
        let others = cases.map(|more| {
            let environment = [&on[..], more].concat();
            scope.spawn(move || threads_of_fleet(&environment))
        });
        let others = others.map(|thread| thread.join().expect("no panic"));
        (never_asked.join().expect("no panic"), others)
    });
    assert_eq!(never_asked.len(), 4, "supervisor and three servers: {never_asked:?}");
    for threads in others {
        assert_eq!(threads, never_asked);
    }
    let came = listener.accept().map(|_| ());
    assert!(came.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "a connection");
}
