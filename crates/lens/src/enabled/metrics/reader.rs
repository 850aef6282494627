//! The thread that exports metrics, and the pipeline's metrics about itself.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lens_otlp::client::{Client, Outcome, Sender};
use lens_otlp::metrics::Interval;

use super::{Counter, Gauge, aggregate, console, encode, set_enabled};
use crate::config::{ExporterKind, LensConfig, Signal};
use crate::enabled::diagnosis::Diagnosis;
use crate::enabled::pipeline::Pipeline;
use crate::enabled::{clock, lock, otlp};
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
        pipeline: Option<&'static Pipeline>,
    ) -> Result<Option<Self>, SetupError> {
        let target = match (config.metrics_exporter, client) {
            (ExporterKind::Otlp, Some(client)) => {
                let mut settings = config.metrics_otlp.clone();
                settings.timeout = settings.timeout.min(config.metric_timeout);
                let sender = otlp::sender(client, Signal::Metrics, &settings)?;
                Target::Otlp(sender, Diagnosis::new(Signal::Metrics, &settings))
            }
            (ExporterKind::Console, _) => Target::Console,
            (ExporterKind::Memory, _) => Target::Memory,
            _ => return Ok(None),
        };
        aggregate::CARDINALITY_LIMIT.store(config.metric_cardinality_limit, Ordering::Relaxed);
        if let Some(pipeline) = pipeline {
            observe_pipeline(pipeline);
        }
        let shared = Arc::new(Shared::default());
        let worker = Worker {
            shared: Arc::clone(&shared),
            target,
            resource,
            interval: config.metric_interval.max(Duration::from_millis(1)),
            start_nanos: clock::now_unix_nanos(),
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
    resource: Vec<u8>,
    interval: Duration,
    start_nanos: u64,
}

impl Worker {
    fn run(&self) {
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

    fn export(&self) {
        let interval =
            Interval { start_nanos: self.start_nanos, end_nanos: clock::now_unix_nanos() };
        let Some(request) = encode::request(&self.resource, interval) else { return };
        match &self.target {
            Target::Otlp(sender, diagnosis) => {
                if !matches!(self.deliver(sender, request), Outcome::Accepted { .. }) {
                    EXPORT_FAILURES.add(1, &[]);
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
    fn deliver(&self, sender: &Sender, request: Vec<u8>) -> Outcome {
        let ticket = sender.begin(Arc::new(request), std::thread::current());
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

static EXPORT_FAILURES: Counter =
    Counter::new(names::EXPORT_FAILURES, "{export}", "Exports that failed");

fn observe_pipeline(pipeline: &'static Pipeline) {
    let snapshot = move || pipeline.snapshot();
    let single = |count: u64| vec![(Vec::new(), count)];
    Counter::observable(names::SPANS_ENDED, "{span}", "Spans that ended", move || {
        single(snapshot().ended)
    });
    Counter::observable(names::SPANS_EXPORTED, "{span}", "Spans acknowledged", move || {
        single(snapshot().exported)
    });
    Counter::observable(names::SPANS_DROPPED, "{span}", "Spans lost, by reason", move || {
        let PipelineSnapshot { rejected, dropped, .. } = snapshot();
        let rejected = (rejected > 0).then_some(("rejected", rejected));
        let reasons = dropped.into_iter().chain(rejected);
        reasons
            .map(|(reason, count)| (vec![(names::REASON, Value::from_static(reason))], count))
            .collect()
    });
    Gauge::observable(names::SPANS_QUEUED, "{span}", "Spans that wait", move || {
        vec![(Vec::new(), snapshot().queued as f64)]
    });
    Gauge::observable(names::SPANS_SPOOLED, "{span}", "Spans that wait in files", move || {
        vec![(Vec::new(), snapshot().spooled as f64)]
    });
    Gauge::observable(names::BUFFER_FILL, "1", "Share of the span buffer in use", move || {
        vec![(Vec::new(), snapshot().buffer_fill)]
    });
}
