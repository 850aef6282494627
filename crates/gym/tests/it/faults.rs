//! What breaks is named, with the way out; nothing keeps running and nothing collected is lost.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::spans;
use crate::support::{
    Fleet, Start, fixture, free_port, get, gym, output, rows, runs, signal, text, weather_rows,
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

#[test]
fn a_server_that_is_killed_ends_fleet_and_run_with_its_name() {
    let watch = |victim: &str| {
        let mut fleet = scripted(100);
        let out = fleet.folder.path().join("out.jsonl");
        let all = pids(fleet.head);
        let eval = eval(&fleet, &out);
        wait_until("the first row", || !rows_so_far(&out).is_empty());
        signal(fleet.pid(victim), "KILL");
        assert_eq!(fleet.wait(), Some(1), "{}", fleet.said());
        let log = fleet.logs().join(format!("{victim}.log"));
        let said = fleet.said();
        assert_says(
            &said,
            &[
                &format!("error: {victim} ended\n  caused by: signal: 9 (SIGKILL)"),
                "hint: who did not kill it should look for the out-of-memory killer in `dmesg`",
                &log.display().to_string(),
            ],
        );
        assert!(!said.contains("finished"), "{said}");
        assert_gone(&all);
        let (code, said) = eval.ended();
        assert_eq!(code, Some(1), "{said}");
        let url = format!("http://127.0.0.1:{}", fleet.head);
        assert_says(
            &said,
            &[&format!("error: the fleet at {url} is gone"), "hint: see what ended it"],
        );
        let (done, failed) = (keys(&out), keys(&out.with_file_name("out_failures.jsonl")));
        assert!(!done.is_empty());
        assert!(failed.iter().all(|key| !done.contains(key)), "{done:?} {failed:?}");
    };
    std::thread::scope(|scope| {
        for victim in [RESOURCES, AGENT, MODEL] {
            scope.spawn(move || watch(victim));
        }
    });
}

/// Lines that are whole by now.
fn rows_so_far(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(str::to_owned).collect()
}

#[test]
fn a_run_with_its_own_servers_names_the_killed_one_and_is_resumed_after_ctrl_c() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = weather_rows(folder.path());
    let out = folder.path().join("new/folder/out.jsonl");
    let command = |head: u16, millis: u32| {
        let mut command = gym();
        command
            .args(["eval", "run"])
            .args(SCRIPTED)
            .args(["--agent", AGENT, "--concurrency", "4", "--num-repeats", "12", "--resume"])
            .arg(format!("++policy_model.responses_api_models.scripted_model.latency={{kind: fixed, ms: {millis}}}"))
            .arg(format!("++head_server.port={head}"))
            .arg("--input")
            .arg(&input)
            .arg("--output")
            .arg(&out)
            .current_dir(folder.path());
        command
    };
    let mut before = 0;
    for fault in ["KILL", "INT"] {
        let head = free_port();
        let running = Running::start(&mut command(head, 100), folder.path().join("stderr"));
        wait_until("more rows", || rows_so_far(&out).len() > before);
        let all = pids(head);
        match fault {
            "KILL" => signal(all[2], "KILL"),
            interrupt => signal(running.child.id(), interrupt),
        }
        let (code, said) = running.ended();
        if fault == "KILL" {
            assert_eq!(code, Some(1), "{said}");
            assert_says(&said, &["error: policy_model ended\n  caused by: signal: 9 (SIGKILL)"]);
        } else {
            assert_eq!(code, Some(130), "{said}");
        }
        assert_says(&said, &["interrupted: ", "continue with the same command and --resume"]);
        assert_gone(&all);
        before = keys(&out).len();
    }
    let (code, said) =
        Running::start(&mut command(free_port(), 0), folder.path().join("stderr")).ended();
    assert_eq!(code, Some(0), "{said}");
    assert_complete(&out);
}

