//! Setting telemetry up, once per process, and taking it down.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::console::{ConsoleLogs, ConsoleSpans};
use super::live::{LiveEvents, Taker};
use super::message::SpanMessage;
use super::metrics::reader::{MetricExporter, MetricReader};
use super::otlp::{OtlpBatches, start_client};
use super::pipeline::{self, InMemorySpans, Kind, Pipeline, SpanExporter};
use super::process::PROCESS;
use super::raw::fork;
use super::raw::published::Published;
use super::recover;
use super::{clock, group, logs, propagation, resource, sampling, strategy};
use crate::config::{self, ExporterKind, LensConfig, SpanLimits};
use crate::{PipelineSnapshot, SetupError};

static SET_UP: AtomicBool = AtomicBool::new(false);
static ACTIVE: AtomicBool = AtomicBool::new(false);
static LIMITS: Published<SpanLimits> = Published::nothing();
static DEFAULT_LIMITS: SpanLimits = SpanLimits::DEFAULT;
static CURRENT: Published<TelemetryHandle> = Published::nothing();

/// Whether telemetry is on in this process.
#[inline]
pub(super) fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

#[inline]
pub(super) fn span_limits() -> &'static SpanLimits {
    LIMITS.get().unwrap_or(&DEFAULT_LIMITS)
}

/// Whether limits never matter to a small attribute, see [`SpanMessage::are_generous`].
#[inline(always)]
pub(super) fn limits_are_generous() -> bool {
    PROCESS.limits_are_generous.load(Ordering::Relaxed)
}

/// Runs in a child between `fork` and its return: its parent's telemetry is not its own. It may set up anew.
pub(super) fn silence_after_fork() {
    ACTIVE.store(false, Ordering::Relaxed);
    SET_UP.store(false, Ordering::Relaxed);
    super::metrics::set_enabled(false);
    CURRENT.clear();
    super::truncated::forget();
    logs::set_taken(false);
    super::live::forget();
    pipeline::forget_all();
}

/// The handle of the telemetry that runs in this process, whoever set it up; `None` when none does.
pub fn current_handle() -> Option<TelemetryHandle> {
    CURRENT.get().filter(|_| is_active()).cloned()
}

/// Starts telemetry for this process.
///
/// With `enabled` false nothing is started and the handle exports nothing; this may be repeated.
///
/// # Errors
///
/// [`SetupError::AlreadySetUp`] on a second enabled call, or when an exporter or its thread cannot be made; then
/// all groups are off.
pub fn setup_telemetry(config: LensConfig) -> Result<TelemetryHandle, SetupError> {
    setup_telemetry_with_exporters(config, Exporters::default())
}

/// Exporters of the program's own.
#[derive(Default)]
pub struct Exporters {
    /// Take spans.
    pub spans: Vec<Box<dyn SpanExporter>>,
    /// Take metrics.
    pub metrics: Vec<Box<dyn MetricExporter>>,
}

impl std::fmt::Debug for Exporters {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts = (self.spans.len(), self.metrics.len());
        formatter.debug_tuple("Exporters").field(&counts).finish()
    }
}

/// Starts telemetry with exporters of spans besides the configured one.
///
/// # Errors
///
/// As [`setup_telemetry`].
pub fn setup_telemetry_with(
    config: LensConfig,
    spans: Vec<Box<dyn SpanExporter>>,
) -> Result<TelemetryHandle, SetupError> {
    setup_telemetry_with_exporters(config, Exporters { spans, ..Exporters::default() })
}

