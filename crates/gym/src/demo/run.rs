//! The run of a demo: `gym eval run` under a guard, its output into the demo's log.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gym_telemetry::{env_vars, semconv};
use lens::env_vars::{BAGGAGE, TRACEPARENT, TRACESTATE};
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpSocket;

use super::Workspace;
use crate::args::DemoArgs;

/// What the run said last is shown when it fails.
const LAST_WORDS: usize = 30;
/// How often progress is looked at.
const POLL: Duration = Duration::from_millis(50);
/// Log of the process that starts the servers and drives the rollouts.
const ORCHESTRATOR_LOG: &str = "orchestrator.log";
/// Model latencies: half are faster than this, and the tail is heavy.
const LATENCY_MEDIAN_MILLIS: u32 = 40;
const LATENCY_SIGMA: f64 = 0.8;

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// Whether some rollouts failed.
    pub some_failed: bool,
    /// Whether Ctrl-C or SIGTERM ended it before its time.
    pub was_interrupted: bool,
    /// From the start of the first process to the end of the last.
    pub elapsed: Duration,
}

/// Why there was no run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No process, no port, no log.
    #[error("cannot start the run")]
    Start(#[source] io::Error),
    /// It ended with an error.
    #[error("the run failed ({status}); its last words:\n{last_words}")]
    Failed {
        /// How the process ended.
        status: ExitStatus,
        /// The last lines of its stderr.
        last_words: String,
    },
}

/// Starts the servers, collects, stops them. `progress` is told how many rollouts are done.
pub fn collect(
    args: &DemoArgs,
    workspace: &Workspace,
    mut progress: impl FnMut(usize),
) -> Result<Outcome, RunError> {
    let began = Instant::now();
    let (_held, head_port) = head_port().map_err(RunError::Start)?;
    let mut command = command(args, workspace, head_port).map_err(RunError::Start)?;
    let mut child = command.spawn().map_err(RunError::Start)?;
    let log = workspace.logs().join(ORCHESTRATOR_LOG);
    let log = File::create(log).map_err(RunError::Start)?;
    let last_words = Arc::new(Mutex::new(VecDeque::new()));
    let pumps = pump(&mut child, &Arc::new(Mutex::new(log)), &last_words);

    let output = workspace.output();
    let mut counter = LineCounter { path: output, offset: 0, lines: 0 };
    let interrupted = interruption();
    let mut told = false;
    let status = loop {
        if interrupted.load(Ordering::Relaxed) && !told {
            told = true;
            interrupt(&child);
        }
        match child.try_wait().map_err(RunError::Start)? {
            Some(status) => break status,
            None => thread::sleep(POLL),
        }
        progress(counter.count());
    };
    for pump in pumps {
        let _ = pump.join();
    }
    progress(counter.count());
    match status.code() {
        Some(code @ (0 | 1)) => {
            Ok(Outcome { some_failed: code == 1, was_interrupted: false, elapsed: began.elapsed() })
        }
        _ if told => {
            Ok(Outcome { some_failed: false, was_interrupted: true, elapsed: began.elapsed() })
        }
        _ => {
            let last_words = last_words.lock().unwrap_or_else(PoisonError::into_inner);
            let last_words: Vec<String> =
                last_words.iter().map(|line| format!("  {line}")).collect();
            Err(RunError::Failed { status, last_words: last_words.join("\n") })
        }
    }
}

/// Becomes true at Ctrl-C or SIGTERM.
fn interruption() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    // Without a thread or a runtime, signals end this process, and the run with it.
    let _ = thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let _ = crate::commands::block_on(async {
            crate::fleet::interrupted().await?;
            raised.store(true, Ordering::Relaxed);
            Ok(())
        });
    });
    flag
}

/// The run ends as it does at Ctrl-C.
fn interrupt(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::INT);
    }
}

/// A port for the head server, whose default port may belong to another fleet. As long as the socket is held, Linux
/// gives it to nobody who asks for any port, but to who names it.
fn head_port() -> io::Result<(Option<TcpSocket>, u16)> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let port = socket.local_addr()?.port();
    Ok((cfg!(target_os = "linux").then_some(socket), port))
}