#[test]
fn a_second_ctrl_c_does_not_cost_the_traces_of_the_driver() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = weather_rows(folder.path());
    let (stdout, stderr) = (folder.path().join("stdout"), folder.path().join("stderr"));
    let mut command = gym();
    command
        .args(["eval", "run"])
        .args(SCRIPTED)
        .args(["--agent", AGENT, "--output", "out.jsonl"])
        .arg("++policy_model.responses_api_models.scripted_model.latency={kind: fixed, ms: 60000}")
        .arg(format!("++head_server.port={}", free_port()))
        .arg("--input")
        .arg(&input)
        .envs([("NEMO_LENS_ENABLED", "1"), ("NEMO_GYM_OTEL_EXPORTER", "console")])
        .current_dir(folder.path())
        .stdout(std::fs::File::create(&stdout).expect("a file"))
        .stderr(std::fs::File::create(&stderr).expect("a file"));
    let mut driver = command.spawn().expect("the program starts");
    let said = || std::fs::read_to_string(&stderr).expect("stderr");
    wait_until("servers", || said().contains("servers ready! Polling"));
    signal(driver.id(), "INT");
    wait_until("a gentle stop", || said().contains("another Ctrl-C stops at once"));
    signal(driver.id(), "INT");
    assert_eq!(driver.wait().expect("it ends").code(), Some(130), "{}", said());
    let spans = spans::parse(&std::fs::read_to_string(&stdout).expect("stdout"));
    assert!(spans.iter().any(|span| span.name == "gym.job"), "{}", said());
}

#[test]
fn an_interrupted_or_killed_driver_leaves_whole_rows_and_resumes_to_every_row_once() {
    let fleet = scripted(50);
    let folder = fleet.folder.path();
    for (fault, code) in [("INT", Some(130)), ("TERM", Some(130)), ("KILL", None)] {
        let out = folder.join(format!("{fault}.jsonl"));
        let running = eval(&fleet, &out);
        wait_until("some rows", || rows_so_far(&out).len() >= 4);
        signal(running.child.id(), fault);
        let (ended, said) = running.ended();
        assert_eq!(ended, code, "{said}");
        let mut resume = fleet.eval_run(&["--agent", AGENT, "--num-repeats", "12", "--resume"]);
        let done =
            output(resume.arg("--input").arg(folder.join("rows.jsonl")).arg("--output").arg(&out));
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        assert_complete(&out);
    }
}

#[test]
fn a_fleet_is_interrupted_while_it_starts_and_ends_well_when_it_is_told_to() {
    let url = format!("http://127.0.0.1:{}/v1", free_port());
    let arguments = ["--resources-server", RESOURCES, "--model-type", "vllm_model", "--model", "m"];
    let mut arguments = arguments.to_vec();
    arguments.extend(["--model-api-key", "k", "--model-url", &url]);
    let mut fleet = Fleet::spawn(&Start { arguments: &arguments, environment: &[] });
    fleet.wait_for("Waiting for model endpoints to answer: ");
    let all = pids(fleet.head);
    signal(fleet.child.id(), "INT");
    assert_eq!(fleet.wait(), Some(130), "{}", fleet.said());
    let key = "policy_model.responses_api_models.vllm_model.base_url";
    assert_says(
        &fleet.said(),
        &[
            &format!("answer: {url} (key {key})"),
            "Connection refused",
            "error: interrupted while the servers were starting",
        ],
    );
    assert_gone(&all);

    let mut fleet = scripted(0);
    let all = pids(fleet.head);
    assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());
    assert_gone(&all);
}

#[test]
fn a_model_that_never_answers_is_named_with_its_key_when_the_time_is_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("http://127.0.0.1:{}/v1", free_port());
    let head = format!("++head_server.port={}", free_port());
    let started = Instant::now();
    let mut arguments = vec!["env", "start", "--resources-server", RESOURCES, "--model-type"];
    arguments.extend(["vllm_model", "--model", "m", "--model-api-key", "k", "--model-url", &url]);
    arguments.extend([&head, "++model_endpoint_readiness_timeout_seconds=1"]);
    let ended = run(&arguments, folder.path());
    assert_eq!(ended.status.code(), Some(2));
    assert!(started.elapsed() >= Duration::from_secs(1), "it did not wait");
    assert_says(
        &text(&ended.stderr),
        &[
            &format!(
                "error: no answer from the model endpoint {url} \
                 (key policy_model.responses_api_models.vllm_model.base_url) within 1 s\n  \
                 caused by: cannot connect to 127.0.0.1:"
            ),
            "hint: start the endpoint or correct its URL (--model-url)",
        ],
    );
}

/// A scripted model behind the OpenAI API, killed with the test.
struct Upstream(Child);

