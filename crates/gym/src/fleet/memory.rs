//! Memory of the servers and of the host, sampled while a fleet runs.
//!
//! One thread of the supervisor looks at all servers at once: a sample is one walk through `/proc`, whatever the
//! number of servers, and then the memory of their processes only. It rests nine times as long as a sample took, if
//! that is longer than the interval, so that it never takes more than a tenth of a core.
//!
//! Off, there is no thread and nothing is read.

mod process;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use gym_server::config::GlobalConfig;
use gym_telemetry::host_memory::{HostMemory, PROC, UNSUPPORTED};
use gym_telemetry::semconv::value::memory_type;
use gym_telemetry::semconv::{self, sampled, unit};
use gym_telemetry::{MemoryProfilingConfig, memory_profiling_config_from_env, notice};
use lens::Value;
use lens::metrics::{Gauge, Observations};
use tokio::sync::oneshot;

use super::child::Child;
use process::{Memory, Table};

/// How long the last sample may hold up the end of a fleet.
const LAST_SAMPLE_LIMIT: Duration = Duration::from_secs(2);
/// A sample's time, this many times over, is the least pause after it.
const REST: u32 = 9;

/// Starts sampling when the settings ask for it and metrics are on.
pub fn start(config: &GlobalConfig, children: &[Child]) -> Option<Sampler> {
    let profiling = memory_profiling_config_from_env(&MemoryProfilingConfig::default());
    if !profiling.enabled || !lens::metrics::is_enabled() {
        return None;
    }
    let types: HashMap<&str, &'static str> = config
        .instances()
        .iter()
        .map(|instance| (instance.name.as_str(), instance.server_type.as_str()))
        .collect();
    let server = |child: &Child| {
        let server_type = types.get(child.instance.as_str()).copied().unwrap_or_default();
        Server::new(&child.instance, server_type, child.pid)
    };
    let servers = children.iter().map(server).collect();
    let interval = Duration::try_from_secs_f64(profiling.interval_seconds).unwrap_or(Duration::MAX);
    start_on(std::env::consts::OS, servers, interval, notice)
}

fn start_on(
    os: &str,
    servers: Vec<Server>,
    interval: Duration,
    say: impl Fn(&str),
) -> Option<Sampler> {
    if os != "linux" {
        say(UNSUPPORTED);
        return None;
    }
    match Sampler::spawn(servers, interval, PathBuf::from(PROC)) {
        Ok(sampler) => Some(sampler),
        Err(error) => {
            say(&format!("memory is not sampled: no thread: {error}"));
            None
        }
    }
}

/// The thread that samples; ends without a last sample when dropped.
#[derive(Debug)]
pub struct Sampler {
    stop: mpsc::Sender<()>,
    done: oneshot::Receiver<()>,
}

impl Sampler {
    fn spawn(servers: Vec<Server>, interval: Duration, proc: PathBuf) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let (when_done, done) = oneshot::channel();
        *report() = Report { servers, host: None };
        observe();
        std::thread::Builder::new().name("gym-memory".to_owned()).spawn(move || {
            sample_until(&proc, interval, &stopped);
            let _ = when_done.send(());
        })?;
        Ok(Self { stop, done })
    }

    /// Takes a last sample; waits for it, but not for ever.
    pub async fn stop(self) {
        // Without the thread there is nothing to wait for, which the other end says.
        let _ = self.stop.send(());
        let _ = tokio::time::timeout(LAST_SAMPLE_LIMIT, self.done).await;
    }
}

fn sample_until(proc: &Path, interval: Duration, stopped: &mpsc::Receiver<()>) {
    loop {
        let began = Instant::now();
        sample(proc, report);
        let pause = interval.max(began.elapsed() * REST);
        match stopped.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) => return sample(proc, report),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Reads first and takes the lock then: an export never waits for a sample.
fn sample<'a>(proc: &Path, report: impl Fn() -> MutexGuard<'a, Report>) {
    let host = HostMemory::read(proc);
    let Some(table) = Table::read(proc) else { return };
    let roots: Vec<u32> = report().servers.iter().map(|server| server.pid).collect();
    let trees: HashMap<u32, (u64, Tree)> = roots
        .into_iter()
        .filter_map(|root| Some((root, (table.started(root)?, Tree::sum(proc, table.tree(root))))))
        .collect();
    let mut report = report();
    report.host = host;
    for server in &mut report.servers {
        server.update(trees.get(&server.pid).copied());
    }
}

/// One sample of a server with everything below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tree {
    processes: u64,
    rss_bytes: u64,
    /// Only when it is known of every process: a part of it would look like less.
    pss_bytes: Option<u64>,
}

