//! The supervisor: one process per instance, their output, their health, their end.
//!
//! [`Fleet::start`] returns when every server answers; [`Fleet::stop`] ends them
//! all. A server ends when its supervisor does, however that comes about: each
//! holds a pipe whose other end lives in the supervisor alone. Dropping a fleet
//! closes these pipes and does not wait.

mod announce;
mod child;
mod endpoints;
mod error;
pub mod guard;
mod handover;
pub mod head;
mod memory;
mod port_holder;
pub mod probe;
mod pump;
mod reference_lines;
mod start;
mod trace;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gym_server::config::GlobalConfig;
use rustix::process::Signal;
use tokio::sync::{Notify, watch};

pub use endpoints::{TIMEOUT_KEY as MODEL_WAIT_KEY, timeout as model_wait};
pub use error::{FleetError, Obituary};
pub use start::{START_LIMIT, interrupted};

use crate::printer::Printer;
use child::Child;

/// How long servers may take to end after SIGTERM, their last flush included.
pub const STOP_GRACE: Duration = Duration::from_secs(8);
/// How long a killed process may take to be reaped.
const REAP_LIMIT: Duration = Duration::from_secs(2);
/// How long it may take to find what dead servers left.
const ADOPT_LIMIT: Duration = Duration::from_secs(2);
/// How long our own telemetry may take to flush.
pub const FLUSH_MILLIS: u64 = 5_000;

/// How a fleet behaves towards the outside.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    /// Directory of `<instance>.log`; the key `nemo_gym_log_dir` when `None`.
    pub log_dir: Option<PathBuf>,
    /// Whether stdout lines of the servers go to our stdout.
    pub forwards_stdout: bool,
    /// Whether stderr lines of the servers go to our stderr.
    pub forwards_stderr: bool,
    /// Whether progress and the list of the servers are shown.
    pub announces: bool,
    /// Whether model endpoints are waited for.
    pub waits_for_models: bool,
    /// When loading the config began and ended, in nanoseconds since the epoch.
    pub config_loaded_nanos: Option<(u64, u64)>,
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            log_dir: None,
            forwards_stdout: true,
            forwards_stderr: true,
            announces: true,
            waits_for_models: true,
            config_loaded_nanos: None,
        }
    }
}

/// Servers that run.
#[derive(Debug)]
pub struct Fleet {
    config: GlobalConfig,
    children: Vec<Child>,
    exits: Arc<watch::Sender<()>>,
    head: head::Server,
    closed_stdout: Arc<Notify>,
    memory: Option<memory::Sampler>,
    printer: Printer,
}

/// What stopping a fleet came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopReport {
    /// Instances that did not end in time and were killed.
    pub killed: Vec<String>,
    /// Instances that did not even end then.
    pub unreaped: Vec<String>,
}

impl Fleet {
    /// Starts every instance of `config` and waits until all of them answer.
    ///
    /// Sets telemetry up for this process, as `orchestrator`.
    ///
    /// # Errors
    ///
    /// [`FleetError`]; whatever had been started is stopped by then.
    /// [`FleetError::Interrupted`] on Ctrl-C or SIGTERM.
    pub async fn start(
        config: GlobalConfig,
        options: FleetOptions,
        printer: &Printer,
    ) -> Result<Self, FleetError> {
        start::run(config, options, printer).await
    }

    /// The config the servers were started with.
    pub fn config(&self) -> &GlobalConfig {
        &self.config
    }

    /// Waits until a server ends by itself, and says how.
    pub async fn wait_for_failure(&self) -> FleetError {
        let mut exits = self.exits.subscribe();
        loop {
            if let Some(dead) = self.children.iter().find(|child| child.exit_status().is_some()) {
                // What it left is on its way while the others are told to stop.
                tokio::task::spawn_blocking(|| ship_dead(Duration::ZERO));
                return FleetError::Died {
                    instance: dead.instance.clone(),
                    source: dead.obituary(),
                };
            }
            // The sender is ours: this waits for the next exit.
            let _ = exits.changed().await;
        }
    }

    /// Waits until whoever reads our stdout has gone.
    pub async fn stdout_closed(&self) {
        self.closed_stdout.notified().await;
    }

    /// Stops every server, then flushes and ends the telemetry of this process.
    ///
    /// Spans of the caller must have ended. All servers get SIGTERM at once;
    /// what is left after eight seconds is killed.
    pub async fn stop(self) -> StopReport {
        let Self { mut children, head, memory, printer, .. } = self;
        // Before anybody is told to end: afterwards there is nothing left to measure.
        if let Some(memory) = memory {
            memory.stop().await;
        }
        trace::active_servers(0);
        let report = stop_children(&mut children).await;
        drop(head);
        for (names, what) in
            [(&report.killed, "had to be killed"), (&report.unreaped, "did not end")]
        {
            if !names.is_empty() {
                printer.warn(&format!("{} {what}", names.join(", ")));
            }
        }
        flush().await;
        report
    }
}

/// Ships what dead servers left, then ends the telemetry of this process, without holding up the runtime.
async fn flush() {
    let end = || {
        ship_dead(ADOPT_LIMIT);
        gym_telemetry::shutdown_telemetry(FLUSH_MILLIS);
    };
    let _ = tokio::task::spawn_blocking(end).await;
}

/// Takes over the spans of servers that did not come to send them; waits so long until they are found. A server that
/// ended by itself left nothing, so this is a look into a folder.
fn ship_dead(limit: Duration) {
    if let Some(handle) = gym_telemetry::get_telemetry() {
        handle.adopt_dead(limit);
    }
}

async fn stop_children(children: &mut [Child]) -> StopReport {
    for child in &*children {
        child.signal(Signal::TERM);
    }
    let deadline = Instant::now() + STOP_GRACE;
    let mut report = StopReport::default();
    for child in &mut *children {
        if !ended_by(child, deadline).await {
            report.killed.push(child.instance.clone());
        }
    }
    if !report.killed.is_empty() {
        for child in &*children {
            child.signal(Signal::KILL);
        }
        let deadline = Instant::now() + REAP_LIMIT;
        for child in &mut *children {
            if !ended_by(child, deadline).await {
                report.unreaped.push(child.instance.clone());
            }
        }
    }
    // Only now: a closed pipe is an order to end, and SIGTERM was the polite one.
    children.iter_mut().for_each(Child::let_go);
    report
}

async fn ended_by(child: &mut Child, deadline: Instant) -> bool {
    tokio::time::timeout_at(deadline.into(), child.ended()).await.is_ok()
}
