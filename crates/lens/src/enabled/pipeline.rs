//! From an ended span to its exporters: bounded buffers, one thread, exact counts.
//!
//! The thread that ends a span appends its bytes to a shard; the exporter's thread takes whole shards, gathers
//! spans by scope into request bodies and hands those out. A full buffer drops the newest span and counts it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use lens_otlp::encode::{Scope, SpanParts, put_request};
use lens_otlp::wire;

use super::clock;
use super::group;
use super::lock;
use crate::config::BatchSettings;
use crate::semconv::drop_reason;
use crate::{PipelineSnapshot, SetupError};

const SHARDS: usize = 8;
/// Length and scope in front of each span.
const FRAME_HEADER: usize = 6;
/// Longest sleep of the exporter's thread: how often the clock is corrected.
const MAX_PARK: Duration = Duration::from_secs(1);

/// Finished spans as one OTLP request.
#[derive(Clone, Debug)]
pub struct SpanBatch {
    request: Arc<Vec<u8>>,
    spans: usize,
}

impl SpanBatch {
    /// An encoded `ExportTraceServiceRequest`; read it with `lens_otlp::view`.
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// The request without copying.
    pub fn shared_request(&self) -> Arc<Vec<u8>> {
        Arc::clone(&self.request)
    }

    /// How many spans it holds.
    pub fn spans(&self) -> usize {
        self.spans
    }
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportOutcome {
    /// Accepted, but for so many spans.
    Exported {
        /// Spans that the receiver refused.
        rejected: u64,
    },
    /// Refused as a whole, for a reason that no retry cures.
    Rejected,
    /// Not delivered.
    Failed,
}

/// Where batches go. Called from one thread, which may be blocked; must return within its own time budget.
pub trait SpanExporter: Send {
    /// Delivers a batch.
    fn export(&mut self, batch: &SpanBatch) -> ExportOutcome;

