//! CPU time of this process, as a share of the time that passed.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use rustix::time::{ClockId, clock_gettime};

#[derive(Clone, Copy)]
struct Reading {
    at: Instant,
    cpu_seconds: f64,
}

impl Reading {
    fn now() -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        Self { at: Instant::now(), cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9 }
    }

    /// Percent of one core since an earlier reading; `None` when no time has passed.
    fn percent_since(self, earlier: Self) -> Option<f64> {
        let passed = self.at.checked_duration_since(earlier.at)?.as_secs_f64();
        let used = (self.cpu_seconds - earlier.cpu_seconds).max(0.0);
        (passed > 0.0).then(|| 100.0 * used / passed)
    }
}

static LAST: Mutex<Option<Reading>> = Mutex::new(None);

/// The next percentage counts from here.
pub(super) fn begin() {
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(Reading::now());
}

/// Percent of one core since the last call, or since [`begin`].
pub(super) fn percent_since_last() -> Option<f64> {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Reading::now();
    let percent = now.percent_since((*last)?);
    *last = Some(now);
    percent
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_core_that_was_busy_all_the_time_is_a_hundred_percent() {
        let start = Reading { at: Instant::now(), cpu_seconds: 4.0 };
        let at = |seconds, cpu_seconds| Reading {
            at: start.at + Duration::from_secs(seconds),
            cpu_seconds,
        };
        assert_eq!(at(2, 6.0).percent_since(start), Some(100.0));
        assert_eq!(at(2, 10.0).percent_since(start), Some(300.0));
        assert_eq!(at(4, 4.0).percent_since(start), Some(0.0));
        assert_eq!(start.percent_since(start), None);
        assert_eq!(start.percent_since(at(1, 4.0)), None);
    }

    #[test]
    fn work_of_this_process_is_seen() {
        let before = Reading::now();
        let mut sum = 0_u64;
        while Reading::now().cpu_seconds - before.cpu_seconds < 0.02 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let percent = Reading::now().percent_since(before).unwrap();
        assert!(percent > 0.0, "{percent}");
    }
}
