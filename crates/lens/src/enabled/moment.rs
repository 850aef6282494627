//! Moments of a process, to measure lengths by the clock that stamps spans.

use super::clock::{self, Ticks};

/// A moment. Cheap to take: one reading of the processor's counter.
#[derive(Clone, Copy, Debug)]
pub struct Moment(Ticks);

impl Moment {
    /// Now.
    #[inline]
    pub fn now() -> Self {
        Self(Ticks::now())
    }

    /// Nanoseconds from here to `later`, whatever the wall clock did meanwhile; zero when that was before.
    ///
    /// Zero too before telemetry is set up for the first time, which measures the counter's rate.
    #[inline]
    pub fn nanos_until(self, later: Self) -> u64 {
        self.0.nanos_until(later.0)
    }

    /// Nanoseconds since the epoch, as a span that starts at this moment has them.
    #[inline]
    pub fn unix_nanos(self) -> u64 {
        if clock::is_set() { self.0.unix_nanos() } else { clock::now_unix_nanos() }
    }
}
