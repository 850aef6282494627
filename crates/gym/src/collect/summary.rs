//! What a run came to: for people on stderr, as JSON on stdout.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use super::files::RunFiles;
use super::metrics::AgentMetrics;
use super::stats::{Percentiles, Stats};

/// Traces of failed rollouts that are told to people.
const TOLD_TRACES: usize = 10;

/// What a run came to.
#[derive(Debug, Clone, Serialize)]
pub struct CollectSummary {
    /// The run's id, on every span of its rollouts.
    pub collection_id: String,
    /// Results written by this run.
    pub done: u64,
    /// Failures written by this run.
    pub failed: u64,
    /// Results that the agent asked not to keep.
    pub not_kept: u64,
    /// Rollouts that earlier runs had finished or given up.
    pub skipped: u64,
    /// Rollouts that were planned and not made.
    pub unmade: u64,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    pub elapsed_seconds: f64,
    pub rollouts_per_second: f64,
    /// How long rollouts took, without their admission wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_millis: Option<DurationMillis>,
    /// The means of the numeric members of the results of this run.
    pub means: Map<String, Value>,
    /// Failures by class.
    pub failures: Vec<FailureSummary>,
    /// The traces of the rollouts that failed, the first thousand; all are in the failures file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_traces: Vec<FailedTrace>,
    /// The key metrics by agent.
    pub key_metrics: Map<String, Value>,
    pub files: WrittenFiles,
}

/// Percentiles in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct DurationMillis {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
}

/// One class of failures.
#[derive(Debug, Clone, Serialize)]
pub struct FailureSummary {
    pub class: String,
    pub count: u64,
    /// The rollout id and message of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_rollout_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_message: Option<String>,
}

/// A rollout that failed, and where to look.
#[derive(Debug, Clone, Serialize)]
pub struct FailedTrace {
    pub rollout_id: String,
    pub trace_id: String,
}

/// The files of a run.
#[derive(Debug, Clone, Serialize)]
pub struct WrittenFiles {
    pub output: PathBuf,
    pub failures: PathBuf,
    pub materialized_inputs: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate_metrics: Option<PathBuf>,
}

/// The counts of a run that are not in its statistics.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub done: u64,
    pub failed: u64,
    pub skipped: u64,
    pub unmade: u64,
    pub interrupted: bool,
    pub elapsed: Duration,
}

impl CollectSummary {
    /// Sums up a run.
    pub fn new(
        collection_id: String,
        counts: Counts,
        stats: &mut Stats,
        metrics: Option<&[AgentMetrics]>,
        files: &RunFiles,
    ) -> CollectSummary {
        let elapsed_seconds = counts.elapsed.as_secs_f64();
        let made = counts.done + counts.failed + stats.not_kept;
        let failures = stats.failures().iter().map(|(class, failure)| FailureSummary {
            class: class.clone(),
            count: failure.count,
            first_rollout_id: failure.example.as_ref().map(|(id, _)| id.clone()),
            first_message: failure.example.as_ref().map(|(_, message)| message.clone()),
        });
        CollectSummary {
            collection_id,
            done: counts.done,
            failed: counts.failed,
            not_kept: stats.not_kept,
            skipped: counts.skipped,
            unmade: counts.unmade,
            interrupted: counts.interrupted,
            elapsed_seconds,
            rollouts_per_second: if elapsed_seconds > 0.0 {
                made as f64 / elapsed_seconds
            } else {
                0.0
            },
            failures: failures.collect(),
            failed_traces: (stats.failed_traces().iter().cloned())
                .map(|(rollout_id, trace_id)| FailedTrace { rollout_id, trace_id })
                .collect(),
            means: stats.means().map(|(name, mean)| (name.to_owned(), mean.into())).collect(),
            duration_millis: stats.percentiles().map(DurationMillis::from),
            key_metrics: metrics
                .unwrap_or_default()
                .iter()
                .map(|metrics| (metrics.agent.clone(), Value::Object(metrics.key_metrics.clone())))
                .collect(),
            files: WrittenFiles {
                output: files.output.clone(),
                failures: files.failures.clone(),
                materialized_inputs: files.materialized.clone(),
                aggregate_metrics: metrics.map(|_| files.metrics.clone()),
            },
        }
    }

