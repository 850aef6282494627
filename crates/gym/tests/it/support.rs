//! Fleets of real processes for tests, ended with the test that started them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lens_testing::free_port;
use serde_json::Value;

/// The program under test.
pub fn gym() -> Command {
    clean(Path::new(env!("CARGO_BIN_EXE_gym")))
}

/// A program of `examples/`.
pub fn example(name: &str) -> Command {
    clean(&built_example(name))
}

/// Where a program of `examples/` is; built when it is missing, as `cargo test --test it` leaves it.
pub fn built_example(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_gym")).parent().expect("the binary has a folder");
    let program = folder.join("examples").join(name);
    if !program.exists() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "gym", "--example", name]);
        let built = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo runs");
        assert!(built.success(), "the example builds");
    }
    program
}

fn clean(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    // What the machine has set must not decide a test.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("OTEL_") || name.starts_with("NEMO_") || name.starts_with("SLURM_") {
            command.env_remove(name);
        }
    }
    for name in ["TRACEPARENT", "TRACESTATE", "BAGGAGE"] {
        command.env_remove(name);
    }
    command
}

/// A file of `tests/fixtures`.
pub fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path)
}

/// Runs a command to its end and returns what it printed.
pub fn output(command: &mut Command) -> Output {
    command.output().expect("the program runs")
}

/// Text of a stream.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A running `gym env start`.
pub struct Fleet {
    pub child: Child,
    pub head: u16,
    stderr: Arc<Mutex<String>>,
    reader: Option<std::thread::JoinHandle<()>>,
    pub folder: tempfile::TempDir,
}

/// What a fleet is started with.
#[derive(Default)]
pub struct Start<'a> {
    pub arguments: &'a [&'a str],
    pub environment: &'a [(&'a str, &'a str)],
}

impl Fleet {
    /// Starts a fleet and waits until it is ready.
    pub fn start(start: &Start<'_>) -> Self {
        let fleet = Self::spawn(start);
        fleet.wait_for("servers ready! Polling");
        fleet
    }