    /// Called once, after the last batch.
    fn shut_down(&mut self) {}
}

/// Keeps what it is given, for tests.
#[derive(Clone, Debug, Default)]
pub struct InMemorySpans {
    batches: Arc<Mutex<Vec<SpanBatch>>>,
}

impl InMemorySpans {
    /// Takes the batches that arrived.
    pub fn take(&self) -> Vec<SpanBatch> {
        std::mem::take(&mut *lock(&self.batches))
    }
}

impl SpanExporter for InMemorySpans {
    fn export(&mut self, batch: &SpanBatch) -> ExportOutcome {
        lock(&self.batches).push(batch.clone());
        ExportOutcome::Exported { rejected: 0 }
    }
}

#[derive(Debug, Default)]
struct Counters {
    ended: AtomicU64,
    exported: AtomicU64,
    rejected: AtomicU64,
    buffer_full: AtomicU64,
    too_large: AtomicU64,
    export_failed: AtomicU64,
    shut_down: AtomicU64,
}

#[derive(Debug, Default)]
struct Control {
    flush_asked: u64,
    flush_done: u64,
    stopped: bool,
    /// Set by shutdown: what is not on its way by then is dropped and counted.
    deadline: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Pipeline {
    shards: [Mutex<Vec<u8>>; SHARDS],
    queued_bytes: AtomicUsize,
    queued_spans: AtomicUsize,
    max_bytes: usize,
    max_spans: usize,
    wake_bytes: usize,
    wake_spans: usize,
    woken: AtomicBool,
    closed: AtomicBool,
    exporter: OnceLock<Thread>,
    counters: Counters,
    control: Mutex<Control>,
    changed: Condvar,
}

static PIPELINE: OnceLock<Arc<Pipeline>> = OnceLock::new();

thread_local! {
    static SHARD: usize = super::ids::random() as usize % SHARDS;
}

/// Hands an ended span over; never blocks beyond a short lock, never fails.
pub(super) fn push(scope: u16, parts: &SpanParts<'_>) {
    if let Some(pipeline) = PIPELINE.get() {
        pipeline.push(scope, parts);
    }
}

impl Pipeline {
    fn new(settings: &BatchSettings) -> Self {
        let max_spans = settings.max_queue_spans.unwrap_or(usize::MAX);
        let batch_spans = settings.max_batch_spans.unwrap_or(usize::MAX);
        Self {
            shards: Default::default(),
            queued_bytes: AtomicUsize::new(0),
            queued_spans: AtomicUsize::new(0),
            max_bytes: settings.max_queue_bytes,
            max_spans,
            wake_bytes: settings.max_batch_bytes.min(settings.max_queue_bytes / 4),
            wake_spans: batch_spans.min(max_spans.div_ceil(4)),
            woken: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            exporter: OnceLock::new(),
            counters: Counters::default(),
            control: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Starts the pipeline of this process.
    pub(super) fn start(
        settings: &BatchSettings,
        resource: Vec<u8>,
        exporters: Vec<Box<dyn SpanExporter>>,
    ) -> Result<Arc<Self>, SetupError> {
        let pipeline = Arc::new(Self::new(settings));
        let mut worker = Worker {
            pipeline: Arc::clone(&pipeline),
            exporters,
            resource,
            settings: *settings,
            spare: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("lens-export".to_owned())
            .spawn(move || worker.run())
            .map_err(|error| SetupError::Thread { reason: error.to_string() })?;
        let _ = pipeline.exporter.set(thread.thread().clone());
        PIPELINE.set(Arc::clone(&pipeline)).map_err(|_| SetupError::AlreadySetUp)?;
        Ok(pipeline)
    }

    fn push(&self, scope: u16, parts: &SpanParts<'_>) {
        let counters = &self.counters;
        counters.ended.fetch_add(1, Ordering::Relaxed);
        if self.closed.load(Ordering::Relaxed) {
            counters.shut_down.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let len = parts.encoded_len();
        let framed = len + FRAME_HEADER;
        if framed > self.max_bytes / 2 || u32::try_from(len).is_err() {
            counters.too_large.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let bytes = self.queued_bytes.fetch_add(framed, Ordering::Relaxed) + framed;
        let spans = self.queued_spans.fetch_add(1, Ordering::Relaxed) + 1;
        if bytes > self.max_bytes || spans > self.max_spans {
            self.queued_bytes.fetch_sub(framed, Ordering::Relaxed);
            self.queued_spans.fetch_sub(1, Ordering::Relaxed);
            counters.buffer_full.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let shard = SHARD.try_with(|shard| *shard).unwrap_or(0);
        {
            let mut shard = lock(&self.shards[shard]);
            shard.extend_from_slice(&(len as u32).to_le_bytes());
            shard.extend_from_slice(&scope.to_le_bytes());
            parts.put(&mut shard);
        }
        // A wake costs microseconds, so there is one for each time the exporter comes around.
        if (bytes >= self.wake_bytes || spans >= self.wake_spans)
            && !self.woken.load(Ordering::Relaxed)
            && !self.woken.swap(true, Ordering::Relaxed)
        {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(thread) = self.exporter.get() {
            thread.unpark();
        }
    }

    pub(super) fn snapshot(&self) -> PipelineSnapshot {
        let counters = &self.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Acquire);
        // What left is read before what came, so nothing seems lost.
        let exported = read(&counters.exported);
        let rejected = read(&counters.rejected);
        let reasons = [
            (drop_reason::BUFFER_FULL, &counters.buffer_full),
            (drop_reason::TOO_LARGE, &counters.too_large),
            (drop_reason::EXPORT_FAILED, &counters.export_failed),
            (drop_reason::SHUT_DOWN, &counters.shut_down),
        ];
        let dropped: Vec<(&'static str, u64)> = reasons
            .into_iter()
            .map(|(reason, counter)| (reason, read(counter)))
            .filter(|(_, count)| *count > 0)
            .collect();
        let ended = read(&counters.ended);
        let gone = exported + rejected + dropped.iter().map(|(_, count)| count).sum::<u64>();
        PipelineSnapshot { ended, exported, rejected, dropped, queued: ended.saturating_sub(gone) }
    }

    /// Asks for the export of what ended before the call; returns the ticket to wait with.
    pub(super) fn begin_flush(&self) -> u64 {
        let mut control = lock(&self.control);
        control.flush_asked += 1;
        self.wake();
        control.flush_asked
    }

    /// Waits for the export of a ticket; false when it is not done by the deadline.
    pub(super) fn wait_flushed(&self, ticket: u64, deadline: Instant) -> bool {
        let mut control = lock(&self.control);
        while control.flush_done < ticket && !control.stopped {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(control, left);
            control = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        true
    }

    /// Refuses further spans and asks for the export of what is left, up to the deadline.
    pub(super) fn begin_shut_down(&self, deadline: Instant) {
        self.closed.store(true, Ordering::Relaxed);
        lock(&self.control).deadline.get_or_insert(deadline);
        self.wake();
    }

    /// Waits for the end of the thread; false when it does not come by the deadline.
    pub(super) fn wait_stopped(&self, deadline: Instant) -> bool {
        let mut control = lock(&self.control);
        while !control.stopped {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(control, left);
            control = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        true
    }
}

/// The exporter's thread.
struct Worker {
    pipeline: Arc<Pipeline>,
    exporters: Vec<Box<dyn SpanExporter>>,
    resource: Vec<u8>,
    settings: BatchSettings,
    /// Emptied buffers, to be swapped in.
    spare: Vec<Vec<u8>>,
}

/// Spans of one request, by scope.
#[derive(Default)]
struct Gathered {
    scopes: BTreeMap<u16, Vec<u8>>,
    bytes: usize,
    spans: usize,
}

impl Worker {
    fn run(&mut self) {
        let mut next_export = Instant::now() + self.settings.schedule_delay;
        let mut next_anchor = Instant::now() + MAX_PARK;
        loop {
            let now = Instant::now();
            let wait = next_export.min(next_anchor).saturating_duration_since(now);
            if !wait.is_zero() {
                std::thread::park_timeout(wait.min(MAX_PARK));
            }
            if Instant::now() >= next_anchor {
                clock::anchor();
                next_anchor = Instant::now() + MAX_PARK;
            }
            let (ticket, stopping) = {
                let control = lock(&self.pipeline.control);
                (control.flush_asked, control.deadline.is_some())
            };
            let woken = self.pipeline.woken.swap(false, Ordering::Relaxed);
            let due = Instant::now() >= next_export;
            let flushing = ticket > lock(&self.pipeline.control).flush_done;
            if woken || due || flushing || stopping {
                self.export_all();
                next_export = Instant::now() + self.settings.schedule_delay;
            }
            if flushing || stopping {
                if stopping {
                    // A span that passed the gate before it closed may have arrived since.
                    self.export_all();
                    for exporter in &mut self.exporters {
                        exporter.shut_down();
                    }
                }
                let mut control = lock(&self.pipeline.control);
                control.flush_done = control.flush_done.max(ticket);
                control.stopped = stopping;
                drop(control);
                self.pipeline.changed.notify_all();
            }
            if stopping {
                return;
            }
        }
    }

    fn export_all(&mut self) {
        let mut gathered = Gathered::default();
        for index in 0..SHARDS {
            let spare = self.spare.pop().unwrap_or_default();
            let mut taken = std::mem::replace(&mut *lock(&self.pipeline.shards[index]), spare);
            let mut rest = taken.as_slice();
            while let Some((header, tail)) = rest.split_first_chunk::<FRAME_HEADER>() {
                let [len @ .., low, high] = *header;
                let len = u32::from_le_bytes(len) as usize;
                let Some((span, tail)) = tail.split_at_checked(len) else { break };
                rest = tail;
                self.gather(&mut gathered, u16::from_le_bytes([low, high]), span);
            }
            taken.clear();
            if taken.capacity() <= self.settings.max_batch_bytes * 2 {
                self.spare.push(taken);
            }
        }
        self.ship(&mut gathered);
    }

    fn gather(&mut self, gathered: &mut Gathered, scope: u16, span: &[u8]) {
        let full = gathered.bytes + span.len() > self.settings.max_batch_bytes
            || gathered.spans >= self.settings.max_batch_spans.unwrap_or(usize::MAX);
        if full && gathered.spans > 0 {
            self.ship(gathered);
        }
        wire::put_bytes(gathered.scopes.entry(scope).or_default(), 2, span);
        gathered.bytes += span.len();
        gathered.spans += 1;
    }

    fn ship(&mut self, gathered: &mut Gathered) {
        let Gathered { scopes, bytes, spans } = std::mem::take(gathered);
        if spans == 0 {
            return;
        }
        if lock(&self.pipeline.control).deadline.is_some_and(|deadline| Instant::now() >= deadline)
        {
            self.pipeline.counters.shut_down.fetch_add(spans as u64, Ordering::Release);
        } else {
            self.export(&scopes, spans);
        }
        // Room is given back only now, so that the bound holds for what is in flight too.
        self.pipeline.queued_bytes.fetch_sub(bytes + spans * FRAME_HEADER, Ordering::Relaxed);
        self.pipeline.queued_spans.fetch_sub(spans, Ordering::Relaxed);
    }

    fn export(&mut self, scopes: &BTreeMap<u16, Vec<u8>>, spans: usize) {
        let mut request = Vec::new();
        let version = env!("CARGO_PKG_VERSION");
        let scopes = scopes.iter().map(|(scope, items)| {
            (Scope { name: group::scope_name(*scope), version }, items.as_slice())
        });
        put_request(&mut request, &self.resource, scopes);
        let batch = SpanBatch { request: Arc::new(request), spans };
        let outcome = self
            .exporters
            .iter_mut()
            .map(|exporter| export_guarded(exporter.as_mut(), &batch))
            .reduce(worse)
            .unwrap_or(ExportOutcome::Exported { rejected: 0 });
        let counters = &self.pipeline.counters;
        let spans_total = spans as u64;
        match outcome {
            ExportOutcome::Exported { rejected } => {
                let rejected = rejected.min(spans_total);
                counters.rejected.fetch_add(rejected, Ordering::Release);
                counters.exported.fetch_add(spans_total - rejected, Ordering::Release);
            }
            ExportOutcome::Rejected => {
                counters.rejected.fetch_add(spans_total, Ordering::Release);
            }
            ExportOutcome::Failed => {
                counters.export_failed.fetch_add(spans_total, Ordering::Release);
            }
        }
    }
}

/// An exporter that panics loses its batch, not the pipeline.
fn export_guarded(exporter: &mut dyn SpanExporter, batch: &SpanBatch) -> ExportOutcome {
    let export = std::panic::AssertUnwindSafe(|| exporter.export(batch));
    std::panic::catch_unwind(export).unwrap_or(ExportOutcome::Failed)
}

fn worse(left: ExportOutcome, right: ExportOutcome) -> ExportOutcome {
    use ExportOutcome::{Exported, Failed, Rejected};
    match (left, right) {
        (Failed, _) | (_, Failed) => Failed,
        (Rejected, _) | (_, Rejected) => Rejected,
        (Exported { rejected: left }, Exported { rejected: right }) => {
            Exported { rejected: left.max(right) }
        }
    }
}
