//! Whether the telemetry of these settings arrives: looked at, sent, and put into words.
//!
//! It asks in the order in which things go wrong: is telemetry on, is a signal on, does an export of it arrive. What is
//! sent goes through the client that servers use, so that what is said here is what happens there.

pub mod report;

use std::path::PathBuf;
use std::time::Duration;

use gym_telemetry::{Exporter, Origin, Protocol, Resolved, Row, Signal, env_vars, groups};
use lens::{Delivery, Probe};

use crate::spool::Place;

/// Everything that was found.
#[derive(Debug)]
pub struct Report {
    /// Whether telemetry is on at all.
    pub is_on: bool,
    /// Who decided that.
    pub because: String,
    /// What switches it on.
    pub switch: Option<String>,
    /// Settings that somebody set, but for those that each signal shows.
    pub settings: Vec<Row>,
    /// Span groups that are on.
    pub groups: Vec<&'static str>,
    /// What looks odd.
    pub warnings: Vec<String>,
    /// The three of them.
    pub signals: Vec<SignalReport>,
    /// Where spans wait.
    pub spool: SpoolReport,
}

/// One signal.
#[derive(Debug)]
pub struct SignalReport {
    /// Which.
    pub signal: Signal,
    /// Where it goes over OTLP, without credentials.
    pub endpoint: String,
    /// Who decided that.
    pub endpoint_origin: Origin,
    /// How.
    pub protocol: Protocol,
    /// Who decided that.
    pub protocol_origin: Origin,
    /// What was found.
    pub found: Found,
}

/// What was found about a signal.
#[derive(Debug)]
pub enum Found {
    /// It is not recorded.
    Off(Origin),
    /// It would be recorded, but all telemetry is off.
    NotSent,
    /// It goes to the stdout of its process, which needs nobody.
    Console(Origin),
    /// It goes over OTLP, and this came of a test.
    Sent(Probe),
}

/// Where spans wait for a receiver that is away.
#[derive(Debug)]
pub struct SpoolReport {
    /// The folder of buffers.
    pub dir: PathBuf,
    /// Why nothing can be written there.
    pub trouble: Option<String>,
    /// Bytes that are free there.
    pub free_bytes: Option<u64>,
    /// Processes that run and keep their spans there.
    pub living: usize,
    /// Spans and log records of dead processes, which nobody sends by itself.
    pub left: usize,
}

impl Report {
    /// Whether whatever is recorded arrives, and something is.
    pub fn is_delivered(&self) -> bool {
        let is_there = |signal: &SignalReport| match &signal.found {
            Found::Off(_) => None,
            Found::NotSent => Some(false),
            Found::Console(_) => Some(true),
            Found::Sent(probe) => Some(probe.delivery == Delivery::Delivered),
        };
        let found: Vec<bool> = self.signals.iter().filter_map(is_there).collect();
        self.is_on && !found.is_empty() && found.into_iter().all(|is_there| is_there)
    }
}

/// Looks at everything, and sends a test export of every signal that goes over OTLP, each within `limit`.
///
/// # Errors
///
/// When the thread that sends cannot be started.
pub fn examine(
    place: &Place,
    block_warnings: &[String],
    limit: Duration,
) -> Result<Report, lens::SetupError> {
    let settings = &place.settings;
    let is_on = settings.is_enabled() && lens::COMPILED_IN;
    let probes = if is_on { gym_telemetry::probe(settings, limit)? } else { Vec::new() };
    let resolved = groups::resolve(&settings.span_groups);
    let mut report = Report {
        is_on,
        because: settings.enabled.origin.to_string(),
        switch: (!is_on).then(|| switch(settings)),
        settings: settings.rows().into_iter().filter(is_worth_showing).collect(),
        groups: resolved.names().to_vec(),
        warnings: block_warnings.to_vec(),
        signals: Signal::ALL.map(|signal| of_signal(settings, signal, is_on, &probes)).into(),
        spool: spool(place),
    };
    report.warnings.extend(settings.faults.iter().map(ToString::to_string));
    report.warnings.extend(settings.ignored_warnings());
    report.warnings.extend(resolved.warnings().iter().cloned());
    warn_of_mismatches(settings, &mut report);
    Ok(report)
}

/// What somebody decided, but for what is shown with each signal.
fn is_worth_showing(row: &Row) -> bool {
    let is_decided = !matches!(row.origin, Origin::Default | Origin::Generated);
    let is_shown = ["otlp_endpoint", "otlp_protocol", "span_groups.resolved", "enabled"]
        .iter()
        .any(|name| row.name == *name || row.name.ends_with(&format!(".{name}")));
    is_decided && !is_shown
}

