//! The exporter's thread: one request in flight, the oldest first, nothing given up that can still be kept.
//!
//! What is in flight stays in its slots until the receiver has acknowledged it. While the receiver is away, spans
//! wait in the ring; when half of it is full, they go to files. Only when these are full too, the newest are dropped
//! by the threads that end them.

mod close;

use std::time::{Duration, Instant};

use std::sync::atomic::Ordering;

use super::backlog::{Backlog, Waiting};
use super::gather::{Gain, Gathered, Round, own_scope};
use super::overflow::{Chunk, Overflow};
use super::{
    BUSY_SLOTS, BUSY_TICK, ExportOutcome, Parts, Pipeline, SHORT_TICK, SpanBatch, SpanExporter,
    TICK,
};
use crate::SetupError;
use crate::config::{BatchSettings, Signal};
use crate::enabled::diagnostics::{self, Said};
use crate::enabled::live::LiveEvents;
use crate::enabled::metrics::reader::record_export;
use crate::enabled::otlp::{OtlpBatches, OtlpOutcome, OtlpTicket};
use crate::enabled::raw::mapping::Mapping;
use crate::enabled::raw::ring::{Memory as _, Reader};
use crate::enabled::recover::{self, Dead};
use crate::enabled::{clock, group, lock};

/// How often the clock is corrected.
const ANCHOR: Duration = Duration::from_secs(1);
/// Pauses while the receiver is away.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A receiver that asks for more is tried after this.
const LONGEST_ASKED: Duration = Duration::from_secs(300);

/// A span that has been open for so long is worth a question.
const LONG_OPEN: Duration = Duration::from_secs(1);
/// A request that has been out for so long makes way for newer ones under pressure.
const SLOW_ANSWER: Duration = Duration::from_millis(100);

static BUFFER_FULL: Said = Said::new();
static SPOOL_FULL: Said = Said::new();
static SPOOL_BROKEN: Said = Said::new();

/// A request of this process's items, and which slots it empties.
struct Fresh {
    batch: SpanBatch,
    gains: Vec<Gain>,
    /// What exporters other than OTLP made of it.
    others: Option<ExportOutcome>,
}

enum Load {
    Fresh(Fresh),
    /// The same, safe in a file since.
    Spooled(Chunk),
    /// The front of the backlog.
    Waiting,
    /// Nothing: the receiver is asked whether it shows what is open.
    Question,
}

struct InFlight {
    load: Load,
    ticket: OtlpTicket,
    since: Instant,
}

struct Away {
    until: Instant,
    pause: Duration,
}

pub(super) struct Worker {
    pipeline: &'static Pipeline,
    reader: Reader<Mapping>,
    resource: Vec<u8>,
    settings: BatchSettings,
    exporters: Vec<Box<dyn SpanExporter>>,
    otlp: Option<OtlpBatches>,
    overflow: Option<Overflow>,
    /// Where dead processes leave their rings.
    spool_folder: Option<std::path::PathBuf>,
    live: LiveEvents,
    /// Whether the receiver has ever answered.
    was_answered: bool,
    noted_scopes: usize,
    /// Whether spans came fast when it last looked.
    is_busy: bool,
    round: Round,
    /// Buffers of requests, used again: fresh memory costs more than what is written into it.
    gathered: Gathered,
    spare: Vec<u8>,
    /// The flush that the round under way serves.
    round_ticket: Option<u64>,
    in_flight: Option<InFlight>,
    held: Option<Fresh>,
    backlog: Backlog,
    away: Option<Away>,
    /// Woken by a ring that fills while there was something else to do.
    was_woken: bool,
    /// The last flush for which the receiver was tried at once.
    hurried: u64,
    /// The last flush that is done.
    served: u64,
    next_export: Instant,
    next_anchor: Instant,
    next_counts: Instant,
}