fn command(args: &DemoArgs, workspace: &Workspace, head_port: u16) -> io::Result<Command> {
    let program = std::env::current_exe()?;
    let environment = &args.environment;
    let model = "++policy_model.responses_api_models.scripted_model";

    let mut command = Command::new(&program);
    // When the demo is gone, its standard input is at its end, and the guard stops the run.
    command.args(["guard", "--"]).arg(&program);
    command.args(["eval", "run", "--model-type", "scripted_model"]);
    command.args(["--resources-server", environment]);
    command.args(["--agent", &format!("{environment}_simple_agent")]);
    command.arg("--input").arg(workspace.input());
    command.arg("--output").arg(workspace.output());
    command.arg("--log-dir").arg(workspace.logs());
    let mut observe = OsString::from("--observe=");
    observe.push(workspace.store());
    command.arg(observe);
    command.args(["--concurrency", &args.concurrency.to_string()]);
    command.arg(format!("++head_server.port={head_port}"));
    command.arg(format!("{model}.seed={}", args.seed));
    command.arg(format!("{model}.latency.kind=lognormal"));
    command.arg(format!("{model}.latency.median_ms={LATENCY_MEDIAN_MILLIS}"));
    command.arg(format!("{model}.latency.sigma={LATENCY_SIGMA}"));
    command.arg(format!("{model}.engine.queue_share=0.15"));
    command.arg(format!("{model}.engine.prefill_share=0.25"));
    command.current_dir(workspace.directory());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());

    let foreign = [env_vars::GYM_OTEL_PREFIX, env_vars::LENS_PREFIX, env_vars::OTEL_PREFIX];
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| foreign.iter().any(|prefix| name.starts_with(prefix))) {
            command.env_remove(name);
        }
    }
    for name in [TRACEPARENT, TRACESTATE, BAGGAGE] {
        command.env_remove(name);
    }
    command.env(env_vars::SPAN_GROUPS, "all");
    Ok(command)
}

/// Two threads that write the run's output into its log. Lines of servers are left out: they are
/// in the servers' own logs.
fn pump(
    child: &mut Child,
    log: &Arc<Mutex<File>>,
    last_words: &Arc<Mutex<VecDeque<String>>>,
) -> Vec<thread::JoinHandle<()>> {
    let own = [
        format!("\"{}\":\"{}\"", semconv::SERVER_TYPE, semconv::value::ORCHESTRATOR),
        format!("\"{}\": \"{}\"", semconv::SERVER_TYPE, semconv::value::ORCHESTRATOR),
    ];
    let mut pumps = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let log = Arc::clone(log);
        pumps.push(thread::spawn(move || {
            lines(stdout, |line| {
                if own.iter().any(|own| memchr::memmem::find(line, own.as_bytes()).is_some()) {
                    write_line(&log, line);
                }
            });
        }));
    }
    if let Some(stderr) = child.stderr.take() {
        let (log, last_words) = (Arc::clone(log), Arc::clone(last_words));
        pumps.push(thread::spawn(move || {
            lines(stderr, |line| {
                write_line(&log, line);
                let mut words = last_words.lock().unwrap_or_else(PoisonError::into_inner);
                words.push_back(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
                if words.len() > LAST_WORDS {
                    words.pop_front();
                }
            });
        }));
    }
    pumps
}

fn lines(stream: impl Read, mut each: impl FnMut(&[u8])) {
    let mut reader = BufReader::with_capacity(64 * 1024, stream);
    let mut line = Vec::new();
    while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
        each(&line);
        line.clear();
    }
}

/// A full disk costs the log, not the run.
fn write_line(log: &Mutex<File>, line: &[u8]) {
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = log.write_all(line);
    if !line.ends_with(b"\n") {
        let _ = log.write_all(b"\n");
    }
}

/// Counts the lines of a growing file without reading any of it twice.
struct LineCounter {
    path: PathBuf,
    offset: u64,
    lines: usize,
}

impl LineCounter {
    fn count(&mut self) -> usize {
        let read = || -> io::Result<Vec<u8>> {
            use std::io::Seek as _;
            let mut file = File::open(&self.path)?;
            file.seek(io::SeekFrom::Start(self.offset))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        if let Ok(bytes) = read() {
            self.offset += bytes.len() as u64;
            self.lines += memchr::memchr_iter(b'\n', &bytes).count();
        }
        self.lines
    }
}