/// What has to be changed for telemetry to be on.
fn switch(settings: &Resolved) -> String {
    if !lens::COMPILED_IN {
        return "this program was built without telemetry; build it with the feature `telemetry`"
            .to_owned();
    }
    if settings.off_warning().is_some() {
        return "mend the variables below: one that cannot be read switches telemetry off"
            .to_owned();
    }
    match settings.enabled.origin {
        Origin::Variable(name) if name == env_vars::OTEL_SDK_DISABLED => {
            format!("unset {name}: it beats every other switch")
        }
        Origin::Variable(name) => format!("set {name}=1"),
        Origin::Block => {
            format!(
                "write `enabled: true` in the `telemetry:` block, or set {}=1",
                env_vars::ENABLED
            )
        }
        _ => format!(
            "set {}=1, or write `telemetry: {{enabled: true}}` in a config",
            env_vars::ENABLED
        ),
    }
}

fn of_signal(settings: &Resolved, signal: Signal, is_on: bool, probes: &[Probe]) -> SignalReport {
    let asked = settings.signal(signal);
    let otlp = settings.otlp.of(signal);
    let probe = probes.iter().find(|probe| is_same(probe.signal, signal));
    let found = match (asked.enabled.value, asked.exporter.value, probe) {
        (false, ..) => Found::Off(asked.enabled.origin),
        (true, Exporter::None, _) => Found::Off(asked.exporter.origin),
        (true, Exporter::Console, _) if is_on => Found::Console(asked.exporter.origin),
        (true, Exporter::Otlp, Some(probe)) => Found::Sent(probe.clone()),
        _ => Found::NotSent,
    };
    SignalReport {
        signal,
        endpoint: otlp.endpoint.value.without_credentials(),
        endpoint_origin: otlp.endpoint.origin,
        protocol: otlp.protocol.value,
        protocol_origin: otlp.protocol.origin,
        found,
    }
}

fn is_same(probed: lens::config::Signal, signal: Signal) -> bool {
    matches!(
        (probed, signal),
        (lens::config::Signal::Traces, Signal::Traces)
            | (lens::config::Signal::Metrics, Signal::Metrics)
            | (lens::config::Signal::Logs, Signal::Logs)
    )
}

/// Settings that are valid, and together say something that nobody means.
fn warn_of_mismatches(settings: &Resolved, report: &mut Report) {
    let traces = settings.traces.enabled.value && report.is_on;
    if traces && report.groups.is_empty() {
        report.warnings.push(format!(
            "no span group is on, so there will be no spans: {}={:?} ({})",
            env_vars::SPAN_GROUPS,
            settings.span_groups.value,
            settings.span_groups.origin
        ));
    }
    if report.is_on {
        report.warnings.extend(gym_telemetry::export_warning(settings));
    }
    let has_useless_path = |signal: &&SignalReport| {
        let rest = signal.endpoint.split_once("://").map_or("", |(_, rest)| rest);
        let path = rest.split_once('/').map_or("", |(_, path)| path);
        let is_sent = matches!(signal.found, Found::Sent(_));
        is_sent && signal.protocol == Protocol::Grpc && !path.is_empty()
    };
    let odd: Vec<&SignalReport> = report.signals.iter().filter(has_useless_path).collect();
    if let Some(first) = odd.first() {
        let names: Vec<&str> = odd.iter().map(|signal| signal.signal.as_str()).collect();
        let warning = format!(
            "the address ({}) of {} has a path, which grpc does not use: is http/protobuf meant?",
            first.endpoint_origin,
            names.join(", ")
        );
        report.warnings.push(warning);
    }
}

fn spool(place: &Place) -> SpoolReport {
    let kept = place.look();
    let living = kept.buffers.iter().filter(|buffer| buffer.is_alive).count();
    let left = kept.of_dead().items();
    let dir = place.spool_dir.clone();
    let trouble = write_test(&dir).err().map(|error| error.to_string());
    let free_bytes = rustix::fs::statvfs(&dir)
        .ok()
        .map(|status| status.f_bavail.saturating_mul(status.f_frsize));
    SpoolReport { dir, trouble, free_bytes, living, left }
}

/// Makes a file where buffers are made, and removes it.
fn write_test(dir: &std::path::Path) -> std::io::Result<()> {
    let folder = dir.join("nemo-gym");
    let is_new = !folder.exists();
    std::fs::create_dir_all(&folder)?;
    let file = folder.join(format!("doctor-{}", std::process::id()));
    let written = std::fs::write(&file, b"x");
    let _ = std::fs::remove_file(&file);
    if is_new {
        let _ = std::fs::remove_dir(&folder);
    }
    written
}
