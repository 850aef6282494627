//! `gym env start` and `gym env status` on the built-in servers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lens_testing::free_port;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::process::{eventually, gym, is_alive};

const SOON: Duration = Duration::from_secs(20);
const READY: &str = "servers ready! Polling every 60s";
const SELECTORS: [&str; 4] =
    ["--resources-server", "example_single_tool_call", "--model-type", "scripted_model"];

/// A `gym env start` with its conversation.
struct Supervisor {
    process: Child,
    stderr: Arc<Mutex<String>>,
    head_port: u16,
}

impl Supervisor {
    fn start(configure: impl FnOnce(&mut Command)) -> Self {
        let head_port = free_port();
        let mut command = gym();
        command
            .args(["env", "start"])
            .args(SELECTORS)
            .arg(format!("++head_server.port={head_port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        configure(&mut command);
        let mut process = command.spawn().expect("the binary starts");
        let stderr: Arc<Mutex<String>> = Arc::default();
        let text = Arc::clone(&stderr);
        let lines = BufReader::new(process.stderr.take().expect("piped")).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let mut text = text.lock().expect("unpoisoned");
                text.push_str(&line);
                text.push('\n');
            }
        });
        Self { process, stderr, head_port }
    }

    fn ready(configure: impl FnOnce(&mut Command)) -> Self {
        let supervisor = Self::start(configure);
        let is_ready = eventually(SOON, || supervisor.stderr().contains(READY));
        assert!(is_ready, "not ready:\n{}", supervisor.stderr());
        supervisor
    }

    fn stderr(&self) -> String {
        self.stderr.lock().expect("unpoisoned").clone()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.process.id().try_into().expect("a pid")).expect("a pid");
        kill_process(pid, signal).expect("it runs");
    }

    fn get(&self, path: &str) -> String {
        let mut stream =
            TcpStream::connect(("127.0.0.1", self.head_port)).expect("the head listens");
        write!(stream, "GET {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
            .expect("sent");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("answered");
        reply.split_once("\r\n\r\n").expect("a head and a body").1.to_owned()
    }

    fn servers(&self) -> Vec<(String, u32)> {
        let instances: Vec<Value> =
            serde_json::from_str(&self.get("/server_instances")).expect("JSON");
        instances
            .iter()
            .map(|instance| {
                let pid = instance["pid"].as_u64().expect("a pid");
                let name = instance["process_name"].as_str().expect("a name");
                (name.to_owned(), u32::try_from(pid).expect("a pid"))
            })
            .collect()
    }

    /// Waits for the end and for the rest of the conversation.
    fn end(&mut self) -> (ExitStatus, String) {
        let mut status = None;
        let ended = eventually(SOON, || {
            status = self.process.try_wait().expect("it can be waited for");
            status.is_some()
        });
        assert!(ended, "still running:\n{}", self.stderr());
        std::thread::sleep(Duration::from_millis(50));
        (status.expect("it ended"), self.stderr())
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn all_gone(servers: &[(String, u32)]) -> bool {
    servers.iter().all(|(_, pid)| !is_alive(*pid))
}

#[test]
fn a_ready_fleet_ends_with_success_on_sigterm_and_leaves_nothing() {
    let mut supervisor = Supervisor::ready(|_| {});
    let servers = supervisor.servers();
    assert_eq!(servers.len(), 3, "{servers:?}");
    assert!(servers.iter().all(|(_, pid)| is_alive(*pid)));
    supervisor.signal(Signal::TERM);
    let (status, stderr) = supervisor.end();
    assert_eq!(status.code(), Some(0), "{stderr}");
    assert!(stderr.ends_with("NeMo Gym finished!\n"), "{stderr}");
    assert!(all_gone(&servers));
}

#[test]
fn the_head_server_serves_yaml_in_a_json_string() {
    let supervisor = Supervisor::ready(|_| {});
    let yaml: String =
        serde_json::from_str(&supervisor.get("/global_config_dict_yaml")).expect("a JSON string");
    assert!(yaml.contains("policy_model:\n  responses_api_models:\n"), "{yaml}");
    assert_eq!(supervisor.get("/"), r#"{"status":"ok"}"#);
}

#[test]
fn a_killed_supervisor_leaves_no_server() {
    let mut supervisor = Supervisor::ready(|_| {});
    let servers = supervisor.servers();
    supervisor.signal(Signal::KILL);
    supervisor.process.wait().expect("it was killed");
    assert!(eventually(SOON, || all_gone(&servers)), "{servers:?}");
}

#[test]
fn a_dead_server_ends_the_fleet_with_its_name() {
    let mut supervisor = Supervisor::ready(|_| {});
    let servers = supervisor.servers();
    let (name, pid) = &servers[0];
    kill_process(Pid::from_raw(*pid as i32).expect("a pid"), Signal::KILL).expect("it runs");
    let (status, stderr) = supervisor.end();
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(&format!("error: {name} ended\n  caused by: signal: 9")), "{stderr}");
    assert!(all_gone(&servers));
}

#[test]
fn a_dead_server_is_said_even_when_nobody_waits_for_the_rest_to_stop() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = dir.path().join("responses_api_models/scripted_model");
    std::fs::create_dir_all(&server).expect("made");
    // Serves, and takes no notice of being told to end.
    write_program(
        &server.join("app.sh"),
        "#!/bin/sh\ntrap '' TERM\n\"$GYM\" serve-instance\nexec sleep 30\n",
    );
    let mut supervisor = Supervisor::ready(|command| {
        command
            .env("GYM", env!("CARGO_BIN_EXE_gym"))
            .arg("++policy_model.responses_api_models.scripted_model.entrypoint=app.sh")
            .arg("--search-dir")
            .arg(dir.path());
    });
    let (first, rest): (Vec<_>, Vec<_>) = supervisor
        .servers()
        .into_iter()
        .filter(|(name, _)| name != "policy_model")
        .partition(|(name, _)| name == "example_single_tool_call");
    let pid = Pid::from_raw(first[0].1 as i32).expect("a pid");
    kill_process(pid, Signal::KILL).expect("it runs");
    assert!(eventually(SOON, || all_gone(&rest)), "the fleet does not stop");
    let mut status = None;
    let ended = eventually(Duration::from_secs(6), || {
        supervisor.signal(Signal::INT);
        std::thread::sleep(Duration::from_millis(200));
        status = supervisor.process.try_wait().expect("it can be waited for");
        status.is_some()
    });
    assert!(ended, "it waits for a server that does not end:\n{}", supervisor.stderr());
    let stderr = supervisor.end().1;
    assert_eq!(status.and_then(|status| status.code()), Some(1), "{stderr}");
    assert!(stderr.contains("not waiting for the servers"), "{stderr}");
    assert!(stderr.contains("error: example_single_tool_call ended"), "{stderr}");
}

#[test]
fn a_taken_port_is_said_with_its_holder_and_the_key_to_change() {
    let holder = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = holder.local_addr().expect("bound").port();
    let key = "policy_model.responses_api_models.scripted_model.port";
    let mut supervisor = Supervisor::start(|command| {
        command.arg(format!("++{key}={port}"));
    });
    let (status, stderr) = supervisor.end();
    assert_eq!(status.code(), Some(2), "{stderr}");
    let pid = std::process::id();
    assert!(
        stderr.contains(&format!(
            "error: policy_model cannot listen on 127.0.0.1:{port}, which pid {pid} ("
        )),
        "{stderr}"
    );
    assert!(
        stderr.contains(&format!("hint: end pid {pid} or choose another port with ++{key}=PORT"))
    );
}

#[test]
fn telemetry_lines_go_to_stdout_and_to_the_log_of_their_server() {
    let logs = tempfile::tempdir().expect("a directory");
    let mut supervisor = Supervisor::ready(|command| {
        command
            .env("NEMO_LENS_ENABLED", "1")
            .env("NEMO_GYM_OTEL_EXPORTER", "console")
            .arg("--log-dir")
            .arg(logs.path());
    });
    let names: Vec<String> = supervisor.servers().into_iter().map(|(name, _)| name).collect();
    supervisor.signal(Signal::TERM);
    let mut stdout = String::new();
    supervisor.process.stdout.take().expect("piped").read_to_string(&mut stdout).expect("read");
    let (status, stderr) = supervisor.end();
    assert_eq!(status.code(), Some(0), "{stderr}");

    let spans = spans(&stdout);
    let root = spans.iter().find(|span| span["name"] == "gym.startup").expect("the start");
    let stages: Vec<&str> = spans
        .iter()
        .filter(|span| span["parent_id"] == root["span_id"] && span["name"] != "gym.startup.server")
        .filter_map(|span| span["name"].as_str())
        .collect();
    assert_eq!(
        stages,
        [
            "load_config",
            "init_telemetry",
            "start_head_server",
            "spawn_servers",
            "wait_for_head_server",
            "wait_for_servers",
            "wait_for_model_endpoints"
        ]
    );
    let started: Vec<&Value> =
        spans.iter().filter(|span| span["name"] == "gym.startup.server").collect();
    assert_eq!(started.len(), names.len());
    for name in &names {
        let of_server = spans_in(&logs.path().join(format!("{name}.log")));
        let own = of_server
            .iter()
            .find(|span| span["name"] == "gym.server.startup")
            .unwrap_or_else(|| panic!("{name} logged its start"));
        assert_eq!(own["trace_id"], root["trace_id"]);
        assert!(started.iter().any(|span| span["span_id"] == own["parent_id"]));
        assert!(spans.contains(own), "the line is on stdout too");
    }
}

#[test]
fn a_foreign_program_serves_an_instance_and_ends_with_the_supervisor() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = dir.path().join("responses_api_models/scripted_model");
    std::fs::create_dir_all(&server).expect("made");
    write_program(&server.join("app.sh"), "#!/bin/sh\n\"$GYM\" serve-instance & wait\n");
    let supervisor = Supervisor::ready(|command| {
        command
            .env("GYM", env!("CARGO_BIN_EXE_gym"))
            .arg("++policy_model.responses_api_models.scripted_model.entrypoint=app.sh")
            .arg("--search-dir")
            .arg(dir.path());
    });
    let servers = supervisor.servers();
    let (_, pid) = servers.iter().find(|(name, _)| name == "policy_model").expect("it runs");
    let children =
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("proc");
    let inner: u32 = children.trim().parse().expect("one child");
    supervisor.signal(Signal::KILL);
    assert!(eventually(SOON, || all_gone(&servers) && !is_alive(inner)));
}

#[test]
fn the_status_of_a_fleet_lists_every_server_as_healthy() {
    let supervisor = Supervisor::ready(|_| {});
    let output = gym()
        .args(["env", "status", "--json", &format!("++head_server.port={}", supervisor.head_port)])
        .output()
        .expect("it runs");
    let instances: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(instances.len(), 3);
    for instance in instances {
        assert_eq!(instance["status"], "success");
        assert!(instance["uptime_seconds"].as_f64().expect("a number") >= 0.0);
    }
}

fn write_program(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("allowed");
}

fn spans(text: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|line| line["type"] == "span")
        .collect()
}

fn spans_in(path: &Path) -> Vec<Value> {
    spans(&std::fs::read_to_string(path).expect("a log"))
}
