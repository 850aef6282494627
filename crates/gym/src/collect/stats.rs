//! What a run has seen so far: counts, durations, means.

use std::collections::BTreeMap;
use std::time::Duration;

/// One class of failures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureClass {
    pub count: u64,
    /// The rollout id and message of the first.
    pub example: Option<(String, String)>,
}

/// Counts and samples of one run.
#[derive(Debug, Default)]
pub struct Stats {
    /// Durations without the admission wait, in nanoseconds.
    durations: Vec<u64>,
    sums: Vec<(String, f64, u64)>,
    failures: BTreeMap<String, FailureClass>,
    /// Rollouts that failed, with their traces.
    failed_traces: Vec<(String, String)>,
    /// Results that the agent asked not to keep.
    pub not_kept: u64,
}

impl Stats {
    /// Keeps the trace of a rollout that failed, until there are too many.
    pub fn failed_trace(&mut self, id: impl FnOnce() -> String, trace_id: String) {
        if self.failed_traces.len() < MAX_TRACES {
            self.failed_traces.push((id(), trace_id));
        }
    }

    /// Ids of rollouts that failed and of their traces, in the order in which they did.
    pub fn failed_traces(&self) -> &[(String, String)] {
        &self.failed_traces
    }

    /// Counts the time of a rollout that has a result.
    pub fn duration(&mut self, duration: Duration) {
        self.durations.push(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds a numeric member of a result.
    pub fn number(&mut self, name: &str, value: f64) {
        if let Some((_, sum, count)) = self.sums.iter_mut().find(|(known, _, _)| known == name) {
            *sum += value;
            *count += 1;
        } else if self.sums.len() < MAX_NUMBERS {
            self.sums.push((name.to_owned(), value, 1));
        }
    }

    /// Counts a failure.
    pub fn failure(&mut self, class: &str, id: impl FnOnce() -> String, message: &str) {
        if let Some(known) = self.failures.get_mut(class) {
            known.count += 1;
            return;
        }
        let class = if self.failures.len() < MAX_CLASSES { class } else { OTHER_CLASSES };
        let entry = self.failures.entry(class.to_owned()).or_insert_with(|| FailureClass {
            count: 0,
            example: Some((id(), message.to_owned())),
        });
        entry.count += 1;
    }

    /// Failures by class.
    pub fn failures(&self) -> &BTreeMap<String, FailureClass> {
        &self.failures
    }

    /// The means of the numeric members, in the order in which they were seen.
    pub fn means(&self) -> impl Iterator<Item = (&str, f64)> {
        self.sums.iter().map(|(name, sum, count)| (name.as_str(), sum / *count as f64))
    }

    /// Percentiles of the durations; `None` without any.
    pub fn percentiles(&mut self) -> Option<Percentiles> {
        self.durations.sort_unstable();
        let count = self.durations.len();
        let last = *self.durations.last()?;
        let at = |percent: usize| {
            let rank = (count * percent).div_ceil(100).max(1);
            Duration::from_nanos(self.durations[rank - 1])
        };
        Some(Percentiles { p50: at(50), p95: at(95), p99: at(99), max: Duration::from_nanos(last) })
    }
}

/// How many different numeric members are averaged.
const MAX_NUMBERS: usize = 64;
/// How many failed rollouts are kept with their traces; all are in the failures file.
const MAX_TRACES: usize = 1000;
/// How many different classes of failures are told apart.
const MAX_CLASSES: usize = 32;
const OTHER_CLASSES: &str = "other";

/// How long rollouts took, without their admission wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percentiles {
    pub p50: Duration,
    pub p95: Duration,
    pub p99: Duration,
    pub max: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let mut stats = Stats::default();
        assert_eq!(stats.percentiles(), None);
        for millis in (1..=100).rev() {
            stats.duration(Duration::from_millis(millis));
        }
        let percentiles = stats.percentiles().unwrap();
        assert_eq!(
            [percentiles.p50, percentiles.p95, percentiles.p99, percentiles.max]
                .map(|value| value.as_millis()),
            [50, 95, 99, 100]
        );
    }

    #[test]
    fn the_first_failure_of_a_class_is_its_example() {
        let mut stats = Stats::default();
        stats.failure("http_error", || "0-0".into(), "500");
        stats.failure("http_error", || "1-0".into(), "502");
        let class = &stats.failures()["http_error"];
        assert_eq!((class.count, class.example.as_ref().unwrap().1.as_str()), (2, "500"));
        for n in 0..100 {
            stats.failure(&format!("class {n}"), String::new, "");
        }
        assert!(stats.failures().len() <= MAX_CLASSES + 1);
    }
}
