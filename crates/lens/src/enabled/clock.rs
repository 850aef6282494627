//! Wall time from a counter: ten nanoseconds a reading, continuous, corrected every second.
//!
//! A stamp is an anchor (a counter value and the wall time that goes with it) plus the ticks since. The exporter's
//! thread renews the anchor every second: it slews, so that time never runs backwards and a child never starts
//! before its parent, and steps only where the wall clock itself stepped. A span's end is its start plus the counter's
//! difference at the measured rate, whatever the wall clock does meanwhile.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::lock;
use super::process::PROCESS;
use super::raw::counter;

/// A rate is nanoseconds a tick, as a fraction of this: less than sixteen of them.
const UNIT: u128 = 1 << UNIT_BITS;
const UNIT_BITS: u32 = 60;
/// Wall time that is further off than this is a step, not drift.
const STEP_NANOS: u64 = 50_000_000;
/// Most that a second is stretched or shortened to follow the wall clock: one part in this.
const SLEW_PARTS: u64 = 2_000;
const SECOND_NANOS: u64 = 1_000_000_000;
/// The first look at the counter's rate; each second makes it better.
const FIRST_LOOK: Duration = Duration::from_millis(2);

fn scale(ticks: u64, rate: u64) -> u64 {
    // The upper half of a product is there without a shift; sixty bits of ticks are ten years.
    ((u128::from(ticks << (u64::BITS - UNIT_BITS)) * u128::from(rate)) >> u64::BITS) as u64
}

/// Anchor and rates, readable by every thread without waiting.
#[derive(Debug)]
pub(super) struct Clock {
    /// Odd while an anchor is written.
    sequence: AtomicU32,
    ticks: AtomicU64,
    wall_nanos: AtomicU64,
    /// At which wall time advances; slewed.
    wall_rate: AtomicU64,
    /// At which lengths are measured.
    rate: AtomicU64,
}

impl Clock {
    pub(super) const fn unset() -> Self {
        Self {
            sequence: AtomicU32::new(0),
            ticks: AtomicU64::new(0),
            wall_nanos: AtomicU64::new(0),
            wall_rate: AtomicU64::new(0),
            rate: AtomicU64::new(0),
        }
    }

    fn is_set(&self) -> bool {
        self.rate.load(Ordering::Relaxed) != 0
    }

    /// Wall time when the counter shows `ticks`.
    #[inline]
    fn unix_nanos(&self, ticks: u64) -> u64 {
        loop {
            let before = self.sequence.load(Ordering::Acquire);
            let anchor = self.ticks.load(Ordering::Relaxed);
            let wall_nanos = self.wall_nanos.load(Ordering::Relaxed);
            let rate = self.wall_rate.load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            if before & 1 == 0 && self.sequence.load(Ordering::Relaxed) == before {
                // A stamp may have been taken just before the anchor was.
                return match ticks.checked_sub(anchor) {
                    Some(since) => wall_nanos + scale(since, rate),
                    None => wall_nanos.saturating_sub(scale(anchor - ticks, rate)),
                };
            }
            std::hint::spin_loop();
        }
    }

    #[inline]
    fn nanos_between(&self, start: u64, end: u64) -> u64 {
        scale(end.saturating_sub(start), self.rate.load(Ordering::Relaxed))
    }

    /// Takes a new anchor: at `ticks` the wall clock showed `wall_nanos`, and the counter has run at `rate`.
    fn anchor(&self, ticks: u64, wall_nanos: u64, rate: u64) {
        let (shown, wall_rate) = if self.is_set() {
            let expected = self.unix_nanos(ticks);
            let off = wall_nanos.abs_diff(expected);
            if off > STEP_NANOS {
                (wall_nanos, rate)
            } else {
                // Runs a little faster or slower, so that in a second it shows what it should.
                let slew = off.min(SECOND_NANOS / SLEW_PARTS);
                let change =
                    (u128::from(rate) * u128::from(slew) / u128::from(SECOND_NANOS)) as u64;
                let rate =
                    if wall_nanos > expected { rate.saturating_add(change) } else { rate - change };
                (expected, rate)
            }
        } else {
            (wall_nanos, rate)
        };
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.ticks.store(ticks, Ordering::Relaxed);
        self.wall_nanos.store(shown, Ordering::Relaxed);
        self.wall_rate.store(wall_rate, Ordering::Relaxed);
        self.rate.store(rate, Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }
}

/// Where the measurement of the counter's rate began; whoever holds it may anchor.
static ORIGIN: Mutex<Option<(u64, Instant)>> = Mutex::new(None);

/// Keeps every thread from anchoring.
pub(super) type Held = MutexGuard<'static, Option<(u64, Instant)>>;

/// Waits until no other thread anchors, and lets none begin.
pub(super) fn hold() -> Held {
    lock(&ORIGIN)
}

fn wall_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads counter and another clock as nearly together as a thread can that may lose its processor in between.
fn read_with<T>(other: impl Fn() -> T) -> (u64, T) {
    let mut best: Option<(u64, u64, T)> = None;
    for _ in 0..4 {
        let before = counter::read();
        let value = other();
        let width = counter::read().saturating_sub(before);
        if best.as_ref().is_none_or(|(known, ..)| width < *known) {
            best = Some((width, before + width / 2, value));
        }
    }
    let (_, ticks, value) = best.unwrap_or_else(|| (0, counter::read(), other()));
    (ticks, value)
}

/// The rate at which a counter makes so many ticks in so many nanoseconds; `None` when no counter does that.
fn rate_of(ticks: Option<u64>, nanos: u128) -> Option<u64> {
    let rate = (nanos * UNIT).checked_div(u128::from(ticks?))?;
    u64::try_from(rate).ok().filter(|rate| *rate > 0)
}

/// Corrects the clock by the wall clock; the first call makes it.
pub(super) fn anchor() {
    let mut origin = lock(&ORIGIN);
    let (first_ticks, first) = *origin.get_or_insert_with(|| {
        let origin = read_with(Instant::now);
        if !counter::is_in_nanos() {
            while origin.1.elapsed() < FIRST_LOOK {
                std::hint::spin_loop();
            }
        }
        origin
    });
    let rate = if counter::is_in_nanos() {
        UNIT as u64
    } else {
        let (ticks, now) = read_with(Instant::now);
        let nanos = now.saturating_duration_since(first).as_nanos();
        rate_of(ticks.checked_sub(first_ticks), nanos).unwrap_or_else(|| {
            // The counter began anew, as after a restored snapshot of a machine: so does its measurement.
            *origin = Some((ticks, now));
            PROCESS.clock.rate.load(Ordering::Relaxed).max(1)
        })
    };
    let (ticks, wall_nanos) = read_with(wall_nanos);
    PROCESS.clock.anchor(ticks, wall_nanos, rate);
}

/// A moment, by the counter.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ticks(u64);

impl Ticks {
    #[inline]
    pub(super) fn now() -> Self {
        Self(counter::read())
    }