impl Upstream {
    fn start(port: u16, errors: &str) -> Self {
        let mut command = gym();
        command.args(["serve-openai", "--listen", &format!("127.0.0.1:{port}")]);
        let child = command
            .arg(format!("+errors={errors}"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.expect("it starts");
        let mut line = [0; 8];
        child.stdout.as_mut().expect("stdout").read_exact(&mut line).expect("the URL");
        Self(child)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Answers every request with a page.
fn serve_pages(listener: &TcpListener, requests: usize) {
    for _ in 0..requests {
        let Ok((mut stream, _)) = listener.accept() else { return };
        let _ = stream.read(&mut [0; 65536]);
        let _ = stream.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-length: 19\r\nconnection: close\r\n\r\n<html>sorry</html>\n",
        );
    }
}

/// Guarantees: what a model does wrong costs its rollouts, never the run, and the message is the model's own.
#[test]
fn a_model_that_fails_in_any_way_fails_its_rollouts_with_its_own_message() {
    let port = free_port();
    let mut fleet = calling(port);
    let folder = fleet.folder.path().to_owned();
    let input = weather_rows(&folder);
    let collect = |name: &str, code: i32, message: &str| {
        let out = folder.join(format!("{name}.jsonl"));
        let mut command = fleet.eval_run(&["--agent", AGENT, "--limit", "2"]);
        let ended = output(command.arg("--input").arg(&input).arg("--output").arg(&out));
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{name}:\n{said}");
        assert_says(&said, &[message]);
        let failures = rows(&folder.join(format!("{name}_failures.jsonl")));
        let expected = if code == 0 { (2, 0) } else { (0, 2) };
        assert_eq!((rows(&out).len(), failures.len()), expected, "{name}:\n{said}");
        for failure in failures {
            assert!(failure["responses_create_params"].is_object(), "{failure}");
            assert_eq!(failure["_ng_failure_class"], "http_error", "{failure}");
            let told = failure["_ng_failure_message"].as_str().expect("a message");
            assert_says(told, &["the agent answered 500: a call by ", message]);
        }
    };
    {
        let _busy = Upstream::start(port, "{rate: 0.3, kind: status, status: 429, retry_after: 0}");
        collect("busy", 0, "collected: 2 done, 0 failed");
    }
    {
        let _full = Upstream::start(port, "{rate: 1, kind: status, status: 429, retry_after: 1}");
        collect("full", 1, "injected failure with status 429");
    }
    {
        let _broken = Upstream::start(port, "{rate: 1, kind: status, status: 500}");
        collect("broken", 1, "injected failure with status 500");
    }
    {
        let _hanging = Upstream::start(port, "{rate: 1, kind: hang}");
        collect("hanging", 1, &format!("127.0.0.1:{port} sent nothing for 1s"));
    }
    {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port");
        let pages = std::thread::spawn(move || serve_pages(&listener, 2));
        collect("garbage", 1, "the engine's reply is not a chat completion");
        pages.join().expect("pages");
    }
    collect("down", 1, &format!("could not connect to 127.0.0.1:{port}: Connection refused"));
    let all = pids(fleet.head);
    assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());
    assert_gone(&all);
    let url = format!("(policy_model) warning: POST http://127.0.0.1:{port}/v1/chat/completions: ");
    assert_says(&fleet.said(), &[&url, "goes on for up to 2 s"]);
}

#[test]
fn a_bad_row_a_bad_name_or_a_bad_file_is_named_before_anything_is_collected() {
    let fleet = scripted(0);
    let folder = fleet.folder.path();
    let good = std::fs::read_to_string(weather_rows(folder)).expect("rows");
    let first = good.lines().next().expect("a row");
    let file = |name: &str, second: &str| {
        std::fs::write(folder.join(name), format!("{first}\n{second}\n")).expect("writes");
    };
    file("garbled.jsonl", "not json");
    file("bare.jsonl", r#"{"question": 1}"#);
    file("unknown.jsonl", &first.replacen("\"input\"", "\"temprature\": 1, \"input\"", 1));
    let collect = |input: &str, out: &str, agent: &str| {
        let mut command = fleet.eval_run(&["--input", input, "--output", out, "--agent", agent]);
        let ended = output(&mut command);
        (ended.status.code(), text(&ended.stderr))
    };
    let refused: [(&str, &str, &str, &[&str]); 6] = [
        (
            "garbled.jsonl",
            "o.jsonl",
            AGENT,
            &["bad row in \"garbled.jsonl\", line 2: not a JSON object"],
        ),
        ("bare.jsonl", "o.jsonl", AGENT, &["line 2: `responses_create_params` is missing"]),
        (
            "nowhere.jsonl",
            "o.jsonl",
            AGENT,
            &["input file \"nowhere.jsonl\" does not exist", "hint: looked under"],
        ),
        (".", "o.jsonl", AGENT, &["cannot read \".\"\n  caused by: is a directory"]),
        (
            "rows.jsonl",
            "rows.jsonl",
            AGENT,
            &["\"rows.jsonl\" is both input and output", "hint: give another --output"],
        ),
        (
            "rows.jsonl",
            "o.jsonl",
            "example_single_tool_call_simpel_agent",
            &[
                "no agent is called",
                "hint: did you mean \"example_single_tool_call_simple_agent\"?",
            ],
        ),
    ];
    for (input, out, agent, parts) in refused {
        let (code, said) = collect(input, out, agent);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.starts_with("error: "), "{said}");
        assert_says(&said, parts);
        assert!(!folder.join("o.jsonl").exists(), "{input}");
    }
    assert_eq!(std::fs::read_to_string(folder.join("rows.jsonl")).expect("rows"), good);

    let (code, said) = collect("unknown.jsonl", "made/for/it/o.jsonl", AGENT);
    assert_eq!(code, Some(1), "{said}");
    assert_says(&said, &["collected: 1 done, 1 failed", "the agent answered 422: ", "temprature"]);
    assert_eq!(rows(&folder.join("made/for/it/o_failures.jsonl")).len(), 1);
}

#[test]
fn a_full_disk_is_told_and_the_rows_before_it_are_whole() {
    let fleet = scripted(0);
    let folder = fleet.folder.path();
    let input = weather_rows(folder);
    std::fs::create_dir(folder.join("full")).expect("a folder");
    for (file, link) in [("a", "a.jsonl"), ("b", "b_failures.jsonl")] {
        symlink("/dev/full", folder.join("full").join(link)).expect("a link");
        let out = folder.join(format!("full/{file}.jsonl"));
        let mut command = fleet.eval_run(&["--agent", AGENT]);
        let row = r#"{"responses_create_params": {"input": "x", "temprature": 1}}"#;
        std::fs::write(folder.join("bad.jsonl"), format!("{row}\n")).expect("writes");
        let rows = if file == "a" { input.clone() } else { folder.join("bad.jsonl") };
        let ended = output(command.arg("--input").arg(rows).arg("--output").arg(out));
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{said}");
        let full = folder.join("full").join(link).display().to_string();
        assert_says(
            &said,
            &[&full, "caused by: No space left on device", "hint: make room; --resume continues"],
        );
    }

    // A shell sets the limit: 100 blocks, of 512 bytes or 1 KiB by shell, hold the inputs and not the output.
    let out = folder.join("limited.jsonl");
    let mut eval = fleet.eval_run(&["--agent", AGENT, "--num-repeats", "12"]);
    eval.arg("--input").arg(&input).arg("--output").arg(&out);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 100; exec \"$@\"", "sh"]).arg(eval.get_program());
    limited.args(eval.get_args()).current_dir(folder);
    let ended = output(&mut limited);
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert_says(
        &said,
        &["limited.jsonl\"\n  caused by: File too large", "hint: make room; --resume continues"],
    );
    let before = keys(&out);
    assert!(!before.is_empty() && before.len() < 60, "{before:?}");
    let ended = output(eval.arg("--resume"));
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
    assert_complete(&out);
}

