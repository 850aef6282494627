//! From an ended span to its exporters: slots, one thread, exact counts.
//!
//! The thread that ends a span writes its bytes into a slot of the ring; the exporter's thread reads what is
//! published, gathers it by scope into request bodies and acknowledges it only when it is safe elsewhere. A full ring
//! drops the newest span and counts it. Log records go the same way through a ring of their own.

mod backlog;
mod closer;
pub(super) mod counts;
pub(super) mod gather;
mod overflow;
mod trim;
mod worker;
pub(super) mod writer;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::live::LiveEvents;
use super::lock;
use super::otlp::OtlpBatches;
use super::process::PROCESS;
use super::raw::fork;
use super::raw::mapping::{Mapping, SLOT_BYTES};
use super::raw::published::Published;
use super::raw::records::Record as RingRecord;
use super::raw::ring::{Memory as _, Ring};
use crate::config::BatchSettings;
use crate::semconv::drop_reason;
use crate::{PipelineSnapshot, SetupError};

type PipelineRing = Ring<Mapping>;
type RingWriter = super::raw::ring::Writer<Mapping>;

/// Finished spans (or log records) as one OTLP request.
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
    /// Not delivered, and not to be tried again: what an exporter wants retried it retries itself.
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

/// What a pipeline carries. The numbers are part of the file's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Spans = 1,
    Logs = 2,
}

impl Kind {
    pub(super) fn is_logs(self) -> bool {
        self == Self::Logs
    }

    pub(super) fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Spans),
            2 => Some(Self::Logs),
            _ => None,
        }
    }
}

/// Items by what became of them. `spooled` goes down again when a spooled chunk is delivered.
#[derive(Debug, Default)]
struct Counters {
    exported: AtomicU64,
    rejected: AtomicU64,
    spooled: AtomicU64,
    buffer_full: AtomicU64,
    too_large: AtomicU64,
    export_failed: AtomicU64,
    /// Ended after the gate closed.
    shut_down: AtomicU64,
    /// Ended before, and not on its way in time.
    late: AtomicU64,
    spool_full: AtomicU64,
    /// Items of dead processes that were delivered.
    recovered: AtomicU64,
    /// Items of dead processes that a receiver refused, or whose file cannot be read.
    unrecovered: AtomicU64,
    /// Long-lived spans that have no start record.
    unrecorded: AtomicU64,
    /// Exports that failed.
    failures: AtomicU64,
}

#[derive(Debug, Default)]
struct Control {
    flush_asked: u64,
    flush_done: u64,
    adopt_asked: u64,
    adopt_done: u64,
    stopped: bool,
    /// Set by shutdown: what is not on its way by then is spooled, or dropped and counted.
    deadline: Option<Instant>,
}

/// What the exporter's thread is started with.
pub(super) struct Parts {
    pub(super) kind: Kind,
    pub(super) settings: BatchSettings,
    /// An encoded `Resource`.
    pub(super) resource: Vec<u8>,
    pub(super) exporters: Vec<Box<dyn SpanExporter>>,
    pub(super) otlp: Option<OtlpBatches>,
    /// Where the ring lives; anonymous memory when there is none.
    pub(super) ring_file: Option<PathBuf>,
    /// Where undeliverable chunks go.
    pub(super) overflow: Option<PathBuf>,
    /// What is done about open spans.
    pub(super) live: LiveEvents,
}

/// Whether the exporter has ended, and where its ring is then.
mod end {
    pub(super) const RUNNING: u8 = 0;
    /// In its file, for the next start.
    pub(super) const KEPT: u8 = 1;
    /// Nowhere.
    pub(super) const GONE: u8 = 2;
}

#[derive(Debug)]
pub(super) struct Pipeline {
    kind: Kind,
    ring: &'static PipelineRing,
    generation: u32,
    /// Whether the ring is a file that others find.
    outlives_process: bool,
    /// Fewer free slots than these wake the exporter.
    wake_free_slots: u32,
    max_items: u64,
    /// Kept only where the number of items is bounded.
    queued_items: AtomicU64,
    woken: AtomicBool,
    closed: AtomicBool,
    /// What becomes of items that are published after the exporter's last look: one of [`end`].
    at_end: AtomicU8,
    /// Whether items come without further questions: not closed, and not bounded in number.
    is_open: AtomicBool,
    exporter: OnceLock<Thread>,
    counters: Counters,
    /// Held by whoever reads start records or frees their pages.
    records: Mutex<()>,
    control: Mutex<Control>,
    changed: Condvar,
}

static LOGS: Published<Pipeline> = Published::nothing();

/// The pipeline of log records, if there is one.
pub(super) fn logs() -> Option<&'static Pipeline> {
    LOGS.get()
}

/// Lets go of pipelines that another process drains; only stores to atomics.
pub(super) fn forget_all() {
    PROCESS.spans.clear();
    LOGS.clear();
}