impl Worker {
    pub(super) fn new(pipeline: &'static Pipeline, parts: Parts) -> Result<Self, SetupError> {
        let reader = (pipeline.ring.reader())
            .ok_or(SetupError::Thread { reason: "the ring has a reader already".to_owned() })?;
        let spool_folder = (parts.ring_file.as_deref())
            .and_then(|file| file.parent()?.parent()?.parent())
            .map(std::path::Path::to_owned);
        let max_spool_bytes = parts.settings.max_spool_bytes;
        let overflow =
            parts.overflow.map(|folder| Overflow::new(folder, parts.kind, max_spool_bytes));
        let now = Instant::now();
        let mut worker = Self {
            pipeline,
            reader,
            resource: parts.resource,
            settings: parts.settings,
            exporters: parts.exporters,
            otlp: parts.otlp,
            overflow,
            spool_folder,
            live: parts.live,
            was_answered: false,
            noted_scopes: 0,
            is_busy: false,
            round: Round::default(),
            gathered: Gathered::default(),
            spare: Vec::new(),
            round_ticket: None,
            in_flight: None,
            held: None,
            backlog: Backlog::default(),
            away: None,
            was_woken: false,
            hurried: 0,
            served: 0,
            next_export: now + parts.settings.schedule_delay,
            next_anchor: now + ANCHOR,
            next_counts: now,
        };
        let mapping = pipeline.ring.memory();
        mapping.note(&recover::note(recover::NOTE_RESOURCE, 0, &worker.resource));
        if let Some(overflow) = &worker.overflow {
            let folder = overflow.folder().as_os_str().as_encoded_bytes();
            mapping.note(&recover::note(recover::NOTE_OVERFLOW, 0, folder));
        }
        worker.note_scopes();
        mapping.set_clock(clock::now_unix_nanos());
        Ok(worker)
    }

    /// Tells whoever reads the ring after this process's death what its scopes are called.
    fn note_scopes(&mut self) {
        while let Some(number) = group::scope_number(self.noted_scopes) {
            let (name, version) = group::scope(number);
            let kind = if version.is_empty() { recover::NOTE_TARGET } else { recover::NOTE_SCOPE };
            let note = recover::note(kind, number, name.as_bytes());
            self.pipeline.ring.memory().note(&note);
            self.noted_scopes += 1;
        }
    }

    pub(super) fn run(&mut self) {
        self.adopt();
        loop {
            let wait = self.wait();
            if !wait.is_zero() {
                std::thread::park_timeout(wait);
            }
            self.tick();
            let (flush, adopt, deadline) = {
                let control = lock(&self.pipeline.control);
                let flush =
                    (control.flush_asked > control.flush_done).then_some(control.flush_asked);
                let adopt =
                    (control.adopt_asked > control.adopt_done).then_some(control.adopt_asked);
                (flush, adopt, control.deadline)
            };
            if let Some(ticket) = adopt {
                self.adopt();
                lock(&self.pipeline.control).adopt_done = ticket;
                self.pipeline.changed.notify_all();
            }
            if let Some(deadline) = deadline {
                self.close(deadline);
                lock(&self.pipeline.control).stopped = true;
                self.pipeline.changed.notify_all();
                return;
            }
            if let Some(ticket) = flush
                && ticket > self.hurried
            {
                // Whoever waits wants to know now; but once is enough.
                self.hurried = ticket;
                self.away = None;
            }
            while self.step(flush) {
                if lock(&self.pipeline.control).deadline.is_some() {
                    break;
                }
            }
        }
    }

    fn wait(&self) -> Duration {
        let now = Instant::now();
        let control = lock(&self.pipeline.control);
        let asked = control.flush_asked > control.flush_done && self.in_flight.is_none();
        if control.deadline.is_some() || control.adopt_asked > control.adopt_done {
            return Duration::ZERO;
        }
        drop(control);
        if self.in_flight.is_some() {
            return TICK;
        }
        if let Some(away) = &self.away {
            return away.until.saturating_duration_since(now).min(TICK);
        }
        if asked {
            return Duration::ZERO;
        }
        let tick = match self.settings.max_batch_spans {
            Some(_) => SHORT_TICK,
            None if self.is_busy => BUSY_TICK,
            None => TICK,
        };
        self.next_export.saturating_duration_since(now).min(tick)
    }