    /// Nanoseconds since the epoch.
    #[inline]
    pub(super) fn unix_nanos(self) -> u64 {
        PROCESS.clock.unix_nanos(self.0)
    }

    /// Nanoseconds from here to `end`; zero when that was before.
    #[inline]
    pub(super) fn nanos_until(self, end: Self) -> u64 {
        PROCESS.clock.nanos_between(self.0, end.0)
    }
}

/// Whether the counter's rate is known.
#[inline]
pub(super) fn is_set() -> bool {
    PROCESS.clock.is_set()
}

/// Nanoseconds since the epoch, by the clock that stamps spans.
pub fn now_unix_nanos() -> u64 {
    if PROCESS.clock.is_set() { Ticks::now().unix_nanos() } else { wall_nanos() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ticks a nanosecond.
    const RATE: u64 = (UNIT / 2) as u64;
    const WALL: u64 = 1_700_000_000_000_000_000;

    fn clock() -> Clock {
        let clock = Clock::unset();
        clock.anchor(1_000, WALL, RATE);
        clock
    }

    #[test]
    fn stamps_follow_the_counter() {
        let clock = clock();
        assert_eq!(clock.unix_nanos(1_000), WALL);
        assert_eq!(clock.unix_nanos(3_000), WALL + 1_000);
        assert_eq!(clock.unix_nanos(800), WALL - 100, "a stamp taken before the anchor");
    }

    #[test]
    fn length_is_the_difference_of_the_counter_whatever_the_wall_clock_does() {
        let clock = clock();
        clock.anchor(1_000_000, WALL + 3_600 * SECOND_NANOS, RATE);
        assert_eq!(clock.nanos_between(1_000, 2_001_000), 1_000_000);
        assert_eq!(clock.nanos_between(2_000, 1_000), 0);
    }

    #[test]
    fn step_of_the_wall_clock_is_followed_at_once() {
        let clock = clock();
        clock.anchor(2_001_000, WALL - 3_600 * SECOND_NANOS, RATE);
        assert_eq!(clock.unix_nanos(2_001_000), WALL - 3_600 * SECOND_NANOS);
    }

    #[test]
    fn drift_is_slewed_and_time_never_runs_backwards() {
        let clock = clock();
        let (mut ticks, mut wall) = (1_000, WALL);
        let mut last = clock.unix_nanos(ticks);
        // The wall clock runs slow by a hundred parts in a million.
        for second in 0..20 {
            for _ in 0..1_000 {
                ticks += 2_000_000;
                let now = clock.unix_nanos(ticks);
                assert!(now > last);
                last = now;
            }
            wall += SECOND_NANOS - 100_000;
            clock.anchor(ticks, wall, RATE);
            let now = clock.unix_nanos(ticks);
            assert!(now >= last, "second {second}");
            assert!(now.abs_diff(wall) < 250_000, "{} ns off", now.abs_diff(wall));
            last = now;
        }
    }

    #[test]
    fn counter_that_begins_anew_has_no_rate_and_time_goes_on() {
        assert_eq!(rate_of(Some(2_000_000), 1_000_000), Some(RATE));
        assert_eq!(rate_of(None, 1_000_000), None, "it went back");
        assert_eq!(rate_of(Some(0), 1_000_000), None, "it stands");
        assert_eq!(rate_of(Some(1), 1_000_000), None, "it crawls");
        assert_eq!(rate_of(Some(u64::MAX), 1), None, "it races");
        let clock = clock();
        clock.anchor(5_000_000_001_000, WALL + 2_500 * SECOND_NANOS, RATE);
        clock.anchor(7, WALL + 2_501 * SECOND_NANOS, RATE);
        assert_eq!(clock.unix_nanos(2_007), WALL + 2_501 * SECOND_NANOS + 1_000);
        clock.anchor(8, WALL + 2_501 * SECOND_NANOS, u64::MAX);
        assert!(clock.unix_nanos(8) >= WALL + 2_501 * SECOND_NANOS);
    }

    #[test]
    fn clock_agrees_with_wall_time() {
        anchor();
        let difference = now_unix_nanos().abs_diff(wall_nanos());
        assert!(difference < 50_000_000, "{difference} ns apart");
        let (start, began) = (Ticks::now(), Instant::now());
        std::thread::sleep(Duration::from_millis(20));
        let (end, elapsed) = (Ticks::now(), began.elapsed().as_nanos() as u64);
        let measured = start.nanos_until(end);
        assert!(measured.abs_diff(elapsed) < elapsed / 20, "{measured} for {elapsed}");
    }
}
