//! Shipping what dead processes left, by a process that has nothing of its own to ship.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use lens::{
    PipelineSnapshot, SetupError, TelemetryHandle,
    config::{BatchSettings, ExportSettings, ExporterKind},
};

use crate::{
    pipeline::{Process, lens_config, ring_folder},
    resolve::Resolved,
    run_id::RunId,
};

/// Name of the folder for undeliverable requests below the config's `cache_dir`.
pub const OVERFLOW_FOLDER: &str = "spool";
/// How often it is looked whether all is out.
const LOOK: Duration = Duration::from_millis(200);
/// How long the end of the exporter's thread is waited for.
const STOP_LIMIT: Duration = Duration::from_secs(2);
/// The smallest buffer: this process ends no span.
const BUFFER_BYTES: usize = 64 << 10;

/// Where processes with these settings keep their buffers.
pub fn spool_dir(settings: &Resolved) -> PathBuf {
    ring_folder(settings)
}

/// What a process that has shut down lost and what it leaves for others to deliver, as one line.
pub(crate) fn shortfall(handle: &TelemetryHandle, overflow_dir: Option<&Path>) -> Option<String> {
    let (spans, logs) = (handle.snapshot(), handle.log_snapshot());
    let mut parts = Vec::new();
    for (what, snapshot) in [("span", &spans), ("log record", &logs)] {
        let counted = |count: u64| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        if snapshot.rejected > 0 {
            parts.push(format!("the receiver rejected {}", counted(snapshot.rejected)));
        }
        if !snapshot.dropped.is_empty() {
            let reasons =
                snapshot.dropped.iter().map(|(reason, count)| format!("{reason}: {count}"));
            let reasons: Vec<String> = reasons.collect();
            let lost = snapshot.dropped_total();
            let verb = if lost == 1 { "was" } else { "were" };
            parts.push(format!("{} {verb} lost ({})", counted(lost), reasons.join(", ")));
        }
    }
    parts.extend(undelivered([spans.spooled, logs.spooled], overflow_dir));
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// What waits for others to deliver it, in words.
fn undelivered([spans, logs]: [u64; 2], overflow_dir: Option<&Path>) -> Option<String> {
    let waiting = |logs: bool| -> u64 {
        let left = overflow_dir.map(lens::leftovers).unwrap_or_default();
        let left = left.iter().filter(|left| !left.is_alive && left.is_logs == logs);
        left.map(|left| left.items as u64).sum()
    };
    let (spans, logs) = (spans.max(waiting(false)), logs.max(waiting(true)));
    let what = match (spans, logs) {
        (0, 0) => return None,
        (spans, 0) => format!("{spans} spans"),
        (0, logs) => format!("{logs} log records"),
        (spans, logs) => format!("{spans} spans and {logs} log records"),
    };
    let place = overflow_dir.map_or_else(
        || "in this process's buffer".to_owned(),
        |dir| format!("below {}", dir.display()),
    );
    Some(format!(
        "{what} could not be delivered; they are kept {place}, and `gym spool recover` or the next \
         start delivers them"
    ))
}

/// What became of what the dead left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shipped {
    /// Spans that a receiver took.
    pub spans: u64,
    /// Log records that a receiver took.
    pub logs: u64,
    /// Spans and log records that a receiver refused, or that could not be read; they are gone.
    pub refused: u64,
}

/// Ships what dead processes left in `spool_dir` and `overflow_dir`, over OTLP as `settings` say,
/// whether or not they switch telemetry on. Sets telemetry up in this process, which is once.
///
/// Returns when all is out, when an export failed, or at `timeout`; what was not delivered is
/// where it was.
///
/// # Errors
///
/// Those of [`lens::setup_telemetry`].
pub fn ship_dead(
    settings: &Resolved,
    spool_dir: &Path,
    overflow_dir: Option<&Path>,
    timeout: Duration,
) -> Result<Shipped, SetupError> {
    let process = Process { server_name: Some("spool"), overflow_dir, ..Process::default() };
    let mut config = lens_config(settings, process, &RunId::generate());
    config.enabled = true;
    config.span_groups = String::new();
    config.export = ExportSettings::default();
    config.traces_exporter = ExporterKind::Otlp;
    config.logs_exporter = ExporterKind::Otlp;
    config.metrics_exporter = ExporterKind::None;
    config.spool.ring_folder = Some(spool_dir.to_owned());
    config.spool.ships_dead = true;
    let own = |batch| BatchSettings { max_queue_bytes: BUFFER_BYTES, ..batch };
    config.batch = own(config.batch);
    config.log_batch = own(config.log_batch);

    let deadline = Instant::now() + timeout;
    let left = || deadline.saturating_duration_since(Instant::now());
    let handle = lens::setup_telemetry(config)?;
    handle.adopt_dead(left());
    let failed = |snapshot: PipelineSnapshot| snapshot.export_failures > snapshot.unrecovered;
    let mut all_out = false;
    while !all_out && !left().is_zero() {
        all_out = handle.force_flush(left().min(LOOK));
        if failed(handle.snapshot()) || failed(handle.log_snapshot()) {
            break;
        }
    }
    // What could not be sent is safe where it is; nobody else gets it before this process lets go.
    if !handle.shutdown(LOOK) {
        handle.shutdown(STOP_LIMIT);
    }
    let (spans, logs) = (handle.snapshot(), handle.log_snapshot());
    Ok(Shipped {
        spans: spans.recovered,
        logs: logs.recovered,
        refused: spans.unrecovered + logs.unrecovered,
    })
}