/// Starts telemetry with exporters of spans and of metrics besides the configured ones.
///
/// # Errors
///
/// As [`setup_telemetry`].
pub fn setup_telemetry_with_exporters(
    mut config: LensConfig,
    exporters: Exporters,
) -> Result<TelemetryHandle, SetupError> {
    if !config.enabled {
        return Ok(TelemetryHandle { inner: None });
    }
    if SET_UP.swap(true, Ordering::SeqCst) {
        return Err(SetupError::AlreadySetUp);
    }
    let Exporters { spans: mut exporters, metrics: mut metric_exporters } = exporters;
    fork::watch();
    super::ids::reseed();
    PROCESS.limits_are_generous.store(SpanMessage::are_generous(&config.limits), Ordering::Relaxed);
    LIMITS.set(Box::leak(Box::new(config.limits)));
    let (exports, warning) = strategy::decide(&config);
    let mut warnings = Vec::from_iter(warning);
    let is_rank_aware = config.export.sampler;
    sampling::set(config.sampler, is_rank_aware.then_some(exports));
    if !exports {
        config.metrics_exporter = ExporterKind::None;
        config.logs_exporter = ExporterKind::None;
        config.live.exporter = ExporterKind::None;
        metric_exporters.clear();
    }
    // Without a group there is no span, so there is nothing to be ready for. In memory is for programs that choose
    // groups later.
    let has_spans = !group::is_empty(&config.span_groups)
        || config.spool.ships_dead
        || config.traces_exporter == ExporterKind::Memory;
    if !has_spans || !exports && !is_rank_aware {
        config.traces_exporter = ExporterKind::None;
    }
    if !exports && !is_rank_aware {
        exporters.clear();
    }
    propagation::set(config.propagators);
    clock::anchor();
    let resource = resource::encode(&resource::attributes(&config));
    let has_spans = config.traces_exporter != ExporterKind::None || !exporters.is_empty();
    let is_live = has_spans && config.live.events == config::LiveEvents::On;
    let live_exporter = if is_live { config.live.exporter } else { ExporterKind::None };
    let exporters_used =
        [config.traces_exporter, config.metrics_exporter, config.logs_exporter, live_exporter];
    let uses_otlp = exporters_used.contains(&ExporterKind::Otlp);
    let client = if uses_otlp { Some(start_client()?) } else { None };

    let memory = InMemorySpans::default();
    let mut otlp = None;
    match (config.traces_exporter, &client) {
        (ExporterKind::Otlp, Some(client)) => otlp = Some(OtlpBatches::spans(client, &config)?),
        (ExporterKind::Console, _) => exporters.push(Box::new(ConsoleSpans)),
        (ExporterKind::Memory, _) => exporters.push(Box::new(memory.clone())),
        _ => {}
    }
    let parts = |kind, exporters: Vec<Box<dyn SpanExporter>>, otlp: Option<OtlpBatches>| {
        // Only OTLP has somebody who could ship what a dead process left.
        let spools = otlp.is_some();
        let has_exporter = spools || !exporters.is_empty();
        has_exporter.then(|| pipeline::Parts {
            kind,
            settings: if kind.is_logs() { config.log_batch } else { config.batch },
            resource: resource.clone(),
            exporters,
            otlp,
            ring_file: ring_file(&config, kind).filter(|_| spools),
            overflow: overflow_folder(&config, kind).filter(|_| spools),
            live: LiveEvents::Off,
        })
    };
    let mut spans = parts(Kind::Spans, exporters, otlp);
    let taken = config.logs_exporter != ExporterKind::None;
    let live = if spans.is_some() { wanted_live(&config) } else { config::LiveEvents::Off };
    let logs_exporter = match config.logs_exporter {
        ExporterKind::None if live != config::LiveEvents::Off => config.live.exporter,
        exporter => exporter,
    };
    let logs = match (logs_exporter, &client) {
        (ExporterKind::Otlp, Some(client)) => match OtlpBatches::logs(client, &config) {
            Ok(otlp) => parts(Kind::Logs, Vec::new(), Some(otlp)),
            // Nobody asked for it.
            Err(_) if live == config::LiveEvents::Auto && !taken => None,
            Err(error) => return Err(error),
        },
        (ExporterKind::Console, _) => parts(Kind::Logs, vec![Box::new(ConsoleLogs)], None),
        _ => None,
    };
    let mut start = |parts| {
        let (pipeline, warning) = Pipeline::start(parts)?;
        warnings.extend(warning);
        Ok(pipeline)
    };
    let (logs, later) = match logs {
        Some(logs) if taken || live == config::LiveEvents::On => (Some(start(logs)?), None),
        later => (None, later),
    };
    logs::set_taken(taken && logs.is_some());
    if let Some(spans) = &mut spans {
        let taker: Taker = match (logs, later) {
            (Some(logs), _) => Box::new(move || Some(logs)),
            (None, Some(later)) => Box::new(move || Some(Pipeline::start(later).ok()?.0)),
            (None, None) => Box::new(|| None),
        };
        spans.live = match live {
            config::LiveEvents::Off => LiveEvents::Off,
            _ => LiveEvents::Waiting(taker, config.live.heartbeat),
        };
        if live == config::LiveEvents::On {
            spans.live.begin();
        }
    }
    let pipeline = spans.map(start).transpose()?;
    let metrics =
        MetricReader::start(&config, resource, client.as_ref(), metric_exporters, pipeline)?;
    if pipeline.is_some() {
        warnings.extend(group::enable(&config.span_groups));
    }
    ACTIVE.store(true, Ordering::Relaxed);
    let generation = fork::generation();
    let inner = Inner { pipeline, metrics, memory, warnings, generation };
    let handle = TelemetryHandle { inner: Some(Arc::new(inner)) };
    CURRENT.set(Box::leak(Box::new(handle.clone())));
    Ok(handle)
}

