//! What processes keep, or left behind, in the folders of [`SpoolSettings`](crate::config::SpoolSettings).

use std::path::PathBuf;

/// The buffer of one process and one signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spool {
    /// The file.
    pub path: PathBuf,
    /// The run that it belongs to.
    pub run_id: String,
    /// The process.
    pub pid: u32,
    /// Whether its owner still runs, or somebody is shipping what it left.
    pub is_alive: bool,
    /// Log records in place of spans.
    pub is_logs: bool,
    /// Spans (or log records) that ended and were not acknowledged.
    pub waiting: usize,
    /// Spans that were open.
    pub open: usize,
    /// When the owner was last seen alive, in nanoseconds since the epoch.
    pub seen_nanos: u64,
}

/// A request that could not be delivered, in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// The file.
    pub path: PathBuf,
    /// The run that it belongs to.
    pub run_id: String,
    /// Whether its owner still runs, and will send it itself.
    pub is_alive: bool,
    /// Log records in place of spans.
    pub is_logs: bool,
    /// Spans (or log records) in it.
    pub items: usize,
    /// Bytes of the file.
    pub bytes: u64,
}

/// The pipeline of one process and one signal, as its exporter's thread last counted.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineState {
    /// The file.
    pub path: PathBuf,
    /// The run that it belongs to.
    pub run_id: String,
    /// `service.name` of the process.
    pub service_name: String,
    /// The process.
    pub pid: u32,
    /// Whether its owner still runs.
    pub is_alive: bool,
    /// Log records in place of spans.
    pub is_logs: bool,
    /// When that was, in nanoseconds since the epoch.
    pub seen_nanos: u64,
    /// What became of everything that ended; `None` when the owner never said.
    pub counts: Option<crate::PipelineSnapshot>,
}