    /// What is to be done now and then, whatever else happens.
    fn tick(&mut self) {
        let now = Instant::now();
        if now >= self.next_anchor {
            self.next_anchor = now + ANCHOR;
            clock::anchor();
            self.note_scopes();
            let _alone = lock(&self.pipeline.records);
            self.pipeline.ring.sweep_pages();
        }
        self.pipeline.ring.memory().set_clock(clock::now_unix_nanos());
        if now >= self.next_counts {
            self.next_counts = now + TICK;
            self.pipeline.publish_counts();
        }
        self.live.look(self.pipeline, self.away.is_some());
        if self.pipeline.counters.buffer_full.load(Ordering::Relaxed) > 0 {
            // Said here: the thread that ended the span must not wait for stderr.
            BUFFER_FULL.say("the buffer is full; the newest spans are dropped and counted");
        }
    }

    /// Asks the receiver with an empty request, where nothing has ended that would ask it but something is open.
    fn ask(&mut self) {
        if self.was_answered || !self.live.is_waiting() || self.away.is_some() {
            return;
        }
        let Some(otlp) = self.otlp.as_ref().filter(|_| self.pipeline.is_open_since(LONG_OPEN))
        else {
            return;
        };
        let ticket = otlp.begin(std::sync::Arc::default());
        let since = Instant::now();
        self.in_flight = Some(InFlight { load: Load::Question, ticket, since });
    }

    /// Takes over what dead processes left.
    fn adopt(&mut self) {
        if self.otlp.is_none() {
            return;
        }
        // What a process wrote to files is older than what it left in its ring.
        if let Some(overflow) = &mut self.overflow {
            for chunk in overflow.adopt() {
                self.backlog.push(Waiting::File(chunk));
            }
        }
        if let Some(folder) = &self.spool_folder {
            for dead in Dead::find(folder, self.pipeline.kind) {
                self.backlog.push_dead(dead, self.settings.max_batch_bytes);
            }
        }
    }

    /// Does one thing; false when there is nothing to do but wait.
    fn step(&mut self, flush: Option<u64>) -> bool {
        if let Some(in_flight) = &self.in_flight {
            let Some(outcome) = in_flight.ticket.outcome() else {
                self.relieve();
                return false;
            };
            self.settle(outcome);
            return true;
        }
        if self.away.as_ref().is_some_and(|away| Instant::now() < away.until) {
            self.relieve();
            return false;
        }
        if !self.backlog.is_empty() {
            self.send_waiting();
            return true;
        }
        if let Some(fresh) = self.held.take() {
            self.send(fresh);
            return true;
        }
        if let Some(ticket) = self.round_ticket {
            match self.next_fresh() {
                Some(fresh) => self.send(fresh),
                None => self.end_round(ticket),
            }
            return true;
        }
        let flush = flush.filter(|ticket| *ticket > self.served);
        if flush.is_some() || self.is_due() {
            self.begin_round(flush.unwrap_or(0));
            return true;
        }
        self.ask();
        false
    }

    fn is_due(&self) -> bool {
        self.was_woken
            || self.pipeline.woken.load(Ordering::Relaxed)
            || Instant::now() >= self.next_export
            || self.pipeline.ring.sealed_slots() >= BUSY_SLOTS
            || (self.settings.max_batch_spans)
                .is_some_and(|spans| self.pipeline.ring.waiting_items() >= spans as u64)
    }

    fn begin_round(&mut self, ticket: u64) {
        self.was_woken = false;
        self.pipeline.woken.store(false, Ordering::Relaxed);
        self.is_busy = self.pipeline.ring.sealed_slots() >= BUSY_SLOTS;
        self.round.begin(&mut self.reader);
        self.round_ticket = Some(ticket);
    }