    /// Starts a fleet without waiting.
    pub fn spawn(start: &Start<'_>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let head = free_port();
        let mut command = gym();
        command
            .args(["env", "start"])
            .args(start.arguments)
            .arg(format!("++head_server={{host: 127.0.0.1, port: {head}}}"))
            .arg("--log-dir")
            .arg(folder.path().join("logs"))
            .current_dir(folder.path())
            // What one test leaves behind is not for another to ship.
            .env(gym_telemetry::env_vars::SPOOL_DIR, folder.path().join("memory"))
            .envs(start.environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(std::fs::File::create(folder.path().join("stdout")).expect("a file"))
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the fleet starts");
        let stderr = Arc::new(Mutex::new(String::new()));
        let mut lines = BufReader::new(child.stderr.take().expect("stderr"));
        let seen = Arc::clone(&stderr);
        let reader = std::thread::spawn(move || {
            let mut line = String::new();
            while lines.read_line(&mut line).unwrap_or(0) > 0 {
                seen.lock().expect("not poisoned").push_str(&line);
                line.clear();
            }
        });
        Self { child, head, stderr, reader: Some(reader), folder }
    }

    /// Everything that the fleet said so far.
    pub fn said(&self) -> String {
        self.stderr.lock().expect("not poisoned").clone()
    }

    /// Waits until the fleet has said `text`.
    pub fn wait_for(&self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.said().contains(text) {
            assert!(Instant::now() < deadline, "{text:?} did not come, but:\n{}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What the fleet wrote to stdout: the telemetry lines of every process of it.
    pub fn stdout(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("stdout")).expect("stdout")
    }

    /// Where its processes keep their buffers.
    pub fn spool(&self) -> PathBuf {
        self.folder.path().join("memory")
    }

    pub fn logs(&self) -> PathBuf {
        self.folder.path().join("logs")
    }

    /// The instances as the head server lists them.
    pub fn instances(&self) -> Vec<Value> {
        let body = get(self.head, "/server_instances");
        serde_json::from_str::<Vec<Value>>(&body).expect("a list")
    }

    /// Pid of an instance.
    pub fn pid(&self, instance: &str) -> u32 {
        u32::try_from(self.number(instance, "pid")).expect("a pid")
    }

    /// Port of an instance.
    pub fn port(&self, instance: &str) -> u16 {
        u16::try_from(self.number(instance, "port")).expect("a port")
    }

    fn number(&self, instance: &str, field: &str) -> u64 {
        let instances = self.instances();
        let entry = instances.iter().find(|entry| entry["process_name"] == instance);
        entry.and_then(|entry| entry[field].as_u64()).expect(field)
    }

    /// An `eval run --no-serve` against this fleet.
    pub fn eval_run(&self, arguments: &[&str]) -> Command {
        let mut command = gym();
        command
            .args(["eval", "run", "--no-serve"])
            .args(arguments)
            .arg(format!("++head_server={{host: 127.0.0.1, port: {}}}", self.head))
            .current_dir(self.folder.path())
            .env(gym_telemetry::env_vars::SPOOL_DIR, self.spool());
        command
    }

    /// Ends the fleet as SIGTERM does and returns its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        signal(self.child.id(), "TERM");
        self.wait()
    }

    /// Waits for the end and returns the exit code.
    pub fn wait(&mut self) -> Option<i32> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.child.try_wait().expect("waits") {
                // What it said last may still be on its way.
                if let Some(reader) = self.reader.take() {
                    reader.join().expect("the reader ends");
                }
                return status.code();
            }
            assert!(Instant::now() < deadline, "the fleet does not end:\n{}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            signal(self.child.id(), "TERM");
            for _ in 0..1500 {
                if !matches!(self.child.try_wait(), Ok(None)) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A `gym observe` on free ports.
pub struct Observer {
    child: Child,
    ready: Value,
}

impl Observer {
    pub fn start(dir: &Path) -> Self {
        Self::start_with(dir, &[])
    }

    pub fn start_with(dir: &Path, arguments: &[&str]) -> Self {
        let mut command = gym();
        command.args(["observe", "--json", "--dir"]).arg(dir).args(arguments);
        command.args(["--listen-grpc", "127.0.0.1:0", "--listen-http", "http://127.0.0.1:0"]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout")).read_line(&mut line).expect("a line");
        Self { child, ready: serde_json::from_str(&line).expect("a document") }
    }

    /// Its URL for `grpc` or `http`.
    pub fn url(&self, transport: &str) -> &str {
        self.ready[transport][0].as_str().expect("a URL")
    }

    /// Ends it as SIGTERM does and returns its exit code.
    pub fn stop(mut self) -> Option<i32> {
        signal(self.child.id(), "TERM");
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to one process.
pub fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status();
    assert!(status.is_ok_and(|status| status.success()), "no process {pid}");
}

/// Whether a process runs. A zombie does not.
pub fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    state.is_some_and(|state| state != "Z" && state != "X")
}

/// Answer to a POST request, with its head.
pub fn post(url: &str, path: &str, content_type: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).expect("connects");
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: {content_type}\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).expect("sends");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("reads");
    answer
}

/// Body of a GET request to a local port.
pub fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connects");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("sends");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("reads");
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
}

/// Five rows of the weather environment, written to `folder`.
pub fn weather_rows(folder: &Path) -> PathBuf {
    let path = folder.join("rows.jsonl");
    let mut file = std::fs::File::create(&path).expect("a file");
    for city in ["Oslo", "Lima", "Cairo", "Quito", "Turin"] {
        let row = serde_json::json!({"responses_create_params": {
            "input": [{"role": "user", "content": format!("Do I need a coat in {city}?")}],
            "tools": [{
                "type": "function", "name": "get_weather", "description": "Weather of a city",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                               "required": ["city"], "additionalProperties": false},
                "strict": true,
            }],
        }});
        writeln!(file, "{row}").expect("writes");
    }
    path
}

/// Lines of a JSONL file.
pub fn rows(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}