impl Tree {
    fn sum(proc: &Path, pids: Vec<u32>) -> Self {
        let mut sum = Self { pss_bytes: Some(0), ..Self::default() };
        // One that ended meanwhile is no part of it any more.
        for Memory { rss_bytes, pss_bytes } in
            pids.into_iter().filter_map(|pid| Memory::read(proc, pid))
        {
            sum.processes += 1;
            sum.rss_bytes += rss_bytes;
            sum.pss_bytes = sum.pss_bytes.zip(pss_bytes).map(|(sum, more)| sum + more);
        }
        sum
    }
}

/// A server with what its samples showed.
#[derive(Clone, Debug)]
struct Server {
    pid: u32,
    attributes: Vec<(&'static str, Value)>,
    /// When its process started, to know it from another one of the same number.
    started: Option<u64>,
    now: Option<Tree>,
    peak: Tree,
    is_gone: bool,
}

impl Server {
    fn new(name: &str, server_type: &'static str, pid: u32) -> Self {
        let attributes = vec![
            (semconv::SERVER_NAME, Value::from(name)),
            (semconv::SERVER_TYPE, Value::from_static(server_type)),
            (semconv::PROCESS_PID, Value::from(pid)),
        ];
        let peak = Tree::default();
        Self { pid, attributes, started: None, now: None, peak, is_gone: false }
    }

    /// `None` when there is no such process.
    fn update(&mut self, seen: Option<(u64, Tree)>) {
        let own = seen.filter(|(started, _)| self.started.is_none_or(|known| known == *started));
        self.is_gone |= own.is_none();
        self.now = own.map(|(_, tree)| tree).filter(|tree| !self.is_gone && tree.processes > 0);
        if let Some((started, tree)) = own {
            self.started = Some(started);
            self.peak.rss_bytes = self.peak.rss_bytes.max(tree.rss_bytes);
            self.peak.pss_bytes = self.peak.pss_bytes.max(tree.pss_bytes);
        }
    }

    fn memory(&self, tree: Tree) -> Observations<f64> {
        let of_type = |(name, bytes): (&'static str, u64)| {
            let mut attributes = self.attributes.clone();
            attributes.push((semconv::MEMORY_TYPE, Value::from_static(name)));
            (attributes, bytes as f64)
        };
        let pss = tree.pss_bytes.map(|bytes| (memory_type::PSS, bytes));
        [Some((memory_type::RSS, tree.rss_bytes)), pss].into_iter().flatten().map(of_type).collect()
    }
}

/// What the next export says.
#[derive(Debug, Default)]
struct Report {
    servers: Vec<Server>,
    host: Option<HostMemory>,
}

impl Report {
    fn usage(&self) -> Observations<f64> {
        self.servers
            .iter()
            .filter_map(|server| Some(server.memory(server.now?)))
            .flatten()
            .collect()
    }

    /// A server that is gone tells its peak once more, because that may be what ended it, and is forgotten.
    fn take_peaks(&mut self) -> Observations<f64> {
        let seen = self.servers.iter().filter(|server| server.started.is_some());
        let peaks = seen.flat_map(|server| server.memory(server.peak)).collect();
        self.servers.retain(|server| !server.is_gone);
        peaks
    }

    fn processes(&self) -> Observations<f64> {
        let count =
            |server: &Server| Some((server.attributes.clone(), server.now?.processes as f64));
        self.servers.iter().filter_map(count).collect()
    }

    fn host(&self, bytes: fn(&HostMemory) -> u64) -> Observations<f64> {
        self.host.iter().map(|host| (Vec::new(), bytes(host) as f64)).collect()
    }
}

fn report() -> MutexGuard<'static, Report> {
    static REPORT: Mutex<Report> = Mutex::new(Report { servers: Vec::new(), host: None });
    REPORT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Instruments live as long as the process, so they are made once, by the first fleet that is sampled.
fn observe() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let (bytes, process) = (unit::BYTES, unit::PROCESS);
        let usage = "Memory of a server and everything below it";
        Gauge::observable(sampled::SERVER_MEMORY_USAGE, bytes, usage, || report().usage());
        let most = "The most memory that any sample of a server showed";
        Gauge::observable(sampled::SERVER_MEMORY_SAMPLED_PEAK, bytes, most, || {
            report().take_peaks()
        });
        let processes = "Processes of a server";
        Gauge::observable(sampled::SERVER_PROCESSES, process, processes, || report().processes());
        let used = "Memory of the host in use";
        Gauge::observable(sampled::HOST_MEMORY_USED, bytes, used, || {
            report().host(HostMemory::used_bytes)
        });
        let available = "Memory of the host that can be had without swapping";
        Gauge::observable(sampled::HOST_MEMORY_AVAILABLE, bytes, available, || {
            report().host(|host| host.available_bytes)
        });
        Gauge::observable(sampled::HOST_MEMORY_TOTAL, bytes, "Memory of the host", || {
            report().host(|host| host.total_bytes)
        });
    });
}