#[test]
fn a_full_log_or_stdout_costs_the_lines_and_not_the_fleet() {
    let folder = tempfile::tempdir().expect("a folder");
    let logs = folder.path().join("logs");
    std::fs::create_dir(&logs).expect("a folder");
    symlink("/dev/full", logs.join(format!("{RESOURCES}.log"))).expect("a link");
    let head = free_port();
    // The other logs end at 512 bytes, the stdout at none.
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -f 1; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_gym"), "env", "start"])
        .args(SCRIPTED)
        .arg(format!("++head_server.port={head}"))
        .arg("--log-dir")
        .arg(&logs)
        .current_dir(folder.path())
        .env("NEMO_LENS_ENABLED", "1")
        .env("NEMO_GYM_OTEL_EXPORTER", "console")
        .env("NEMO_GYM_OTEL_SPAN_GROUPS", "all")
        .stdin(Stdio::null())
        .stdout(std::fs::File::create("/dev/full").expect("the device"))
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    wait_until("the servers", || std::net::TcpStream::connect(("127.0.0.1", head)).is_ok());
    let all = pids(head);
    let input = weather_rows(folder.path());
    let ended = output(
        gym()
            .args(["eval", "run", "--no-serve", "--agent", AGENT, "--output", "out.jsonl"])
            .arg(format!("++head_server.port={head}"))
            .arg("--input")
            .arg(input)
            .current_dir(folder.path()),
    );
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
    assert!(child.try_wait().expect("waits").is_none(), "the fleet has ended");
    signal(child.id(), "TERM");
    let mut said = String::new();
    child.stderr.take().expect("stderr").read_to_string(&mut said).expect("reads");
    assert_eq!(child.wait().expect("ends").code(), Some(0), "{said}");
    assert_gone(&all);
    assert_says(
        &said,
        &[
            &format!("warning: {RESOURCES} is no longer logged to "),
            "No space left on device",
            "is no longer passed on: cannot write to stdout: No space left on device",
            "the server keeps running",
        ],
    );
}