impl Pipeline {
    /// Starts a pipeline of this process; the second value says what was done other than asked.
    pub(super) fn start(parts: Parts) -> Result<(&'static Self, Option<String>), SetupError> {
        let kind = parts.kind;
        let settings = parts.settings;
        let slots = u32::try_from(settings.max_queue_bytes / SLOT_BYTES).unwrap_or(u32::MAX >> 8);
        let slots = slots.clamp(1, 1 << 16);
        let (mapping, warning) = map(parts.ring_file.as_deref(), slots, kind)?;
        let outlives_process = mapping.path().is_some();
        let ring: &'static PipelineRing = Box::leak(Box::new(Ring::new(mapping)));
        let pipeline: &'static Self = Box::leak(Box::new(Self {
            kind,
            ring,
            generation: fork::generation(),
            outlives_process,
            wake_free_slots: slots - slots.div_ceil(4),
            max_items: settings.max_queue_spans.map_or(u64::MAX, |spans| spans as u64),
            queued_items: AtomicU64::new(0),
            woken: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            at_end: AtomicU8::new(end::RUNNING),
            is_open: AtomicBool::new(settings.max_queue_spans.is_none()),
            exporter: OnceLock::new(),
            counters: Counters::default(),
            records: Mutex::default(),
            control: Mutex::default(),
            changed: Condvar::new(),
        }));
        let mut worker = worker::Worker::new(pipeline, parts)?;
        let name = if kind.is_logs() { "lens-logs" } else { "lens-export" };
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || worker.run())
            .map_err(|error| SetupError::Thread { reason: error.to_string() })?;
        let _ = pipeline.exporter.set(thread.thread().clone());
        match kind {
            Kind::Spans => PROCESS.spans.set(pipeline),
            Kind::Logs => LOGS.set(pipeline),
        }
        Ok((pipeline, warning))
    }

    /// Whether this process made it, rather than one that it was forked from.
    #[inline]
    fn is_ours(&self) -> bool {
        self.generation == fork::generation()
    }

    /// Whether one more item may come; a refusal is counted.
    #[inline(always)]
    fn admit(&self) -> bool {
        self.is_open.load(Ordering::Relaxed) || self.admit_asking()
    }

    #[cold]
    #[inline(never)]
    fn admit_asking(&self) -> bool {
        if self.closed.load(Ordering::Relaxed) {
            self.refuse(|counters| &counters.shut_down);
            return false;
        }
        if self.max_items == u64::MAX {
            return true;
        }
        let queued = self.queued_items.fetch_add(1, Ordering::Relaxed) + 1;
        if queued > self.max_items {
            self.queued_items.fetch_sub(1, Ordering::Relaxed);
            self.counters.buffer_full.fetch_add(1, Ordering::Relaxed);
            self.wake();
            return false;
        }
        true
    }

    #[cold]
    fn refuse(&self, counter: impl Fn(&Counters) -> &AtomicU64) {
        counter(&self.counters).fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an item that was admitted and cannot be kept: it is no longer one of those that wait.
    #[cold]
    fn refuse_admitted(&self, counter: impl Fn(&Counters) -> &AtomicU64) {
        if self.max_items != u64::MAX {
            self.queued_items.fetch_sub(1, Ordering::Relaxed);
        }
        self.refuse(counter);
    }

    /// Counts an item that is there without having been admitted.
    fn count_queued(&self) {
        if self.max_items != u64::MAX {
            self.queued_items.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[cold]
    fn count_unrecorded(&self) {
        self.counters.unrecorded.fetch_add(1, Ordering::Relaxed);
    }

    /// A wake costs microseconds, so there is one for each time the exporter comes around.
    fn wake(&self) {
        if !self.woken.load(Ordering::Relaxed) && !self.woken.swap(true, Ordering::Relaxed) {
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(thread) = self.exporter.get() {
            thread.unpark();
        }
    }

    pub(super) fn snapshot(&self) -> PipelineSnapshot {
        let counters = &self.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Acquire);
        // What left is read before what came, so nothing seems lost.
        let (exported, rejected) = (read(&counters.exported), read(&counters.rejected));
        // An item may be on its way into the ring while the exporter ends; nobody takes it out any more.
        let (kept, gone_late) = match self.at_end.load(Ordering::Acquire) {
            end::KEPT => (self.ring.waiting_items(), 0),
            end::GONE => (0, self.ring.waiting_items()),
            _ => (0, 0),
        };
        let spooled = read(&counters.spooled) + kept;
        let (buffer_full, too_large) = (read(&counters.buffer_full), read(&counters.too_large));
        let (export_failed, spool_full) =
            (read(&counters.export_failed), read(&counters.spool_full));
        let (late, shut_down) = (read(&counters.late) + gone_late, read(&counters.shut_down));
        let refused = buffer_full + too_large + shut_down;
        let ended = self.ring.published_items() + refused;
        let gone = exported + rejected + spooled + export_failed + spool_full + late + refused;
        let dropped = [
            (drop_reason::BUFFER_FULL, buffer_full),
            (drop_reason::TOO_LARGE, too_large),
            (drop_reason::EXPORT_FAILED, export_failed),
            (drop_reason::SPOOL_FULL, spool_full),
            (drop_reason::SHUT_DOWN, late + shut_down),
        ];
        PipelineSnapshot {
            ended,
            exported,
            rejected,
            dropped: dropped.into_iter().filter(|(_, count)| *count > 0).collect(),
            spooled,
            queued: ended.saturating_sub(gone),
            recovered: read(&counters.recovered),
            unrecovered: read(&counters.unrecovered),
            unrecorded: read(&counters.unrecorded),
            buffer_bytes: self.ring.memory().bytes() as u64,
            buffer_fill: self.fill(),
            export_failures: read(&counters.failures),
        }
    }

    /// Lets others who look at the mapping see the counts.
    fn publish_counts(&self) {
        self.ring.memory().set_counts(&counts::to_words(&self.snapshot()));
    }

    /// The share of the ring that is in use.
    fn fill(&self) -> f64 {
        let slots = self.ring.memory().slots();
        f64::from(slots - self.ring.free_slots().min(slots)) / f64::from(slots)
    }

    /// Asks for the export of what ended before the call; returns the ticket to wait with.
    pub(super) fn begin_flush(&self) -> u64 {
        let mut control = lock(&self.control);
        control.flush_asked += 1;
        self.unpark();
        control.flush_asked
    }

    /// Waits for the export of a ticket; false when it is not done by the deadline.
    pub(super) fn wait_flushed(&self, ticket: u64, deadline: Instant) -> bool {
        self.wait(deadline, |control| control.flush_done >= ticket)
    }

    /// Asks for what dead processes left to be taken over; returns the ticket to wait with.
    pub(super) fn begin_adopt(&self) -> u64 {
        let ticket = {
            let mut control = lock(&self.control);
            control.adopt_asked += 1;
            control.adopt_asked
        };
        self.unpark();
        ticket
    }

    /// Waits until what the dead left is found, not until it is delivered.
    pub(super) fn wait_adopted(&self, ticket: u64, deadline: Instant) -> bool {
        self.wait(deadline, |control| control.adopt_done >= ticket)
    }

    /// Refuses further spans and asks for the export of what is left, up to the deadline.
    pub(super) fn begin_shut_down(&self, deadline: Instant) {
        self.closed.store(true, Ordering::Relaxed);
        self.is_open.store(false, Ordering::Relaxed);
        lock(&self.control).deadline.get_or_insert(deadline);
        self.unpark();
    }

    /// Waits for the end of the thread; false when it does not come by the deadline.
    pub(super) fn wait_stopped(&self, deadline: Instant) -> bool {
        self.wait(deadline, |control| control.stopped)
    }

    fn wait(&self, deadline: Instant, is_done: impl Fn(&Control) -> bool) -> bool {
        if !self.is_ours() {
            // The thread that would answer lives in the parent.
            return true;
        }
        let mut control = lock(&self.control);
        while !is_done(&control) && !control.stopped {
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

/// The memory of a ring, and why it is not the file that was asked for.
fn map(
    path: Option<&std::path::Path>,
    slots: u32,
    kind: Kind,
) -> Result<(Mapping, Option<String>), SetupError> {
    let anonymous = || {
        Mapping::anonymous(slots).map_err(|error| SetupError::Memory {
            bytes: slots as usize * SLOT_BYTES,
            reason: error.to_string(),
        })
    };
    let Some(path) = path else { return Ok((anonymous()?, None)) };
    let create = || {
        // A run's folder is made by its first process and goes with its last.
        in_folder(path.parent(), || Mapping::create(path, slots, kind as u32))
    };
    match create() {
        Ok(mapping) => Ok((mapping, None)),
        Err(error) => {
            let warning = format!(
                "spans would not survive a killed process: {} cannot be made: {error}",
                path.display()
            );
            Ok((anonymous()?, Some(warning)))
        }
    }
}

use overflow::in_folder;
pub use overflow::leftovers;
pub(super) use overflow::{ABANDONED, is_locked, is_older, newest};

/// How often the exporter's thread looks up by itself: it says that the process is alive, and sees what is due.
const TICK: Duration = Duration::from_millis(100);
/// The same while spans keep coming: what is read soon is still in the cache, and its slots are used again.
const BUSY_TICK: Duration = Duration::from_millis(20);
/// So many full slots are worth a request of their own.
const BUSY_SLOTS: usize = 4;
/// The same while a request is to go out at a number of spans.
const SHORT_TICK: Duration = Duration::from_millis(5);