/// What is asked for, as far as it can be done: only OTLP has a receiver that could say what it shows.
fn wanted_live(config: &LensConfig) -> config::LiveEvents {
    let live = &config.live;
    match live.events {
        _ if live.exporter == ExporterKind::None => config::LiveEvents::Off,
        config::LiveEvents::Auto
            if config.traces_exporter != ExporterKind::Otlp
                || live.exporter != ExporterKind::Otlp =>
        {
            config::LiveEvents::Off
        }
        events => events,
    }
}

/// A name for what this process keeps in a folder of several.
fn process_name(config: &LensConfig, kind: Kind) -> String {
    let service = config.service_name.rsplit('/').next().unwrap_or_default();
    let signal = if kind.is_logs() { "logs" } else { "spans" };
    let unique = super::ids::random() as u32;
    format!("{}-{signal}-{}-{unique:08x}", path_part(service), std::process::id())
}

/// `text` as one part of a path.
fn path_part(text: &str) -> String {
    let safe = |character: char| match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' => character,
        _ => '_',
    };
    let part: String = text.chars().take(80).map(safe).collect();
    if part.is_empty() { "unnamed".to_owned() } else { part }
}

/// Where this process's ring is to be; `None` when it is to be in anonymous memory.
fn ring_file(config: &LensConfig, kind: Kind) -> Option<PathBuf> {
    let folder = config.spool.ring_folder.as_deref()?;
    let run = folder.join(recover::FOLDER).join(path_part(&config.spool.run_id));
    Some(run.join(process_name(config, kind)).with_extension(recover::EXTENSION))
}

/// Where this process's undeliverable requests go.
fn overflow_folder(config: &LensConfig, kind: Kind) -> Option<PathBuf> {
    let folder = config.spool.overflow_folder.as_deref()?;
    let run = folder.join(path_part(&config.spool.run_id));
    Some(run.join(process_name(config, kind)))
}

/// The middle and the end of a time that begins now.
fn halves(timeout: Duration) -> (Instant, Instant) {
    let now = Instant::now();
    (now + timeout / 2, now + timeout)
}

struct Inner {
    pipeline: Option<&'static Pipeline>,
    metrics: Option<MetricReader>,
    memory: InMemorySpans,
    warnings: Vec<String>,
    /// The process that made it, as far as `fork` is concerned.
    generation: u32,
}

impl Inner {
    fn pipelines(&self) -> impl Iterator<Item = &'static Pipeline> {
        // That of log records may have begun later.
        [self.pipeline, pipeline::logs()].into_iter().flatten()
    }
}

/// The way to a process's telemetry; cheap to clone.
#[derive(Clone)]
pub struct TelemetryHandle {
    inner: Option<Arc<Inner>>,
}

impl std::fmt::Debug for TelemetryHandle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TelemetryHandle").field("exporting", &self.is_exporting()).finish()
    }
}

impl TelemetryHandle {
    /// What it drives, unless that belongs to the process from which this one was forked.
    fn own(&self) -> Option<&Inner> {
        self.inner.as_deref().filter(|inner| inner.generation == fork::generation())
    }