#[test]
fn a_log_directory_that_cannot_be_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("file"), "").expect("writes");
    let mut arguments = vec!["env", "start"];
    arguments.extend(SCRIPTED);
    arguments.extend(["--log-dir", "file"]);
    let ended = run(&arguments, folder.path());
    assert_eq!(ended.status.code(), Some(2));
    assert_says(
        &text(&ended.stderr),
        &[
            "error: failed to open the log \"file\"",
            "hint: choose another directory with --log-dir",
        ],
    );
}

#[test]
fn every_bad_config_is_one_message_with_its_place_and_exit_code_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("writes");
    };
    file("broken.yaml", "a:\n  b: [1,\nc: 2\n");
    file(
        "typed.yaml",
        "tools:\n  resources_servers:\n    example_single_tool_call:\n      entrypoint: app.py\n      domain: agent\n\
         runner:\n  responses_api_agents:\n    simple_agent:\n      entrypoint: app.py\n      max_steps: lots\n      \
         resources_server: {type: resources_servers, name: tools}\n      \
         model_server: {type: responses_api_models, name: policy_model}\n",
    );
    let vllm = ["--resources-server", RESOURCES, "--model-type", "vllm_model"];
    let model = "policy_model.responses_api_models";
    let agent = "example_single_tool_call_simple_agent.responses_api_agents.simple_agent";
    let reference = format!("++{agent}.model_server.name=policy_modl");
    let latency = format!("++{model}.scripted_model.latency={{kind: fixd}}");
    let cases: Vec<(Vec<&str>, Vec<&str>)> = vec![
        (vec!["--config", "broken.yaml"], vec!["broken.yaml:3:1: malformed YAML"]),
        (
            vec!["--config", "absent.yaml"],
            vec!["config file absent.yaml not found", "hint: searched in "],
        ),
        (
            vec!["--config", "typed.yaml", "--model-type", "scripted_model"],
            vec![
                "typed.yaml:10:18: runner.responses_api_agents.simple_agent.max_steps: \
                 invalid type: string \"lots\"",
            ],
        ),
        (
            vec!["--resources-server", "example_single_tool_cal"],
            vec![
                "--resources-server example_single_tool_cal: no such config",
                "hint: did you mean example_single_tool_call?",
            ],
        ),
        (
            vec!["--resources-server", RESOURCES],
            vec![
                "no responses_api_models instance is named \"policy_model\", the config has none",
                "hint: add one with `--model-type NAME`",
            ],
        ),
        (
            [&vllm[..], &["--model-url", "http://h/v1", "--model-api-key", "k"]].concat(),
            vec![
                "`${policy_model_name}` refers to policy_model_name, which does not exist",
                "hint: set it: `--model <value>`",
            ],
        ),
        (
            [&vllm[..], &["--model-url", "nowhere", "--model-api-key", "k", "--model", "m"]]
                .concat(),
            vec![
                "policy_model.responses_api_models.vllm_model.base_url: \"nowhere\" is not a usable URL",
            ],
        ),
        (
            [&SCRIPTED[..], &[&reference]].concat(),
            vec![
                "no responses_api_models instance is named \"policy_modl\"",
                "hint: did you mean policy_model?",
            ],
        ),
        (
            [&SCRIPTED[..], &[&latency]].concat(),
            vec![
                "policy_model.responses_api_models.scripted_model.latency: unknown variant `fixd`",
            ],
        ),
        (
            [&SCRIPTED[..], &["++a={b"]].concat(),
            vec!["override `++a={b`: a mapping without its closing `}`", "hint: quote the value"],
        ),
        (
            [&SCRIPTED[..], &["++head_server.port=x"]].concat(),
            vec![
                "override `++head_server.port=x`: head_server.port: expected a port between 1 and 65535",
            ],
        ),
        (
            [&SCRIPTED[..], &["++model_retry_timeout_seconds=soon"]].concat(),
            vec!["model_retry_timeout_seconds: expected a number of seconds, got \"soon\""],
        ),
        (
            vec![],
            vec![
                "the config has no server instance",
                "hint: name one with `--resources-server NAME`",
            ],
        ),
    ];
    for (arguments, parts) in cases {
        let mut all = vec!["env", "start"];
        all.extend(arguments);
        let ended = run(&all, folder.path());
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{all:?}:\n{said}");
        assert!(said.starts_with("error: "), "{all:?}:\n{said}");
        assert_eq!(said.matches("error: ").count(), 1, "{all:?}:\n{said}");
        assert_says(&said, &parts);
    }
}

