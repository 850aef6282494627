//! What a store does by itself, in a thread of its own.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::error::StoreError;
use super::{Shared, Store, locked};
use crate::segment::SpanBuffers;

/// How often it looks whether something is due.
const LOOKS_EVERY: Duration = Duration::from_millis(500);

/// Wakes the thread.
#[derive(Debug, Default)]
pub(super) struct Maintenance {
    asked: Mutex<Asked>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Asked {
    is_woken: bool,
    is_stopped: bool,
}

impl Maintenance {
    pub(super) fn wake(&self) {
        locked(&self.asked).is_woken = true;
        self.changed.notify_all();
    }

    pub(super) fn stop(&self) {
        locked(&self.asked).is_stopped = true;
        self.changed.notify_all();
    }

    /// Waits for a reason to look; returns whether to go on.
    fn wait(&self) -> bool {
        let asked = locked(&self.asked);
        let waited = self
            .changed
            .wait_timeout_while(asked, LOOKS_EVERY, |asked| !asked.is_woken && !asked.is_stopped);
        let mut asked = waited.unwrap_or_else(PoisonError::into_inner).0;
        asked.is_woken = false;
        !asked.is_stopped
    }
}

impl Store {
    /// Does what is due. Needed only where [`super::Options::background`] is off.
    ///
    /// # Errors
    ///
    /// When something cannot be written; it is due again later.
    pub fn maintain(&self) -> Result<(), StoreError> {
        self.shared.maintain()
    }
}

impl Shared {
    fn maintain(&self) -> Result<(), StoreError> {
        let _turn = locked(&self.turn);
        let done = self.do_what_is_due();
        if self.state().active.stats().last_seq == 0 {
            // Nothing comes: who is idle holds no memory.
            *locked(&self.buffers) = SpanBuffers::default();
        }
        done
    }

    fn do_what_is_due(&self) -> Result<(), StoreError> {
        let flushed = self.flush_if_due();
        self.set_damaged_aside()?;
        self.retain()?;
        self.mark_rollouts()?;
        self.compact(self.options.compaction.max_small_files + 1)?;
        flushed
    }

    /// Writes memory into segments when that is due, and was not tried just now in vain.
    pub(super) fn flush_if_due(&self) -> Result<(), StoreError> {
        let now_nanos = self.options.clock.now_nanos();
        if !self.is_flush_due(now_nanos) {
            return Ok(());
        }
        let mut upkeep = locked(&self.upkeep);
        if now_nanos < upkeep.retry_at_nanos {
            return Ok(());
        }
        self.flush(&mut upkeep).map(|_| ())
    }

    /// Whether memory is full enough, or old enough, to be written into segments.
    pub(super) fn is_flush_due(&self, now_nanos: u64) -> bool {
        let limits = &self.options.flush;
        let state = self.state();
        if state.frozen.is_some() {
            return true;
        }
        let stats = state.active.stats();
        let is_idle = stats.spans < limits.max_spans / 100;
        let age = if is_idle { limits.idle_age } else { limits.max_age };
        let age_nanos = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        let is_old = now_nanos.saturating_sub(stats.oldest_nanos) >= age_nanos;
        stats.last_seq > 0
            && (stats.spans >= limits.max_spans
                || stats.bytes >= limits.max_bytes
                || is_old
                // Its log may not survive a loss of power: segments do.
                || self.sync.is_in_doubt(stats.last_seq))
    }

    pub(super) fn maintain_until_stopped(&self) {
        loop {
            // What failed stays as it was, and is tried again. What was read back may be due at once.
            self.maintain().ok();
            if !self.maintenance.wait() {
                return;
            }
        }
    }
}