    fn end_round(&mut self, ticket: u64) {
        self.round_ticket = None;
        self.next_export = Instant::now() + self.settings.schedule_delay;
        if ticket > self.served {
            self.served = ticket;
            let mut control = lock(&self.pipeline.control);
            control.flush_done = control.flush_done.max(ticket);
            drop(control);
            self.pipeline.changed.notify_all();
        }
    }

    /// The next request of the round.
    fn next_fresh(&mut self) -> Option<Fresh> {
        let max_items = self.settings.max_batch_spans.unwrap_or(usize::MAX);
        let mut gains = Vec::new();
        let max_bytes = self.settings.max_batch_bytes;
        let gathered = &mut self.gathered;
        self.round.gather(&self.reader, max_bytes, max_items, gathered, &mut gains);
        if gathered.items == 0 {
            return None;
        }
        let spans = gathered.items;
        let mut request = std::mem::take(&mut self.spare);
        gathered.take_request(&mut request, &self.resource, own_scope);
        let batch = SpanBatch { request: std::sync::Arc::new(request), spans };
        Some(Fresh { batch, gains, others: None })
    }

    fn send(&mut self, mut fresh: Fresh) {
        if fresh.others.is_none() && !self.exporters.is_empty() {
            let exporters = self.exporters.iter_mut();
            let outcomes =
                exporters.map(|exporter| export_guarded(exporter.as_mut(), &fresh.batch));
            fresh.others = outcomes.reduce(worse);
        }
        let Some(otlp) = &self.otlp else {
            let outcome = fresh.others.unwrap_or(ExportOutcome::Failed);
            self.count(&fresh, outcome);
            return;
        };
        let ticket = otlp.begin(fresh.batch.shared_request());
        let since = Instant::now();
        self.in_flight = Some(InFlight { load: Load::Fresh(fresh), ticket, since });
    }

    fn send_waiting(&mut self) {
        let Some(front) = self.backlog.front() else { return };
        match (front.request(), &self.otlp) {
            (Ok(request), Some(otlp)) => {
                let ticket = otlp.begin(request);
                let since = Instant::now();
                self.in_flight = Some(InFlight { load: Load::Waiting, ticket, since });
            }
            // Somebody removed or cut the file: there is nothing left to send.
            _ => self.settle_waiting(ExportOutcome::Failed),
        }
    }

    fn settle(&mut self, outcome: OtlpOutcome) {
        let Some(InFlight { load, since, .. }) = self.in_flight.take() else { return };
        if self.live.is_waiting()
            && self.otlp.as_ref().is_some_and(OtlpBatches::is_observed)
            && lock(&self.pipeline.control).deadline.is_none()
        {
            self.live.begin();
        }
        let signal = if self.pipeline.kind.is_logs() { Signal::Logs } else { Signal::Traces };
        record_export(signal, since.elapsed());
        if !matches!(outcome, OtlpOutcome::Exported { rejected: 0 })
            && let Some(otlp) = &self.otlp
        {
            otlp.explain();
        }
        self.was_answered |= !matches!(outcome, OtlpOutcome::Failed { .. });
        let outcome = match outcome {
            OtlpOutcome::Exported { rejected } => ExportOutcome::Exported { rejected },
            OtlpOutcome::Rejected => ExportOutcome::Rejected,
            OtlpOutcome::Failed { not_before } => {
                self.pipeline.counters.failures.fetch_add(1, Ordering::Relaxed);
                self.go_away(not_before);
                match load {
                    Load::Fresh(fresh) => self.held = Some(fresh),
                    // What was spooled meanwhile is newer.
                    Load::Spooled(chunk) => self.backlog.push_front(Waiting::File(chunk)),
                    Load::Waiting | Load::Question => {}
                }
                return;
            }
        };
        self.away = None;
        match load {
            Load::Fresh(fresh) => {
                let outcome = fresh.others.map_or(outcome, |others| worse(others, outcome));
                self.count(&fresh, outcome);
                self.keep_buffer(fresh.batch);
            }
            Load::Spooled(chunk) => self.count_waiting(&Waiting::File(chunk), outcome),
            Load::Waiting => self.settle_waiting(outcome),
            Load::Question => {}
        }
    }