#[test]
fn a_port_in_use_is_told_with_its_holder_and_what_to_change() {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let head = format!("++head_server.port={port}");
    let key = "policy_model.responses_api_models.scripted_model.port";
    let own = format!("++{key}={port}");
    let free = format!("++head_server.port={}", free_port());
    let listen = format!("127.0.0.1:{port}");
    let cases: [(Vec<&str>, &str, String); 3] = [
        (
            [&["env", "start"][..], &SCRIPTED, &[&head]].concat(),
            "the head server cannot listen",
            "++head_server.port=PORT".to_owned(),
        ),
        (
            [&["env", "start"][..], &SCRIPTED, &[&own, &free]].concat(),
            "policy_model cannot listen",
            format!("++{key}=PORT"),
        ),
        (
            vec!["serve-openai", "--listen", &listen],
            "cannot listen",
            "--listen HOST:PORT".to_owned(),
        ),
    ];
    for (arguments, what, hint) in cases {
        let ended = run(&arguments, folder.path());
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{said}");
        let pid = std::process::id();
        assert_says(
            &said,
            &[
                &format!("error: {what} on 127.0.0.1:{port}, which pid {pid} ("),
                ") holds\n",
                "hint: ",
                &hint,
            ],
        );
    }
}

#[test]
fn a_killed_supervisor_leaves_no_server_built_in_or_foreign() {
    let python = Command::new("python3").arg("--version").output();
    let root = fixture("python/search_root").display().to_string();
    let mut arguments = vec!["--search-dir", &root, "--model-type", "scripted_model"];
    if python.is_ok_and(|found| found.status.success()) {
        arguments.extend(["--resources-server", "py_calculator"]);
    } else {
        eprintln!("SKIPPED: the foreign half; there is no python3");
        arguments.extend(["--resources-server", RESOURCES]);
    }
    let mut fleet = Fleet::start(&Start { arguments: &arguments, environment: &[] });
    let all = pids(fleet.head);
    assert_eq!(all.len(), 3);
    signal(fleet.child.id(), "KILL");
    assert_eq!(fleet.wait(), None);
    assert_gone(&all);
}

#[test]
fn wrong_command_lines_are_explained_and_exit_with_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let nowhere = format!("++head_server.port={}", free_port());
    let cases: Vec<(Vec<&str>, Vec<&str>)> = vec![
        (vec![], vec!["Usage: gym [OPTIONS] <COMMAND>", "env ", "demo "]),
        (vec!["env"], vec!["Usage: gym env [OPTIONS] <COMMAND>", "start"]),
        (vec!["env", "strat"], vec!["unrecognized subcommand 'strat'", "'start'"]),
        (
            vec!["env", "start", "--model-typ", "x"],
            vec!["unexpected argument '--model-typ'", "'--model-type'"],
        ),
        (vec!["env", "start", "--model"], vec!["a value is required for '--model <NAME>'"]),
        (vec!["env", "start", "word"], vec!["overrides look like +key=value"]),
        (vec!["trace", "show"], vec!["<PATH>..."]),
        (vec!["trace", "show", "absent.jsonl"], vec!["absent.jsonl"]),
        (vec!["demo", "--rollouts", "x"], vec!["invalid value 'x' for '--rollouts <N>'"]),
        (
            vec!["dataset", "collate"],
            vec![
                "`gym dataset` exists in the Python reference, not here",
                "hint: the nearest command",
            ],
        ),
        (
            vec!["eval", "run", "--no-serve", "--input", "a", "--output", "b", &nowhere],
            vec![
                "error: no head server answers at http://127.0.0.1:",
                "caused by: Connection refused",
                "hint: start a fleet with `gym env start`",
            ],
        ),
    ];
    for (arguments, parts) in cases {
        let ended = run(&arguments, folder.path());
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}:\n{said}");
        assert!(ended.stdout.is_empty(), "{arguments:?}: {}", text(&ended.stdout));
        assert_says(&said, &parts);
    }
}

