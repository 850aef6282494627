//! Wall time that is consistent within the process.
//!
//! A stamp is the monotonic clock plus one offset shared by all threads, so a child never starts before its
//! parent. The exporter's thread corrects the offset every second; a span's length is always a difference of
//! the monotonic clock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

static BASE: OnceLock<Instant> = OnceLock::new();
static UNIX_AT_BASE: AtomicU64 = AtomicU64::new(0);

fn wall_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn base() -> Instant {
    *BASE.get_or_init(|| {
        let now = Instant::now();
        UNIX_AT_BASE.store(wall_nanos(), Ordering::Relaxed);
        now
    })
}

pub(super) fn nanos_between(start: Instant, end: Instant) -> u64 {
    end.saturating_duration_since(start).as_nanos() as u64
}

/// Corrects the offset between the two clocks.
pub(super) fn anchor() {
    let base = base();
    let elapsed = nanos_between(base, Instant::now());
    UNIX_AT_BASE.store(wall_nanos().saturating_sub(elapsed), Ordering::Relaxed);
}

pub(super) fn unix_nanos_at(instant: Instant) -> u64 {
    let base = base();
    let elapsed = nanos_between(base, instant);
    UNIX_AT_BASE.load(Ordering::Relaxed) + elapsed
}

/// Nanoseconds since the epoch, by the clock that stamps spans.
pub fn now_unix_nanos() -> u64 {
    let now = Instant::now();
    unix_nanos_at(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_agrees_with_wall_time() {
        anchor();
        let difference = now_unix_nanos().abs_diff(wall_nanos());
        assert!(difference < 1_000_000_000, "{difference} ns apart");
    }
}
