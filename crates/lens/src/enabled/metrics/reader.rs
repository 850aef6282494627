//! The thread that exports metrics, and the pipeline's metrics about itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use lens_otlp::client::{Client, Outcome, Sender};

use super::encode::Cover;
use super::{
    BoundHistogram, Counter, Gauge, Histogram, Observations, aggregate, console, encode, exemplar,
    set_enabled,
};
use crate::config::{
    ExporterKind, HistogramAggregation, LensConfig, Signal, TemporalityPreference,
};
use crate::enabled::diagnosis::Diagnosis;
use crate::enabled::pipeline::{self, ExportOutcome, Pipeline};
use crate::enabled::{clock, diagnostics, lock, otlp};
use crate::semconv::pipeline as names;
use crate::{PipelineSnapshot, SetupError, Value};

/// How often it is looked whether the process ends while a request is out.
const LOOK: Duration = Duration::from_millis(20);

enum Target {
    Otlp(Sender, Diagnosis),
    Console,
    /// Kept by the instruments, exported by nobody.
    Memory,
}

/// Where metrics go. Called from one thread, which may be blocked; must return within its own time budget.
pub trait MetricExporter: Send {
    /// Takes an encoded `ExportMetricsServiceRequest`, every interval, at each flush and at the end; read it with
    /// `lens_otlp::view::metrics`. Temporality and aggregation are those of the config.
    fn export(&mut self, request: &Arc<Vec<u8>>) -> ExportOutcome;

    /// Called once, after the last request.
    fn shut_down(&mut self) {}
}

#[derive(Debug, Default)]
struct Control {
    flush_asked: u64,
    flush_done: u64,
    stopping: bool,
    stopped: bool,
}

#[derive(Debug, Default)]
struct Shared {
    control: Mutex<Control>,
    changed: Condvar,
}

impl Shared {
    /// Asks for an export; returns the ticket to wait with.
    fn ask(&self, ask: impl FnOnce(&mut Control)) -> u64 {
        let mut control = lock(&self.control);
        if !control.stopped {
            control.flush_asked += 1;
            ask(&mut control);
            self.changed.notify_all();
        }
        control.flush_asked
    }