#[test]
fn traces_that_are_not_there_exit_with_1_and_a_reader_that_leaves_with_0() {
    let folder = tempfile::tempdir().expect("a folder");
    let traces = fixture("reference/rollout_trace.jsonl").display().to_string();
    let rows = weather_rows(folder.path()).display().to_string();
    for (arguments, part) in [
        (
            ["trace", "show", &traces, "--rollout", "99-0"],
            "error: no rollout \"99-0\" in these files",
        ),
        (["trace", "show", &traces, "--trace", "abc"], "error: no trace \"abc\""),
        (["trace", "list", &rows, "--json", "-v"], "error: no spans in "),
    ] {
        let ended = run(&arguments, folder.path());
        assert_eq!(ended.status.code(), Some(1), "{arguments:?}: {}", text(&ended.stderr));
        assert_says(&text(&ended.stderr), &[part]);
    }
    for verb in ["list", "show"] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended = output(gym().args(["trace", verb, &traces]).stdout(writer));
        assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
        assert!(!text(&ended.stderr).contains("error"), "{}", text(&ended.stderr));
    }
    let full = std::fs::File::create("/dev/full").expect("the device");
    let ended = output(gym().args(["trace", "list", &traces]).stdout(full));
    assert_eq!(ended.status.code(), Some(2));
    assert_says(
        &text(&ended.stderr),
        &["error: cannot write to stdout\n  caused by: No space left on device"],
    );
}

/// Guarantees: the driver says what it waits for, waits no longer than it was told, and gives every row its line.
#[test]
fn an_agent_that_is_gone_while_its_fleet_lives_fails_the_rollouts_in_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let agent = serde_json::json!({"runner": {"responses_api_agents": {"simple_agent": {
        "entrypoint": "app.py", "host": "127.0.0.1", "port": free_port(),
    }}}});
    let page = serde_json::Value::from(agent.to_string()).to_string();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let head = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let length = page.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{page}"
            );
        }
    });
    let ended = output(
        gym()
            .args(["eval", "run", "--no-serve", "--agent", "runner", "--output", "out.jsonl"])
            .args(["++server_retry_timeout_seconds=2", &format!("++head_server.port={head}")])
            .arg("--input")
            .arg(weather_rows(folder.path()))
            .current_dir(folder.path()),
    );
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert_says(
        &said,
        &[
            "warning: POST http://127.0.0.1:",
            "/run: could not connect to runner at 127.0.0.1:",
            "goes on for up to 2 s",
            "collected: 0 done, 5 failed",
            "5 transport_error",
        ],
    );
    assert_eq!(rows(&folder.path().join("out_failures.jsonl")).len(), 5);
}

/// Processes started by a process.
fn children(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc");
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        after_name.split_whitespace().nth(1) == Some(&parent.to_string())
    };
    pids.filter(is_child).collect()
}

#[test]
fn an_interrupted_demo_says_where_its_rows_are_and_leaves_nothing_running() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = gym();
    command.args(["demo", "--rollouts", "5000", "--out", "demo"]).current_dir(folder.path());
    let running = Running::start(&mut command, folder.path().join("stderr"));
    wait_until("rows", || !rows_so_far(&folder.path().join("demo/rollouts.jsonl")).is_empty());
    let run = children(running.child.id());
    let servers: Vec<u32> = run.iter().flat_map(|pid| children(*pid)).collect();
    assert_eq!((run.len(), servers.len()), (1, 3));
    signal(running.child.id(), "INT");
    let (code, said) = running.ended();
    assert_eq!(code, Some(130), "{said}");
    let place = folder.path().join("demo").display().to_string();
    assert_says(&said, &["interrupted; what was collected is in ", &place]);
    assert_gone(&run);
    assert_gone(&servers);
}