    /// Takes over what dead processes of the same spool folder left, and sends it; waits until it is found, at most
    /// `timeout`. A flush waits for its delivery.
    pub fn adopt_dead(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let Some(inner) = self.own() else { return true };
        let asked: Vec<_> =
            inner.pipelines().map(|pipeline| (pipeline, pipeline.begin_adopt())).collect();
        asked.iter().all(|(pipeline, ticket)| pipeline.wait_adopted(*ticket, deadline))
    }

    /// Whether anything leaves this process.
    pub fn is_exporting(&self) -> bool {
        let inner = self.own().filter(|_| is_active());
        inner.is_some_and(|inner| inner.pipelines().next().is_some() || inner.metrics.is_some())
    }

    /// Exports what ended before the call; false when that takes longer than `timeout`.
    ///
    /// Metrics go when the spans are out, because they tell what became of these, and halfway through the time at
    /// the latest: a slow endpoint for spans does not cost the metrics.
    pub fn force_flush(&self, timeout: Duration) -> bool {
        let Some(inner) = self.own() else { return true };
        let (halfway, deadline) = halves(timeout);
        let pipelines: Vec<_> =
            inner.pipelines().map(|pipeline| (pipeline, pipeline.begin_flush())).collect();
        let wait_spans = |until| {
            pipelines.iter().all(|(pipeline, ticket)| pipeline.wait_flushed(*ticket, until))
        };
        wait_spans(halfway);
        let metrics = inner.metrics.as_ref().map(|metrics| (metrics, metrics.begin_flush()));
        let spans = wait_spans(deadline);
        metrics.is_none_or(|(metrics, ticket)| metrics.wait(ticket, deadline)) && spans
    }

    /// Switches every group off, exports what is left and stops the threads; false when that takes longer.
    ///
    /// Spans of long-lived groups that are open are ended, innermost first, as they were when they began and with
    /// [`semconv::TRUNCATED`](crate::semconv::TRUNCATED); other spans that end later are counted as dropped.
    ///
    /// Spans and metrics share the time as in [`TelemetryHandle::force_flush`]; spans that are not on their way at
    /// its end are dropped and counted. May be called again, from any thread; the first call decides what is sent.
    pub fn shutdown(&self, timeout: Duration) -> bool {
        let Some(inner) = self.own() else { return true };
        let (halfway, deadline) = halves(timeout);
        ACTIVE.store(false, Ordering::Relaxed);
        group::disable_all();
        if let Some(pipeline) = inner.pipeline {
            pipeline.close_open_spans();
        }
        for pipeline in inner.pipelines() {
            pipeline.begin_shut_down(deadline);
        }
        let wait_stopped = |until| inner.pipelines().all(|pipeline| pipeline.wait_stopped(until));
        wait_stopped(halfway);
        let metrics = inner.metrics.as_ref().map(|metrics| (metrics, metrics.begin_shut_down()));
        let spans = wait_stopped(deadline);
        metrics.is_none_or(|(metrics, ticket)| metrics.wait_stopped(ticket, deadline)) && spans
    }

    /// What became of every span that ended.
    pub fn snapshot(&self) -> PipelineSnapshot {
        let pipeline = self.own().and_then(|inner| inner.pipeline);
        pipeline.map(Pipeline::snapshot).unwrap_or_default()
    }

    /// What became of every log record.
    pub fn log_snapshot(&self) -> PipelineSnapshot {
        let pipeline = self.own().and_then(|_| pipeline::logs());
        pipeline.map(Pipeline::snapshot).unwrap_or_default()
    }

    /// What setup did other than asked, one line each.
    pub fn warnings(&self) -> Vec<String> {
        self.inner.as_ref().map(|inner| inner.warnings.clone()).unwrap_or_default()
    }

    /// The spans kept by [`ExporterKind::Memory`].
    pub fn memory(&self) -> InMemorySpans {
        self.inner.as_ref().map(|inner| inner.memory.clone()).unwrap_or_default()
    }

    /// Switches groups as another setup would; returns warnings about unknown names.
    pub fn set_span_groups(&self, spec: &str) -> Vec<String> {
        match &self.inner {
            Some(inner) if inner.pipeline.is_some() && is_active() => group::enable(spec),
            _ => Vec::new(),
        }
    }
}