    /// Waits for the export of a ticket; false when it is not done by the deadline.
    fn wait(&self, ticket: u64, deadline: Instant) -> bool {
        let mut control = lock(&self.control);
        while control.flush_done < ticket && !control.stopped {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(control, left);
            control = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// Exports metrics every interval and once at the end.
#[derive(Debug)]
pub(in crate::enabled) struct MetricReader {
    shared: Arc<Shared>,
}

impl MetricReader {
    /// Starts the thread; `None` when metrics are off.
    pub(in crate::enabled) fn start(
        config: &LensConfig,
        resource: Vec<u8>,
        client: Option<&Client>,
        exporters: Vec<Box<dyn MetricExporter>>,
        spans: Option<&'static Pipeline>,
    ) -> Result<Option<Self>, SetupError> {
        let target = match (config.metrics_exporter, client) {
            (ExporterKind::Otlp, Some(client)) => {
                let mut settings = config.metrics_otlp.clone();
                settings.timeout = settings.timeout.min(config.metric_timeout);
                let sender = otlp::sender(client, Signal::Metrics, &settings)?;
                Target::Otlp(sender, Diagnosis::new(Signal::Metrics, &settings))
            }
            (ExporterKind::Console, _) => Target::Console,
            (ExporterKind::None, _) if exporters.is_empty() => return Ok(None),
            _ => Target::Memory,
        };
        aggregate::CARDINALITY_LIMIT.store(config.metric_cardinality_limit, Ordering::Relaxed);
        let exponential = config.metrics.histogram == HistogramAggregation::Exponential;
        aggregate::set_exponential(exponential);
        exemplar::set_filter(config.metrics.exemplars);
        if let Some(pipeline) = spans {
            observe_spans(pipeline);
        }
        observe_logs();
        observe_exports(spans);
        let shared = Arc::new(Shared::default());
        let start_nanos = clock::now_unix_nanos();
        let mut worker = Worker {
            shared: Arc::clone(&shared),
            target,
            exporters,
            resource,
            interval: config.metric_interval.max(Duration::from_millis(1)),
            preference: config.metrics.temporality,
            start_nanos,
            last_nanos: start_nanos,
        };
        std::thread::Builder::new()
            .name("lens-metrics".to_owned())
            .spawn(move || worker.run())
            .map_err(|error| SetupError::Thread { reason: error.to_string() })?;
        set_enabled(true);
        Ok(Some(Self { shared }))
    }

    /// Asks for an export; returns the ticket to wait with.
    pub(in crate::enabled) fn begin_flush(&self) -> u64 {
        self.shared.ask(|_| {})
    }

    /// Asks for a last export and the end of the thread; returns the ticket to wait with.
    pub(in crate::enabled) fn begin_shut_down(&self) -> u64 {
        self.shared.ask(|control| control.stopping = true)
    }

    /// Waits for what was asked for; false when it is not done by the deadline.
    pub(in crate::enabled) fn wait(&self, ticket: u64, deadline: Instant) -> bool {
        self.shared.wait(ticket, deadline)
    }

    /// As [`MetricReader::wait`] for the end; nothing is recorded from then on.
    pub(in crate::enabled) fn wait_stopped(&self, ticket: u64, deadline: Instant) -> bool {
        let done = self.wait(ticket, deadline);
        set_enabled(false);
        done
    }
}

struct Worker {
    shared: Arc<Shared>,
    target: Target,
    exporters: Vec<Box<dyn MetricExporter>>,
    resource: Vec<u8>,
    interval: Duration,
    preference: TemporalityPreference,
    start_nanos: u64,
    last_nanos: u64,
}

impl Worker {
    fn run(&mut self) {
        let mut next = Instant::now() + self.interval;
        loop {
            let (ticket, stopping) = {
                let mut control = lock(&self.shared.control);
                loop {
                    let left = next.saturating_duration_since(Instant::now());
                    if control.flush_asked > control.flush_done || left.is_zero() {
                        break;
                    }
                    let waited = self.shared.changed.wait_timeout(control, left);
                    control = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                (control.flush_asked, control.stopping)
            };
            self.export();
            // Measured from now: an export that took long is not followed by a burst.
            next = Instant::now() + self.interval;
            if stopping {
                for exporter in &mut self.exporters {
                    exporter.shut_down();
                }
            }
            let mut control = lock(&self.shared.control);
            control.flush_done = ticket;
            control.stopped = stopping;
            drop(control);
            self.shared.changed.notify_all();
            if stopping {
                return;
            }
        }
    }

    fn export(&mut self) {
        let cover = Cover {
            preference: self.preference,
            start_nanos: self.start_nanos,
            last_nanos: self.last_nanos,
            now_nanos: clock::now_unix_nanos(),
        };
        self.last_nanos = cover.now_nanos;
        let Some(request) = encode::request(&self.resource, &cover) else { return };
        let request = Arc::new(request);
        for exporter in &mut self.exporters {
            // One that panics must not take metrics down.
            let call = std::panic::AssertUnwindSafe(|| exporter.export(&request));
            let outcome = std::panic::catch_unwind(call).unwrap_or_else(|_| {
                diagnostics::EXPORTER_PANIC.say("an exporter panicked; its batch is lost");
                ExportOutcome::Failed
            });
            if !matches!(outcome, ExportOutcome::Exported { .. }) {
                FAILURES.fetch_add(1, Ordering::Relaxed);
            }
        }
        match &self.target {
            Target::Otlp(sender, diagnosis) => {
                let before = Instant::now();
                let outcome = self.deliver(sender, request);
                record_export(Signal::Metrics, before.elapsed());
                if !matches!(outcome, Outcome::Accepted { .. }) {
                    FAILURES.fetch_add(1, Ordering::Relaxed);
                }
                if outcome != (Outcome::Accepted { rejected: 0 }) {
                    diagnosis.say(sender);
                }
            }
            Target::Console => console::write(&request),
            Target::Memory => {}
        }
    }
}

impl Worker {
    /// Sends a request and waits for its outcome; once the process ends, not for a receiver that is not there.
    fn deliver(&self, sender: &Sender, request: Arc<Vec<u8>>) -> Outcome {
        let ticket = sender.begin(request, std::thread::current());
        let mut refusals_at_end = None;
        loop {
            if let Some(outcome) = ticket.outcome() {
                return outcome;
            }
            if lock(&self.shared.control).stopping {
                let refusals = sender.refusals();
                match refusals_at_end {
                    None => {
                        refusals_at_end = Some(refusals);
                        sender.hurry();
                    }
                    Some(before) if refusals > before => {
                        return Outcome::Failed { not_before: None };
                    }
                    Some(_) => {}
                }
            }
            std::thread::park_timeout(LOOK);
        }
    }
}

/// Exports of metrics that failed.
static FAILURES: AtomicU64 = AtomicU64::new(0);

/// Upper bounds of what takes from a millisecond to the longest budget.
const EXPORT_BOUNDS_SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

static EXPORT_DURATION: Histogram = Histogram::with_bounds(
    names::EXPORT_DURATION,
    "s",
    "Duration of exports, by signal",
    EXPORT_BOUNDS_SECONDS,
);

/// Records how long an export took, whatever became of it.
pub(in crate::enabled) fn record_export(signal: Signal, took: Duration) {
    static BOUND: [OnceLock<BoundHistogram>; 3] = [const { OnceLock::new() }; 3];
    let bound = BOUND[signal as usize].get_or_init(|| {
        let signal = match signal {
            Signal::Traces => "traces",
            Signal::Metrics => "metrics",
            Signal::Logs => "logs",
        };
        EXPORT_DURATION.bind(&[(names::SIGNAL, Value::from_static(signal))])
    });
    bound.record(took.as_secs_f64());
}

fn single<T>(value: T) -> Observations<T> {
    vec![(Vec::new(), value)]
}

fn by_reason(snapshot: PipelineSnapshot) -> Observations<u64> {
    let rejected = (snapshot.rejected > 0).then_some((names::REJECTED, snapshot.rejected));
    let reasons = snapshot.dropped.into_iter().chain(rejected);
    reasons
        .map(|(reason, count)| (vec![(names::REASON, Value::from_static(reason))], count))
        .collect()
}

fn observe_spans(pipeline: &'static Pipeline) {
    let snapshot = move || pipeline.snapshot();
    Counter::observable(names::SPANS_ENDED, "{span}", "Spans that ended", move || {
        single(snapshot().ended)
    });
    Counter::observable(names::SPANS_EXPORTED, "{span}", "Spans acknowledged", move || {
        single(snapshot().exported)
    });
    Counter::observable(names::SPANS_DROPPED, "{span}", "Spans lost, by reason", move || {
        by_reason(snapshot())
    });
    Gauge::observable(names::SPANS_QUEUED, "{span}", "Spans that wait", move || {
        single(snapshot().queued as f64)
    });
    Gauge::observable(names::SPANS_SPOOLED, "{span}", "Spans that wait in files", move || {
        single(snapshot().spooled as f64)
    });
    Gauge::observable(names::BUFFER_FILL, "1", "Share of the span buffer in use", move || {
        single(snapshot().buffer_fill)
    });
}

/// Their pipeline may begin later, or never.
fn observe_logs() {
    fn observe<T>(read: impl Fn(PipelineSnapshot) -> Observations<T>) -> Observations<T> {
        pipeline::logs().map_or_else(Vec::new, |logs| read(logs.snapshot()))
    }
    Counter::observable(names::LOGS_ENDED, "{record}", "Log records made", || {
        observe(|snapshot| single(snapshot.ended))
    });
    Counter::observable(names::LOGS_EXPORTED, "{record}", "Log records acknowledged", || {
        observe(|snapshot| single(snapshot.exported))
    });
    Counter::observable(names::LOGS_DROPPED, "{record}", "Log records lost, by reason", || {
        observe(by_reason)
    });
    Gauge::observable(names::LOGS_QUEUED, "{record}", "Log records that wait", || {
        observe(|snapshot| single(snapshot.queued as f64))
    });
}

fn observe_exports(spans: Option<&'static Pipeline>) {
    let pipelines = move || [spans, pipeline::logs()].into_iter().flatten();
    Counter::observable(names::EXPORT_FAILURES, "{export}", "Exports that failed", move || {
        let failures: u64 = pipelines().map(|pipeline| pipeline.snapshot().export_failures).sum();
        single(failures + FAILURES.load(Ordering::Relaxed))
    });
    let about = "Measurements that no histogram holds, by reason";
    Counter::observable(names::MEASUREMENTS_DROPPED, "{measurement}", about, || {
        let count = aggregate::not_finite();
        let reason = (names::REASON, Value::from_static(names::NOT_FINITE));
        if count > 0 { vec![(vec![reason], count)] } else { Vec::new() }
    });
}