    fn go_away(&mut self, not_before: Option<Duration>) {
        let pause =
            self.away.as_ref().map_or(FIRST_PAUSE, |away| away.pause * 2).min(LONGEST_PAUSE);
        let until = Instant::now() + not_before.unwrap_or(pause).clamp(FIRST_PAUSE, LONGEST_ASKED);
        self.away = Some(Away { until, pause });
    }

    /// Counts what became of a request and gives its slots back.
    fn count(&mut self, fresh: &Fresh, outcome: ExportOutcome) {
        let counters = &self.pipeline.counters;
        let spans = fresh.batch.spans as u64;
        match outcome {
            ExportOutcome::Exported { rejected } => {
                let rejected = rejected.min(spans);
                counters.rejected.fetch_add(rejected, Ordering::Release);
                counters.exported.fetch_add(spans - rejected, Ordering::Release);
            }
            ExportOutcome::Rejected => {
                counters.failures.fetch_add(1, Ordering::Relaxed);
                counters.rejected.fetch_add(spans, Ordering::Release);
            }
            ExportOutcome::Failed => {
                counters.failures.fetch_add(1, Ordering::Relaxed);
                counters.export_failed.fetch_add(spans, Ordering::Release);
            }
        }
        self.acknowledge(&fresh.gains);
    }

    /// Keeps a request's memory for the next one, unless somebody else holds it.
    fn keep_buffer(&mut self, batch: SpanBatch) {
        if let Ok(mut request) = std::sync::Arc::try_unwrap(batch.request)
            && request.capacity() <= self.settings.max_batch_bytes * 2
        {
            request.clear();
            self.spare = request;
        }
    }

    fn acknowledge(&mut self, gains: &[Gain]) {
        let mut items = 0;
        for gain in gains {
            self.reader.acknowledge(gain.slot, gain.sequence, gain.to, gain.items);
            items += u64::from(gain.items);
        }
        if self.pipeline.max_items != u64::MAX {
            self.pipeline.queued_items.fetch_sub(items, Ordering::Relaxed);
        }
    }

    fn settle_waiting(&mut self, outcome: ExportOutcome) {
        if let Some(waiting) = self.backlog.settle_front() {
            self.count_waiting(&waiting, outcome);
        }
    }

    fn count_waiting(&mut self, waiting: &Waiting, outcome: ExportOutcome) {
        let items = waiting.items() as u64;
        let counters = &self.pipeline.counters;
        if let (Waiting::File(chunk), Some(overflow)) = (waiting, &mut self.overflow) {
            overflow.remove(chunk);
        }
        if waiting.is_adopted() {
            let recovered = match outcome {
                ExportOutcome::Exported { rejected } => items - rejected.min(items),
                ExportOutcome::Rejected | ExportOutcome::Failed => 0,
            };
            counters.recovered.fetch_add(recovered, Ordering::Release);
            counters.unrecovered.fetch_add(items - recovered, Ordering::Release);
            return;
        }
        match outcome {
            ExportOutcome::Exported { rejected } => {
                let rejected = rejected.min(items);
                counters.exported.fetch_add(items - rejected, Ordering::Release);
                counters.rejected.fetch_add(rejected, Ordering::Release);
            }
            ExportOutcome::Rejected => {
                counters.rejected.fetch_add(items, Ordering::Release);
            }
            ExportOutcome::Failed => {
                counters.export_failed.fetch_add(items, Ordering::Release);
            }
        }
        counters.spooled.fetch_sub(items, Ordering::Release);
    }