    /// The summary for people.
    pub fn text(&self) -> String {
        let mut lines = Vec::new();
        let state = if self.interrupted { "interrupted" } else { "collected" };
        let mut counts =
            format!("{state}: {} done, {} failed", grouped(self.done), grouped(self.failed));
        for (count, what) in
            [(self.not_kept, "not kept"), (self.skipped, "skipped"), (self.unmade, "not made")]
        {
            if count > 0 {
                counts.push_str(&format!(", {} {what}", grouped(count)));
            }
        }
        lines.push(counts);
        lines.push(format!(
            "  time      {}, {} rollouts/s",
            seconds(self.elapsed_seconds),
            grouped_rate(self.rollouts_per_second)
        ));
        if let Some(duration) = self.duration_millis {
            lines.push(format!(
                "  rollout   p50 {}  p95 {}  p99 {}  max {}",
                millis(duration.p50),
                millis(duration.p95),
                millis(duration.p99),
                millis(duration.max)
            ));
        }
        if !self.means.is_empty() {
            let means: Vec<String> = self
                .means
                .iter()
                .filter_map(|(name, mean)| Some(format!("{name} {}", decimal(mean.as_f64()?))))
                .collect();
            lines.push(format!("  mean      {}", means.join("  ")));
        }
        for failure in &self.failures {
            let first = match (&failure.first_rollout_id, &failure.first_message) {
                (Some(id), Some(message)) => format!(" (first: {id}: {message})"),
                _ => String::new(),
            };
            lines.push(format!("  failed    {} {}{first}", grouped(failure.count), failure.class));
        }
        for FailedTrace { rollout_id, trace_id } in self.failed_traces.iter().take(TOLD_TRACES) {
            lines.push(format!("  trace     {trace_id} of {rollout_id}"));
        }
        let more = self.failed_traces.len().saturating_sub(TOLD_TRACES);
        if more > 0 {
            lines.push(format!("  traces    of {} more are in the failures", grouped(more as u64)));
        }
        lines.push(format!("  run       {}", self.collection_id));
        lines.push(format!("  rollouts  {}", self.files.output.display()));
        if self.failed > 0 {
            lines.push(format!("  failures  {}", self.files.failures.display()));
        }
        if let Some(path) = &self.files.aggregate_metrics {
            lines.push(format!("  metrics   {}", path.display()));
        }
        lines.push(format!("  inputs    {}", self.files.materialized_inputs.display()));
        if self.unmade > 0 || self.not_kept > 0 || self.failed > 0 {
            lines.push("continue with the same command and --resume".to_owned());
        }
        lines.join("\n")
    }
}

impl From<Percentiles> for DurationMillis {
    fn from(percentiles: Percentiles) -> Self {
        let millis = |duration: Duration| (duration.as_secs_f64() * 1e6).round() / 1e3;
        DurationMillis {
            p50: millis(percentiles.p50),
            p95: millis(percentiles.p95),
            p99: millis(percentiles.p99),
            max: millis(percentiles.max),
        }
    }
}

/// A count with its thousands apart.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate: whole from 10 on.
pub fn grouped_rate(rate: f64) -> String {
    if rate >= 10.0 { grouped(rate.round() as u64) } else { format!("{rate:.1}") }
}

fn millis(millis: f64) -> String {
    match millis {
        m if m >= 60_000.0 => seconds(m / 1e3),
        m if m >= 1_000.0 => format!("{:.2} s", m / 1e3),
        m if m >= 10.0 => format!("{m:.0} ms"),
        m => format!("{m:.2} ms"),
    }
}

/// Seconds as people write them.
pub fn seconds(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match seconds {
        s if s >= 3600.0 => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
        s if s >= 60.0 => format!("{} min {:02} s", whole / 60, whole % 60),
        s if s >= 10.0 => format!("{s:.0} s"),
        s => format!("{s:.1} s"),
    }
}

fn decimal(number: f64) -> String {
    let text = format!("{number:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn summary(counts: Counts, stats: &mut Stats) -> CollectSummary {
        CollectSummary::new(
            "0123456789ab".into(),
            counts,
            stats,
            None,
            &RunFiles::of(Path::new("out/run.jsonl")),
        )
    }

    #[test]
    fn a_clean_run_is_summed_up_in_a_few_lines() {
        let mut stats = Stats::default();
        for millis in 1..=1200 {
            stats.duration(Duration::from_millis(millis));
            stats.number("reward", f64::from(u8::from(millis % 4 == 0)));
        }
        let counts =
            Counts { done: 1200, elapsed: Duration::from_millis(2500), ..Counts::default() };
        insta::assert_snapshot!(summary(counts, &mut stats).text(), @"
        collected: 1,200 done, 0 failed
          time      2.5 s, 480 rollouts/s
          rollout   p50 600 ms  p95 1.14 s  p99 1.19 s  max 1.20 s
          mean      reward 0.25
          run       0123456789ab
          rollouts  out/run.jsonl
          inputs    out/run_materialized_inputs.jsonl
        ");
    }

    #[test]
    fn failures_are_told_by_class_with_the_way_on() {
        let mut stats = Stats::default();
        stats.failure("http_error", || "3-0".into(), "the agent answered 500: \"boom\"");
        stats.failure("http_error", || "4-0".into(), "x");
        let counts = Counts {
            done: 5,
            failed: 2,
            skipped: 1,
            unmade: 9,
            interrupted: true,
            elapsed: Duration::from_secs(75),
        };
        insta::assert_snapshot!(summary(counts, &mut stats).text(), @r#"
        interrupted: 5 done, 2 failed, 1 skipped, 9 not made
          time      1 min 15 s, 0.1 rollouts/s
          failed    2 http_error (first: 3-0: the agent answered 500: "boom")
          run       0123456789ab
          rollouts  out/run.jsonl
          failures  out/run_failures.jsonl
          inputs    out/run_materialized_inputs.jsonl
        continue with the same command and --resume
        "#);
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!([0, 999, 1000, 1234567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0.25, 1.0, 0.33333, -0.00001].map(decimal), ["0.25", "1", "0.3333", "0"]);
        assert_eq!([2.34, 75.0, 3725.0].map(seconds), ["2.3 s", "1 min 15 s", "1 h 02 min"]);
    }
}
