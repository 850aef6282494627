//! The end: what can still be sent is sent, the rest is kept or counted, all within the time that is left.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Fresh, InFlight, Load, Worker};
use crate::enabled::otlp::OtlpBatches;
use crate::enabled::pipeline::end;
use crate::enabled::recover;

/// Longest sleep while the last request is out.
const LAST_TICK: Duration = Duration::from_millis(20);
/// Longest time that is set aside for writing files.
const LAST_WORDS: Duration = Duration::from_millis(500);

impl Worker {
    pub(super) fn close(&mut self, deadline: Instant) {
        // One more attempt, however long ago the last one failed.
        self.away = None;
        let until = self.last_call(deadline);
        let refusals = self.otlp.as_ref().map_or(0, OtlpBatches::refusals);
        if let (Some(otlp), true) = (&self.otlp, self.in_flight.is_some()) {
            otlp.hurry();
        }
        let mut last_round = false;
        while Instant::now() < until && self.away.is_none() {
            if self.step(None) {
                continue;
            }
            if self.in_flight.is_some() {
                if self.is_refused_since(refusals) {
                    break;
                }
                let left = until.saturating_duration_since(Instant::now());
                std::thread::park_timeout(left.min(LAST_TICK));
            } else if last_round {
                break;
            } else {
                // What ended before the gate closed is published by now, and there is room for what had none before.
                self.pipeline.close_open_spans();
                last_round = true;
                self.begin_round(0);
            }
        }
        self.give_up();
        for exporter in &mut self.exporters {
            exporter.shut_down();
        }
        self.round_ticket = None;
        let asked = super::lock(&self.pipeline.control).flush_asked;
        self.end_round(asked);
        let file = self.pipeline.ring.memory().path();
        let at_end = match file {
            Some(_) if self.pipeline.ring.waiting_items() > 0 => end::KEPT,
            Some(path) => {
                recover::remove(path);
                end::GONE
            }
            None => end::GONE,
        };
        self.pipeline.at_end.store(at_end, Ordering::Release);
        self.overflow = None;
    }

    /// Whether nobody was there at the last try: what can be kept need not wait for the deadline.
    fn is_refused_since(&self, refusals: u64) -> bool {
        let can_keep = self.overflow.is_some() || self.pipeline.outlives_process;
        let Some(otlp) = self.otlp.as_ref().filter(|_| can_keep) else { return false };
        if otlp.refusals() == refusals {
            return false;
        }
        self.pipeline.counters.failures.fetch_add(1, Ordering::Relaxed);
        otlp.explain();
        true
    }

    /// When to stop waiting for the receiver: files are to be written before the deadline, not after it.
    fn last_call(&self, deadline: Instant) -> Instant {
        if self.overflow.is_none() {
            return deadline;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        deadline.checked_sub((left / 4).min(LAST_WORDS)).unwrap_or(deadline)
    }

    /// Keeps what was not delivered where the next start finds it, or counts it as lost.
    fn give_up(&mut self) {
        let pending = match self.in_flight.take() {
            Some(InFlight { load: Load::Fresh(fresh), .. }) => Some(fresh),
            _ => self.held.take(),
        };
        // Files wait in their folder, what the dead left in their rings.
        drop(self.backlog.drain());
        if pending.is_some_and(|fresh| !self.keep_or_drop(fresh)) {
            return;
        }
        loop {
            if self.round_ticket.is_none() {
                self.begin_round(0);
                if self.round.is_done() {
                    if self.pipeline.close_open_spans() == 0 {
                        break;
                    }
                    self.begin_round(0);
                }
            }
            match self.next_fresh() {
                Some(fresh) if self.otlp.is_some() => {
                    if !self.keep_or_drop(fresh) {
                        return;
                    }
                }
                Some(fresh) => {
                    let spans = fresh.batch.spans as u64;
                    self.pipeline.counters.late.fetch_add(spans, Ordering::Release);
                    self.acknowledge(&fresh.gains);
                }
                None => self.round_ticket = None,
            }
        }
    }

    /// False when what is left stays in the ring as it is.
    fn keep_or_drop(&mut self, fresh: Fresh) -> bool {
        if self.spool(&fresh).is_some() {
            return true;
        }
        let counters = &self.pipeline.counters;
        if self.pipeline.outlives_process {
            return false;
        }
        let lost =
            if self.overflow.is_some() { &counters.spool_full } else { &counters.export_failed };
        lost.fetch_add(fresh.batch.spans as u64, Ordering::Release);
        self.acknowledge(&fresh.gains);
        true
    }
}
