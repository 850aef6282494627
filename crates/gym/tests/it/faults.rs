//! What breaks is named, with the way out; nothing keeps running and nothing collected is lost.

mod disk;
mod ends;
mod input;
mod model;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use lens_testing::free_port;

use crate::spans;
use crate::support::{
    Fleet, Start, fixture, get, gym, output, rows, runs, signal, text, weather_rows,
};

const RESOURCES: &str = "example_single_tool_call";
const AGENT: &str = "example_single_tool_call_simple_agent";
const MODEL: &str = "policy_model";
const SCRIPTED: [&str; 4] = ["--resources-server", RESOURCES, "--model-type", "scripted_model"];

/// Scripted servers whose model takes this long for a reply.
fn scripted(millis: u32) -> Fleet {
    let latency = format!(
        "++policy_model.responses_api_models.scripted_model.latency={{kind: fixed, ms: {millis}}}"
    );
    let mut arguments = SCRIPTED.to_vec();
    arguments.push(&latency);
    Fleet::start(&Start { arguments: &arguments, environment: &[] })
}

/// A fleet whose model server calls a local port, with little patience.
fn calling(port: u16) -> Fleet {
    let url = format!("http://127.0.0.1:{port}/v1");
    let arguments = [
        "--resources-server",
        RESOURCES,
        "--model-type",
        "vllm_model",
        "--model",
        "m",
        "--model-api-key",
        "k",
        "--model-url",
        &url,
        "++model_retry_timeout_seconds=2",
        "++model_idle_timeout_seconds=1",
        "++model_endpoint_readiness_timeout_seconds=0",
    ];
    Fleet::start(&Start { arguments: &arguments, environment: &[] })
}

fn pids(head: u16) -> Vec<u32> {
    let listed: serde_json::Value =
        serde_json::from_str(&get(head, "/server_instances")).expect("a list");
    let pids: Vec<u32> = listed
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|entry| u32::try_from(entry["pid"].as_u64()?).ok())
        .collect();
    assert!(!pids.is_empty(), "no servers are listed");
    pids
}

fn assert_gone(pids: &[u32]) {
    let deadline = Instant::now() + Duration::from_secs(10);
    for pid in pids {
        while runs(*pid) {
            assert!(Instant::now() < deadline, "pid {pid} still runs");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A process whose stderr goes to a file.
struct Running {
    child: Child,
    stderr: PathBuf,
}

impl Running {
    fn start(command: &mut Command, stderr: PathBuf) -> Self {
        let file = std::fs::File::create(&stderr).expect("a file");
        let child = command.stdout(Stdio::null()).stderr(file).spawn().expect("it starts");
        Self { child, stderr }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.stderr).expect("stderr")
    }

    fn ended(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.child.try_wait().expect("waits") {
                return (status.code(), self.said());
            }
            if Instant::now() > deadline {
                let _ = self.child.kill();
                panic!("it does not end:\n{}", self.said());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// An `eval run` of the weather rows, twelve times each, four at a time.
fn eval(fleet: &Fleet, out: &Path) -> Running {
    let input = weather_rows(fleet.folder.path());
    let mut command = fleet.eval_run(&["--agent", AGENT, "--concurrency", "4"]);
    command.args(["--num-repeats", "12", "--input"]).arg(input).arg("--output").arg(out);
    Running::start(&mut command, out.with_extension("stderr"))
}

fn keys(path: &Path) -> Vec<(u64, u64)> {
    let key = |row: &serde_json::Value| {
        Some((row["_ng_task_index"].as_u64()?, row["_ng_rollout_index"].as_u64()?))
    };
    // `rows` fails on a line that is not whole.
    let mut keys: Vec<_> = rows(path).iter().filter_map(key).collect();
    keys.sort_unstable();
    keys
}

fn assert_complete(path: &Path) {
    let all: Vec<(u64, u64)> =
        (0..5).flat_map(|task| (0..12).map(move |rollout| (task, rollout))).collect();
    assert_eq!(keys(path), all);
}

fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "no {part:?} in:\n{said}");
    }
}

fn run(arguments: &[&str], folder: &Path) -> Output {
    output(gym().args(arguments).current_dir(folder))
}