    /// Makes room by writing files in a ring that is half full while the receiver is away or slow, or nearly full.
    fn relieve(&mut self) {
        // Whoever fills the ring wakes this thread again, long before it looks up by itself.
        if self.pipeline.woken.swap(false, Ordering::Relaxed) {
            self.was_woken = true;
        }
        let slots = self.pipeline.ring.memory().slots();
        let is_slow = (self.in_flight.as_ref())
            .is_none_or(|in_flight| in_flight.since.elapsed() >= SLOW_ANSWER);
        let least_free = if is_slow { slots.div_ceil(2) } else { slots.div_ceil(4) };
        if self.otlp.is_none() || self.pipeline.ring.free_slots() >= least_free {
            return;
        }
        if !self.spool_pending() {
            return;
        }
        while self.pipeline.ring.free_slots() < self.pipeline.wake_free_slots {
            if self.round_ticket.is_none() {
                self.begin_round(0);
            }
            let Some(fresh) = self.next_fresh() else {
                // No flush is served by files.
                self.round_ticket = None;
                return;
            };
            match self.spool(&fresh) {
                Some(chunk) => self.backlog.push(Waiting::File(chunk)),
                None => {
                    // It stays in its slots and goes out when the receiver is back.
                    self.held = Some(fresh);
                    return;
                }
            }
        }
    }

    /// Writes what was gathered before, so that what comes after it may be written too; false when it cannot be.
    fn spool_pending(&mut self) -> bool {
        if let Some(InFlight { load, ticket, since }) = self.in_flight.take() {
            let (load, is_safe) = match load {
                Load::Fresh(fresh) => match self.spool(&fresh) {
                    Some(chunk) => (Load::Spooled(chunk), true),
                    None => (Load::Fresh(fresh), false),
                },
                safe => (safe, true),
            };
            self.in_flight = Some(InFlight { load, ticket, since });
            if !is_safe {
                return false;
            }
        }
        if let Some(fresh) = self.held.take() {
            match self.spool(&fresh) {
                Some(chunk) => self.backlog.push(Waiting::File(chunk)),
                None => {
                    self.held = Some(fresh);
                    return false;
                }
            }
        }
        true
    }

    /// Writes a request to a file and gives its slots back.
    fn spool(&mut self, fresh: &Fresh) -> Option<Chunk> {
        let overflow = self.overflow.as_mut()?;
        if !overflow.has_room(fresh.batch.request().len()) {
            SPOOL_FULL.say("the spool is full; the newest spans will be dropped and counted");
            return None;
        }
        match overflow.write(fresh.batch.request(), fresh.batch.spans) {
            Ok(chunk) => {
                let spans = fresh.batch.spans as u64;
                self.pipeline.counters.spooled.fetch_add(spans, Ordering::Release);
                self.acknowledge(&fresh.gains);
                Some(chunk)
            }
            Err(error) => {
                SPOOL_BROKEN.say(&format!("spans cannot be spooled: {error}"));
                None
            }
        }
    }
}

fn export_guarded(exporter: &mut dyn SpanExporter, batch: &SpanBatch) -> ExportOutcome {
    // An exporter that panics must not take the pipeline down.
    let call = std::panic::AssertUnwindSafe(|| exporter.export(batch));
    std::panic::catch_unwind(call).unwrap_or_else(|_| {
        diagnostics::EXPORTER_PANIC.say("an exporter panicked; its batch is lost");
        ExportOutcome::Failed
    })
}

/// The outcome that says less was delivered.
fn worse(left: ExportOutcome, right: ExportOutcome) -> ExportOutcome {
    let rank = |outcome: ExportOutcome| match outcome {
        ExportOutcome::Exported { rejected } => (0, rejected),
        ExportOutcome::Rejected => (1, 0),
        ExportOutcome::Failed => (2, 0),
    };
    if rank(left) >= rank(right) { left } else { right }
}
